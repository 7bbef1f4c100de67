/** What `json.ts` does, in steps. */

import { clone, plain, set, writeJson } from "./json.js";
import { isLarge, isSliceOver, type Steps } from "./steps.js";

type JsonObject = Record<string, unknown>;

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
  for (const key of Object.keys(value)) {
    const member = (value as JsonObject)[key];
    texts.push(`${JSON.stringify(key)}:${isLarge(member) ? yield* writeInSteps(member) : writeJson(member)}`);
    if (isSliceOver()) yield;
  }
  return `{${texts.join(",")}}`;
}
