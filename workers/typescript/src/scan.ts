/** Counts the elements of a message before objects are made of them. */

import protobuf from "protobufjs";

/** What a field of a message may have. */
export interface FieldLimit {
  readonly what: string;
  readonly most: number;
}

/**
 * Returns which field of the message has too many elements, empty if none has. Bytes that are no message are left to
 * the decoder. `limits` are by the number of the field; varints may be packed.
 */
export function excess(message: Buffer, limits: ReadonlyMap<number, FieldLimit>): string {
  const counts = new Map<number, number>();
  const reader = protobuf.Reader.create(message) as protobuf.Reader;
  try {
    while (reader.pos < reader.len) {
      const tag = reader.uint32();
      const number = tag >>> 3;
      const start = reader.pos;
      reader.skipType(tag & 7);
      if (!limits.has(number)) continue;
      const found = number === PACKED && (tag & 7) === 2 ? varints(message, start, reader.pos) : 1;
      counts.set(number, (counts.get(number) ?? 0) + found);
    }
  } catch {
    return "";
  }
  for (const [number, { what, most }] of limits) {
    const found = counts.get(number) ?? 0;
    if (found > most) return `a ReviewBatch has ${found} ${what}, expected at most ${most}`;
  }
  return "";
}

/** The field with varints. */
const PACKED = 3;

/** Returns how many varints are packed after the length at `start`. */
function varints(message: Buffer, start: number, end: number): number {
  while (message[start]! >= 0x80) start++;
  let count = 0;
  for (let at = start + 1; at < end; at++) if (message[at]! < 0x80) count++;
  return count;
}
