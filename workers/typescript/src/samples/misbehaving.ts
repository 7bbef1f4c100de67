/** Two policies that go wrong on purpose, to see what failurePolicy and timeoutSeconds do. */

import { setTimeout as sleep } from "node:timers/promises";

import type { Review } from "../index.js";

/** Twice the longest timeout that a webhook can have. */
const SLEEP_MS = 60_000;

export async function sleeps(review: Review): Promise<void> {
  await sleep(SLEEP_MS, undefined, { signal: review.signal });
}

export function fails(review: Review): void {
  throw new Error(`this policy always fails (review ${review.uid})`);
}
