/**
 * Computations in steps: all reviews share one thread, and one of several MiB takes hundreds of milliseconds to be parsed,
 * compared and written. Such a review has its turn for some milliseconds at a time, between which others are served.
 */

/** A computation that yields wherever others may have their turn. */
export type Steps<Result> = Generator<undefined, Result, undefined>;

/** A review of more JSON is evaluated in steps: also the densest of so much takes only some 20 ms. */
export const LARGE_BYTES = 64 * 1024;

/** Time after which others have their turn. */
const SLICE_MS = 4;

/** A value of more parts is not one step. */
const MAX_PARTS = 2000;

/** Characters of a string that take as long as another part. */
const CHARACTERS = 64;

interface Task {
  readonly steps: Steps<void>;
  readonly isOver: () => boolean;
  readonly resolve: (hasEnded: boolean) => void;
  readonly reject: (problem: unknown) => void;
}

/** By client; the first is the next. */
const waiting = new Map<object, Task[]>();

/** An instant of `performance.now()`; infinite while a computation runs at once. */
let sliceEnds = Infinity;

/** Runs a computation at once. */
export function finish<Result>(steps: Steps<Result>): Result {
  const before = sliceEnds;
  sliceEnds = Infinity;
  try {
    for (;;) {
      const { done, value } = steps.next();
      if (done === true) return value;
    }
  } finally {
    sliceEnds = before;
  }
}

/**
 * Runs a computation beside others: those of a client in order, but for one that is `first`, and clients in turns. Returns
 * false if it was given up because `isOver` holds.
 */
export function inTurns(
  client: object,
  steps: Steps<void>,
  isOver: () => boolean,
  isFirst = false,
): Promise<boolean> {
  return new Promise((resolve, reject) => {
    if (waiting.size === 0) setImmediate(runSlice);
    const tasks = waiting.get(client);
    const task = { steps, isOver, resolve, reject };
    if (tasks === undefined) waiting.set(client, [task]);
    else if (isFirst) tasks.unshift(task);
    else tasks.push(task);
  });
}

function runSlice(): void {
  sliceEnds = performance.now() + SLICE_MS;
  try {
    do {
      const [client, tasks] = waiting.entries().next().value!;
      if (runTask(tasks[0]!)) tasks.shift();
      waiting.delete(client);
      if (tasks.length > 0) waiting.set(client, tasks);
    } while (waiting.size > 0 && !isSliceOver());
  } finally {
    sliceEnds = Infinity;
  }
  if (waiting.size > 0) setImmediate(runSlice);
}

/** Runs a task until the end of the slice; returns whether it has ended. */
function runTask({ steps, isOver, resolve, reject }: Task): boolean {
  try {
    const isGivenUp = isOver();
    const isEnd = isGivenUp || steps.next().done === true;
    if (isEnd) resolve(!isGivenUp);
    return isEnd;
  } catch (problem) {
    reject(problem);
    return true;
  }
}

/** Whether a computation is to yield. */
export function isSliceOver(): boolean {
  return sliceEnds !== Infinity && performance.now() >= sliceEnds;
}

/** Whether an object or array has so many parts that it is to be read in steps; never while the computation runs at once. */
export function isLarge(value: unknown): value is object {
  return typeof value === "object" && value !== null && sliceEnds !== Infinity && left(value, MAX_PARTS) <= 0;
}

/** Returns what is left of `most` parts after those of a value. */
function left(value: unknown, most: number): number {
  if (typeof value === "string") return most - 1 - Math.floor(value.length / CHARACTERS);
  if (typeof value !== "object" || value === null) return most - 1;
  most--;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length && most > 0; index++) most = left(value[index], most);
    return most;
  }
  for (const key in value) {
    if (most <= 0) break;
    most = left((value as Record<string, unknown>)[key], most);
  }
  return most;
}
