/** Trace context: what policies get, and how they continue a trace. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Metadata } from "@grpc/grpc-js";
import { propagation, trace } from "@opentelemetry/api";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";

import { Denied, PolicyServer, Review } from "../index.js";
import { knownTeam } from "../samples/tracing.js";
import { SERVICE } from "../messages.js";
import { decode, encode, Gateway, payload, type Answer } from "./gateway.js";

const TRACE_ID = "0af7651916cd43dd8448eb211c80319c";
const SPAN_ID = "b7ad6b7169203331";
const TRACEPARENT = `00-${TRACE_ID}-${SPAN_ID}-01`;

const INVALID = [
  "garbage",
  TRACEPARENT.slice(1),
  `${TRACEPARENT}0`,
  `${TRACEPARENT}\n`,
  TRACEPARENT.toUpperCase(),
  `ff${TRACEPARENT.slice(2)}`,
  `00-${"0".repeat(32)}-${SPAN_ID}-01`,
  `00-${TRACE_ID}-${"0".repeat(16)}-01`,
  "x".repeat(1 << 20),
];

test("a traceparent is valid or empty", () => {
  for (const traceparent of [...INVALID, ""])
    assert.equal(Review.fromJson({}, { traceparent }).traceparent, "");
  assert.equal(Review.fromJson({}).traceparent, "");
  assert.equal(Review.fromJson({}, { traceparent: TRACEPARENT }).traceparent, TRACEPARENT);
});

test("policies get the traceparent by both methods", async () => {
  const server = new PolicyServer();
  server.policy("trace", (review) => {
    throw new Denied(`[${review.traceparent}]`);
  });
  const [address] = await server.start("127.0.0.1:0");
  const gateway = new Gateway(address!);
  const stream = gateway.stream();
  for (const [id, sent] of [TRACEPARENT, "garbage", ""].entries()) {
    const message = sent === TRACEPARENT ? `[${TRACEPARENT}]` : "[]";
    const calls = [{ id: id + 1, payload: 0, policy: "trace", timeoutMillis: 10_000, traceparent: sent }];
    stream.send({ payloads: [payload("{}")], calls });
    assert.equal((await stream.message()).verdicts[0]!.response!.status!.message, message);
    const metadata = new Metadata();
    metadata.set("traceparent", sent);
    const request = encode("ReviewRequest", { policy: "trace", ...payload("{}") });
    const answer = await gateway.unary("Review", request, 10_000, SERVICE, undefined, metadata);
    const response = decode<NonNullable<Answer["response"]>>("ReviewResponse", answer);
    assert.equal(response.status!.message, message);
  }
  gateway.close();
  await server.stop();
});

test("a policy continues the trace", async () => {
  const exporter = new InMemorySpanExporter();
  trace.setGlobalTracerProvider(
    new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }),
  );
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  for (const [flags, count] of [
    ["01", 1],
    ["00", 0],
  ] as const) {
    exporter.reset();
    const object = { metadata: { labels: { team: "a" } } };
    await knownTeam(Review.fromJson({ object }, { traceparent: `00-${TRACE_ID}-${SPAN_ID}-${flags}` }));
    const spans = exporter.getFinishedSpans();
    assert.equal(spans.length, count);
    for (const span of spans) {
      assert.equal(span.spanContext().traceId, TRACE_ID);
      assert.equal(span.parentSpanContext?.spanId, SPAN_ID);
    }
  }
});

test("README.md has the lines of the sample", () => {
  const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");
  const body = read("src/samples/tracing.ts").split("Promise<void> {\n")[1]!;
  const lines = body.split("\n").slice(0, 2);
  for (const line of lines) assert.ok(read("README.md").includes(`\n${line.trim()}\n`), line);
});
