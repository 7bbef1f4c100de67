/** Runs the vectors that hold for every language. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { diff, type Operation } from "../diff.js";
import { clone, parseJson, writeJson } from "../json.js";
import { applyPatch } from "../patch.js";
import { server } from "../samples/server.js";
import { Gateway, payload, vectors, vectorText, type Answer } from "./gateway.js";

interface DiffVector {
  name: string;
  before: unknown;
  after: unknown;
}

interface SampleVector {
  name: string;
  policy: string;
  request: object;
  namespaceObject?: object;
  parameters?: object;
  outcome: { response?: ExpectedResponse; error?: { code: number; message: string } };
}

interface ExpectedResponse {
  allowed: boolean;
  status?: object;
  patch?: Operation[];
  warnings?: string[];
  auditAnnotations?: Record<string, string>;
}

for (const { name, before, after } of parseJson(vectorText("diff.json")) as DiffVector[]) {
  test(`diff: ${name}`, () => {
    assert.deepEqual(patched(before, writeJson(diff(before, after))), after);
  });
}

test("diff: whole members are replaced where paths are too long", () => {
  const nested = (key: string, levels: number, inner: unknown): unknown =>
    levels === 0 ? inner : { [key]: nested(key, levels - 1, inner) };
  const [old, now] = [0, 1].map((item) => new Array(10).fill(item) as unknown[]);
  for (const [key, levels] of [
    ["k".repeat(2 ** 20), 1],
    ["k", 1024],
  ] as const) {
    const before = { same: true, member: nested(key, levels, old) };
    const after = { same: true, member: nested(key, levels, now) };
    assert.deepEqual(diff(before, after), [{ op: "replace", path: "/member", value: after.member }]);
  }
});

/** The object after a patch; none if that is empty. */
function patched(object: unknown, patch: string): unknown {
  return patch === "" ? object : applyPatch(clone(object), parseJson(patch) as Operation[]);
}

const samples = vectors<SampleVector>("samples.json");
let gateway: Gateway;

before(async () => {
  const [address] = await server.start("127.0.0.1:0");
  gateway = new Gateway(address!);
});

after(async () => {
  gateway.close();
  await server.stop();
});

function check({ outcome, request }: SampleVector, { response, error }: Answer): void {
  assert.deepEqual(error, outcome.error);
  const expected = outcome.response;
  if (expected === undefined) return;
  assert.equal(response?.allowed ?? false, expected.allowed);
  assert.deepEqual(response?.warnings ?? [], expected.warnings ?? []);
  assert.deepEqual(response?.auditAnnotations ?? {}, expected.auditAnnotations ?? {});
  const { object } = request as { object?: unknown };
  const wanted = patched(object, expected.patch ? writeJson(expected.patch) : "");
  assert.deepEqual(patched(object, response?.patch?.toString() ?? ""), wanted);
  const {
    reason = "",
    causes = [],
    ...status
  } = response?.status ?? ({} as { reason?: string; causes?: object[] });
  assert.deepEqual(expected.allowed ? undefined : { reason, causes, ...status }, expected.status);
}

for (const vector of samples) {
  test(`Review: ${vector.name}`, async () => {
    check(
      vector,
      await gateway.review(vector.policy, vector.request, vector.namespaceObject, vector.parameters),
    );
  });
}

test("ReviewStream: all samples in one batch are answered", async () => {
  const stream = gateway.stream();
  const payloads = samples.map(({ request, namespaceObject }) => payload(request, namespaceObject));
  const given = samples.filter(({ parameters }) => parameters !== undefined);
  const parameters = given.map((vector, index) => ({
    id: index + 1,
    json: Buffer.from(JSON.stringify(vector.parameters)),
  }));
  const calls = samples.map((vector, id) => ({
    id,
    payload: id,
    policy: vector.policy,
    timeoutMillis: 10_000,
    parameters: given.indexOf(vector) + 1,
  }));
  stream.send({ payloads, calls, parameters });
  const verdicts = await stream.verdicts(samples.length);
  assert.equal(verdicts.length, samples.length);
  for (const { id, ...answer } of verdicts) check(samples[Number(id)]!, answer);
  stream.call.end();
  assert.equal((await stream.ended()).code, 0);
});
