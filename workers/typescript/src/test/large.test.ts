/** Large reviews: parsed, compared and written in steps, with the results that one step has. */

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";

import { PolicyServer, type Review } from "../index.js";
import { diff, diffInSteps } from "../diff.js";
import { clone, parseJson, plain, writeJson } from "../json.js";
import { cloneInSteps, plainInSteps, writeInSteps } from "../large.js";
import { parseInSteps } from "../pieces.js";
import { finish, inTurns, LARGE_BYTES, type Steps } from "../steps.js";
import { Gateway, payload, until } from "./gateway.js";

/** Pseudo-random whole numbers below `most`, the same in every run. */
function numbers(seed: number): (most: number) => number {
  let state = seed;
  return (most) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * most);
  };
}

const ATOMS = [
  "1", "-0.5e3", "9007199254740993", "true", "null", '""', '"a"', '"\\""', '"\\\\"', '"]},{["', '"\u00e9\\u00e9"',
  '"1234567890123456789"', "[]", "{}", "[ ]", "-9007199254740993",
]; // prettier-ignore
const KEYS = ['"a"', '"b"', '"1"', '"__proto__"', '"\\u0061"', '"a]b"', '"😀"', '"\uffff"'];

/** A JSON text with so many levels. */
function document(random: (most: number) => number, levels: number): string {
  const space = (): string => ["", "", " ", "\n\t"][random(4)]!;
  if (levels === 0 || random(4) === 0) return space() + ATOMS[random(ATOMS.length)]! + space();
  const isArray = random(2) === 0;
  const elements = Array.from({ length: random(6) }, () => {
    const value = document(random, levels - 1);
    return isArray ? value : `${space()}${KEYS[random(KEYS.length)]!}${space()}:${value}`;
  });
  return space() + (isArray ? `[${elements.join(",")}]` : `{${elements.join(",")}}`) + space();
}

function result(parse: () => unknown): string {
  let value;
  try {
    value = parse();
  } catch (problem) {
    assert.ok(problem instanceof SyntaxError, `${problem}`);
    return "refused";
  }
  return writeJson(value);
}

test("JSON is parsed in pieces as in one, and what is no JSON is refused", () => {
  const random = numbers(1);
  const damage = ["[", "]", "{", "}", ",", ":", '"', "\\", " ", "1", "x", "-", "\u00a0"];
  let refused = 0;
  for (let round = 0; round < 10_000; round++) {
    let text = document(random, 4);
    if (round % 2 === 1) {
      const at = random(text.length + 1);
      text = text.slice(0, at) + damage[random(damage.length)]! + text.slice(at + random(2));
    }
    const expected = result(() => parseJson(text));
    if (expected === "refused") refused++;
    const most = random(20);
    assert.equal(
      result(() => finish(parseInSteps(text, most))),
      expected,
      `${JSON.stringify(text)}, ${most}`,
    );
  }
  assert.ok(refused > 1000 && refused < 5000, `${refused}`);
});

test("JSON nested too deeply is refused", () => {
  assert.throws(() => finish(parseInSteps("[".repeat(100_000))), /nested deeper than 10000 levels/);
  const deep = "[1,".repeat(9_000) + "1" + "]".repeat(9_000);
  let value = finish(parseInSteps(deep));
  for (let level = 1; level < 9_000; level++) value = (value as unknown[])[1];
  assert.deepEqual(value, [1, 1]);
});

/** Runs a computation in turns; returns its result, and how often it has yielded. */
async function inSteps<Result>(steps: Steps<Result>): Promise<[Result, number]> {
  let found: Result | undefined;
  let yields = 0;
  function* counted(): Steps<void> {
    for (;;) {
      const { done, value } = steps.next();
      if (done === true) return void (found = value);
      yields++;
      yield;
    }
  }
  assert.equal(await inTurns({}, counted(), () => false), true);
  return [found!, yields];
}

/** A value of many parts: some wide, some deep, with what is no JSON if `odd`. */
function large(random: (most: number) => number, odd: boolean): unknown {
  const pieces = (count: number): unknown[] => Array.from({ length: count }, () => small(random, odd));
  const wide: Record<string, unknown> = {};
  for (let key = 0; key < 5000; key++) wide[`${["", "\uffff", "😀"][random(3)]!}${random(1e6)}`] = random(10);
  return {
    a: pieces(3000),
    b: { c: [pieces(1500), 1, { d: pieces(1500), text: "x".repeat(200_000) }], e: wide },
  };
}

function small(random: (most: number) => number, odd: boolean): unknown {
  const kinds = [1, "text", [], [1, [2]], {}, { b: { a: null, c: "d" } }, 2n ** 60n, true];
  const more = [undefined, new Date(0), { x: undefined }, new String("s"), 3n];
  return structuredClone((odd ? [...kinds, ...more] : kinds)[random(kinds.length + (odd ? more.length : 0))]);
}

test("values are copied, made plain, compared and written in steps as in one", async () => {
  let yields = 0;
  const check = async <Result>(steps: Steps<Result>, expected: Result): Promise<void> => {
    const [found, count] = await inSteps(steps);
    assert.deepStrictEqual(found, expected);
    yields += count;
  };
  for (let seed = 1; seed <= 3; seed++) {
    const random = numbers(seed);
    const odd = large(random, true);
    await check(plainInSteps(odd), plain(odd));
    const old = large(random, false) as { a: unknown[]; b: { c: unknown[]; e: Record<string, number> } };
    const [same] = await inSteps(plainInSteps(old));
    assert.equal(same, old);
    await check(cloneInSteps(old), clone(old));
    await check(writeInSteps(old), writeJson(old));
    const changed = clone(old) as typeof old;
    await check(diffInSteps(old, changed), []);
    changed.a.splice(1000, 1 + seed);
    (changed.b.c[2] as { d: unknown[] }).d[700] = "changed";
    changed.b.e.added = 1;
    const few = diff(old, changed);
    assert.ok(few.length < 10);
    await check(diffInSteps(old, changed), few);
    for (const key of Object.keys(changed.b.e)) changed.b.e[key]!++;
    for (const [index, item] of changed.a.entries()) changed.a[index] = [item];
    for (let key = 0; key < 5000; key++) changed.b.e[`x${key}`] = key;
    const members = diff(old, changed); // more operations than a patch may have
    assert.deepEqual(members.map(({ path }) => path), ["/a", "/b"]); // prettier-ignore
    await check(diffInSteps(old, changed), members);
    await check(writeInSteps(members), writeJson(members));
  }
  assert.ok(yields > 0);
});

const server = new PolicyServer();
let gateways: Gateway[] = [];
let address: string;
let runs: string[] = [];

server.policy("allows", () => undefined);
server.policy("blind", () => void runs.push("blind"));
server.policy("looks", (review: Review) => {
  runs.push(review.name);
  review.warn(`${review.object!.items.length} ${Object.keys(review.namespaceObject?.metadata ?? {}).length}`);
});
server.policy("touches", { mutating: true }, async (review: Review) => {
  runs.push(review.name);
  for (const item of review.object!.items) item.touched = true;
});

before(async () => {
  [address] = (await server.start("127.0.0.1:0")) as [string];
});

beforeEach(() => {
  runs = [];
});

after(async () => {
  for (const each of gateways) each.close();
  await server.stop();
});

function gateway(): Gateway {
  const made = new Gateway(address, undefined, { "grpc.use_local_subchannel_pool": 1 });
  gateways.push(made);
  return made;
}

function request(name: string, items: number): object {
  const object = { metadata: {}, items: Array.from({ length: items }, (_, index) => ({ a: [{ index }] })) };
  return { name, object, oldObject: object };
}

const SOME = Math.ceil(LARGE_BYTES / 20);

for (const method of ["Review", "ReviewStream"]) {
  test(`others are answered while a large review is evaluated by ${method}`, async () => {
    const [one, other] = [gateway(), gateway()];
    await other.review("allows", {});
    let answered = 0;
    let isOver = false;
    const answering = (async () => {
      while (!isOver) {
        assert.equal((await other.review("allows", {})).response?.allowed, true);
        answered++;
      }
    })();
    let found;
    if (method === "Review") found = await one.review("touches", request("web", 40_000));
    else {
      const stream = one.stream();
      stream.ask(["touches"], request("web", 40_000));
      [found] = await stream.verdicts(1);
      stream.call.end();
    }
    isOver = true;
    await answering;
    const [operation] = JSON.parse(found!.response!.patch!.toString()) as { path: string; value: object[] }[];
    assert.equal(operation!.path, "/items");
    assert.deepEqual(operation!.value[7], { a: [{ index: 7 }], touched: true });
    assert.ok(answered > 20, `${answered} others were answered`);
  });
}

test("clients take turns with large reviews", async () => {
  const [greedy, honest] = [gateway().stream(), gateway().stream()];
  const calls = Array.from({ length: 20 }, (_, id) => ({
    id,
    payload: 0,
    policy: "touches",
    timeoutMillis: 60_000,
  }));
  greedy.send({ payloads: [payload(request("greedy", SOME))], calls });
  await until(() => runs.length > 0);
  honest.ask(["touches"], request("honest", SOME));
  await honest.verdicts(1);
  assert.ok(runs.length < 20, `${runs.length} reviews were evaluated`);
  assert.equal((await greedy.verdicts(20)).length, 20);
});

test("a policy that reads what is malformed fails, and no other", async () => {
  const one = gateway();
  const namespace = { metadata: { a: 1, b: "x".repeat(LARGE_BYTES) } };
  const text = JSON.stringify(request("web", SOME));
  const warned = async (json: string, parent?: object): Promise<string | undefined> =>
    (await one.review("looks", json, parent)).response?.warnings?.[0];
  assert.equal(await warned(text), `${SOME} 0`);
  assert.equal(await warned(text, namespace), `${SOME} 2`);
  for (const broken of [
    `${text}}`,
    `[${text}]`,
    text.slice(1),
    text.replace("touched", "\ufffd").slice(0, -9),
  ]) {
    assert.equal((await one.review("looks", broken)).error?.code, 3);
    assert.equal((await one.review("blind", broken)).response?.allowed, true);
  }
  const stream = one.stream();
  const namespaceObject = Buffer.from(JSON.stringify(namespace).slice(1));
  const calls = ["blind", "looks"].map((policy, id) => ({ id, payload: 0, policy, timeoutMillis: 60_000 }));
  stream.send({ payloads: [{ ...payload(request("web", SOME)), namespaceObject }], calls });
  const codes = new Map((await stream.verdicts(2)).map(({ id, error }) => [id, error?.code]));
  assert.deepEqual([codes.get(0n), codes.get(1n)], [undefined, 3]);
});

test("a large review whose deadline passes, or that is cancelled, is not evaluated", async () => {
  const stream = gateway().stream();
  const call = { payload: 0, policy: "looks" };
  stream.send({
    payloads: [payload(request("web", 40_000))],
    calls: [
      { ...call, id: 1, timeoutMillis: 1 },
      { ...call, id: 2, timeoutMillis: 60_000 },
      { ...call, id: 3, timeoutMillis: 60_000 },
    ],
  });
  stream.send({ cancelled: [2] });
  const verdicts = new Map((await stream.verdicts(2)).map((verdict) => [verdict.id, verdict]));
  assert.equal(verdicts.get(1n)!.error?.code, 4);
  assert.equal(verdicts.get(3n)!.response?.allowed, true);
  assert.deepEqual(runs, ["web"]);
});

test("calls do not go on behind a change of a large object", async () => {
  const stream = gateway().stream();
  const calls = [1, 2].map((id) => ({
    id,
    payload: 0,
    policy: "touches",
    timeoutMillis: 60_000,
    after: id - 1,
  }));
  stream.send({ payloads: [payload(request("web", SOME))], calls });
  const codes = new Map((await stream.verdicts(2)).map(({ id, error }) => [id, error?.code]));
  assert.deepEqual([codes.get(1n), codes.get(2n)], [undefined, 8]);
});
