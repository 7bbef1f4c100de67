/** Two faulty policies, to demonstrate failurePolicy and timeoutSeconds. */

import { setTimeout as sleep } from "node:timers/promises";

import type { Review } from "../index.js";

/** Twice the longest timeout of a webhook. */
const SLEEP_MS = 60_000;

export async function sleeps(review: Review): Promise<void> {
  await sleep(SLEEP_MS, undefined, { signal: review.signal });
}

export function fails(review: Review): void {
  throw new Error(`this policy always fails (review ${review.uid})`);
}
