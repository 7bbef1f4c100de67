/**
 * Parses JSON of several MiB in steps. A scan finds the brackets and commas; what lies between two commas some KiB apart is
 * parsed by `JSON.parse`, in brackets of its own, and put together.
 */

import { parseJson, set } from "./json.js";
import { isSliceOver, type Steps } from "./steps.js";

/** Characters that are parsed in one step, unless a string or number is longer. */
const PIECE = 8 * 1024;

/** Characters that are scanned without a look at the time. */
const SCANNED = 16 * 1024;

/** Levels. kube-apiserver reads no more either (encoding/json, maxNestingDepth). */
const MAX_DEPTH = 10_000;

/** An array or object that is open; offsets are those of its text. */
interface Frame {
  readonly isArray: boolean;
  readonly start: number;
  /** Of the present element. */
  element: number;
  /** Of the first element that is not parsed yet. */
  piece: number;
  /** Behind an element that has been put together, until the comma after it; else -1. */
  after: number;
  /** What has been parsed; undefined as long as it may be a part of a larger piece. */
  value: unknown[] | Record<string, unknown> | undefined;
  /** The key of the element that is being put together, in an object. */
  key: string;
}

/**
 * Parses as `parseJson` does, in pieces of `most` characters.
 *
 * @throws SyntaxError - it is not JSON, or nested too deeply.
 */
export function* parseInSteps(text: string, most = PIECE): Steps<unknown> {
  if (text.length <= most) return parseJson(text);
  const parser = new Parser(text, most);
  for (let at = 0; at < text.length; at = parser.scan(at, at + SCANNED)) if (isSliceOver()) yield;
  return parser.end();
}

class Parser {
  readonly #text: string;
  readonly #most: number;
  readonly #frames: Frame[] = [];
  #inString = false;
  /** Behind the whole document, if it has been put together. */
  #end = -1;
  #result: unknown;

  constructor(text: string, most: number) {
    this.#text = text;
    this.#most = most;
  }

  /** Reads the text up to `end`, at least; returns where it goes on. */
  scan(at: number, end: number): number {
    const text = this.#text;
    for (; at < end && at < text.length; at++) {
      const unit = text.charCodeAt(at);
      if (this.#inString) {
        if (unit === 0x5c /* \ */) at++;
        else if (unit === 0x22) this.#inString = false;
      } else if (unit === 0x22 /* " */) {
        this.#inString = true;
      } else if (unit === 0x5b /* [ */ || unit === 0x7b /* { */) {
        this.#open(at, unit === 0x5b);
      } else if (unit === 0x5d /* ] */ || unit === 0x7d /* } */) {
        this.#close(at, unit === 0x5d);
      } else if (unit === 0x2c /* , */) {
        this.#comma(at);
      }
    }
    return at;
  }

  /** Returns the value after the whole text has been read. */
  end(): unknown {
    if (this.#inString || this.#frames.length > 0) throw new SyntaxError("Unexpected end of JSON input");
    if (this.#end < 0) return parseJson(this.#text); // one long string, say
    this.#expectBlank(this.#end, this.#text.length);
    return this.#result;
  }

  #open(at: number, isArray: boolean): void {
    if (this.#frames.length >= MAX_DEPTH) throw new SyntaxError(`nested deeper than ${MAX_DEPTH} levels`);
    const frame = {
      isArray,
      start: at,
      element: at + 1,
      piece: at + 1,
      after: -1,
      value: undefined,
      key: "",
    };
    this.#frames.push(frame);
  }

  #comma(at: number): void {
    const frame = this.#frames.at(-1);
    if (frame === undefined) throw unexpected(",", at);
    if (frame.after >= 0) {
      this.#expectBlank(frame.after, at);
      frame.after = -1;
      frame.piece = at + 1;
    } else if (at - frame.piece >= this.#most) {
      this.#put(this.#frames.length - 1, at);
      frame.piece = at + 1;
    }
    frame.element = at + 1;
  }

  #close(at: number, isArray: boolean): void {
    const frame = this.#frames.at(-1);
    if (frame === undefined || frame.isArray !== isArray) throw unexpected(this.#text[at]!, at);
    if (frame.value !== undefined) {
      if (frame.after >= 0) this.#expectBlank(frame.after, at);
      else this.#put(this.#frames.length - 1, at);
    }
    this.#frames.pop();
    if (frame.value === undefined) return;
    const parent = this.#frames.at(-1);
    if (parent === undefined) {
      this.#result = frame.value;
      this.#end = at + 1;
      return;
    }
    if (Array.isArray(parent.value)) parent.value.push(frame.value);
    else set(parent.value!, parent.key, frame.value);
    parent.after = at + 1;
  }

  /** Parses the elements of a frame that are not parsed yet, up to `end`. */
  #put(index: number, end: number): void {
    let first = index;
    while (first > 0 && this.#frames[first]!.value === undefined) first--;
    for (let at = first; at <= index; at++) this.#separate(at);
    this.#parse(this.#frames[index]!, end);
  }

  /** Makes a frame one that is put together, beside the other elements of its parent. */
  #separate(index: number): void {
    const frame = this.#frames[index]!;
    if (frame.value !== undefined) return;
    frame.value = frame.isArray ? [] : {};
    const parent = this.#frames[index - 1];
    if (parent === undefined) return this.#expectBlank(this.#end < 0 ? 0 : -1, frame.start);
    if (parent.element > parent.piece) this.#parse(parent, parent.element - 1);
    if (parent.isArray) this.#expectBlank(parent.element, frame.start);
    else parent.key = this.#keyIn(parent.element, frame.start);
  }

  #parse({ isArray, piece, value }: Frame, end: number): void {
    const text = this.#text.slice(piece, end);
    if (isBlank(text)) throw unexpected(this.#text[end]!, end);
    if (isArray) {
      for (const item of parseJson(`[${text}]`) as unknown[]) (value as unknown[]).push(item);
    } else {
      const members = parseJson(`{${text}}`) as Record<string, unknown>;
      for (const key of Object.keys(members)) set(value as Record<string, unknown>, key, members[key]);
    }
  }

  /** Returns the key before an array or object. */
  #keyIn(start: number, end: number): string {
    const [key] = Object.keys(parseJson(`{${this.#text.slice(start, end)}[]}`) as object);
    return key!;
  }

  #expectBlank(start: number, end: number): void {
    if (start < 0 || !isBlank(this.#text.slice(start, end))) throw unexpected(this.#text[start] ?? "", start);
  }
}

function isBlank(text: string): boolean {
  return /^[ \t\n\r]*$/.test(text);
}

function unexpected(token: string, at: number): SyntaxError {
  return new SyntaxError(`Unexpected token '${token}' at position ${at}`);
}
