/** `PolicyServer`: the policies of a worker, and its server. */

import { DEFAULT_LISTEN, parseAddress, type Tls } from "./listen.js";
import { main } from "./main.js";
import { Policy, type PolicyFunction, type PolicyOptions } from "./policy.js";
import { DEFAULT_GRACE_MS, Serving } from "./serving.js";

/**
 * Serves policies to gateways. Register functions with `policy`; then `main` runs a program, or `start` and `stop` a
 * server within one.
 */
export class PolicyServer {
  readonly #policies = new Map<string, Policy>();
  #serving: Serving | undefined;

  /** The policies by name, in the order of registration. */
  get policies(): ReadonlyMap<string, Policy> {
    return this.#policies;
  }

  /**
   * Registers a function of one Review, which may be async: it returns nothing to allow and throws `Denied` to deny.
   *
   * @throws TypeError - the name is no printable text, or it is no such function.
   * @throws Error - the name is taken.
   */
  policy(name: string, policy: PolicyFunction): void;
  policy(name: string, options: PolicyOptions, policy: PolicyFunction): void;
  policy(name: string, ...rest: [PolicyFunction] | [PolicyOptions, PolicyFunction]): void {
    const [options, run] = rest.length === 1 ? [{}, rest[0]] : rest;
    const policy = new Policy(name, options, run);
    if (this.#policies.has(name)) throw new Error(`policy "${name}" is already registered`);
    this.#policies.set(name, policy);
  }

  /**
   * Serves on the addresses (127.0.0.1:50051 where there is none) and returns them, with the port in place of a 0.
   * `metricsListen` is the HOST:PORT of the metrics, over plain HTTP at /metrics; without it there are none.
   *
   * @throws StartError - an address or a file cannot be used.
   * @throws Error - no policy is registered, or it is serving already.
   */
  async start(
    listen: string | readonly string[] = DEFAULT_LISTEN,
    tls?: Tls,
    metricsListen?: string,
  ): Promise<string[]> {
    if (this.#policies.size === 0) throw new Error("no policy is registered: call server.policy(...) first");
    if (this.#serving !== undefined) throw new Error("the server is started already");
    const addresses = [listen].flat().map(parseAddress);
    const serving = (this.#serving = new Serving(this.#policies));
    try {
      return await serving.start(addresses, tls, metricsListen);
    } catch (problem) {
      this.#serving = undefined;
      throw problem;
    }
  }

  /** HOST:PORT of the metrics; empty if there are none. */
  get metricsAddress(): string {
    return this.#serving?.metrics?.address ?? "";
  }

  /** Drains for at most `graceMs` milliseconds and stops. Does nothing if it is not serving. */
  async stop(graceMs = DEFAULT_GRACE_MS): Promise<void> {
    const serving = this.#serving;
    this.#serving = undefined;
    await serving?.stop(graceMs);
  }

  /** Serves as a program until SIGTERM or SIGINT and ends the process: 0 after a shutdown, 1 if the start fails. */
  main(argv: readonly string[] = process.argv.slice(2)): void {
    void main(this, argv);
  }
}
