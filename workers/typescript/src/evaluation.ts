/**
 * Running policies. Independent of gRPC: the caller gets the outcome as return value or through `finish`.
 *
 * A plain function ends at once. An async one gives a promise, also where it awaits nothing; whoever sends the
 * outcome lets such promises settle first (`afterPromises`), so that their verdicts still go out with the others.
 */

import { status } from "@grpc/grpc-js";

import { ended, failure, threw, tooLate, withParameters, type Outcome } from "./answer.js";
import type { Meter } from "./meter.js";
import { NONE, ParametersRefused } from "./parameters.js";
import type { Policy } from "./policy.js";
import type { Review } from "./review.js";
import { inTurns } from "./steps.js";

/** setTimeout takes no more, and fires at once when given more. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Runs a policy and returns its outcome, or the call that goes on; then `finish` is called with the outcome later,
 * never before this returns. `parameters` is the JSON of those of the call; empty: none.
 */
export function begin(
  policy: Policy,
  review: Review,
  finish: (outcome: Outcome) => void,
  parameters = NONE,
): Outcome | RunningCall {
  if (parameters.length === 0) return counted(policy, review, finish, parameters);
  const outcome = counted(policy, review, (later) => finish(withParameters(later)), parameters);
  return outcome instanceof RunningCall ? outcome : withParameters(outcome);
}

function counted(
  policy: Policy,
  review: Review,
  finish: (outcome: Outcome) => void,
  parameters: Buffer,
): Outcome | RunningCall {
  const { meter } = policy;
  if (meter === undefined) return start(policy, review, finish, parameters);
  const started = review.remainingMs > 0 ? performance.now() : undefined;
  const count = (later: Outcome): void => {
    meter.count(later, started);
    finish(later);
  };
  const outcome = start(policy, review, count, parameters);
  if (!(outcome instanceof RunningCall)) meter.count(outcome, started);
  return outcome;
}

function start(
  policy: Policy,
  review: Review,
  finish: (outcome: Outcome) => void,
  parameters: Buffer,
): Outcome | RunningCall {
  if (review.remainingMs <= 0) return tooLate();
  if (parameters.length > 0 || policy.parameters !== undefined) {
    try {
      review.parameters = policy.prepared.get(policy, review, parameters);
    } catch (problem) {
      if (problem instanceof ParametersRefused) return failure(status.INVALID_ARGUMENT, problem.message);
      throw problem;
    }
  }
  const { run } = policy;
  try {
    const result: unknown = review.isLarge ? runLarge(policy, review) : run(review);
    if (result === undefined) return ended(policy, review, result);
    // As a promise of our own: another library's may throw in `then`, or call back at once, or twice.
    return new RunningCall(policy, review, Promise.resolve(result), finish);
  } catch (problem) {
    return threw(policy, review, problem);
  }
}

/** The result of a policy whose deadline has passed. */
const TOO_LATE = Symbol("too late");

/** Runs a policy; the rest of a large review is done in steps. */
async function runLarge({ run, mutating }: Policy, review: Review): Promise<unknown> {
  const isOver = (): boolean => review.isOver;
  if (!(await inTurns(review.client, review.read(), isOver))) return TOO_LATE;
  const result: unknown = await run(review);
  if (!mutating || result !== undefined) return result;
  // Before the next review of this client is read: its memory is free then.
  return (await inTurns(review.client, review.settle(), isOver, true)) ? result : TOO_LATE;
}

/** A running call. `finish` is called once with its outcome, but not after a cancellation. */
export class RunningCall {
  readonly #review: Review;
  readonly #meter: Meter | undefined;
  #finish: ((outcome: Outcome) => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Called when the policy has ended, also after a cancellation. */
  released: (() => void) | undefined;

  constructor(policy: Policy, review: Review, result: Promise<unknown>, finish: (outcome: Outcome) => void) {
    this.#review = review;
    this.#finish = finish;
    this.#meter = policy.meter;
    if (this.#meter !== undefined) this.#meter.inFlight++;
    result.then(
      (value) => this.#policyEnded(() => (value === TOO_LATE ? tooLate() : ended(policy, review, value))),
      (problem) => this.#policyEnded(() => threw(policy, review, problem)),
    );
  }

  /** Watches the deadline from now on; not from the start, since most calls end before there is need to. */
  watchDeadline(): void {
    if (this.#finish === undefined || this.#review.deadline === Infinity) return;
    const delay = Math.min(Math.max(this.#review.remainingMs, 0), LONGEST_TIMER_MS);
    this.#timer = setTimeout(() => this.#expire(), delay);
  }

  /** Cancels the call. */
  cancel(): void {
    this.#end();
    this.#abort();
  }

  #policyEnded(outcome: () => Outcome): void {
    if (this.#finish !== undefined) this.#settle(outcome());
    this.released?.();
  }

  #expire(): void {
    if (this.#review.remainingMs > 0) return this.watchDeadline(); // timers may come a little early
    this.#settle(tooLate());
    this.#abort();
  }

  #abort(): void {
    const isLate = this.#review.remainingMs <= 0;
    const [text, name] = isLate
      ? ["the deadline of this review has passed", "TimeoutError"]
      : ["the gateway no longer wants the answer", "AbortError"];
    this.#review.abort(new DOMException(text, name));
  }

  #settle(outcome: Outcome): void {
    const finish = this.#finish;
    this.#end();
    finish?.(outcome);
  }

  #end(): void {
    clearTimeout(this.#timer);
    if (this.#meter !== undefined && this.#finish !== undefined) this.#meter.inFlight--;
    this.#finish = undefined;
  }
}

/** Calls back once all promises that can settle without waiting for anything have settled. */
export function afterPromises(callback: () => void): void {
  // Node runs its nextTick queue when the queue of promise callbacks is empty, and that is where this adds to it.
  queueMicrotask(() => process.nextTick(callback));
}
