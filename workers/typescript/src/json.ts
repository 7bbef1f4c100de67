/**
 * JSON as this project reads and writes it: whole numbers keep all their digits. json-with-bigint, which does so too, has no
 * bound on the digits of a bigint: a number of a million digits would take long.
 */

import { randomUUID } from "node:crypto";

/** As many has 2^53, the first whole number that a double cannot tell from its neighbour. */
const LONG_DIGITS = 16;

/** More digits than the largest double has; turning such a number into a bigint takes long. */
const MAX_DIGITS = 309;

/** Marks a number that is read as a string first. Nobody outside can know it. */
const MARK = `${randomUUID()}:`;

/**
 * Parses as `JSON.parse` does, but for whole numbers beyond 2^53, which become bigints.
 *
 * @throws SyntaxError - it is not JSON.
 */
export function parseJson(text: string): unknown {
  const value: unknown = JSON.parse(text);
  return mayHoldLongNumber(text) ? JSON.parse(withMarkedNumbers(text), unmark) : value;
}

/** Whether there are so many digits in a row, be it in a number or in a string. */
function mayHoldLongNumber(text: string): boolean {
  // So many digits in a row are met in strides as long: this reads little of what has none.
  for (let at = LONG_DIGITS - 1; at < text.length; at += LONG_DIGITS) {
    if (!isDigit(text, at)) continue;
    let start = at;
    while (isDigit(text, start - 1)) start--;
    let end = at + 1;
    while (isDigit(text, end) && end - start < LONG_DIGITS) end++;
    if (end - start >= LONG_DIGITS) return true;
  }
  return false;
}

function isDigit(text: string, at: number): boolean {
  const unit = text.charCodeAt(at);
  return unit >= 0x30 && unit <= 0x39;
}

function unmark(_key: string, value: unknown): unknown {
  return typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value;
}

/** Returns `text`, which is JSON, with a marked string in place of each whole number beyond 2^53. */
function withMarkedNumbers(text: string): string {
  const token = /"|-?\d[\d.eE+-]*/g;
  let marked = "";
  let copied = 0;
  for (let found = token.exec(text); found !== null; found = token.exec(text)) {
    if (found[0] === '"') {
      token.lastIndex = endOfString(text, token.lastIndex);
    } else if (isLong(found[0])) {
      marked += `${text.slice(copied, found.index)}"${MARK}${found[0]}"`;
      copied = token.lastIndex;
    }
  }
  return marked + text.slice(copied);
}

function isLong(number: string): boolean {
  return number.length <= MAX_DIGITS && /^-?\d{16,}$/.test(number) && !Number.isSafeInteger(Number(number));
}

/** Returns the position after the string's closing quote. A loop, since a regular expression could run out of stack. */
function endOfString(text: string, start: number): number {
  for (let quote = text.indexOf('"', start); ; quote = text.indexOf('"', quote + 1)) {
    let before = quote;
    while (before > start && text[before - 1] === "\\") before--;
    if ((quote - before) % 2 === 0) return quote + 1;
  }
}

/**
 * Returns a value as `JSON.stringify` would write it, made of nothing but what JSON has: itself where it is so
 * already, else a copy.
 *
 * @throws TypeError - it holds NaN or an infinity, for which `JSON.stringify` would write null.
 * @throws RangeError - it is nested too deeply, or holds itself.
 */
export function plain(value: unknown): unknown {
  return isPlain(value) ? value : plainCopy(value);
}

function isPlain(value: unknown): boolean {
  if (typeof value !== "object" || value === null) {
    return (
      typeof value === "string" || typeof value === "boolean" || value === null || Number.isFinite(value)
    );
  }
  if (Array.isArray(value)) {
    for (const item of value) if (!isPlain(item)) return false;
    return true;
  }
  if (Object.getPrototypeOf(value) !== Object.prototype || "toJSON" in value) return false;
  for (const key of Object.keys(value)) {
    if (!isPlain((value as Record<string, unknown>)[key])) return false;
  }
  return true;
}

function plainCopy(value: unknown): unknown {
  const found = hasToJson(value) ? value.toJSON() : value;
  if (typeof found === "bigint") return Number.isSafeInteger(Number(found)) ? Number(found) : found;
  if (typeof found === "number" && !Number.isFinite(found)) {
    throw new TypeError(`${found} cannot be written as JSON`);
  }
  if (typeof found === "function" || typeof found === "symbol") return undefined;
  if (typeof found !== "object" || found === null) return found;
  if (found instanceof Number || found instanceof String || found instanceof Boolean) return found.valueOf();
  if (Array.isArray(found)) return Array.from(found, (item) => plainCopy(item) ?? null);
  const copy: Record<string, unknown> = {};
  for (const [key, member] of Object.entries(found)) {
    const kept = plainCopy(member);
    if (kept !== undefined) set(copy, key, kept);
  }
  return copy;
}

function hasToJson(value: unknown): value is { toJSON(): unknown } {
  return (
    typeof value === "object" && value !== null && "toJSON" in value && typeof value.toJSON === "function"
  );
}

/** Returns a copy of what `parseJson` has returned. */
export function clone(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(clone);
  const copy: Record<string, unknown> = {};
  for (const key of Object.keys(value)) set(copy, key, clone((value as Record<string, unknown>)[key]));
  return copy;
}

/** Sets a member, whatever its key is. */
export function set(target: Record<string, unknown>, key: string, value: unknown): void {
  if (key === "__proto__") {
    Object.defineProperty(target, key, { value, writable: true, enumerable: true, configurable: true });
  } else {
    target[key] = value;
  }
}

/** Writes what `plain` or `parseJson` has returned: compact. */
export function writeJson(value: unknown): string {
  if (typeof value === "bigint") return value.toString();
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(writeJson).join(",")}]`;
  const members = value as Record<string, unknown>;
  const texts = Object.keys(members).map((key) => `${JSON.stringify(key)}:${writeJson(members[key])}`);
  return `{${texts.join(",")}}`;
}

/** Returns the text with a question mark for each unpaired surrogate, and for what is no text: neither can be sent. */
export function cleanText(text: unknown): string {
  let found;
  try {
    found = String(text);
  } catch {
    return "?";
  }
  return /[\ud800-\udfff]/.test(found) ? found.replace(/\p{Surrogate}/gu, "?") : found;
}
