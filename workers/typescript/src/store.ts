/** What all clients together make the worker keep. */

import { status } from "@grpc/grpc-js";

import { failure, type Outcome } from "./answer.js";

/** Limit of the parameters that all streams keep. */
export const MAX_KEPT_PARAMETERS_BYTES = 64 * 1024 * 1024;

/** Limit of the messages whose calls are in flight. */
export const MAX_RECEIVED_BYTES = 256 * 1024 * 1024;

/** What one stream or call has in a store. */
export interface Part {
  readonly client: object;
  /** Ends the stream or call; called later, at most once. */
  readonly end: (outcome: Outcome) => void;
  bytes: number;
}

/** Beyond the limit, the client that has most loses its largest part, whoever has come last. */
export class Store {
  readonly #parts = new Set<Part>();
  readonly #ended = new WeakSet<Part>();
  #total = 0;

  /** `what` is for messages. */
  constructor(
    readonly what: string,
    readonly limit: number,
  ) {}

  get bytes(): number {
    return this.#total;
  }

  /** Changes the size of a part; 0 removes it. */
  set(part: Part, bytes: number): void {
    if (this.#ended.has(part)) return;
    this.#change(part, bytes);
    while (this.#total > this.limit) this.#endLargest();
  }

  #change(part: Part, bytes: number): void {
    this.#total += bytes - part.bytes;
    part.bytes = bytes;
    if (bytes === 0) this.#parts.delete(part);
    else this.#parts.add(part);
  }

  #endLargest(): void {
    const sums = new Map<object, number>();
    for (const { client, bytes } of this.#parts) sums.set(client, (sums.get(client) ?? 0) + bytes);
    const order = (part: Part): [number, number] => [sums.get(part.client)!, part.bytes];
    let largest: Part | undefined;
    for (const part of this.#parts) {
      if (largest === undefined) largest = part;
      const [sum, bytes] = order(part);
      const [mostSum, mostBytes] = order(largest);
      if (sum > mostSum || (sum === mostSum && bytes > mostBytes)) largest = part;
    }
    const { end } = largest!;
    this.#change(largest!, 0);
    this.#ended.add(largest!);
    const text = `more than ${this.limit} bytes of ${this.what} are kept, most of them for this client`;
    setImmediate(() => end(failure(status.RESOURCE_EXHAUSTED, text)));
  }
}
