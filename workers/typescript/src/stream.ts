/**
 * One ReviewStream: receives batches of calls, and sends batches of verdicts.
 *
 * The verdicts of all calls that need no waiting are sent in one message. Verdicts that become ready during a write
 * are sent together in the next message. Bounds: MAX_IN_FLIGHT waiting calls; no further batch is read, and no call
 * begins, while a full message of verdicts is unsent; calls begin when it is their turn.
 */

import { status, type ServerDuplexStream } from "@grpc/grpc-js";

import { failure, MAX_MESSAGE_BYTES, unknownPolicy, type Outcome } from "./answer.js";
import {
  leftBy,
  Link,
  MAX_CHAINED_BYTES,
  PendingCall,
  type ChainPayload,
  type ReceivedMessage,
} from "./chain.js";
import { afterPromises, begin, RunningCall } from "./evaluation.js";
import {
  keyOf,
  reviewBatch,
  verdictBatch,
  type Call,
  type Id,
  type Payload,
  type Verdict,
} from "./messages.js";
import { MAX_ID, StreamParameters } from "./parameters.js";
import type { Policy } from "./policy.js";
import { Review } from "./review.js";
import { excess } from "./scan.js";
import type { Part } from "./store.js";
import type { Client } from "./turns.js";
import type { Limits } from "./limits.js";

/** Limit of waiting calls of one stream: four times the default maxInFlight of the gateway. */
export const MAX_IN_FLIGHT = 4096;

/** By the numbers of the fields of a ReviewBatch. */
const ELEMENTS = new Map([
  [1, { what: "payloads", most: 4096 }],
  [2, { what: "calls", most: 8192 }],
  [3, { what: "cancelled ids", most: 4096 }],
  [4, { what: "parameters", most: MAX_ID }],
]);

/** Size of a verdict without its outcome: tags, lengths and the id. */
const VERDICT_BYTES = 32;

/** Time without a message after which the worker ends a draining stream: several round trips. */
const QUIET_MS = 500;

/** Of a call whose payload the batch does not have. */
const NO_PAYLOAD: Payload = { admissionRequest: Buffer.alloc(0), namespaceObject: Buffer.alloc(0) };

/** The server side of one stream. */
export class ReviewStream {
  readonly #call: ServerDuplexStream<Buffer, Buffer>;
  readonly #policies: ReadonlyMap<string, Policy>;
  readonly #closed: () => void;
  readonly #limits: Limits;
  readonly #client: Client;
  readonly #keptParameters: Part;
  readonly #received: Part;
  readonly #parameters = new StreamParameters();
  readonly #running = new Map<number | bigint, RunningCall | PendingCall>();
  /** Of the calls in flight that others follow. */
  readonly #links = new Map<number | bigint, Link>();
  #fresh: RunningCall[] = [];
  #verdicts: Verdict[] = [];
  #bytes = 0;
  #full: Buffer[] = [];
  /** How many calls wait for their turn. */
  #turns = 0;
  #writing = false;
  #scheduled = false;
  #isDraining = false;
  #tellDraining = false;
  /** Whether no more messages will be read. */
  #over = false;
  #ended = false;
  /** When a batch came in, or the gateway took a message. */
  #lastActive = 0;
  #quietTimer: NodeJS.Timeout | undefined;

  /** Answers calls from now on; `closed` is called once when the stream is over, for whatever reason. */
  constructor(
    call: ServerDuplexStream<Buffer, Buffer>,
    policies: ReadonlyMap<string, Policy>,
    limits: Limits,
    closed: () => void,
  ) {
    this.#call = call;
    this.#limits = limits;
    this.#client = limits.client(call);
    const part = (): Part => ({ client: this.#client, end: (outcome) => this.#fail(outcome), bytes: 0 });
    this.#keptParameters = part();
    this.#received = part();
    this.#policies = policies;
    this.#closed = closed;
    call.on("data", (message: Buffer) => this.#accept(message));
    call.on("end", () => this.#endReading());
    // gRPC reports "cancelled" after every end, also after a successful one.
    call.on("cancelled", () => this.#close());
  }

  /** Sends the drain notice; the stream ends when no call is in flight, or after the quiet period. */
  drain(): void {
    if (this.#isDraining || this.#over) return;
    this.#isDraining = this.#tellDraining = true;
    this.#lastActive = performance.now();
    this.#quietTimer = setTimeout(() => this.#endIfQuiet(), QUIET_MS);
    this.#flush();
  }

  #endIfQuiet(): void {
    const idle = performance.now() - this.#lastActive;
    if (this.#over) return;
    // While the gateway is slow to take verdicts, batches of before the notice may wait to be read.
    if (this.#running.size === 0 && !this.#writing && idle >= QUIET_MS) return this.#endReading();
    this.#quietTimer = setTimeout(() => this.#endIfQuiet(), Math.max(QUIET_MS - idle, 50));
  }

  #endReading(): void {
    this.#over = true;
    this.#flush();
  }

  #accept(message: Buffer): void {
    if (this.#over) return;
    const arrived = (this.#lastActive = performance.now());
    this.#limits.turns.startSlice();
    const tooMany = excess(message, ELEMENTS);
    if (tooMany !== "") return this.#violated(tooMany);
    let batch;
    try {
      batch = reviewBatch.decode(message);
    } catch (problem) {
      return this.#violated(`not a ReviewBatch: ${(problem as Error).message}`);
    }
    const problem = this.#parameters.take(batch.parameters);
    if (problem !== undefined) return this.#violated(problem);
    this.#limits.parameters.set(this.#keptParameters, this.#parameters.bytes);
    const received = { bytes: message.length, calls: 0 };
    const cancelled = new Set(batch.cancelled.map(keyOf));
    const followed = new Set(batch.calls.map((call) => keyOf(call.after)));
    const links = new Map<number | bigint, Link>();
    for (const [index, call] of batch.calls.entries()) {
      const key = keyOf(call.id);
      const before = links.get(keyOf(call.after));
      const link = followed.has(key) ? new Link(call.payload) : undefined;
      if (link !== undefined) links.set(key, link);
      if (cancelled.has(key) || before?.isCancelled === true) {
        if (link !== undefined) link.isCancelled = true;
        continue;
      }
      if (this.#running.has(key)) {
        return this.#violated(`call id ${key} is used again while its call is in flight`);
      }
      const pending = new PendingCall(call, key, link, this.#parameters.get(call.parameters), received);
      if (index < MAX_IN_FLIGHT) {
        this.#take(call, pending, before, batch.payloads, arrived);
      } else {
        this.#refuse(pending);
        if (link !== undefined) link.leaves = batch.payloads[call.payload] ?? NO_PAYLOAD;
      }
    }
    for (const key of cancelled) this.#cancel(key);
    if (this.#fresh.length > 0) this.#flushSoon();
    else this.#flush();
  }

  /** Begins a call, lets it wait for the call before it, or refuses it. */
  #take(
    { payload: position, after }: Call,
    call: PendingCall,
    before: Link | undefined,
    payloads: readonly Payload[],
    arrived: number,
  ): void {
    const payload = payloads[position];
    if (payload === undefined) {
      const text = `the call is for payload ${position}, the batch has ${payloads.length}`;
      this.#add(call.id, failure(status.INVALID_ARGUMENT, text), false);
    } else if (!call.isChained) {
      this.#begin(call, payload, arrived);
    } else if (before === undefined || before.position !== position) {
      const text = `no earlier call of the batch has the id ${keyOf(after)} and the same payload`;
      this.#add(call.id, failure(status.INVALID_ARGUMENT, text), false);
      if (call.link !== undefined) call.link.leaves = payload;
    } else if (before.leaves !== undefined) {
      this.#begin(call, before.leaves, performance.now());
    } else {
      if (this.#running.size >= MAX_IN_FLIGHT) this.#refuse(call);
      else this.#addWaiting(call);
      before.followers.push(call);
    }
  }

  /** Begins a call whose timeout counts from `now`; returns whether it has ended. */
  #begin(call: PendingCall, payload: ChainPayload, now: number): boolean {
    const policy = this.#policies.get(call.policy);
    if (policy === undefined) {
      this.#add(call.id, unknownPolicy(call.policy, this.#policies), call.isChained);
    } else if (this.#running.size >= MAX_IN_FLIGHT) {
      this.#refuse(call);
    } else if (call.parameters === undefined) {
      const text = "the call has an id of parameters that this stream has not had";
      this.#add(call.id, failure(status.INVALID_ARGUMENT, text), call.isChained);
    } else if ((payload.patched ?? 0) > MAX_CHAINED_BYTES) {
      const text = `the calls before this one change an object, or have patches, of more than ${MAX_CHAINED_BYTES} bytes`;
      this.#add(call.id, failure(status.RESOURCE_EXHAUSTED, text), call.isChained);
    } else {
      const bytes = payload.admissionRequest.length + payload.namespaceObject.length + (payload.patched ?? 0);
      const deadline = now + call.timeoutMillis;
      const { turns } = this.#limits;
      if (this.#full.length === 0 && turns.mayBegin(this.#client, bytes)) {
        return this.#evaluate(policy, call, payload, deadline, bytes);
      }
      call.work = {
        client: this.#client,
        bytes,
        deadline,
        isReady: () => this.#full.length === 0,
        begin: () => this.#turn(policy, call, payload, deadline, bytes),
      };
      this.#addWaiting(call);
      turns.add(call.work);
      this.#turns++;
      return false;
    }
    if (call.link !== undefined) call.link.leaves = payload;
    return true;
  }

  /** Evaluates a call that has waited for its turn. */
  #turn(policy: Policy, call: PendingCall, payload: ChainPayload, deadline: number, bytes: number): void {
    this.#removeWaiting(call);
    if (this.#evaluate(policy, call, payload, deadline, bytes) && call.link !== undefined)
      this.#release(call.link);
    this.#resume();
    this.#flushSoon();
  }

  /** Evaluates a call; returns whether it has ended. */
  #evaluate(
    policy: Policy,
    call: PendingCall,
    payload: ChainPayload,
    deadline: number,
    bytes: number,
  ): boolean {
    const { mutating } = policy;
    const { admissionRequest, namespaceObject, object } = payload;
    const { traceparent } = call;
    const client = this.#client;
    const options = { deadline, mutating, object, traceparent, client };
    const review = new Review(admissionRequest, namespaceObject, options);
    const finish = (outcome: Outcome): void => this.#finished(call, payload, outcome);
    const outcome = begin(policy, review, finish, call.parameters);
    if (outcome instanceof RunningCall) {
      this.#keep(call.message);
      this.#limits.turns.count(outcome, this.#client, bytes, () => this.#drop(call.message));
      this.#running.set(call.key, outcome);
      this.#fresh.push(outcome);
      if (call.link !== undefined) this.#links.set(call.key, call.link);
      return false;
    }
    this.#add(call.id, outcome, call.isChained);
    if (call.link !== undefined) call.link.leaves = leftBy(payload, outcome);
    return true;
  }

  /** Reads on, unless calls wait: their answers may need all the room that there is. */
  #resume(): void {
    const hasRoom = this.#turns === 0 && this.#full.length === 0 && !this.#writing;
    if (hasRoom && this.#call.isPaused()) this.#call.resume();
  }

  #addWaiting(call: PendingCall): void {
    this.#running.set(call.key, call);
    this.#keep(call.message);
  }

  #removeWaiting(call: PendingCall): void {
    this.#running.delete(call.key);
    this.#drop(call.message);
    if (call.work === undefined) return;
    this.#turns--;
    this.#limits.turns.remove(call.work);
    call.work = undefined;
  }

  /** Counts a call that needs the message of its payload. */
  #keep(message: ReceivedMessage): void {
    if (message.calls++ === 0)
      this.#limits.received.set(this.#received, this.#received.bytes + message.bytes);
  }

  #drop(message: ReceivedMessage): void {
    if (--message.calls > 0) return;
    this.#limits.received.set(this.#received, Math.max(0, this.#received.bytes - message.bytes));
  }

  #refuse(call: PendingCall): void {
    const text = `${MAX_IN_FLIGHT} calls of this stream are in flight`;
    this.#add(call.id, failure(status.RESOURCE_EXHAUSTED, text), call.isChained);
  }

  #finished(call: PendingCall, payload: ChainPayload, outcome: Outcome): void {
    this.#running.delete(call.key);
    this.#links.delete(call.key);
    this.#add(call.id, outcome, call.isChained);
    if (call.link !== undefined) {
      call.link.leaves = leftBy(payload, outcome);
      this.#release(call.link);
    }
    this.#flushSoon();
  }

  /** Begins the calls that wait for an ended call; in a loop, since a chain may be longer than the stack. */
  #release(ended: Link): void {
    const links = [ended];
    for (let link = links.pop(); link !== undefined; link = links.pop()) {
      for (const call of link.followers) {
        let hasEnded = true;
        if (this.#running.get(call.key) === call) {
          this.#removeWaiting(call);
          hasEnded = this.#begin(call, link.leaves!, performance.now());
        } else if (call.link !== undefined) {
          call.link.leaves = link.leaves; // cancelled, as those after it, or refused
        }
        if (hasEnded && call.link !== undefined) links.push(call.link);
      }
    }
  }

  /** Cancels a call in flight and those that wait for it. */
  #cancel(cancelled: number | bigint): void {
    const keys = [cancelled];
    for (let key = keys.pop(); key !== undefined; key = keys.pop()) {
      const call = this.#running.get(key);
      if (call === undefined) continue;
      const link = call instanceof PendingCall ? call.link : this.#links.get(key);
      if (call instanceof PendingCall) this.#removeWaiting(call);
      this.#running.delete(key);
      this.#links.delete(key);
      call.cancel();
      for (const follower of link?.followers ?? []) {
        if (this.#running.get(follower.key) === follower) keys.push(follower.key);
      }
    }
  }

  /** Adds a verdict to the next message. */
  #add(id: Id, outcome: Outcome, isChained: boolean): void {
    const { response, error, bytesAtMost } = outcome;
    const size = VERDICT_BYTES + bytesAtMost;
    if (this.#bytes + size > MAX_MESSAGE_BYTES) {
      this.#seal();
      this.#call.pause();
    }
    this.#bytes += size;
    const verdict: Verdict = response !== undefined ? { id, response } : { id, error: error! };
    if (isChained) verdict.chained = true;
    this.#verdicts.push(verdict);
  }

  #seal(): void {
    this.#full.push(verdictBatch.encode({ verdicts: this.#verdicts, draining: this.#tellDraining }));
    this.#verdicts = [];
    this.#bytes = 0;
    this.#tellDraining = false;
  }

  /** Flushes after all verdicts that need nothing but promises to settle are there too. */
  #flushSoon(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    afterPromises(() => {
      this.#scheduled = false;
      for (const running of this.#fresh) running.watchDeadline();
      this.#fresh = [];
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#writing || this.#ended) return;
    if (this.#full.length === 0) {
      if (this.#verdicts.length > 0 || this.#tellDraining) this.#seal();
      else if (this.#over && this.#running.size === 0) return this.#end();
      else return;
    }
    this.#writing = true;
    this.#call.write(this.#full.shift()!, () => {
      this.#writing = false;
      this.#lastActive = performance.now();
      if (this.#full.length === 0) {
        this.#resume();
        this.#limits.turns.wake();
      }
      this.#flush();
    });
  }

  #end(): void {
    this.#ended = true;
    this.#call.end();
  }

  /** Ends the stream after a violation by the gateway. */
  #violated(details: string): void {
    this.#fail(failure(status.INVALID_ARGUMENT, details));
  }

  /** Ends the stream with an error; running calls are cancelled. */
  #fail({ error }: Outcome): void {
    if (this.#ended) return;
    this.#over = true;
    this.#cancelAll();
    this.#seal();
    for (const message of this.#full) this.#call.write(message);
    this.#ended = true;
    const { code, message } = error!;
    this.#call.emit("error", { code, details: message });
  }

  #close(): void {
    this.#over = this.#ended = true;
    clearTimeout(this.#quietTimer);
    this.#cancelAll();
    this.#closed();
  }

  #cancelAll(): void {
    for (const call of this.#running.values()) {
      if (call instanceof PendingCall) this.#removeWaiting(call);
      else call.cancel();
    }
    this.#running.clear();
    this.#links.clear();
    this.#limits.parameters.set(this.#keptParameters, 0);
  }
}
