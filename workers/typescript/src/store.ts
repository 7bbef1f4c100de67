/** What all clients together make the worker keep. */

import { status } from "@grpc/grpc-js";

import { failure, type Outcome } from "./answer.js";

/** Limit of the parameters that all streams keep. */
export const MAX_KEPT_PARAMETERS_BYTES = 64 * 1024 * 1024;

/** Limit of the messages whose calls are in flight. */
export const MAX_RECEIVED_BYTES = 256 * 1024 * 1024;

/** Limit of open RPCs. */
export const MAX_RPCS = 16_384;

/** What one stream or call has in a store. */
export interface Part {
  readonly client: object;
  /** Ends the stream or call; called later, at most once. */
  readonly end: (outcome: Outcome) => void;
  bytes: number;
}

/** Beyond the limit, the client that has most loses its largest part, whoever has come last. */
export class Store {
  readonly #clients = new Map<object, { bytes: number; parts: Set<Part> }>();
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
    let has = this.#clients.get(part.client);
    if (has === undefined) this.#clients.set(part.client, (has = { bytes: 0, parts: new Set() }));
    this.#total += bytes - part.bytes;
    has.bytes += bytes - part.bytes;
    part.bytes = bytes;
    if (bytes > 0) return void has.parts.add(part);
    has.parts.delete(part);
    if (has.parts.size === 0) this.#clients.delete(part.client);
  }

  #endLargest(): void {
    let most: { bytes: number; parts: Set<Part> } | undefined;
    for (const has of this.#clients.values()) if (has.bytes > (most?.bytes ?? 0)) most = has;
    let largest: Part | undefined;
    for (const part of most!.parts) if (part.bytes > (largest?.bytes ?? 0)) largest = part;
    const { end } = largest!;
    this.#change(largest!, 0);
    this.#ended.add(largest!);
    const text = `there are more than ${this.limit} ${this.what}, most of them of this client`;
    setImmediate(() => end(failure(status.RESOURCE_EXHAUSTED, text)));
  }
}
