/** What only a stream can show: ids, order, batches, deadlines, cancellation, its end. */

import assert from "node:assert/strict";
import { after, before, beforeEach, mock, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { PolicyServer, type Review } from "../index.js";
import { encode, Gateway, payload, until, type Stream } from "./gateway.js";

const LATE = { code: 4, message: "the deadline passed before the policy answered" };
const ALLOWED = { allowed: true };

const server = new PolicyServer();
let gateway: Gateway;
let reasons: string[] = [];
let runs = 0;
let release = (): void => undefined;
let released = Promise.resolve();

server.policy("allows", () => {
  runs++;
});
server.policy("allows-async", async () => undefined);
server.policy("awaits-what-is-there", async () => {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
});
server.policy("waits", async (review: Review) => {
  runs++;
  await new Promise((_, reject) => {
    review.signal.addEventListener("abort", () => {
      reasons.push((review.signal.reason as DOMException).name);
      reject(review.signal.reason as DOMException);
    });
  });
});
server.policy("waits-for-release", () => released);
server.policy("grows", { mutating: true }, (review: Review) => {
  review.object!.b = "x".repeat(3 * 1024 * 1024);
});

before(async () => {
  const [address] = await server.start("127.0.0.1:0");
  gateway = new Gateway(address!);
});

beforeEach(() => {
  reasons = [];
  runs = 0;
  released = new Promise((resolve) => (release = resolve));
});

after(async () => {
  gateway.close();
  await server.stop();
});

test("calls that need not wait are answered in one message, plain or async", async () => {
  const stream = gateway.stream();
  const policies = ["allows", "allows-async", "awaits-what-is-there", "allows"];
  const now = performance.now();
  const clock = mock.method(performance, "now", () => now); // no slice ends, however busy the machine is
  stream.ask(["waits-for-release", ...policies, ...policies], {});
  const { verdicts } = await stream.message();
  clock.mock.restore();
  assert.deepEqual(verdicts.map(({ id }) => id).sort(), [2n, 3n, 4n, 5n, 6n, 7n, 8n, 9n]);
  release();
  assert.deepEqual((await stream.message()).verdicts, [{ id: 1n, response: ALLOWED }]);
  stream.call.end();
  assert.equal((await stream.ended()).code, 0);
});

test("verdicts of calls that finish together go out together", async () => {
  const stream = gateway.stream();
  for (let batch = 0; batch < 10; batch++) {
    stream.ask(["waits-for-release", "waits-for-release"], {}, { first: 2 * batch });
  }
  stream.ask(["allows"], {}, { first: 100 });
  await stream.message();
  release();
  assert.equal((await stream.message()).verdicts.length, 20);
  stream.call.end();
});

test("ids are any uint64, also while their calls wait", async () => {
  const ids = [0n, 2n ** 32n, 2n ** 53n, 2n ** 53n + 1n, 2n ** 64n - 1n, 2n ** 64n - 2n];
  const stream = gateway.stream();
  for (const policy of ["allows", "waits-for-release"]) {
    const calls = ids.map((id) => ({ id: String(id), payload: 0, policy, timeoutMillis: 10_000 }));
    stream.send({ payloads: [payload({})], calls });
    if (policy === "waits-for-release") setTimeout(release, 20);
    const answered = await stream.verdicts(ids.length);
    assert.deepEqual(new Set(answered.map(({ id }) => id)), new Set(ids));
  }
  stream.call.end();
});

test("a call without time is not run", async () => {
  const stream = gateway.stream();
  stream.ask(["allows"], {}, { timeoutMillis: 0 });
  assert.deepEqual((await stream.message()).verdicts, [{ id: 1n, error: LATE }]);
  assert.equal(runs, 0);
  stream.call.end();
});

test("a call is given up at its deadline, and its policy told", async () => {
  const stream = gateway.stream();
  stream.ask(["waits"], {}, { timeoutMillis: 500 });
  assert.deepEqual((await stream.message()).verdicts, [{ id: 1n, error: LATE }]);
  assert.deepEqual(reasons, ["TimeoutError"]);
  stream.call.end();
  assert.equal((await stream.ended()).code, 0);
});

test("the longest timeout is a long one", async () => {
  const stream = gateway.stream();
  stream.ask(["waits-for-release"], {}, { timeoutMillis: 2 ** 32 - 1 });
  await sleep(20);
  release();
  assert.deepEqual((await stream.message()).verdicts, [{ id: 1n, response: ALLOWED }]);
  stream.call.end();
});

test("a cancelled call gets no verdict, and its policy is told", async () => {
  const stream = gateway.stream();
  stream.ask(["waits", "allows"], {});
  await stream.message();
  stream.send({ cancelled: [1, 77] });
  await until(() => reasons.length === 1);
  assert.deepEqual(reasons, ["AbortError"]);
  const calls = [1, 2].map((id) => ({ id, payload: 0, policy: "allows", timeoutMillis: 60_000 }));
  runs = 0;
  stream.send({ payloads: [payload({})], calls, cancelled: [2] });
  assert.deepEqual((await stream.message()).verdicts, [{ id: 1n, response: ALLOWED }]);
  assert.equal(runs, 1);
  stream.call.end();
  assert.equal((await stream.ended()).code, 0);
  assert.equal(stream.received.length, 0);
});

test("a stream that goes away cancels what ran for it", async () => {
  const stream = gateway.stream();
  stream.ask(["waits", "waits", "allows"], {});
  await stream.message();
  stream.call.cancel();
  await until(() => reasons.length === 2);
});

test("the policy of a unary call is told that it is cancelled, or late", async () => {
  const request = encode("ReviewRequest", { policy: "waits", ...payload({}) });
  const cancel = new AbortController();
  const call = gateway.unary("Review", request, 10_000, undefined, cancel.signal);
  void until(() => runs === 1).then(() => cancel.abort());
  await assert.rejects(call, { code: 1 });
  await until(() => reasons.length === 1);
  // Again if the machine is so slow that the deadline passes before the policy begins.
  for (let timeoutMs = 50; runs === 1; timeoutMs *= 2) {
    await assert.rejects(gateway.unary("Review", request, timeoutMs), { code: 4 });
  }
  await until(() => reasons.length >= 2);
});

test("a payload that is not in the batch", async () => {
  const stream = gateway.stream();
  stream.send({
    payloads: [payload({})],
    calls: [{ id: 1, payload: 3, policy: "allows", timeoutMillis: 60_000 }],
  });
  const message = "the call is for payload 3, the batch has 1";
  assert.deepEqual((await stream.message()).verdicts, [{ id: 1n, error: { code: 3, message } }]);
  stream.call.end();
});

test("more calls than 4096 do not wait at once", async () => {
  const stream = gateway.stream();
  stream.ask(Array(4097).fill("waits-for-release") as string[], {});
  const message = "4096 calls of this stream are in flight";
  assert.deepEqual(await stream.verdicts(1), [{ id: 4097n, error: { code: 8, message } }]);
  release();
  assert.equal((await stream.verdicts(4096)).length, 4096);
  stream.call.end();
});

test("an id that is used again ends the stream, and no other", async () => {
  const [stream, other] = [gateway.stream(), gateway.stream()];
  other.ask(["waits-for-release"], {});
  stream.ask(["waits"], {}, { first: 7 });
  stream.ask(["allows"], {}, { first: 7 });
  const details = "call id 7 is used again while its call is in flight";
  const { code, details: found } = await stream.ended();
  assert.deepEqual({ code, details: found }, { code: 3, details });
  assert.deepEqual(reasons, ["AbortError"]);
  release();
  assert.equal((await other.message()).verdicts.length, 1);
  other.call.end();
});

test("garbage and a message that is too large end the stream, and no other", async () => {
  const [garbage, large, other] = [gateway.stream(), gateway.stream(), gateway.stream()];
  garbage.call.write(Buffer.from("not a batch"));
  large.call.write(Buffer.alloc(8 * 1024 * 1024 + 1));
  const { code, details } = await garbage.ended();
  assert.equal(code, 3);
  assert.match(details, /^not a ReviewBatch: /);
  assert.equal((await large.ended()).code, 8);
  other.ask(["allows"], {});
  assert.equal((await other.message()).verdicts.length, 1);
  other.call.end();
});

test("after a half-close what is in flight is answered", async () => {
  const stream = gateway.stream();
  stream.ask(["waits-for-release"], {});
  stream.call.end();
  setTimeout(release, 50);
  assert.deepEqual((await stream.message()).verdicts, [{ id: 1n, response: ALLOWED }]);
  assert.equal((await stream.ended()).code, 0);
});

test("verdicts that do not fit into one message go in several", async () => {
  const stream = gateway.stream();
  stream.ask(Array(9).fill("grows") as string[], { object: {} });
  const ids = [];
  while (ids.length < 9) {
    const { verdicts } = await stream.message();
    assert.ok(verdicts.length <= 2);
    ids.push(...verdicts.map(({ id }) => Number(id)));
  }
  assert.deepEqual(ids, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
  stream.call.end();
});

/**
 * Sends four calls in each batch, whose answers are larger than a message, and takes none of them. Returns how many
 * batches were read when no more are.
 */
async function askForMuch(stream: Stream, batches: number): Promise<number> {
  stream.call.pause();
  for (let first = 0; first < 4 * batches; first += 4) {
    stream.ask(["allows", "grows", "grows", "grows"], { object: {} }, { first, timeoutMillis: 60_000 });
  }
  let read;
  do {
    read = runs;
    await sleep(300);
  } while (read === 0 || read !== runs);
  return read;
}

async function takeAnswers(stream: Stream, count: number): Promise<void> {
  stream.call.resume();
  const ids = new Set<bigint>();
  while (ids.size < count) for (const { id } of (await stream.message()).verdicts) ids.add(id);
}

test("a gateway that takes no answers is not read from without end", async () => {
  const stream = gateway.stream();
  const batches = 20;
  const read = await askForMuch(stream, batches);
  // The client buffers 16 messages, of two large answers each if batches share them: those of eleven batches.
  assert.ok(read < batches, `all ${batches} batches were read`);
  await takeAnswers(stream, 4 * batches);
  assert.equal(runs, batches);
  stream.call.end();
  assert.equal((await stream.ended()).code, 0);
});

test("a drained stream is not quiet while the gateway is slow to take answers", async () => {
  const own = new PolicyServer();
  for (const [name, { mutating, run }] of server.policies) own.policy(name, { mutating }, run);
  const [address] = await own.start("127.0.0.1:0");
  const slow = new Gateway(address!);
  const stream = slow.stream();
  await askForMuch(stream, 20);
  const stopped = own.stop(20_000);
  await sleep(1500); // three times as long as a stream has to be quiet
  await takeAnswers(stream, 80);
  stream.call.end();
  await stopped;
  slow.close();
});
