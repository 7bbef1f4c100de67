/** Metrics and the log of failures. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";

import { Denied, PolicyServer, Review, StartError } from "../index.js";
import { threw } from "../answer.js";
import { Policy } from "../policy.js";
import { Gateway } from "./gateway.js";

let server: PolicyServer;
let gateway: Gateway;
let url: string;
let go: () => void;

beforeEach(async () => {
  const gate = new Promise<void>((resolve) => (go = resolve));
  server = new PolicyServer();
  server.policy("allow", () => undefined);
  server.policy("deny", () => {
    throw new Denied("no");
  });
  server.policy("wait", () => gate);
  server.policy("fail", async () => {
    await null;
    throw new Error("bang");
  });
  const [address] = await server.start("127.0.0.1:0", undefined, "127.0.0.1:0");
  gateway = new Gateway(address!);
  url = `http://${server.metricsAddress}/metrics`;
});

afterEach(async () => {
  go();
  gateway.close();
  await server.stop();
  mock.restoreAll();
});

async function scrape(): Promise<string> {
  const answer = await fetch(url);
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  return answer.text();
}

async function has(...lines: string[]): Promise<void> {
  let text = "";
  for (const end = Date.now() + 30_000; Date.now() < end; await new Promise((go) => setTimeout(go, 10))) {
    text = await scrape();
    if (lines.every((line) => text.includes(`\n${line}\n`))) return;
  }
  assert.fail(`${lines.join("\n")}\nare not all in\n${text}`);
}

const count = (policy: string, outcome: string, value: number): string =>
  `admission_gateway_worker_policy_reviews_total{policy="${policy}",outcome="${outcome}"} ${value}`;

const inFlight = (policy: string, value: number): string =>
  `admission_gateway_worker_policy_in_flight{policy="${policy}"} ${value}`;

test("metrics count reviews by outcome", async () => {
  mock.method(console, "error", () => undefined);
  await has(count("allow", "allowed", 0), inFlight("wait", 0));
  const stream = gateway.stream();
  stream.ask(["allow", "deny", "fail", "allow", "unknown"], {});
  for (let verdicts = 0; verdicts < 5;) verdicts += (await stream.message()).verdicts.length;
  for (const policy of ["allow", "deny", "fail"]) await gateway.review(policy, {});
  stream.call.end();
  await has(
    count("allow", "allowed", 3),
    count("allow", "error", 0),
    count("deny", "denied", 2),
    count("fail", "error", 2),
    inFlight("fail", 0),
    'admission_gateway_worker_policy_duration_seconds_bucket{policy="allow",le="+Inf"} 3',
    'admission_gateway_worker_policy_duration_seconds_count{policy="deny"} 2',
    "# TYPE process_start_time_seconds gauge",
  );
  const text = await scrape();
  assert.ok(!text.includes("unknown"));
  assert.match(
    text,
    /^admission_gateway_worker_build_info\{sdk="typescript",version="[\d.]+",runtime="v\d+/m,
  );
});

test("metrics count calls in flight, and cancelled calls have no outcome", async () => {
  const stream = gateway.stream();
  stream.ask(["wait", "wait"], {});
  await has(inFlight("wait", 2));
  stream.send({ cancelled: [1] });
  await has(inFlight("wait", 1), count("wait", "allowed", 0));
  go();
  await has(inFlight("wait", 0), count("wait", "allowed", 1), count("wait", "error", 0));
  stream.call.end();
});

test("a call that exceeds its deadline is an error", async () => {
  const stream = gateway.stream();
  stream.ask(["wait"], {}, { timeoutMillis: 10 });
  await stream.message();
  await has(inFlight("wait", 0), count("wait", "error", 1));
  stream.call.end();
});

test("only the metrics are served", async () => {
  assert.equal((await fetch(url.replace("/metrics", "/"))).status, 404);
  assert.equal((await fetch(url, { method: "POST", body: "x" })).status, 405);
  assert.equal((await fetch(url, { method: "HEAD" })).status, 200);
});

test("metrics need a free port", async () => {
  const second = new PolicyServer();
  second.policy("allow", () => undefined);
  const address = server.metricsAddress;
  await assert.rejects(
    second.start("127.0.0.1:0", undefined, address),
    new StartError(`--metrics-listen: ${address}: Address already in use`),
  );
  await assert.rejects(second.start("127.0.0.1:0", undefined, "unix:/x"), /HOST:PORT is expected/);
  assert.equal(second.metricsAddress, "");
});

const TRACE_ID = "0af7651916cd43dd8448eb211c80319c";
const HOSTILE = 'bang\n2026-01-01T00:00:00.000Z ERROR worker: forged \x1b[31m\u2028\x85"quoted"';
const RECORD = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ERROR worker: policy failed: /;

function failing(): [Policy, string[]] {
  const lines: string[] = [];
  mock.method(console, "error", (_: string, text: string) => lines.push(...text.split("\n")));
  return [new Policy("tested", {}, () => undefined), lines];
}

test("a failure is one line with its review, and no text begins another record", () => {
  const [policy, lines] = failing();
  const traceparent = `00-${TRACE_ID}-b7ad6b7169203331-01`;
  const review = Review.fromJson({ uid: "u\n1", object: { data: "s3cret" } }, { traceparent });
  threw(policy, review, new Error(HOSTILE));
  const escapes = String.raw`bang\n2026-01-01T00:00:00.000Z ERROR worker: forged \u001b[31m\u2028\u0085\"quoted\"`;
  const expected = `policy="tested" uid="u\\n1" trace_id="${TRACE_ID}" error="Error: ${escapes}"`;
  assert.match(lines[0]!, RECORD);
  assert.equal(lines[0]!.replace(RECORD, ""), expected);
  assert.ok(lines.length > 3);
  for (const line of lines.slice(1)) assert.match(line, /^ {4}\| [^\p{Cc}\p{Zl}\p{Zp}]*$/u);
});

test("failures are logged once a second, and counted", () => {
  const [policy, lines] = failing();
  policy.quietUntil = Infinity;
  for (let times = 0; times < 4; times++) threw(policy, Review.fromJson({}), new Error("bang"));
  assert.equal(lines.length, 0);
  policy.quietUntil = 0;
  threw(policy, Review.fromJson({}), "é".repeat(100_000));
  assert.match(lines[0]!, / error="é{1000}" dropped=4$/);
  assert.equal(lines.length, 1);
});
