/** The bounds of a worker: no message and no client stops it for others. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:http2";
import { createConnection, type Socket } from "node:net";
import { afterEach, beforeEach, test } from "node:test";

import { Server, ServerCredentials } from "@grpc/grpc-js";

import { PolicyServer } from "../index.js";
import { counting, MAX_CONNECTIONS, Partial } from "../connections.js";
import { Limits } from "../limits.js";
import { bytesMethod } from "../service.js";
import { MAX_RECEIVED_BYTES, MAX_RPCS, Store, type Part } from "../store.js";
import { MAX_EVALUATED_BYTES, Turns, type Client, type Work } from "../turns.js";
import type { RunningCall } from "../evaluation.js";
import { Gateway, until, type Stream } from "./gateway.js";

const MIB = 1024 * 1024;

let server: PolicyServer;
let gateways: Gateway[] = [];
let begun = 0;
let gates: (() => void)[] = [];
let address: string;

/** A gateway with a connection of its own. */
function gateway(): Gateway {
  const made = new Gateway(address, undefined, { "grpc.use_local_subchannel_pool": 1 });
  gateways.push(made);
  return made;
}

beforeEach(async () => {
  begun = 0;
  gates = [];
  server = new PolicyServer();
  server.policy("allows", () => undefined);
  server.policy("touches", { mutating: true }, async (review) => {
    begun++;
    review.object!.metadata.name = "db";
  });
  server.policy("waits", async () => {
    begun++;
    await new Promise<void>((resolve) => gates.push(resolve));
  });
  [address] = (await server.start("127.0.0.1:0")) as [string];
});

afterEach(async () => {
  gates.forEach((open) => open());
  for (const each of gateways) each.close();
  gateways = [];
  await server.stop(0);
});

function large(bytes: number): { admissionRequest: Buffer } {
  return { admissionRequest: Buffer.from(`{"object":{"metadata":{},"x":"${"x".repeat(bytes)}"}}`) };
}

function calls(policy: string, first: number, count: number, timeoutMillis = 60_000): object[] {
  return Array.from({ length: count }, (_, index) => ({
    id: first + index,
    payload: 0,
    policy,
    timeoutMillis,
  }));
}

async function served(stream: Stream): Promise<void> {
  stream.ask(["allows"], {}, { first: 1_000_000 });
  assert.equal((await stream.verdicts(1)).length, 1);
}

test("a batch of mutating calls is evaluated in slices, between which others are served", async () => {
  const [stream, other] = [gateway().stream(), gateway().stream()];
  await served(other);
  const list = Array.from({ length: 500 }, () => ({ a: { b: "c" } }));
  const admissionRequest = Buffer.from(JSON.stringify({ object: { metadata: {}, list } }));
  stream.send({ payloads: [{ admissionRequest }], calls: calls("touches", 1, 500) });
  await until(() => begun > 0);
  await served(other);
  assert.ok(begun < 500, `${begun} calls had begun when another client was answered`);
  const verdicts = await stream.verdicts(500);
  assert.equal(new Set(verdicts.map(({ id }) => id)).size, 500);
  assert.ok(verdicts.every(({ response }) => response?.patch !== undefined));
});

test("the bytes that are evaluated are bounded, and another connection is served", async () => {
  const [stream, other] = [gateway().stream(), gateway()];
  // A connection gets half of what the others leave.
  const most = MAX_EVALUATED_BYTES / 2 / MIB - 1;
  stream.send({ payloads: [large(MIB)], calls: calls("waits", 1, 40) });
  await until(() => begun === most);
  await served(other.stream());
  assert.ok((await other.review("allows", "{}")).response?.allowed);
  stream.send({ cancelled: [40, 39] });
  stream.ask(["nobody"], {}, { first: 50 });
  assert.equal((await stream.verdicts(1))[0]!.error!.code, 5);
  assert.equal(begun, most);
  for (let ended = 0; ended < 38; ended++) {
    await until(() => gates.length > 0);
    gates.shift()!();
  }
  assert.equal((await stream.verdicts(38)).length, 38);
  assert.equal(begun, 38);
});

test("calls that wait for their turn expire, and are not evaluated", async () => {
  const client = gateway();
  const stream = client.stream();
  stream.send({ payloads: [large(7 * MIB)], calls: calls("waits", 1, 3) });
  await until(() => begun === 2);
  stream.send({ payloads: [large(MIB)], calls: calls("waits", 10, 20, 30) });
  for (const { id, error } of await stream.verdicts(20)) assert.equal(error?.code, 4, `${id}`);
  assert.equal(begun, 2);
});

test("a message of too many elements ends its stream, and no other", async () => {
  const client = gateway();
  const other = client.stream();
  const many = (count: number, element: object): object[] => Array<object>(count).fill(element);
  for (const [batch, found] of [
    [{ payloads: many(4097, {}) }, "4097 payloads, expected at most 4096"],
    [{ calls: many(8193, {}) }, "8193 calls, expected at most 8192"],
    [{ cancelled: Array(4097).fill(2 ** 40) as number[] }, "4097 cancelled ids, expected at most 4096"],
    [{ parameters: many(257, { id: 1 }) }, "257 parameters, expected at most 256"],
  ] as const) {
    const stream = client.stream();
    stream.send(batch);
    const { code, details } = await stream.ended();
    assert.deepEqual([code, details], [3, `a ReviewBatch has ${found}`]);
  }
  other.send({ cancelled: Array(4096).fill(2 ** 40) as number[] });
  await served(other);
});

test("the first 4096 calls of a batch are evaluated", async () => {
  const stream = gateway().stream();
  stream.send({ payloads: [{ admissionRequest: Buffer.from("{}") }], calls: calls("nobody", 1, 5000) });
  for (const { id, error } of await stream.verdicts(5000))
    assert.equal(error?.code, id > 4096n ? 8 : 5, `${id}`);
});

test("a chain does not go on behind patches of more than 64 KiB", async () => {
  const growing = new PolicyServer();
  growing.policy("grows", { mutating: true }, (review) => {
    review.object!.metadata[`x${Object.keys(review.object!.metadata).length}`] = "x".repeat(25_000);
  });
  const [at] = await growing.start("127.0.0.1:0");
  const client = new Gateway(at!);
  try {
    const chain = client.stream();
    const chained = calls("grows", 1, 5).map((call, index) => ({ ...call, after: index }));
    chain.send({ payloads: [large(1)], calls: chained });
    const codes = new Map((await chain.verdicts(5)).map(({ id, error }) => [Number(id), error?.code]));
    assert.deepEqual(
      [1, 2, 3, 4, 5].map((id) => codes.get(id)),
      [undefined, undefined, undefined, 8, 8],
    );
  } finally {
    client.close();
    await growing.stop(0);
  }
});

test("beyond the limit of a store the client that has most loses its largest part", async () => {
  const store = new Store("requests", 100);
  const ended: string[] = [];
  const part = (client: object, name: string): Part => ({ client, bytes: 0, end: () => ended.push(name) });
  const [greedy, honest] = [{}, {}];
  const [small, larger, own] = [part(greedy, "small"), part(greedy, "larger"), part(honest, "own")];
  store.set(small, 30);
  store.set(larger, 40);
  store.set(own, 50);
  await until(() => ended.length > 0);
  assert.deepEqual(ended, ["larger"]);
  assert.equal(store.bytes, 80);
  store.set(larger, 1000); // has no effect
  store.set(own, 0);
  store.set(small, 0);
  assert.equal(store.bytes, 0);
});

test("the stream with most parameters is ended, of whatever it replaces them with", async () => {
  const json = Buffer.alloc(65_536, " ");
  const parameters = Array.from({ length: 100 }, (_, index) => ({ id: index + 1, json }));
  const [honest, greedy] = [gateway().stream(), gateway()];
  honest.send({ parameters: [{ id: 1, json: Buffer.from("{}") }] });
  const streams: Stream[] = [];
  for (let number = 0; number < 11; number++) {
    const stream = greedy.stream();
    streams.push(stream);
    stream.send({ parameters });
    stream.send({ parameters });
    if (number < 10) await served(stream);
  }
  await until(() => streams.some(({ status }) => status !== undefined));
  const [status] = streams.flatMap((stream) => stream.status ?? []);
  assert.equal(status!.code, 8);
  assert.match(status!.details, /bytes of parameters/);
  await served(honest);
});

test("the bytes of a message that is not complete are counted, however they are cut", () => {
  const message = (length: number, header = Buffer.alloc(5)): Buffer => {
    header.writeUInt32BE(length, 1);
    return Buffer.concat([header, Buffer.alloc(length)]);
  };
  const text = Buffer.concat([
    message(10),
    message(0),
    message(70_000),
    message(200_000).subarray(0, 150_000),
  ]);
  for (const step of [1, 2, 4, 5, 7, 16_384, text.length]) {
    const partial = new Partial();
    let bytes = 0;
    for (let at = 0; at < text.length; at += step) bytes = partial.take(text.subarray(at, at + step));
    assert.equal(bytes, 150_000, `in steps of ${step}`);
  }
});

test("incomplete messages count, and the client that has most loses one", async () => {
  const limits = new Limits();
  const counted = new Server({ interceptors: [counting(limits)] });
  counted.addService({ Wait: bytesMethod("test", "Wait") }, { Wait: () => undefined });
  const port = await new Promise<number>((resolve, reject) => {
    counted.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (problem, bound) =>
      problem === null ? resolve(bound) : reject(problem),
    );
  });
  const session = connect(`http://127.0.0.1:${port}`);
  try {
    const headers = {
      ":method": "POST",
      ":path": "/test/Wait",
      "content-type": "application/grpc",
      te: "trailers",
    };
    const streams = Array.from({ length: 3 }, () => session.request(headers));
    for (const stream of streams) {
      stream.on("error", () => undefined);
      stream.write(Buffer.concat([Buffer.from([0, 0, 1, 0, 0]), Buffer.alloc(9_995)]));
    }
    await until(() => limits.received.bytes === 30_000 && limits.rpcs.bytes === 3);
    const ended = new Promise<string>((resolve) => {
      for (const stream of streams) stream.on("trailers", (found) => resolve(String(found["grpc-status"])));
      for (const stream of streams) {
        stream.on("response", (found) => found["grpc-status"] && resolve(String(found["grpc-status"])));
      }
    });
    limits.received.set({ client: {}, bytes: 0, end: () => undefined }, MAX_RECEIVED_BYTES - 25_000);
    // The other client has most, and loses its part; then this one has.
    assert.equal(limits.received.bytes, 30_000);
    limits.rpcs.set({ client: {}, bytes: 0, end: () => undefined }, 2);
    for (let number = 0; number < MAX_RPCS - 4; number++) {
      limits.rpcs.set({ client: {}, bytes: 0, end: () => undefined }, 1);
    }
    assert.equal(await ended, "8");
    await until(() => limits.received.bytes === 20_000 && limits.rpcs.bytes === MAX_RPCS);
    session.destroy();
    await until(() => limits.received.bytes === 0 && limits.rpcs.bytes === MAX_RPCS - 2);
  } finally {
    session.destroy();
    counted.forceShutdown();
  }
});

test("many idle connections keep nobody out", async () => {
  const honest = gateway().stream();
  await served(honest);
  const [host, port] = address.split(":") as [string, string];
  const idle: Socket[] = [];
  let closed = 0;
  try {
    for (let number = 0; number < MAX_CONNECTIONS + 10; number++) {
      const socket = createConnection(Number(port), host);
      socket
        .on("error", () => undefined)
        .on("close", () => closed++)
        .resume();
      idle.push(socket);
      await once(socket, "connect");
    }
    await until(() => closed >= 11);
    await served(honest);
    assert.ok((await gateway().review("allows", "{}")).response?.allowed);
  } finally {
    for (const socket of idle) socket.destroy();
  }
});

test("turns keep the limit and the order of each client, whatever happens", async () => {
  const turns = new Turns();
  const clients = ["a", "b", "c"].map((name) => turns.client(name));
  const running: (RunningCall & { bytes: number })[] = [];
  let next = 0;
  const order = new Map<Client, number>();
  const begin = (client: Client, bytes: number, number: number): void => {
    assert.ok(number > (order.get(client) ?? -1), "a call has overtaken another one of its client");
    order.set(client, number);
    const call = { bytes } as unknown as RunningCall & { bytes: number };
    turns.count(call, client, bytes);
    running.push(call);
    const sum = running.reduce((all, one) => all + one.bytes, 0);
    assert.ok(sum <= MAX_EVALUATED_BYTES || running.length === 1, `${sum} bytes are evaluated`);
  };
  const waiting: Work[] = [];
  for (let step = 0; step < 3000; step++) {
    const client = clients[step % 3]!;
    const bytes = ((step * 7919) % 40) * MIB;
    const number = next++;
    turns.startSlice();
    if (step < 2000 && turns.mayBegin(client, bytes)) begin(client, bytes, number);
    else if (step < 2000) {
      const work = {
        client,
        bytes,
        deadline: Infinity,
        isReady: () => true,
        begin: () => begin(client, bytes, number),
      };
      waiting.push(work);
      turns.add(work);
    }
    const [dropped] = step % 5 === 0 ? waiting.splice((step * 31) % (waiting.length || 1), 1) : [];
    if (dropped !== undefined) turns.remove(dropped);
    if (step % 2 === 0) running.splice((step * 17) % (running.length || 1), 1)[0]?.released!();
    if (step % 10 === 0) await new Promise(setImmediate);
  }
  await until(() => {
    running.splice(0).forEach((call) => call.released!());
    return turns.isIdle;
  });
});

test("a limit of a worker is that of all its connections", () => {
  const limits = new Limits();
  const call = (peer: string): { getPeer(): string } => ({ getPeer: () => peer });
  assert.equal(limits.client(call("127.0.0.1:1")), limits.client(call("127.0.0.1:1")));
  assert.notEqual(limits.client(call("127.0.0.1:1")), limits.client(call("127.0.0.1:2")));
  assert.notEqual(limits.client(call("unknown")), limits.client(call("unknown")));
});
