/** A server from start to stop: addresses, TLS, health, draining. */

import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { connect } from "node:http2";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { credentials } from "@grpc/grpc-js";

import { PolicyServer, StartError, type Review } from "../index.js";
import { SERVICE } from "../messages.js";
import { bytesMethod } from "../service.js";
import { Certificates, hasOpenssl } from "./certificates.js";
import { decode, encode, Gateway, payload, until } from "./gateway.js";

const HEALTH = "grpc.health.v1.Health";

interface Waiting {
  server: PolicyServer;
  /** Resolves when a review waits. */
  started: Promise<void>;
  release: () => void;
  /** Why reviews that waited were aborted. */
  reasons: unknown[];
}

function serverThatWaits(): Waiting {
  const server = new PolicyServer();
  const reasons: unknown[] = [];
  let start = (): void => undefined;
  const started = new Promise<void>((resolve) => (start = resolve));
  let release = (): void => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  server.policy("allows", { description: "Lets all in.", version: "1" }, () => undefined);
  server.policy("waits", { mutating: true }, async (review: Review) => {
    review.signal.addEventListener("abort", () => reasons.push(review.signal.reason));
    start();
    await released;
  });
  return { server, started, release, reasons };
}

/** Asks for the status of a service: 1 is SERVING, 2 NOT_SERVING, 3 SERVICE_UNKNOWN. */
async function check(gateway: Gateway, service: string): Promise<number> {
  const request = Buffer.concat([Buffer.from([0x0a, service.length]), Buffer.from(service)]);
  return (await gateway.unary("Check", request, 10_000, HEALTH))[1]!;
}

function watch(gateway: Gateway, service: string): { statuses: number[]; codes: number[] } {
  const { path, requestSerialize, responseDeserialize } = bytesMethod(HEALTH, "Watch", { out: true });
  const request = Buffer.concat([Buffer.from([0x0a, service.length]), Buffer.from(service)]);
  const call = gateway.client.makeServerStreamRequest(path, requestSerialize, responseDeserialize, request);
  const seen = { statuses: [] as number[], codes: [] as number[] };
  call.on("data", (bytes: Buffer) => seen.statuses.push(bytes[1]!));
  call.on("status", ({ code }: { code: number }) => seen.codes.push(code));
  call.on("error", () => undefined);
  return seen;
}

test("ListPolicies lists them in the order of registration", async () => {
  const { server } = serverThatWaits();
  const [address] = await server.start("127.0.0.1:0");
  const gateway = new Gateway(address!);
  const answer = decode("ListPoliciesResponse", await gateway.unary("ListPolicies", Buffer.alloc(0)));
  assert.deepEqual(answer, {
    policies: [
      { name: "allows", description: "Lets all in.", mutating: false, version: "1" },
      { name: "waits", description: "", mutating: true, version: "" },
    ],
  });
  gateway.close();
  await server.stop();
});

test("it serves on several addresses, and stops twice without harm", async () => {
  const folder = mkdtempSync(join(tmpdir(), "worker-"));
  const path = join(folder, "socket");
  const { server } = serverThatWaits();
  const addresses = await server.start(["127.0.0.1:0", `unix:${path}`]);
  assert.equal(addresses[1], `unix:${path}`);
  for (const address of addresses) {
    const gateway = new Gateway(address);
    assert.deepEqual(await gateway.review("allows", {}), { response: { allowed: true } });
    gateway.close();
  }
  await assert.rejects(server.start("127.0.0.1:0"), /started already/);
  await server.stop();
  await server.stop();
  assert.equal(existsSync(path), false);
  const [again] = await server.start("127.0.0.1:0");
  assert.match(again!, /^127\.0\.0\.1:\d+$/);
  await server.stop();
  rmSync(folder, { recursive: true });
});

test("an address that cannot be used is said in one line", async () => {
  const folder = mkdtempSync(join(tmpdir(), "worker-"));
  const path = join(folder, "socket");
  const { server } = serverThatWaits();
  const [first, other] = [serverThatWaits().server, serverThatWaits().server];
  const addresses = await first.start(["127.0.0.1:0", `unix:${path}`]);
  for (const address of addresses) {
    const message = `${address}: Address already in use`;
    await assert.rejects(server.start(["127.0.0.1:0", address]), { message });
  }
  await first.stop();
  writeFileSync(join(folder, "file"), "");
  const bad: [string, RegExp][] = [
    ["localhost", /"localhost" is not an address: HOST:PORT, \[IPV6\]:PORT or unix:PATH is expected/],
    ["[::1:80", /is not an address/],
    ["127.0.0.1:65536", /is not an address/],
    ["unix:", /has no path/],
    [`unix:/${"x".repeat(107)}`, /is too long: a unix socket's path has at most 107 bytes/],
    [`unix:${folder}/no/socket`, /there is no folder/],
    [`unix:${folder}/file`, /the file exists and is not a socket/],
    ["192.0.2.1:0", /^192\.0\.2\.1:0: Address not available/],
  ];
  for (const [address, message] of bad) {
    await assert.rejects(other.start(address), (problem) => {
      assert.ok(problem instanceof StartError);
      assert.match(problem.message, message);
      return true;
    });
  }
  rmSync(folder, { recursive: true });
});

test("health is answered, watched, and says NOT_SERVING while it drains", async () => {
  const { server, release } = serverThatWaits();
  const [address] = await server.start("127.0.0.1:0");
  const [gateway, watching] = [new Gateway(address!), new Gateway(address!)];
  assert.deepEqual([await check(gateway, ""), await check(gateway, SERVICE)], [1, 1]);
  await assert.rejects(check(gateway, "other"), { code: 5 });
  const [all, unknown] = [watch(watching, ""), watch(watching, "other")];
  await until(() => all.statuses.length === 1 && unknown.statuses.length === 1);
  const stream = gateway.stream();
  stream.ask(["waits"], {});
  stream.ask(["allows"], {}, { first: 2 });
  await stream.message();
  const stopped = server.stop();
  await until(() => all.statuses.length === 2);
  release();
  await stopped;
  await until(() => all.codes.length === 1 && unknown.codes.length === 1);
  assert.deepEqual([all.statuses, unknown.statuses], [[1, 2], [3, 3]]); // prettier-ignore
  gateway.close();
  watching.close();
});

test("a stream is drained: told, answered, also what crossed the notice, and ended when it is quiet", async () => {
  const { server, release, reasons } = serverThatWaits();
  const [address] = await server.start("127.0.0.1:0");
  const gateway = new Gateway(address!);
  const [stream, closed] = [gateway.stream(), gateway.stream()];
  for (const one of [stream, closed]) {
    one.ask(["waits", "allows"], {});
    await one.message();
  }
  const stopped = server.stop(10_000);
  for (const one of [stream, closed]) assert.deepEqual(await one.message(), { verdicts: [], draining: true });
  closed.call.end();
  stream.ask(["allows"], {}, { first: 5 });
  assert.deepEqual((await stream.message()).verdicts, [{ id: 5n, response: { allowed: true } }]);
  const late = new Gateway(address!);
  assert.equal((await late.review("allows", {})).error?.code, 14);
  release();
  for (const one of [stream, closed]) {
    assert.deepEqual((await one.message()).verdicts, [{ id: 1n, response: { allowed: true } }]);
    assert.equal((await one.ended()).code, 0);
  }
  await stopped;
  assert.deepEqual(reasons, []);
  gateway.close();
  late.close();
});

for (const [graceMs, expected] of [
  [10_000, "answered"],
  [100, "cut off"],
  [2 ** 32, "answered"],
] as const) {
  test(`a unary call in flight is ${expected} within a grace of ${graceMs} ms`, async () => {
    const { server, release, reasons, started } = serverThatWaits();
    const [address] = await server.start("127.0.0.1:0");
    const gateway = new Gateway(address!);
    const answer = gateway.review("waits", {});
    await started;
    const stopped = server.stop(graceMs);
    if (expected === "answered") setTimeout(release, 300);
    const { response } = await answer;
    assert.equal(response?.allowed === true, expected === "answered");
    await stopped;
    await until(() => reasons.length === (expected === "answered" ? 0 : 1));
    gateway.close();
  });
}

test("a unary call whose end comes in after its deadline does not stay open for ever", async () => {
  const { server, started } = serverThatWaits();
  const [address] = await server.start("127.0.0.1:0");
  const session = connect(`http://${address}`);
  const headers = { ":method": "POST", ":path": `/${SERVICE}/Review`, "content-type": "application/grpc" };
  const call = session.request({ ...headers, "grpc-timeout": "50m" });
  const request = encode("ReviewRequest", { policy: "waits", ...payload({}) });
  call.write(Buffer.concat([Buffer.from([0, 0, 0, 0, request.length]), request]));
  const [response] = (await once(call, "response")) as [Record<string, string>];
  assert.equal(response["grpc-status"], "4");
  call.end();
  const gateway = new Gateway(address!);
  assert.deepEqual(await gateway.review("allows", {}), { response: { allowed: true } });
  gateway.close();
  session.close();
  let hasStopped = false;
  void server.stop(2 ** 30).then(() => (hasStopped = true));
  await until(() => hasStopped);
  assert.equal(await Promise.race([started.then(() => "run"), "not run"]), "not run");
});

test("TLS and mTLS", { skip: !hasOpenssl() && "the openssl program is missing" }, async () => {
  const made = new Certificates();
  const ca = readFileSync(made.cert("ca"));
  const own = (name: string): [Buffer, Buffer] => [
    readFileSync(made.key(name)),
    readFileSync(made.cert(name)),
  ];
  const tls = { cert: made.cert("server"), key: made.key("server") };
  const { server } = serverThatWaits();

  const [address] = await server.start("127.0.0.1:0", tls);
  const trusting = new Gateway(address!, credentials.createSsl(ca));
  assert.deepEqual(await trusting.review("allows", {}), { response: { allowed: true } });
  for (const channel of [credentials.createInsecure(), credentials.createSsl(own("stranger")[1])]) {
    const refused = new Gateway(address!, channel);
    assert.equal((await refused.review("allows", {})).error?.code, 14);
    refused.close();
  }
  trusting.close();
  await server.stop();

  const [guarded] = await server.start("127.0.0.1:0", { ...tls, clientCa: made.cert("ca") });
  const known = new Gateway(guarded!, credentials.createSsl(ca, ...own("client")));
  assert.deepEqual(await known.review("allows", {}), { response: { allowed: true } });
  for (const channel of [credentials.createSsl(ca), credentials.createSsl(ca, ...own("stranger"))]) {
    const refused = new Gateway(guarded!, channel);
    assert.equal((await refused.review("allows", {})).error?.code, 14);
    refused.close();
  }
  known.close();
  await server.stop();

  writeFileSync(made.cert("broken"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  const bad: [object, RegExp][] = [
    [{ key: made.key("client") }, /server.crt and .*client.key are not a PEM certificate and its key: /],
    [{ cert: made.key("server") }, /are not a PEM certificate and its key: /],
    [{ key: "/nowhere" }, /^\/nowhere: no such file or directory$/],
    [{ clientCa: made.key("ca") }, /ca.key holds no PEM certificate/],
    [{ clientCa: made.cert("broken") }, /broken.crt holds no PEM certificate/],
  ];
  for (const [files, message] of bad) {
    await assert.rejects(server.start("127.0.0.1:0", { ...tls, ...files }), { message });
  }
  made.remove();
});

test("an address is free again once a start has failed", async () => {
  const blocker = createServer();
  const taken = await new Promise<number>((resolve) => {
    blocker.listen(0, "127.0.0.1", () => resolve((blocker.address() as { port: number }).port));
  });
  const { server } = serverThatWaits();
  const probe = serverThatWaits().server;
  const [address] = await probe.start("127.0.0.1:0");
  await probe.stop();
  await assert.rejects(server.start([address!, `127.0.0.1:${taken}`]), /Address already in use/);
  blocker.close();
  assert.deepEqual(await server.start(address!), [address]);
  await server.stop();
});
