/** The worker's log: records on stderr, each one line. No text in it can begin another record. */

import type { Policy } from "./policy.js";
import type { Review } from "./review.js";

/** Interval of logged failures for each policy: logging all failures would use too much CPU. */
const FAILURE_INTERVAL_MS = 1000;

/** Begins each line of a stack trace; no record begins with it. */
const CONTINUED = "    | ";

/** Limit of each value in a record, and of a line of a stack trace. */
const MAX_CHARACTERS = 1000;

const MAX_STACK_LINES = 100;

const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/gu;

/**
 * Logs a failed review as one line, with the stack trace in marked lines after it. Logs one failure a second for each
 * policy, and counts the others in the next one.
 */
export function logFailure(policy: Policy, review: Review, problem: unknown): void {
  const now = performance.now();
  if (now < policy.quietUntil) {
    policy.unlogged++;
    return;
  }
  const uid = uidOf(review);
  const parts = [
    `policy=${quoted(policy.name)}`,
    uid && `uid=${quoted(uid)}`,
    review.traceparent && `trace_id=${quoted(review.traceparent.slice(3, 35))}`,
    `error=${quoted(describe(problem))}`,
    policy.unlogged > 0 && `dropped=${policy.unlogged}`,
  ];
  logError(`policy failed: ${parts.filter(Boolean).join(" ")}`, problem);
  policy.quietUntil = now + FAILURE_INTERVAL_MS;
  policy.unlogged = 0;
}

/** Logs an error that nobody caught. */
export function logUncaught(problem: unknown): void {
  logError(`uncaught error: error=${quoted(describe(problem))}`, problem);
}

/** Writes a record, whose text has only quoted values, and the stack trace of `problem`, if it has one. */
function logError(text: string, problem: unknown): void {
  const lines = [`${new Date().toISOString()} ERROR worker: ${text}`];
  for (const line of stackOf(problem)) lines.push(CONTINUED + escaped(line.slice(0, MAX_CHARACTERS)));
  console.error("%s", lines.join("\n"));
}

function quoted(text: string): string {
  return escaped(JSON.stringify(text.slice(0, MAX_CHARACTERS)));
}

function escaped(text: string): string {
  return text.replace(UNPRINTABLE, (found) => `\\u${found.codePointAt(0)!.toString(16).padStart(4, "0")}`);
}

/** Returns type and text; anything can be thrown, also what refuses to be looked at. */
function describe(problem: unknown): string {
  try {
    if (!(problem instanceof Error)) return String(problem);
    const name = problem.name === "Error" ? problem.constructor.name : problem.name;
    return `${name}: ${problem.message}`;
  } catch {
    return `a thrown ${typeof problem}`;
  }
}

function stackOf(problem: unknown): string[] {
  try {
    const stack: unknown = problem instanceof Error ? problem.stack : undefined;
    return typeof stack === "string" ? stack.split("\n", MAX_STACK_LINES) : [];
  } catch {
    return [];
  }
}

/** Returns the uid of the request; empty if the request is malformed, or if the policy has changed it. */
function uidOf(review: Review): string {
  try {
    const uid: unknown = review.uid;
    return typeof uid === "string" ? uid : "";
  } catch {
    return "";
  }
}
