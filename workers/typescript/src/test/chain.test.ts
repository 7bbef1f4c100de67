/** Chains: calls on the object that an earlier call of their batch leaves. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Denied, PolicyServer, type Review } from "../index.js";
import { diff, type Operation } from "../diff.js";
import { parseJson } from "../json.js";
import { applyPatch } from "../patch.js";
import { Gateway, payload } from "./gateway.js";

const server = new PolicyServer();
const kept: Record<string, unknown>[] = [];
let seen: string[] = [];
let gateway: Gateway;

const object = (review: Review): Record<string, unknown> =>
  review.object as unknown as Record<string, unknown>;
const policies: Record<string, (review: Review) => void | Promise<void>> = {
  adds: (review) => void (object(review).z = { d: 1, c: [1] }),
  "adds-async": async (review) => {
    await new Promise(setImmediate);
    object(review).y = 1;
  },
  removes: (review) => void delete object(review).b,
  keeps: (review) => void kept.push(object(review)),
  "changes-kept": () => kept.forEach((found) => (found.kept = true)),
  "changes-nothing": (review) =>
    void (review.patch = [
      { op: "remove", path: "/a" },
      { op: "add", path: "/a", value: 1 },
    ]),
  "patches-wrongly": (review) => void (review.patch = [{ op: "remove", path: "/none" }]),
  denies: (review) => {
    object(review).b = 0;
    throw new Denied("no");
  },
};
for (const [name, run] of Object.entries(policies)) {
  server.policy(name, { mutating: true }, (review) => {
    seen.push(`${name} ${JSON.stringify(review.object)}`);
    return run(review);
  });
}

before(async () => {
  const [address] = await server.start("127.0.0.1:0");
  gateway = new Gateway(address!);
});

after(async () => {
  gateway.close();
  await server.stop();
});

async function chained(names: string[]): Promise<string[]> {
  seen = [];
  const stream = gateway.stream();
  const calls = names.map((policy, at) => ({ id: at + 1, policy, timeoutMillis: 60_000, after: at }));
  stream.send({ payloads: [payload({ object: { b: 2, a: 1 } })], calls });
  let answered = 0;
  while (answered < names.length) answered += (await stream.message()).verdicts.length;
  return seen;
}

test("each policy of a chain gets what the patches before it leave", async () => {
  const names = ["adds", "keeps", "adds-async", "changes-kept", "removes", "denies", "removes"];
  assert.deepEqual(await chained(names), [
    'adds {"b":2,"a":1}',
    'keeps {"b":2,"a":1,"z":{"d":1,"c":[1]}}',
    'adds-async {"b":2,"a":1,"z":{"d":1,"c":[1]}}',
    'changes-kept {"b":2,"a":1,"z":{"d":1,"c":[1]},"y":1}',
    'removes {"b":2,"a":1,"z":{"d":1,"c":[1]},"y":1}',
    'denies {"a":1,"z":{"d":1,"c":[1]},"y":1}',
    'removes {"a":1,"z":{"d":1,"c":[1]},"y":1}',
  ]);
});

test("a patch that changes nothing or does not apply leaves the object", async () => {
  const object = '{"b":2,"a":1}';
  assert.deepEqual(await chained(["changes-nothing", "patches-wrongly", "keeps"]), [
    `changes-nothing ${object}`,
    `patches-wrongly ${object}`,
    `keeps ${object}`,
  ]);
});

test("a chain that is longer than the stack is answered", async () => {
  assert.equal((await chained(["adds-async", ...Array<string>(4000).fill("keeps")])).length, 4001);
});

test("a derived patch turns the first document into the second", () => {
  const documents = [
    "{}",
    '{"a":[1,2,{"b":null}]}',
    '{"a":[2,{"b":1},3],"c~/":"x"}',
    '{"__proto__":{"a":[]}}',
  ];
  for (const from of documents) {
    for (const to of documents) {
      const operations = diff(parseJson(from), parseJson(to));
      assert.deepEqual(applyPatch(parseJson(from), operations), parseJson(to));
    }
  }
});

test("a patch is read as kube-apiserver reads it", () => {
  const cases: [string, Operation[], string | undefined][] = [
    ['{"a":[1,2]}', [{ op: "add", path: "/a/-1", value: 3 }], '{"a":[1,2,3]}'],
    ['{"a":[1,2]}', [{ op: "remove", path: "/a/-1" }], '{"a":[1]}'],
    ['{"a":1}', [{ op: "replace", path: "x/b", value: 2 }], '{"a":1,"b":2}'],
    ['{"a":1}', [{ op: "add", path: "/b" }], '{"a":1,"b":null}'],
    ['{"a":1}', [{ op: "copy", from: "/c", path: "/b" }], '{"a":1,"b":null}'],
    ['{"a":1}', [{ op: "move", from: "/a", path: "/b" }], '{"b":1}'],
    ['{"a":1}', [{ op: "test", path: "/c", value: null }], '{"a":1}'],
    ['{"a":1}', [{ op: "test", path: "/a", value: 2 }], undefined],
    ['{"a":[1]}', [{ op: "replace", path: "/a/1", value: 2 }], undefined],
    ['{"a":1}', [{ op: "remove", path: "/b" }], undefined],
    ['{"a":1}', [{ op: "add", path: "/b/c", value: 2 }], undefined],
    ['{"a":{}}', [{ op: "move", from: "/a", path: "/a/b" }], undefined],
  ];
  for (const [from, operations, to] of cases) {
    const apply = (): unknown => applyPatch(parseJson(from), operations);
    if (to === undefined) assert.throws(apply);
    else assert.equal(JSON.stringify(apply()), to);
  }
});
