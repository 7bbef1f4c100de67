/** Counts the calls of one policy, for `metrics.ts`. */

import { status } from "@grpc/grpc-js";

import type { Outcome } from "./answer.js";

/** Upper bounds of the duration histogram in seconds, the same in the SDKs of all languages. */
export const BOUNDS_S = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
] as const;

export class Meter {
  readonly reviews = { allowed: 0, denied: 0, error: 0 };
  /** Durations up to each bound and above the one before; the last: above all bounds. */
  readonly durations = new Array<number>(BOUNDS_S.length + 1).fill(0);
  seconds = 0;
  inFlight = 0;

  /** Counts an outcome. `started` is a time of `performance.now()`; undefined if the policy has not begun. */
  count({ response, error }: Outcome, started?: number): void {
    if (error?.code === status.CANCELLED) return;
    this.reviews[error !== undefined ? "error" : response!.allowed ? "allowed" : "denied"]++;
    if (started === undefined) return;
    const seconds = (performance.now() - started) / 1000;
    let bucket = 0;
    while (bucket < BOUNDS_S.length && seconds > BOUNDS_S[bucket]!) bucket++;
    this.durations[bucket]!++;
    this.seconds += seconds;
  }
}
