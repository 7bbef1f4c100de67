/**
 * The interface of policies. Independent of gRPC, so that a unit test can call a policy with `Review.fromJson(...)`.
 */

import { isUtf8 } from "node:buffer";

import { diffInSteps, same, type Operation } from "./diff.js";
import { clone, parseJson, plain, writeJson } from "./json.js";
import type {
  AdmissionRequest,
  GroupVersionKind,
  GroupVersionResource,
  KubernetesObject,
  UserInfo,
} from "./kubernetes.js";
import { cloneInSteps, plainInSteps, writeInSteps } from "./large.js";
import { parseInSteps } from "./pieces.js";
import { finish, LARGE_BYTES, type Steps } from "./steps.js";
import { validTraceparent } from "./traceparent.js";

/** The gateway has sent something other than a JSON object. */
export class MalformedPayload extends Error {}

/** How a call is made: all of it is known to the server, none of it to the policy. */
export interface ReviewOptions {
  /** Instant of `performance.now()`, in milliseconds; infinite where none is known. */
  deadline?: number;
  mutating?: boolean;
  /** As it was sent, not validated. */
  traceparent?: unknown;
  /** The object, if earlier calls of a chain have changed that of the request. */
  object?: object | undefined;
  /** Who has made it: clients take turns with large reviews. */
  client?: object;
}

/**
 * One admission request for one policy. It is parsed on first use and belongs to one call: other
 * policies do not see changes.
 */
export class Review {
  /** A mutating policy's own JSON Patch, which then counts instead of what it changed in `object`. */
  patch: readonly Operation[] | undefined;
  /** Until when the gateway waits: an instant of `performance.now()`, in milliseconds. */
  readonly deadline: number;
  /**
   * The W3C Trace Context of the gateway's span for this call, with which a policy that traces continues the trace; empty
   * if there is none.
   */
  readonly traceparent: string;
  /**
   * The parameters of the webhook as the policy's `prepare` made them; undefined if it takes none. Calls share them: they
   * must not be changed.
   */
  parameters: any;
  /** The warnings so far. */
  readonly warnings: string[] = [];
  /** The audit annotations so far. */
  readonly annotations = new Map<string, string>();
  /** For the server. */
  readonly client: object;

  readonly #payload: Buffer;
  readonly #namespaceJson: Buffer;
  readonly #mutating: boolean;
  readonly #object: object | undefined;
  #request: AdmissionRequest | undefined;
  #before: unknown;
  /** Why the request of a large review cannot be read. */
  #problem: unknown;
  /** Of a large review; throws what the policy is to get. */
  #readNamespace: (() => object) | undefined;
  /** JSON of the changes, if it has been made in steps. */
  #patch: string | undefined;
  #controller: AbortController | undefined;
  #aborted: DOMException | undefined;

  constructor(admissionRequest: Buffer, namespaceObject: Buffer, options: ReviewOptions = {}) {
    this.#payload = admissionRequest;
    this.#namespaceJson = namespaceObject;
    this.deadline = options.deadline ?? Infinity;
    this.#mutating = options.mutating ?? false;
    this.#object = options.object;
    this.client = options.client ?? this;
    this.traceparent = options.traceparent === undefined ? "" : validTraceparent(options.traceparent);
  }

  /**
   * Returns a Review for a unit test, from an AdmissionReview or the AdmissionRequest in it, as an object or as
   * JSON. It keeps track of changes, so `changes()` answers for mutating policies. `parameters` are as the policy's
   * `prepare` makes them.
   */
  static fromJson(
    review: string | object,
    options: {
      namespaceObject?: object;
      timeoutMs?: number;
      traceparent?: string;
      parameters?: unknown;
    } = {},
  ): Review {
    const document = (typeof review === "string" ? parseJson(review) : plain(review)) as {
      request?: object;
    } | null;
    const request = document?.request ?? document;
    const namespace = options.namespaceObject === undefined ? "" : text(options.namespaceObject);
    const deadline = performance.now() + (options.timeoutMs ?? Infinity);
    const { traceparent } = options;
    const made = new Review(Buffer.from(text(request)), Buffer.from(namespace), {
      deadline,
      mutating: true,
      traceparent,
    });
    made.parameters = options.parameters;
    return made;
  }

  /** The unchanged AdmissionRequest; whole numbers beyond 2^53 in it are bigints. */
  get request(): AdmissionRequest {
    if (this.#problem !== undefined) throw this.#problem;
    if (this.#request === undefined) finish(this.#readRequest());
    return this.#request!;
  }

  *#readRequest(): Steps<void> {
    const request = (yield* decodeInSteps("admission_request", this.#payload)) as AdmissionRequest;
    if (this.#object !== undefined) request.object = clone(this.#object) as KubernetesObject;
    if (this.#mutating) this.#before = yield* cloneInSteps(request.object ?? null);
    this.#request = request;
  }

  /** Whether it is to be evaluated in steps. For the server. */
  get isLarge(): boolean {
    return this.#payload.length + this.#namespaceJson.length > LARGE_BYTES;
  }

  /** Parses a large review before its policy reads it. For the server. */
  *read(): Steps<void> {
    // A problem is for the policy that reads what is malformed.
    try {
      yield* this.#readRequest();
    } catch (problem) {
      this.#problem = problem;
    }
    if (this.#namespaceJson.length <= LARGE_BYTES) return;
    try {
      const namespace = yield* decodeInSteps("namespace_object", this.#namespaceJson);
      this.#readNamespace = () => namespace;
    } catch (problem) {
      this.#readNamespace = () => {
        throw problem;
      };
    }
  }

  /** Makes the patch of a large review after its policy has ended. For the server. */
  *settle(): Steps<void> {
    this.#patch = yield* this.#writeChanges();
  }

  /** Returns the JSON of `changes()`, empty for none. For the server. */
  patchJson(): string {
    return this.#patch ?? finish(this.#writeChanges());
  }

  *#writeChanges(): Steps<string> {
    const changes = yield* this.#findChanges();
    return changes.length > 0 ? yield* writeInSteps(changes) : "";
  }

  /** The object of the request; null where there is none (DELETE). For CONNECT it is an options object. */
  get object(): KubernetesObject | null {
    return this.request.object ?? null;
  }

  set object(value: object | null) {
    this.request.object = value as KubernetesObject | null;
  }

  /** The stored object, for UPDATE and DELETE; otherwise null. */
  get oldObject(): KubernetesObject | null {
    return this.request.oldObject ?? null;
  }

  /** `object` as a type of yours, such as Pod; it is the same object, and nothing is checked. */
  objectAs<Kind>(): Kind | null {
    return this.object as Kind | null;
  }

  /** `oldObject` as a type of yours. */
  oldObjectAs<Kind>(): Kind | null {
    return this.oldObject as Kind | null;
  }

  /** The Namespace of the request, parsed at each use; null if cluster-scoped or not known. */
  get namespaceObject(): KubernetesObject | null {
    if (this.#namespaceJson.length === 0) return null;
    if (this.#readNamespace !== undefined) return this.#readNamespace() as KubernetesObject;
    return decode("namespace_object", this.#namespaceJson) as KubernetesObject;
  }

  /** CREATE, UPDATE, DELETE or CONNECT. */
  get operation(): string {
    return this.request.operation ?? "";
  }

  /** Kind of the object; its parts are empty where the request does not say. */
  get kind(): GroupVersionKind {
    return this.request.kind ?? { group: "", version: "", kind: "" };
  }

  /** Resource of the request. */
  get resource(): GroupVersionResource {
    return this.request.resource ?? { group: "", version: "", resource: "" };
  }

  /** `status`, `scale` or another; empty for the resource itself. */
  get subResource(): string {
    return this.request.subResource ?? "";
  }

  /** Name of the object; empty for a CREATE with a generated name. */
  get name(): string {
    return this.request.name ?? "";
  }

  /** Namespace of the request; empty for cluster-scoped resources. */
  get namespace(): string {
    return this.request.namespace ?? "";
  }

  /** The user of the request. */
  get userInfo(): UserInfo {
    return this.request.userInfo ?? {};
  }

  /** Whether the request will not be stored; a policy must have no side effects then. */
  get dryRun(): boolean {
    return this.request.dryRun === true;
  }

  /** Unique id of this review; a repetition or reinvocation has another one. */
  get uid(): string {
    return this.request.uid ?? "";
  }

  /** Milliseconds until the deadline; negative after it. */
  get remainingMs(): number {
    return this.deadline - performance.now();
  }

  /** Aborted when the deadline passes or the gateway cancels the call; pass it to `fetch` and similar functions. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#aborted !== undefined) this.#controller.abort(this.#aborted);
    }
    return this.#controller.signal;
  }

  /** Whether the answer is no longer wanted. For the server. */
  get isOver(): boolean {
    return this.#aborted !== undefined || this.remainingMs <= 0;
  }

  /** Aborts `signal`. For the server, and for tests. */
  abort(reason: DOMException): void {
    this.#aborted ??= reason;
    this.#controller?.abort(this.#aborted);
  }

  /** Adds a warning for the user; the gateway cuts it to 256 characters. */
  warn(text: string): void {
    this.warnings.push(text);
  }

  /** Adds an audit annotation; it becomes `WEBHOOK.key`. A later value replaces an earlier one. */
  annotate(key: string, value: string): void {
    this.annotations.set(key, value);
  }

  /**
   * Returns the JSON Patch of this call: `patch` if set, otherwise the changes of `object`. Always empty for a
   * policy that is not mutating.
   *
   * @throws Error - there was no object to change, it was replaced by no object, or it cannot be written as JSON.
   */
  changes(): Operation[] {
    return finish(this.#findChanges());
  }

  *#findChanges(): Steps<Operation[]> {
    if (!this.#mutating || (this.patch === undefined && this.#request === undefined)) return [];
    const after: unknown = this.object;
    if (this.patch !== undefined) {
      if (!Array.isArray(this.patch)) throw new TypeError("review.patch is to be a list of operations");
      if (this.patch.length > 0 && after === null) {
        throw new Error("review.patch is set, but the request has no object to patch");
      }
      return (yield* plainInSteps(this.patch)) as Operation[];
    }
    const written = yield* plainInSteps(after);
    if (wordFor(this.#before) === "object" && wordFor(written) === "object") {
      return yield* diffInSteps(this.#before, written);
    }
    if (same(this.#before, written)) return [];
    if (this.#before === null)
      throw new Error("review.object was set, but the request has no object to change");
    throw new Error(`review.object is to stay an object, found ${wordFor(written)}`);
  }
}

/** JSON of a test's document; a bigint in it is written as the number it is. */
function text(value: unknown): string {
  return writeJson(plain(value));
}

/**
 * Returns a JSON object; errors name it `what`.
 *
 * @throws MalformedPayload - it is none.
 */
export function decode(what: string, bytes: Buffer): object {
  return finish(decodeInSteps(what, bytes));
}

function* decodeInSteps(what: string, bytes: Buffer): Steps<object> {
  const json = bytes.toString();
  // Node reads anything as UTF-8 and puts U+FFFD for what is none.
  if (json.includes("\ufffd") && !isUtf8(bytes))
    throw new MalformedPayload(`${what} is not JSON: it is not UTF-8`);
  let value: unknown;
  try {
    value = bytes.length > LARGE_BYTES ? yield* parseInSteps(json) : parseJson(json);
  } catch (problem) {
    throw new MalformedPayload(`${what} is not JSON: ${(problem as Error).message}`);
  }
  const word = wordFor(value);
  if (word !== "object") throw new MalformedPayload(`${what} is to be a JSON object, found ${word}`);
  return value as object;
}

function wordFor(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value === "bigint" ? "number" : typeof value;
}
