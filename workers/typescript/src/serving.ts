/**
 * One running gRPC server: ports, health, and shutdown. At shutdown health becomes NOT_SERVING and every stream gets
 * the drain notice, the listeners close, calls in flight finish within the grace period, and the rest is aborted.
 */

import { setTimeout as sleep } from "node:timers/promises";

import { Server, ServerCredentials } from "@grpc/grpc-js";

import { MAX_MESSAGE_BYTES } from "./answer.js";
import { Connections, counting } from "./connections.js";
import { LONGEST_TIMER_MS } from "./evaluation.js";
import { Health } from "./health.js";
import { addressText, claim, credentials, startError, type Address, type Tls } from "./listen.js";
import { Limits } from "./limits.js";
import { MetricsServer } from "./metrics.js";
import type { Policy } from "./policy.js";
import { PolicyWorker } from "./service.js";

/** The gateway's default drain time, and less than the 30 s of a pod's grace period. */
export const DEFAULT_GRACE_MS = 10_000;

/** Time for idle connections to close. */
const CLOSE_MS = 100;

const OPTIONS = {
  "grpc.max_receive_message_length": MAX_MESSAGE_BYTES,
  "grpc.max_send_message_length": MAX_MESSAGE_BYTES,
  // As often as the gateway does it. How often the gateway pings, grpc-js does not limit.
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
  // Of one connection: a gateway has a stream, and as many calls of Review as its maxInFlight.
  "grpc.max_concurrent_streams": 4096,
};

/**
 * A server on some addresses. (Channelz stays on, though it is not served: without it grpc-js's
 * `forceShutdown` leaves connections open.)
 */
export class Serving {
  readonly #limits = new Limits();
  readonly #server = new Server({ ...OPTIONS, interceptors: [counting(this.#limits)] });
  readonly #connections = new Connections(this.#limits);
  readonly #health = new Health();
  readonly #worker: PolicyWorker;
  readonly #policies: ReadonlyMap<string, Policy>;
  /** Undefined if they are not served. */
  metrics: MetricsServer | undefined;

  constructor(policies: ReadonlyMap<string, Policy>) {
    this.#policies = policies;
    this.#worker = new PolicyWorker(policies, this.#limits);
    this.#worker.addTo(this.#server);
    this.#health.addTo(this.#server);
  }

  /**
   * Binds and serves; returns what was bound, with the ports that were chosen.
   *
   * @throws StartError - an address cannot be bound, or the TLS files cannot be used.
   */
  async start(
    addresses: readonly Address[],
    tls: Tls | undefined,
    metricsListen: string | undefined,
  ): Promise<string[]> {
    const secret = tls === undefined ? ServerCredentials.createInsecure() : credentials(tls);
    try {
      if (metricsListen !== undefined) {
        this.metrics = new MetricsServer(this.#policies);
        await this.metrics.start(metricsListen);
      }
      const bound: string[] = [];
      for (const address of addresses) {
        await claim(address);
        const port = await this.#bind(address, secret);
        bound.push(addressText(address.path === undefined ? { ...address, port } : address));
      }
      return bound;
    } catch (problem) {
      this.#server.forceShutdown();
      this.metrics?.stop();
      throw problem;
    }
  }

  #bind(address: Address, secret: ServerCredentials): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.bindAsync(addressText(address), secret, (problem, port) => {
        this.#connections.watch(this.#server);
        if (problem === null) resolve(port);
        else reject(startError(address, problem));
      });
    });
  }

  /** Drains for at most `graceMs`, then cancels the remaining calls. */
  async stop(graceMs: number): Promise<void> {
    this.#health.stopServing();
    this.#worker.drain();
    const closed = new Promise<void>((resolve) => this.#server.tryShutdown(() => resolve()));
    await within(graceMs, this.#worker.idle());
    this.#health.endWatches();
    await within(CLOSE_MS, closed);
    this.#server.forceShutdown();
    this.metrics?.stop();
  }
}

/** Waits for a promise, but no longer than that. */
async function within(ms: number, promise: Promise<void>): Promise<void> {
  const timer = new AbortController();
  const timeout = sleep(Math.min(ms, LONGEST_TIMER_MS), undefined, { signal: timer.signal }).catch(
    () => undefined,
  );
  await Promise.race([promise, timeout]);
  timer.abort();
}
