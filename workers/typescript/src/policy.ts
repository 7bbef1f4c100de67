/** A registered policy. Errors in a registration are thrown at once. */

import type { Meter } from "./meter.js";
import type { Review } from "./review.js";

/** Allows by returning, denies by throwing `Denied`. */
export type PolicyFunction = (review: Review) => void | Promise<void>;

export interface PolicyOptions {
  /** Whether it may change the object. */
  mutating?: boolean;
  /** One line for ListPolicies. */
  description?: string;
  /** Of its code and settings; opaque, for logs and caches. */
  version?: string;
}

export class Policy {
  readonly mutating: boolean;
  readonly description: string;
  readonly version: string;
  /** Time of `performance.now()` before which no further failure is logged. */
  quietUntil = 0;
  /** Failures since the last logged failure. */
  unlogged = 0;
  /** Undefined without metrics. */
  meter: Meter | undefined;

  /** @throws TypeError - the name is no printable text, or there is no function of one Review. */
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
  }
}
