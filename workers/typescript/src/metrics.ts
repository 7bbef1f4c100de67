/**
 * The metrics of a worker over HTTP, in Prometheus' text format. It is written here: prom-client is deprecated, its successor
 * `@prometheus-io/client` needs Node 22, and both depend on OpenTelemetry's API, as no worker is to.
 */

import { readdirSync, readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import { addressText, parseAddress, startError, StartError, type Address } from "./listen.js";
import { BOUNDS_S, Meter } from "./meter.js";
import type { Policy } from "./policy.js";

export const METRICS_PATH = "/metrics";

/** Bounds of a request and of their number: the port has no authentication. */
const REQUEST_TIMEOUT_MS = 5000;
const MAX_CONNECTIONS = 16;
const MAX_HEADER_BYTES = 8192;

const SDK_VERSION = (
  JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as { version: string }
).version;

/** Returns the address of `--metrics-listen`. @throws StartError - it is not HOST:PORT. */
export function parseMetricsAddress(text: string): Address {
  const address = parseAddress(text);
  if (address.path !== undefined) throw new StartError("HOST:PORT is expected");
  return address;
}

/** Serves the metrics of some policies. */
export class MetricsServer {
  readonly #policies: ReadonlyMap<string, Policy>;
  readonly #server: Server;
  /** HOST:PORT, once it is started. */
  address = "";

  /** Counts the calls of the policies from now on. */
  constructor(policies: ReadonlyMap<string, Policy>) {
    this.#policies = policies;
    for (const policy of policies.values()) policy.meter ??= new Meter();
    const limits = {
      requestTimeout: REQUEST_TIMEOUT_MS,
      headersTimeout: REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: 1000,
      maxHeaderSize: MAX_HEADER_BYTES,
    };
    this.#server = createServer(limits, (request, answer) => this.#answer(request, answer));
    this.#server.maxConnections = MAX_CONNECTIONS;
    this.#server.setTimeout(2 * REQUEST_TIMEOUT_MS);
  }

  /** @throws StartError - the address is malformed or cannot be bound. */
  async start(listen: string): Promise<void> {
    try {
      const address = parseMetricsAddress(listen);
      await new Promise<void>((resolve, reject) => {
        this.#server.once("error", (problem) => reject(startError(address, problem)));
        this.#server.listen({ host: address.host, port: address.port, exclusive: true }, resolve);
      });
      this.address = addressText({ ...address, port: (this.#server.address() as AddressInfo).port });
    } catch (problem) {
      throw new StartError(`--metrics-listen: ${(problem as Error).message}`);
    }
  }

  stop(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #answer(request: IncomingMessage, answer: ServerResponse): void {
    const send = (code: number, text: string): void => {
      // Version 0.0.4 of Prometheus' text format.
      const type = code === 200 ? "text/plain; version=0.0.4; charset=utf-8" : "text/plain; charset=utf-8";
      answer.writeHead(code, { "content-type": type, connection: "close" }).end(text);
    };
    if (request.url?.split("?", 1)[0] !== METRICS_PATH) send(404, `the metrics are at ${METRICS_PATH}\n`);
    else if (request.method !== "GET" && request.method !== "HEAD")
      send(405, "only GET and HEAD are served\n");
    else send(200, exposition(this.#policies.values()));
  }
}

/** Returns the metrics in Prometheus' text format. */
export function exposition(policies: Iterable<Policy>): string {
  const lines: string[] = [];
  const family = (name: string, kind: string, help: string): void => {
    lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${kind}`);
  };
  const metered = [...policies].flatMap(({ name, meter }) =>
    meter === undefined ? [] : [{ policy: `policy=${label(name)}`, meter }],
  );

  const build = "admission_gateway_worker_build_info";
  family(build, "gauge", "The SDK of the worker.");
  lines.push(`${build}{sdk="typescript",version=${label(SDK_VERSION)},runtime=${label(process.version)}} 1`);

  const reviews = "admission_gateway_worker_policy_reviews_total";
  family(reviews, "counter", "Reviews by outcome; error: the policy failed or exceeded its deadline.");
  for (const { policy, meter } of metered) {
    for (const [outcome, count] of Object.entries(meter.reviews)) {
      lines.push(`${reviews}{${policy},outcome="${outcome}"} ${count}`);
    }
  }

  const inFlight = "admission_gateway_worker_policy_in_flight";
  family(inFlight, "gauge", "Reviews whose policy has begun and that have no answer yet.");
  for (const { policy, meter } of metered) lines.push(`${inFlight}{${policy}} ${meter.inFlight}`);

  const duration = "admission_gateway_worker_policy_duration_seconds";
  family(duration, "histogram", "Time from the begin of a policy to its answer.");
  for (const { policy, meter } of metered) {
    let total = 0;
    for (const [index, count] of meter.durations.entries()) {
      total += count;
      lines.push(`${duration}_bucket{${policy},le="${BOUNDS_S[index] ?? "+Inf"}"} ${total}`);
    }
    lines.push(`${duration}_sum{${policy}} ${meter.seconds}`, `${duration}_count{${policy}} ${total}`);
  }

  const single = (name: string, kind: string, help: string, value: number): void => {
    family(name, kind, help);
    lines.push(`${name} ${value}`);
  };
  const { user, system } = process.cpuUsage();
  const rss = process.memoryUsage.rss();
  single(
    "process_cpu_seconds_total",
    "counter",
    "CPU time of the process in seconds.",
    (user + system) / 1e6,
  );
  single("process_resident_memory_bytes", "gauge", "Resident memory of the process in bytes.", rss);
  const files = openFiles();
  if (files > 0) single("process_open_fds", "gauge", "Open file descriptors of the process.", files);
  const started = Date.now() / 1000 - process.uptime();
  single("process_start_time_seconds", "gauge", "Start of the process in seconds since 1970.", started);
  return `${lines.join("\n")}\n`;
}

/** Returns a value for a label, escaped as the text format requires. */
function label(text: string): string {
  return `"${text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n").replaceAll('"', '\\"')}"`;
}

/** Returns the number of open file descriptors; 0 where there is no /proc. */
function openFiles(): number {
  try {
    return readdirSync("/proc/self/fd").length;
  } catch {
    return 0;
  }
}
