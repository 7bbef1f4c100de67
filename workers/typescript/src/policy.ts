/** A registered policy. Errors in a registration are thrown at once. */

import type { Meter } from "./meter.js";
import { PreparedParameters } from "./parameters.js";
import type { Review } from "./review.js";

/** Allows by returning, denies by throwing `Denied`. */
export type PolicyFunction = (review: Review) => void | Promise<void>;

/** Gets the parameters as the gateway has checked them. */
export type PrepareFunction = (parameters: any) => unknown;

export interface PolicyOptions {
  /** Whether it may change the object. */
  mutating?: boolean;
  /** One line for ListPolicies. */
  description?: string;
  /** Of its code and settings; opaque, for logs and caches. */
  version?: string;
  /** JSON Schema of the parameters; without it the policy takes none. */
  parameters?: object;
  /**
   * Makes `review.parameters` from the parameters, once for each value; calls share the result. If it throws, the calls
   * with that value fail.
   */
  prepare?: PrepareFunction;
}

export class Policy {
  readonly mutating: boolean;
  readonly description: string;
  readonly version: string;
  /** JSON of the schema of the parameters; undefined: it takes none. */
  readonly parameters: string | undefined;
  readonly prepare: PrepareFunction;
  readonly prepared = new PreparedParameters();
  /** Time of `performance.now()` before which no further failure is logged. */
  quietUntil = 0;
  /** Failures since the last logged failure. */
  unlogged = 0;
  /** Undefined without metrics. */
  meter: Meter | undefined;

  /** @throws TypeError - the name is no printable text, there is no function of one Review, or the parameters are wrong. */
  constructor(
    readonly name: string,
    options: PolicyOptions,
    readonly run: PolicyFunction,
  ) {
    if (typeof name !== "string" || name.trim() === "" || /[\p{C}\p{Zl}\p{Zp}]/u.test(name)) {
      throw new TypeError(`the name of a policy is some printable text, found ${JSON.stringify(name)}`);
    }
    if (typeof run !== "function" || run.length > 1) {
      throw new TypeError(`policy "${name}" is to be a function of one Review`);
    }
    this.mutating = options.mutating ?? false;
    this.description = options.description ?? "";
    this.version = options.version ?? "";
    const { parameters, prepare } = options;
    if (parameters !== undefined && (typeof parameters !== "object" || parameters === null)) {
      throw new TypeError(`parameters of policy "${name}" are to be a JSON Schema, an object`);
    }
    if (prepare !== undefined && (typeof prepare !== "function" || parameters === undefined)) {
      throw new TypeError(`prepare of policy "${name}" is to be a function, beside parameters`);
    }
    this.parameters = parameters === undefined ? undefined : JSON.stringify(parameters);
    this.prepare = prepare ?? ((given: object): object => given);
  }
}
