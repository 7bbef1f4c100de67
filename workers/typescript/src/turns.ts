/**
 * When calls are evaluated. All share one thread: a batch begins in slices, between which others have their turn, and
 * the JSON of the calls that are evaluated at a time has a sum. Connections take turns.
 *
 * Source: protos/README.md, section Bounds of a worker.
 */

import type { RunningCall } from "./evaluation.js";

/** Limit of the JSON of the calls that run: it takes several times as much when it is parsed. */
export const MAX_EVALUATED_BYTES = 32 * 1024 * 1024;

/** Time after which others have their turn. */
const SLICE_MS = 4;

/** Interval at which deadlines of waiting calls are looked at while no call can begin. */
const SWEEP_MS = 20;

/** A connection, by whatever identifies it. */
export interface Client {
  /** Bytes of its calls that run. */
  used: number;
  /** Its open RPCs. */
  rpcs: number;
  /** When a message or a part of one came in last: an instant of `Date.now()`. */
  lastRead: number;
  readonly waiting: Set<Work>;
}

/** A call that waits for its turn. */
export interface Work {
  readonly client: Client;
  readonly bytes: number;
  /** Instant of `performance.now()`, in milliseconds. */
  readonly deadline: number;
  /** Whether there is room for its answer. */
  isReady(): boolean;
  /** Begins the call, or answers it if its deadline has passed. */
  begin(): void;
}

export class Turns {
  #used = 0;
  /** Undefined until the first call of the slice begins. */
  #sliceEnds: number | undefined;
  /** Clients that wait; the first is the next. */
  readonly #ring = new Set<Client>();
  readonly #clients = new Map<unknown, WeakRef<Client>>();
  #immediate: NodeJS.Immediate | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** Whether nothing runs and nothing waits. */
  get isIdle(): boolean {
    return this.#used === 0 && this.#ring.size === 0;
  }

  /** Returns the client of a connection that is known already. */
  known(connection: unknown): Client | undefined {
    return this.#clients.get(connection)?.deref();
  }

  /** Returns the client of a connection. */
  client(connection: unknown): Client {
    const known = this.known(connection);
    if (known !== undefined) return known;
    const made: Client = { used: 0, rpcs: 0, lastRead: 0, waiting: new Set() };
    this.#clients.set(connection, new WeakRef(made));
    for (const [key, reference] of this.#clients) {
      // The oldest first: connections usually end in the order of their begin.
      if (reference.deref() !== undefined) break;
      this.#clients.delete(key);
    }
    return made;
  }

  /** Lets work that has come in begin at once, as long as nobody waits; called for each message. */
  startSlice(): void {
    if (this.#immediate === undefined) this.#sliceEnds = undefined;
  }

  /** Whether a call of so many bytes may begin at once. */
  mayBegin(client: Client, bytes: number): boolean {
    if (client.waiting.size > 0 || this.#immediate !== undefined) return false;
    if (!this.#fits(client, bytes)) return false;
    const now = performance.now();
    this.#sliceEnds ??= now + SLICE_MS;
    return now < this.#sliceEnds;
  }

  /** Lets a call wait. */
  add(work: Work): void {
    work.client.waiting.add(work);
    this.#ring.add(work.client);
    this.#soon();
  }

  /** Ends the wait of a call. */
  remove(work: Work): void {
    work.client.waiting.delete(work);
    if (work.client.waiting.size === 0) this.#ring.delete(work.client);
  }

  /** Counts a call that goes on until its policy has ended, also if it is cancelled before. */
  count(running: RunningCall, client: Client, bytes: number, released?: () => void): void {
    this.#used += bytes;
    client.used += bytes;
    running.released = () => {
      this.#used -= bytes;
      client.used -= bytes;
      released?.();
      this.wake();
    };
  }

  /** Looks again at the calls that wait. */
  wake(): void {
    if (this.#ring.size > 0) this.#soon();
  }

  /** A client gets half of the room that the others leave. A call runs alone, if it does not fit otherwise. */
  #fits({ used }: Client, bytes: number): boolean {
    const room = (MAX_EVALUATED_BYTES - this.#used + used) / 2 - used;
    return this.#used === 0 || bytes <= room;
  }

  #soon(): void {
    this.#immediate ??= setImmediate(() => this.#run());
  }

  #run(): void {
    this.#immediate = undefined;
    const ends = performance.now() + SLICE_MS;
    for (let hasBegun = true; hasBegun;) {
      hasBegun = false;
      for (const client of [...this.#ring]) {
        const [first] = client.waiting;
        if (first === undefined) continue;
        const isLate = first.deadline <= performance.now();
        if (!isLate && !(first.isReady() && this.#fits(client, first.bytes))) continue;
        this.remove(first);
        // To the end of the ring.
        if (this.#ring.delete(client)) this.#ring.add(client);
        first.begin();
        hasBegun = true;
        if (performance.now() >= ends) return this.wake();
      }
    }
    if (this.#ring.size > 0) this.#timer ??= setTimeout(() => this.#sweep(), SWEEP_MS);
  }

  /** Answers the calls whose deadline has passed, behind others that wait. */
  #sweep(): void {
    this.#timer = undefined;
    const now = performance.now();
    for (const client of this.#ring) {
      for (const work of client.waiting) {
        if (work.deadline > now) continue;
        this.remove(work);
        work.begin();
      }
    }
    this.wake();
  }
}
