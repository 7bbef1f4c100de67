/** Parameters of policies: over the stream and by Review. */

import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";

import { PolicyServer, Review, type PolicyOptions } from "../index.js";
import { MAX_PARAMETERS_BYTES, MAX_PREPARED, MAX_PREPARED_BYTES, PreparedParameters } from "../parameters.js";
import { Policy } from "../policy.js";
import { decode, encode, Gateway, payload } from "./gateway.js";

const SCHEMA = { type: "object" };
const prepared: object[] = [];
let server: PolicyServer;
let gateway: Gateway;

async function serve(): Promise<void> {
  prepared.length = 0;
  server = new PolicyServer();
  const prepare = (parameters: { bad?: string }): object => {
    prepared.push(parameters);
    if (parameters.bad !== undefined) throw new RangeError(`no ${parameters.bad}`);
    return parameters;
  };
  const show = (review: Review): void => review.warn(JSON.stringify(review.parameters));
  server.policy("shows", { parameters: SCHEMA, prepare }, show);
  server.policy("shows later", { parameters: SCHEMA }, async (review) => {
    await new Promise(setImmediate);
    show(review);
  });
  server.policy("allows", { parameters: SCHEMA }, () => undefined);
  server.policy("takes none", () => undefined);
  const [address] = await server.start("127.0.0.1:0");
  gateway = new Gateway(address!);
}

afterEach(async () => {
  gateway?.close();
  await server?.stop(0);
});

function batch(calls: [number, string, number][], parameters: Record<number, string> = {}): object {
  return {
    payloads: [payload("{}")],
    calls: calls.map(([id, policy, of]) => ({
      id,
      payload: 0,
      policy,
      timeoutMillis: 10_000,
      parameters: of,
    })),
    parameters: Object.entries(parameters).map(([id, json]) => ({ id: Number(id), json: Buffer.from(json) })),
  };
}

test("calls get the parameters that their stream had for the id", async () => {
  await serve();
  const stream = gateway.stream();
  const shown = new Map<number, string>();
  const applied = new Map<number, boolean>();
  const receive = async (count: number): Promise<void> => {
    for (let seen = 0; seen < count;) {
      for (const { id, response } of (await stream.message()).verdicts) {
        seen++;
        shown.set(Number(id), response?.warnings?.[0] ?? "");
        applied.set(Number(id), response?.parametersApplied ?? false);
      }
    }
  };
  stream.send(
    batch(
      [
        [1, "shows", 1],
        [2, "shows later", 256],
        [3, "shows", 0],
      ],
      { 1: '{"a":1}', 256: "{}" },
    ),
  );
  await receive(3);
  stream.send(batch([[4, "shows", 1]]));
  stream.send(
    batch(
      [
        [5, "shows", 1],
        [6, "allows", 1],
      ],
      { 1: '{"a":2}' },
    ),
  );
  await receive(3);
  const texts = { 1: '{"a":1}', 2: "{}", 3: "{}", 4: '{"a":1}', 5: '{"a":2}', 6: "" };
  for (const [id, text] of Object.entries(texts)) {
    assert.equal(shown.get(Number(id)), text);
    assert.equal(applied.get(Number(id)), id !== "3");
  }
  assert.equal(prepared.length, 3);
  stream.call.end();
});

test("parameters that cannot be used are an error of their calls, on the stream and by Review", async () => {
  await serve();
  const texts = {
    "[]": "parameters is to be a JSON object, found array",
    '{"bad":"wine"}': 'the parameters of policy "shows" cannot be used: RangeError: no wine',
  };
  const stream = gateway.stream();
  for (const [json, message] of Object.entries(texts)) {
    for (let turn = 0; turn < 2; turn++) {
      stream.send(batch([[1, "shows", 1]], { 1: json }));
      const { verdicts } = await stream.message();
      assert.deepEqual(verdicts[0]!.error, { code: 3, message });
      assert.deepEqual(await gateway.review("shows", "{}", undefined, json), { error: { code: 3, message } });
    }
  }
  assert.equal(prepared.length, 1);
  stream.send(
    batch(
      [
        [2, "takes none", 1],
        [3, "shows", 9],
      ],
      { 1: "{}" },
    ),
  );
  const verdicts = await stream.verdicts(2);
  assert.deepEqual(
    verdicts.map(({ error }) => error!.message),
    [
      'policy "takes none" takes no parameters',
      "the call has an id of parameters that this stream has not had",
    ],
  );
  const long = " ".repeat(MAX_PARAMETERS_BYTES + 1);
  const { error } = await gateway.review("shows", "{}", undefined, long);
  assert.equal(error!.message, "the parameters have 65537 bytes, expected at most 65536");
  stream.call.end();
});

async function check(policy: string, json: string): Promise<string> {
  const request = encode("CheckParametersRequest", { policy, parameters: Buffer.from(json) });
  const answer = await gateway.unary("CheckParameters", request);
  return decode<{ problem?: string }>("CheckParametersResponse", answer).problem ?? "";
}

test("CheckParameters tells why calls with the parameters would fail", async () => {
  await serve();
  for (const [policy, json] of [
    ["shows", '{"a":1}'],
    ["shows", ""],
    ["takes none", ""],
    ["takes none", "{}"],
    ["shows", "[]"],
    ["shows", "{"],
    ["shows", '{"bad":"wine"}'],
    ["shows", " ".repeat(MAX_PARAMETERS_BYTES + 1)],
  ] as const) {
    const { error } = await gateway.review(policy, "{}", undefined, json);
    assert.equal(await check(policy, json), error?.message ?? "", `${policy}: ${json.slice(0, 20)}`);
  }
  assert.equal(prepared.length, 3);
  const { error } = await gateway.review("nobody", "{}");
  await assert.rejects(check("nobody", "{}"), { code: 5, details: error!.message });
});

test("CheckParameters logs nothing; the first call that fails by the value does", () => {
  const prepare = (): never => {
    throw new Error("no wine");
  };
  const policy = new Policy("p", { parameters: {}, prepare }, () => undefined);
  const logged = mock.method(console, "error", () => undefined);
  const text = 'the parameters of policy "p" cannot be used: no wine';
  assert.equal(policy.prepared.problem(policy, Buffer.from("{}")), text);
  assert.equal(logged.mock.callCount(), 0);
  for (let turn = 0; turn < 2; turn++) {
    assert.throws(() => policy.prepared.get(policy, Review.fromJson({}), Buffer.from("{}")), {
      message: text,
    });
    assert.equal(logged.mock.callCount(), 1);
  }
  logged.mock.restore();
});

test("parameters beyond the bounds end the stream", async () => {
  await serve();
  for (const [id, json, message] of [
    [0, "{}", "parameters have the id 0, expected 1 to 256"],
    [257, "{}", "parameters have the id 257, expected 1 to 256"],
    [1, " ".repeat(65537), "parameters have 65537 bytes, expected at most 65536"],
  ] as const) {
    const stream = gateway.stream();
    stream.send(batch([], { [id]: json }));
    const ended = await stream.ended();
    assert.deepEqual([ended.code, ended.details], [3, message]);
  }
});

test("the values that were used last are kept", () => {
  const made: object[] = [];
  const prepare = (given: object): object => (made.push(given), given);
  const policy = new Policy("p", { parameters: {}, prepare }, () => undefined);
  const values = new PreparedParameters();
  const review = Review.fromJson({});
  const get = (json: string): unknown => values.get(policy, review, Buffer.from(json));
  const first = get('{"first":1}');
  for (let number = 0; number < 2 * MAX_PREPARED; number++) {
    get(`{"n":${number}}`);
    if (number < MAX_PREPARED) assert.equal(get('{"first":1}'), first);
  }
  assert.equal(values.size, MAX_PREPARED);
  assert.notEqual(get('{"first":1}'), first);
  assert.deepEqual(get(""), {});
});

test("the bytes of prepared values are bounded", () => {
  const policy = new Policy("p", { parameters: {}, prepare: () => ({}) }, () => undefined);
  const values = new PreparedParameters();
  const review = Review.fromJson({});
  const get = (number: number): unknown =>
    values.get(policy, review, Buffer.from(`{"n":${number}}`.padEnd(MAX_PARAMETERS_BYTES)));
  const kept = MAX_PREPARED_BYTES / MAX_PARAMETERS_BYTES;
  const first = get(0);
  const second = get(1);
  for (let number = 2; number < kept; number++) get(number);
  assert.equal(get(0), first);
  values.get(policy, review, Buffer.from("{}"));
  assert.equal(values.size, kept);
  assert.equal(get(0), first);
  assert.notEqual(get(1), second);
});

test("ListPolicies has the schema, and a wrong registration throws", async () => {
  await serve();
  const listed = decode<{ policies: { name: string; parametersSchema?: string }[] }>(
    "ListPoliciesResponse",
    await gateway.unary("ListPolicies", encode("ListPoliciesRequest", {})),
  );
  const schemas = Object.fromEntries(listed.policies.map((one) => [one.name, one.parametersSchema ?? ""]));
  assert.deepEqual(schemas, {
    shows: '{"type":"object"}',
    "shows later": '{"type":"object"}',
    allows: '{"type":"object"}',
    "takes none": "",
  });
  for (const options of [{ parameters: "{}" }, { prepare: () => 1 }, { parameters: {}, prepare: 1 }]) {
    assert.throws(() => new PolicyServer().policy("p", options as PolicyOptions, () => undefined), TypeError);
  }
  assert.equal(Review.fromJson({}, { parameters: 7 }).parameters, 7);
});
