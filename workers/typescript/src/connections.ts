/**
 * Open connections and RPCs, and the messages that have not arrived completely: grpc-js keeps them, for each RPC up to
 * the largest message, and lets a client open as many as it likes.
 */

import type { ServerHttp2Stream } from "node:http2";
import type { Server as NetServer, Socket } from "node:net";

import {
  ServerInterceptingCall,
  status,
  type Server,
  type ServerInterceptingCallInterface,
} from "@grpc/grpc-js";

import type { Outcome } from "./answer.js";
import type { Limits } from "./limits.js";
import type { Part } from "./store.js";

/** Limit of open connections. */
export const MAX_CONNECTIONS = 1024;

/** Length of the header of a message: whether it is compressed, and its length. */
const HEADER_BYTES = 5;

/** What grpc-js has, but does not publish; without it there is nothing to count. */
interface Inner {
  readonly stream?: ServerHttp2Stream;
}

/**
 * Returns an interceptor that counts the RPC and its incomplete message. By the interceptor a call that gRPC has ended
 * already (at its deadline, say) is no longer begun when its half-close comes in: such a call would never say
 * "cancelled", and count as open for good.
 */
export function counting(
  limits: Limits,
): (_: unknown, call: ServerInterceptingCallInterface) => ServerInterceptingCall {
  return (_, call) => {
    const { stream } = call as Inner;
    if (stream !== undefined && !stream.destroyed) count(call, stream, limits);
    return new ServerInterceptingCall(call);
  };
}

function count(call: ServerInterceptingCallInterface, stream: ServerHttp2Stream, limits: Limits): void {
  const client = limits.client(call);
  const end = ({ error }: Outcome): void => {
    call.sendStatus({ code: status.RESOURCE_EXHAUSTED, details: error!.message, metadata: null });
    setImmediate(() => stream.close());
  };
  const [rpc, message]: Part[] = [
    { client, end, bytes: 0 },
    { client, end, bytes: 0 },
  ];
  const partial = new Partial();
  client.rpcs++;
  limits.rpcs.set(rpc!, 1);
  stream.on("data", (data: Buffer) => {
    client.lastRead = Date.now();
    const bytes = partial.take(data);
    if (bytes !== message!.bytes) limits.received.set(message!, bytes);
  });
  stream.once("close", () => {
    client.rpcs--;
    limits.rpcs.set(rpc!, 0);
    limits.received.set(message!, 0);
  });
}

/** The message that an RPC is about to get. */
export class Partial {
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #bytes = 0;

  /** Takes data that has arrived; returns the bytes of the message that is not complete. */
  take(data: Buffer): number {
    for (let at = 0; at < data.length;) {
      if (this.#bytes < HEADER_BYTES) {
        const taken = data.copy(this.#header, this.#bytes, at);
        this.#bytes += taken;
        at += taken;
        if (this.#bytes < HEADER_BYTES) break;
      }
      const length = HEADER_BYTES + this.#header.readUInt32BE(1);
      const taken = Math.min(data.length - at, length - this.#bytes);
      this.#bytes += taken;
      at += taken;
      if (this.#bytes === length) this.#bytes = 0;
    }
    return this.#bytes;
  }
}

/** Closes a connection when there are too many: of the host that has most, the one that is missed least. */
export class Connections {
  readonly #open = new Set<Socket>();
  readonly #servers = new WeakSet<NetServer>();
  readonly #limits: Limits;
  readonly #most: number;

  constructor(limits: Limits, most = MAX_CONNECTIONS) {
    this.#limits = limits;
    this.#most = most;
  }

  /** Watches the listeners of a server. */
  watch(server: Server): void {
    const { http2Servers } = server as unknown as { http2Servers?: Map<NetServer, unknown> };
    for (const listener of http2Servers?.keys() ?? []) {
      if (this.#servers.has(listener)) continue;
      this.#servers.add(listener);
      listener.on("connection", (socket: Socket) => this.#add(socket));
    }
  }

  #add(socket: Socket): void {
    if (this.#open.size >= this.#most) this.#closeOne();
    this.#open.add(socket);
    socket.once("close", () => this.#open.delete(socket));
  }

  #closeOne(): void {
    const hosts = new Map<string, number>();
    for (const { remoteAddress = "" } of this.#open)
      hosts.set(remoteAddress, (hosts.get(remoteAddress) ?? 0) + 1);
    // The most of its host, then without an RPC, then the longest without a message; of equal ones the oldest.
    const order = (socket: Socket): [number, number, number] => {
      const client = this.#limits.known(`${socket.remoteAddress}:${socket.remotePort}`);
      return [-hosts.get(socket.remoteAddress ?? "")!, Math.min(client?.rpcs ?? 0, 1), client?.lastRead ?? 0];
    };
    let least: Socket | undefined;
    let first: [number, number, number] | undefined;
    for (const socket of this.#open) {
      const found = order(socket);
      if (first !== undefined && compare(found, first) >= 0) continue;
      [least, first] = [socket, found];
    }
    this.#open.delete(least!);
    least!.destroy();
  }
}

function compare(left: readonly number[], right: readonly number[]): number {
  const at = left.findIndex((value, index) => value !== right[index]);
  return at < 0 ? 0 : left[at]! - right[at]!;
}
