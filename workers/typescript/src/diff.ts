/**
 * Two JSON documents to the JSON Patch that changes the first into the second.
 *
 * List items are aligned by their common head and tail. Whole members are replaced where naming each change would be too
 * much work to apply.
 *
 * No library does that: fast-json-patch cannot copy bigints, rfc6902 takes quadratic time for arrays, and none computes in
 * steps, between which other reviews have their turn.
 */

import { finish, isLarge, isSliceOver, type Steps } from "./steps.js";

/** One operation of a JSON Patch (RFC 6902). */
export interface Operation {
  op: "add" | "remove" | "replace" | "move" | "copy" | "test";
  path: string;
  from?: string;
  value?: unknown;
}

/** Limit of kube-apiserver for a user's JSON Patch (maxJSONPatchOperations). */
const MAX_OPERATIONS = 10_000;

/** List items that change their index, summed over a patch. */
const MAX_SHIFTED = 100_000_000;

/** Parts of all paths of a patch: fifty for each operation. */
const MAX_PATH_PARTS = 500_000;

/** Parts of one path, beyond which the gateway refuses a patch. */
const MAX_LEVELS = 1024;

/** Characters of all paths of a patch: keys may be long. */
const MAX_PATH_LENGTH = 8 * 1024 * 1024;

/** Levels at which whole values are compared before their parts; each level reads all levels below it. */
const SEARCHED_LEVELS = 8;

type JsonObject = Record<string, unknown>;

class TooMuch extends Error {}

/**
 * Returns the operations that turn `before` into `after`, both as `parseJson` or `plain` make them. They share
 * values with `after`.
 *
 * @throws RangeError - nested deeper than the stack allows.
 */
export function diff(before: unknown, after: unknown): Operation[] {
  return finish(diffInSteps(before, after));
}

/** As `diff`, in steps. */
export function* diffInSteps(before: unknown, after: unknown): Steps<Operation[]> {
  const script = new Script();
  try {
    yield* diffValue("", before, after, script, 0, 0);
  } catch (problem) {
    if (problem instanceof TooMuch) return yield* replacedMembers(before, after);
    throw problem;
  }
  return script.operations;
}

/** Whether two JSON values are equal; objects regardless of the order of their keys. */
export function same(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (typeof left !== "object" || typeof right !== "object" || left === null || right === null) return false;
  if (Array.isArray(left)) {
    if (!Array.isArray(right) || left.length !== right.length) return false;
    for (let index = 0; index < left.length; index++) if (!same(left[index], right[index])) return false;
    return true;
  }
  if (Array.isArray(right)) return false;
  const keys = Object.keys(left);
  if (keys.length !== Object.keys(right).length) return false;
  for (const key of keys) {
    if (!Object.hasOwn(right, key) || !same((left as JsonObject)[key], (right as JsonObject)[key]))
      return false;
  }
  return true;
}

/** As `same`, if one of the values is small; else undefined. */
function sameSmall(left: unknown, right: unknown): boolean | undefined {
  return isLarge(left) && isLarge(right) ? undefined : same(left, right);
}

/** As `same`, of two objects or arrays. */
function* sameLarge(left: unknown, right: unknown): Steps<boolean> {
  if (Array.isArray(left)) {
    if (!Array.isArray(right) || left.length !== right.length) return false;
    for (let index = 0; index < left.length; index++) {
      const one = left[index];
      const other = right[index];
      if (!(sameSmall(one, other) ?? (yield* sameLarge(one, other)))) return false;
      if (isSliceOver()) yield;
    }
    return true;
  }
  if (!isObject(left) || !isObject(right)) return false;
  const keys = Object.keys(left);
  if (keys.length !== Object.keys(right).length) return false;
  for (const key of keys) {
    if (!Object.hasOwn(right, key)) return false;
    const one = left[key];
    const other = right[key];
    if (!(sameSmall(one, other) ?? (yield* sameLarge(one, other)))) return false;
    if (isSliceOver()) yield;
  }
  return true;
}

/** Returns a key as a JSON Pointer token (RFC 6901). */
export function escapeKey(key: string): string {
  return key.replaceAll("~", "~0").replaceAll("/", "~1");
}

class Script {
  readonly operations: Operation[] = [];
  #shifted = 0;
  #parts = 0;
  #length = 0;

  /** Adds an operation by which `shifted` items of a list change their index. */
  note(operation: Operation, shifted = 0): void {
    this.#shifted += shifted;
    this.#length += operation.path.length;
    const parts = this.#length > MAX_PATH_LENGTH ? 0 : operation.path.split("/").length - 1;
    this.#parts += parts;
    const isLong = this.operations.length === MAX_OPERATIONS || this.#shifted > MAX_SHIFTED;
    const arePathsLong = this.#parts > MAX_PATH_PARTS || this.#length > MAX_PATH_LENGTH;
    if (isLong || arePathsLong || parts > MAX_LEVELS) throw new TooMuch();
    this.operations.push(operation);
  }
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function allKeys(before: JsonObject, after: JsonObject): string[] {
  return [...Object.keys(before), ...Object.keys(after).filter((key) => !Object.hasOwn(before, key))];
}

function* replacedMembers(before: unknown, after: unknown): Steps<Operation[]> {
  const whole: Operation[] = [{ op: "replace", path: "", value: after }];
  if (!isObject(before) || !isObject(after)) return whole;
  const operations: Operation[] = [];
  for (const key of allKeys(before, after)) {
    if (isSliceOver()) yield;
    const path = `/${escapeKey(key)}`;
    const old = before[key];
    const value = after[key];
    if (!Object.hasOwn(after, key)) operations.push({ op: "remove", path });
    else if (!Object.hasOwn(before, key)) operations.push({ op: "add", path, value });
    else if (!(sameSmall(old, value) ?? (yield* sameLarge(old, value)))) {
      operations.push({ op: "replace", path, value });
    }
  }
  return operations.length <= MAX_OPERATIONS ? operations : whole;
}

/** `level` says how many levels deep it is, `lists` how many of these are lists. */
function* diffValue(
  path: string,
  before: unknown,
  after: unknown,
  script: Script,
  level: number,
  lists: number,
): Steps<void> {
  if (isObject(before) && isObject(after)) {
    yield* diffObject(path, before, after, script, level + 1, lists);
  } else if (Array.isArray(before) && Array.isArray(after)) {
    if (lists < SEARCHED_LEVELS) yield* diffArray(path, before, after, script, level + 1, lists + 1);
    else if (!(sameSmall(before, after) ?? (yield* sameLarge(before, after)))) {
      script.note({ op: "replace", path, value: after });
    }
  } else if (before !== after) {
    script.note({ op: "replace", path, value: after });
  }
}

function* diffObject(
  path: string,
  before: JsonObject,
  after: JsonObject,
  script: Script,
  level: number,
  lists: number,
): Steps<void> {
  const isSearched = level <= SEARCHED_LEVELS;
  for (const key of allKeys(before, after)) {
    if (isSliceOver()) yield;
    const old = before[key];
    const value = after[key];
    const isInBoth = Object.hasOwn(before, key) && Object.hasOwn(after, key);
    if (isInBoth) {
      if (typeof old !== "object" || old === null) {
        if (old === value) continue;
        // Below the searched levels looked into in any case: containers that differ or were not compared.
      } else if (isSearched && (sameSmall(old, value) ?? (yield* sameLarge(old, value)))) continue;
    }
    const child = `${path}/${escapeKey(key)}`;
    if (isInBoth) yield* diffValue(child, old, value, script, level, lists);
    else if (Object.hasOwn(before, key)) script.note({ op: "remove", path: child });
    else script.note({ op: "add", path: child, value });
  }
}

function* diffArray(
  path: string,
  before: unknown[],
  after: unknown[],
  script: Script,
  level: number,
  lists: number,
): Steps<void> {
  const shorter = Math.min(before.length, after.length);
  let head = 0;
  for (; head < shorter; head++) {
    const old = before[head];
    const value = after[head];
    if (!(sameSmall(old, value) ?? (yield* sameLarge(old, value)))) break;
    if (isSliceOver()) yield;
  }
  let tail = 0;
  for (; tail < shorter - head; tail++) {
    const old = before.at(-1 - tail);
    const value = after.at(-1 - tail);
    if (!(sameSmall(old, value) ?? (yield* sameLarge(old, value)))) break;
    if (isSliceOver()) yield;
  }
  const old = before.length - tail;
  const now = after.length - tail;
  const paired = Math.min(old, now);
  for (let index = head; index < paired; index++) {
    yield* diffValue(`${path}/${index}`, before[index], after[index], script, level, lists);
    if (isSliceOver()) yield;
  }
  // From the end, so that earlier indices remain valid.
  for (let index = old - 1; index >= paired; index--) {
    script.note({ op: "remove", path: `${path}/${index}` }, tail);
  }
  for (let index = paired; index < now; index++) {
    script.note({ op: "add", path: `${path}/${index}`, value: after[index] }, tail);
  }
}
