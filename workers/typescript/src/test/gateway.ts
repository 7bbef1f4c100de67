/** The gateway's side for tests: a plain gRPC client of real servers on loopback. */

import { readFileSync } from "node:fs";

import {
  Client,
  credentials,
  Metadata,
  type ChannelCredentials,
  type ClientDuplexStream,
} from "@grpc/grpc-js";
import protobuf from "protobufjs";

import { SERVICE, type ReviewResponseMessage } from "../messages.js";
import { bytesMethod } from "../service.js";

const root = protobuf.parse(readFileSync(new URL("../worker.proto", import.meta.url), "utf8")).root;

export function type(name: string): protobuf.Type {
  return root.lookupType(`admissiongateway.worker.v1.${name}`);
}

export interface Answer {
  response?: ReviewResponseMessage & { patch?: Buffer };
  error?: { code: number; message: string };
}

export interface Received {
  verdicts: ({ id: bigint } & Answer)[];
  draining: boolean;
}

export function encode(name: string, message: object): Buffer {
  return type(name).encode(type(name).fromObject(message)).finish() as Buffer;
}

export function decode<Message>(name: string, bytes: Buffer): Message {
  return type(name).toObject(type(name).decode(bytes)) as Message;
}

/** Conformance vectors: from `dist/test` up to `workers`. */
export function vectors<Vector>(file: string): Vector[] {
  return JSON.parse(vectorText(file)) as Vector[];
}

export function vectorText(file: string): string {
  return readFileSync(
    new URL(`../../../conformance/admission_gateway_conformance/${file}`, import.meta.url),
    "utf8",
  );
}

export class Gateway {
  readonly client: Client;

  constructor(address: string, channel: ChannelCredentials = credentials.createInsecure(), options = {}) {
    this.client = new Client(address, channel, {
      "grpc.max_receive_message_length": 32 * 1024 * 1024,
      "grpc.max_send_message_length": 32 * 1024 * 1024,
      ...options,
    });
  }

  close(): void {
    this.client.close();
  }

  unary(
    method: string,
    request: Buffer,
    timeoutMs = 60_000,
    service = SERVICE,
    signal?: AbortSignal,
    metadata = new Metadata(),
  ): Promise<Buffer> {
    const { path, requestSerialize, responseDeserialize } = bytesMethod(service, method);
    return new Promise((resolve, reject) => {
      const call = this.client.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        request,
        metadata,
        { deadline: Date.now() + timeoutMs },
        (problem, answer) => (problem ? reject(problem) : resolve(answer!)),
      );
      signal?.addEventListener("abort", () => call.cancel());
    });
  }

  async review(
    policy: string,
    admissionRequest: string | object,
    namespaceObject?: object,
    parameters?: object | string,
  ): Promise<Answer> {
    const json = typeof parameters === "string" ? parameters : (JSON.stringify(parameters) ?? "");
    const request = {
      policy,
      ...payload(admissionRequest, namespaceObject),
      parameters: Buffer.from(json),
    };
    try {
      const bytes = await this.unary("Review", encode("ReviewRequest", request));
      return { response: decode("ReviewResponse", bytes) };
    } catch (problem) {
      const { code, details } = problem as { code: number; details: string };
      return { error: { code, message: details } };
    }
  }

  stream(): Stream {
    const { path, requestSerialize, responseDeserialize } = bytesMethod(SERVICE, "ReviewStream");
    return new Stream(this.client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize));
  }
}

export function payload(
  request: string | object,
  namespace?: object,
): { admissionRequest: Buffer; namespaceObject: Buffer } {
  const text = typeof request === "string" ? request : JSON.stringify(request);
  return {
    admissionRequest: Buffer.from(text),
    namespaceObject: Buffer.from(namespace === undefined ? "" : JSON.stringify(namespace)),
  };
}

/** One ReviewStream; what has come in waits in `received` until it is asked for. */
export class Stream {
  readonly received: Received[] = [];
  status: { code: number; details: string } | undefined;
  #changed: () => void = () => undefined;

  constructor(readonly call: ClientDuplexStream<Buffer, Buffer>) {
    call.on("data", (bytes: Buffer) => {
      const batch = decode<{ verdicts?: ({ id: protobuf.Long } & Answer)[]; draining?: boolean }>(
        "VerdictBatch",
        bytes,
      );
      const verdicts = (batch.verdicts ?? []).map((one) => ({ ...one, id: BigInt(one.id.toString()) }));
      this.received.push({ verdicts, draining: batch.draining ?? false });
      this.#changed();
    });
    call.on("status", (status: { code: number; details: string }) => {
      this.status = status;
      this.#changed();
    });
    call.on("error", () => undefined); // the status says it
  }

  send(batch: object): void {
    this.call.write(encode("ReviewBatch", batch));
  }

  /** Sends one call per policy, all on one payload, with ids from `first`. */
  ask(policies: string[], request: object, { first = 1, timeoutMillis = 60_000 } = {}): void {
    const calls = policies.map((policy, index) => ({ id: first + index, payload: 0, policy, timeoutMillis }));
    this.send({ payloads: [payload(request)], calls });
  }

  async message(): Promise<Received> {
    return this.#until(() => this.received.shift());
  }

  /** Waits for so many verdicts, of as many messages as it takes. */
  async verdicts(count: number): Promise<Received["verdicts"]> {
    const found: Received["verdicts"] = [];
    while (found.length < count) found.push(...(await this.message()).verdicts);
    return found;
  }

  async ended(): Promise<{ code: number; details: string }> {
    return this.#until(() => this.status);
  }

  async #until<Value>(look: () => Value | undefined): Promise<Value> {
    const deadline = Date.now() + 60_000;
    for (;;) {
      const found = look();
      if (found !== undefined) return found;
      if (this.status !== undefined) throw new Error(`the stream ended: ${JSON.stringify(this.status)}`);
      await new Promise<void>((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error("nothing came")), deadline - Date.now());
        this.#changed = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }
}

/** Resolves once `condition` holds. */
export async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 60_000;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`it never came to hold: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
