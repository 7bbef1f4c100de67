/** Runs the vectors that hold for every language. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { diff, type Operation } from "../diff.js";
import { parseJson, writeJson } from "../json.js";
import { server } from "../samples/server.js";
import { Gateway, payload, vectors, vectorText, type Answer } from "./gateway.js";

interface DiffVector {
  name: string;
  before: unknown;
  after: unknown;
  patch: Operation[];
  text: string;
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

for (const { name, before, after, patch, text } of parseJson(vectorText("diff.json")) as DiffVector[]) {
  test(`diff: ${name}`, () => {
    const found = diff(before, after);
    assert.deepEqual(found, patch);
    assert.equal(writeJson(found), text);
  });
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

function check({ outcome }: SampleVector, { response, error }: Answer): void {
  assert.deepEqual(error, outcome.error);
  const expected = outcome.response;
  if (expected === undefined) return;
  assert.equal(response?.allowed ?? false, expected.allowed);
  assert.deepEqual(response?.warnings ?? [], expected.warnings ?? []);
  assert.deepEqual(response?.auditAnnotations ?? {}, expected.auditAnnotations ?? {});
  assert.equal(response?.patch?.toString() ?? "", expected.patch ? writeJson(expected.patch) : "");
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
