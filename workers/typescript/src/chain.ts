/**
 * Chains: calls with `after`, which begin when that call has ended, on the object that it leaves.
 *
 * Source: protos/README.md, section Chains.
 */

import type { Outcome } from "./answer.js";
import { same, type Operation } from "./diff.js";
import { clone, parseJson } from "./json.js";
import { keyOf, type Call, type Id, type Payload } from "./messages.js";
import { applyPatch } from "./patch.js";
import { LARGE_BYTES } from "./steps.js";
import type { Work } from "./turns.js";

/** A message with payloads, which are parts of its bytes: they are kept until the last of its calls has ended. */
export interface ReceivedMessage {
  readonly bytes: number;
  calls: number;
}

/** A payload of a batch, as it was sent or as a call leaves it. */
export interface ChainPayload extends Payload {
  /** The object after the patches of earlier calls; absent if they have not changed it. Never changed itself. */
  readonly object?: object;
  /** The length of the patches that lead to it. */
  readonly patched?: number;
}

/** Limit of the patches that lead to the object of a call in a chain: four times that of the gateway. */
export const MAX_CHAINED_BYTES = LARGE_BYTES;

/** A call that others of its batch follow. */
export class Link {
  isCancelled = false;
  /** The payload that the call leaves; undefined until it has ended. */
  leaves: ChainPayload | undefined;
  readonly followers: PendingCall[] = [];

  /** `position` is that of its payload in the batch. */
  constructor(readonly position: number) {}
}

/** A call before its begin; in flight if it waits for the end of the call before it. */
export class PendingCall {
  readonly id: Id;
  readonly policy: string;
  readonly timeoutMillis: number;
  readonly traceparent: string;
  readonly isChained: boolean;
  /** Set while it waits for its turn. */
  work: Work | undefined;

  /** `link` is undefined unless other calls follow, `parameters` if their id is unknown. */
  constructor(
    call: Call,
    readonly key: number | bigint,
    readonly link: Link | undefined,
    readonly parameters: Buffer | undefined,
    readonly message: ReceivedMessage,
  ) {
    this.id = call.id;
    this.policy = call.policy;
    this.timeoutMillis = call.timeoutMillis;
    this.traceparent = call.traceparent;
    this.isChained = keyOf(call.after) !== 0;
  }

  /** Does nothing, since it has not begun. */
  cancel(): void {}
}

/** Returns the payload of the calls after a call: with its patch if the call allows and the patch applies. */
export function leftBy(payload: ChainPayload, { response }: Outcome): ChainPayload {
  const patch = response?.allowed === true ? response.patch : undefined;
  if (patch === undefined || patch.length === 0) return payload;
  // The gateway asks for no chain on a large object.
  if (payload.admissionRequest.length > LARGE_BYTES) return { ...payload, patched: Infinity };
  try {
    const before =
      payload.object ?? (parseJson(payload.admissionRequest.toString()) as { object?: object }).object;
    const after = applyPatch(clone(before), parseJson(patch.toString()) as Operation[]);
    const isObject = typeof after === "object" && after !== null && !Array.isArray(after);
    if (!isObject || same(before, after)) return payload;
    const { admissionRequest, namespaceObject } = payload;
    return {
      admissionRequest,
      namespaceObject,
      object: after,
      patched: (payload.patched ?? 0) + patch.length,
    };
  } catch {
    return payload; // the gateway fails the call
  }
}
