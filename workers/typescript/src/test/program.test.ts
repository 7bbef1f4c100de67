/** A worker as a process: command line, signals, exit status. */

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { Gateway, until } from "./gateway.js";

const SAMPLES = fileURLToPath(new URL("../samples/main.js", import.meta.url));

const started = new Set<ChildProcess>();

afterEach(() => {
  for (const child of started) child.kill("SIGKILL");
  started.clear();
});

class Worker {
  readonly child: ChildProcess;
  readonly exited: Promise<unknown[]>;
  stdout = "";
  stderr = "";

  constructor(...args: string[]) {
    this.child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
    this.exited = once(this.child, "close");
    this.child.stdout!.on("data", (text: Buffer) => (this.stdout += text.toString()));
    this.child.stderr!.on("data", (text: Buffer) => (this.stderr += text.toString()));
    started.add(this.child);
  }

  async ready(): Promise<string[]> {
    await until(() => this.stderr.includes("\n") || this.child.exitCode !== null);
    const found = /^worker: serving (\d+) policies on (.*)\n/.exec(this.stderr);
    assert.ok(found, this.stderr);
    return found[2]!.split(", ");
  }

  async status(): Promise<number> {
    return (await this.exited)[0] as number;
  }
}

test("it serves, says where, and stops with 0", async () => {
  const folder = mkdtempSync(join(tmpdir(), "worker-"));
  const path = join(folder, "socket");
  const dead = new Worker(SAMPLES, "--listen", `unix:${path}`);
  await dead.ready();
  dead.child.kill("SIGKILL");
  await dead.exited;
  assert.ok(existsSync(path), "a killed worker leaves its socket");
  const worker = new Worker(SAMPLES, "--listen", "127.0.0.1:0", "--listen", `unix:${path}`);
  const addresses = await worker.ready();
  assert.equal(addresses.length, 2);
  for (const address of addresses) {
    const gateway = new Gateway(address);
    assert.equal((await gateway.review("deny-latest-tag", {})).response?.allowed, true);
    gateway.close();
  }
  const second = new Worker(SAMPLES, "--listen", `unix:${path}`);
  assert.equal(await second.status(), 1);
  assert.equal(second.stderr, `worker: unix:${path}: Address already in use\n`);
  worker.child.kill("SIGTERM");
  assert.equal(await worker.status(), 0);
  assert.equal(worker.stderr.split("\n").length, 2, worker.stderr);
  assert.equal(existsSync(path), false);
  rmSync(folder, { recursive: true });
});

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  test(`a second ${signal} ends it at once`, async () => {
    const worker = new Worker(SAMPLES, "--listen", "127.0.0.1:0");
    const [address] = await worker.ready();
    const gateway = new Gateway(address!);
    const stream = gateway.stream();
    stream.ask(["sleeps", "deny-latest-tag"], {}, { timeoutMillis: 60_000 });
    await stream.message();
    worker.child.kill(signal);
    assert.equal((await stream.message()).draining, true);
    worker.child.kill(signal);
    assert.equal(await worker.status(), signal === "SIGTERM" ? 143 : 130);
    gateway.close();
  });
}

test("after the grace what still runs is cut off", async () => {
  const worker = new Worker(SAMPLES, "--listen", "127.0.0.1:0", "--grace", "0.2");
  const [address] = await worker.ready();
  const gateway = new Gateway(address!);
  const stream = gateway.stream();
  stream.ask(["sleeps", "deny-latest-tag"], {}, { timeoutMillis: 60_000 });
  await stream.message();
  worker.child.kill("SIGTERM");
  assert.equal(await worker.status(), 0);
  gateway.close();
});

test("what nobody caught is logged, and does not end the worker", async () => {
  const program = `
    import { PolicyServer } from ${JSON.stringify(new URL("../index.js", import.meta.url).href)};
    const server = new PolicyServer();
    server.policy("leaks", () => {
      void Promise.reject(new Error("left behind"));
      setTimeout(() => { throw new Error("thrown later"); });
    });
    server.main(["--listen", "127.0.0.1:0"]);`;
  const worker = new Worker("--input-type=module", "--eval", program);
  const [address] = await worker.ready();
  const gateway = new Gateway(address!);
  for (let times = 0; times < 2; times++) {
    assert.equal((await gateway.review("leaks", {})).response?.allowed, true);
    await until(() => worker.stderr.split("thrown later").length > times + 1);
  }
  assert.match(worker.stderr, /left behind/);
  gateway.close();
  worker.child.kill("SIGTERM");
  assert.equal(await worker.status(), 0);
});

test("it goes on when nobody reads its stderr any more", async () => {
  const worker = new Worker(SAMPLES, "--listen", "127.0.0.1:0");
  const [address] = await worker.ready();
  worker.child.stderr!.destroy();
  const gateway = new Gateway(address!);
  for (let times = 0; times < 3; times++) {
    assert.equal((await gateway.review("fails", {})).error?.code, 13);
    await sleep(1100); // no failure within a second of the last is logged
  }
  assert.equal((await gateway.review("deny-latest-tag", {})).response?.allowed, true);
  gateway.close();
  worker.child.kill("SIGTERM");
  assert.equal(await worker.status(), 0);
});

test("usage", async () => {
  const help = new Worker(SAMPLES, "--help");
  const wrong = new Worker(SAMPLES, "--nonsense");
  const failing = new Worker(SAMPLES, "--tls-cert", "/a", "--tls-key", "/b");
  assert.deepEqual([await help.status(), await wrong.status(), await failing.status()], [0, 2, 1]);
  assert.match(help.stdout, /^ {2}--listen ADDRESS /m);
  assert.equal(help.stderr, "");
  assert.equal(wrong.stderr, "worker: Unknown option '--nonsense'\n");
  assert.equal(failing.stderr, "worker: /b: no such file or directory\n");
});
