/** What `json.ts` does, in steps. */

import { byCodePoint, clone, plain, set, sorted, writeJson } from "./json.js";
import { isLarge, isSliceOver, type Steps } from "./steps.js";

type JsonObject = Record<string, unknown>;

/** Keys that are sorted in one step. */
const MAX_SORTED = 2000;

/** As `clone`. */
export function* cloneInSteps(value: unknown): Steps<unknown> {
  if (!isLarge(value)) return clone(value);
  if (Array.isArray(value)) {
    const copy: unknown[] = [];
    for (const item of value) {
      copy.push(isLarge(item) ? yield* cloneInSteps(item) : clone(item));
      if (isSliceOver()) yield;
    }
    return copy;
  }
  const copy: JsonObject = {};
  for (const key of Object.keys(value)) {
    const member = (value as JsonObject)[key];
    set(copy, key, isLarge(member) ? yield* cloneInSteps(member) : clone(member));
    if (isSliceOver()) yield;
  }
  return copy;
}

/** As `plain`; what is neither an array nor a plain object is one step. */
export function* plainInSteps(value: unknown): Steps<unknown> {
  if (!isLarge(value)) return plain(value);
  let isPlain = true;
  if (Array.isArray(value)) {
    const copy: unknown[] = [];
    for (const item of value) {
      const kept = (isLarge(item) ? yield* plainInSteps(item) : plain(item)) ?? null;
      isPlain &&= kept === item;
      copy.push(kept);
      if (isSliceOver()) yield;
    }
    return isPlain ? value : copy;
  }
  if (Object.getPrototypeOf(value) !== Object.prototype || "toJSON" in value) return plain(value);
  const copy: JsonObject = {};
  for (const key of Object.keys(value)) {
    const member = (value as JsonObject)[key];
    const kept = isLarge(member) ? yield* plainInSteps(member) : plain(member);
    isPlain &&= kept === member && kept !== undefined;
    if (kept !== undefined) set(copy, key, kept);
    if (isSliceOver()) yield;
  }
  return isPlain ? value : copy;
}

/** As `writeJson`. */
export function* writeInSteps(value: unknown): Steps<string> {
  if (!isLarge(value)) return writeJson(value);
  const texts: string[] = [];
  if (Array.isArray(value)) {
    for (const item of value) {
      texts.push(isLarge(item) ? yield* writeInSteps(item) : writeJson(item));
      if (isSliceOver()) yield;
    }
    return `[${texts.join(",")}]`;
  }
  for (const key of yield* sortInSteps(Object.keys(value))) {
    const member = (value as JsonObject)[key];
    texts.push(`${JSON.stringify(key)}:${isLarge(member) ? yield* writeInSteps(member) : writeJson(member)}`);
    if (isSliceOver()) yield;
  }
  return `{${texts.join(",")}}`;
}

/** As `sorted`, but not in place. */
export function* sortInSteps(keys: string[]): Steps<string[]> {
  const runs: string[][] = [];
  for (let at = 0; at < keys.length; at += MAX_SORTED) {
    runs.push(sorted(keys.slice(at, at + MAX_SORTED)));
    if (isSliceOver()) yield;
  }
  while (runs.length > 1) runs.push(yield* merged(runs.shift()!, runs.shift()!));
  return runs[0] ?? [];
}

function* merged(left: string[], right: string[]): Steps<string[]> {
  const keys: string[] = [];
  for (let one = 0, other = 0; one < left.length || other < right.length;) {
    const isLeft =
      other === right.length || (one < left.length && byCodePoint(left[one]!, right[other]!) < 0);
    keys.push(isLeft ? left[one++]! : right[other++]!);
    if (keys.length % MAX_SORTED === 0 && isSliceOver()) yield;
  }
  return keys;
}
