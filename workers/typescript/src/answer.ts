/**
 * How a policy ended, as the message that goes to the gateway. The stream and the unary method send the same, so a
 * policy cannot tell them apart.
 *
 * 1. A denial is always sent as a denial.
 * 2. Any result other than undefined or a denial is an error, never an allowed response.
 * 3. The worker sends no stack trace, and at most MAX_ERROR_BYTES of error text.
 */

import { status } from "@grpc/grpc-js";

import { denialIn, type Denied } from "./denied.js";
import { cleanText } from "./json.js";
import { logFailure } from "./log.js";
import {
  reviewResponse,
  type ErrorMessage,
  type ReviewResponseMessage,
  type StatusMessage,
} from "./messages.js";
import type { Policy } from "./policy.js";
import { MalformedPayload, type Review } from "./review.js";

/** A Verdict without its id. */
export interface Outcome {
  readonly response?: ReviewResponseMessage;
  readonly error?: ErrorMessage;
  /** What it takes in a message, or somewhat more. */
  readonly bytesAtMost: number;
}

/** Limit in both directions, as in the gateway: a review has up to 7 MiB, and gRPC's default is 4 MiB. */
export const MAX_MESSAGE_BYTES = 8 * 1024 * 1024;

/** Leaves room for the fields of the verdict and the batch. */
export const MAX_RESPONSE_BYTES = MAX_MESSAGE_BYTES - 128;

/** Limit of an error's text, which a unary answer has percent-encoded in the trailers of at most 8 KiB. */
const MAX_ERROR_BYTES = 2000;

/** Tags and lengths around a text, and of the messages that texts are in. */
const AROUND_A_TEXT = 16;

/** The most frequent answer, shared by all reviews. */
export const ALLOWED: Outcome = { response: { allowed: true }, bytesAtMost: AROUND_A_TEXT };

/** `ALLOWED` for a call with parameters; shared too. */
const ALLOWED_WITH_PARAMETERS: Outcome = {
  response: { allowed: true, parametersApplied: true },
  bytesAtMost: AROUND_A_TEXT,
};

/** Returns an outcome as that of a call with parameters. */
export function withParameters(outcome: Outcome): Outcome {
  if (outcome === ALLOWED) return ALLOWED_WITH_PARAMETERS;
  const { response, bytesAtMost } = outcome;
  return response === undefined
    ? outcome
    : { response: { ...response, parametersApplied: true }, bytesAtMost };
}

/** Returns the error of that code, its text cut to MAX_ERROR_BYTES. */
export function failure(code: status, text: string): Outcome {
  let message = cleanText(text);
  const encoded = Buffer.from(message);
  if (encoded.length > MAX_ERROR_BYTES) {
    let end = MAX_ERROR_BYTES - 3;
    while ((encoded[end]! & 0xc0) === 0x80) end--; // within a character
    message = `${encoded.toString("utf8", 0, end)}...`;
  }
  return { error: { code, message }, bytesAtMost: MAX_ERROR_BYTES + AROUND_A_TEXT };
}

/** Returns the error of a call whose deadline has passed. */
export function tooLate(): Outcome {
  return failure(status.DEADLINE_EXCEEDED, "the deadline passed before the policy answered");
}

/** Returns the error of a call for an unknown policy. */
export function unknownPolicy(name: string, policies: ReadonlyMap<string, Policy>): Outcome {
  const names = [...policies.keys()].sort((one, other) =>
    Buffer.compare(Buffer.from(one), Buffer.from(other)),
  );
  const served = names.join(", ") || "none";
  return failure(status.NOT_FOUND, `policy "${name}" is not served here; served are: ${served}`);
}

/** Returns the outcome of a policy that returned `result`: allow, with its patch, if that is undefined. */
export function ended(policy: Policy, review: Review, result: unknown): Outcome {
  if (result !== undefined) {
    // Otherwise "return false" would allow, although its author meant a denial.
    const found = result === null ? "null" : typeof result;
    const text = `the policy returned ${found}: it returns nothing to allow and throws Denied to deny`;
    return threw(policy, review, new TypeError(text));
  }
  try {
    const json = policy.mutating ? review.patchJson() : "";
    const patch = json !== "" ? Buffer.from(json) : undefined;
    if (patch === undefined && review.warnings.length === 0 && review.annotations.size === 0) return ALLOWED;
    return limited({ allowed: true, ...(patch && { patch }), ...said(review) });
  } catch (problem) {
    return threw(policy, review, problem);
  }
}

/** Returns the outcome of a policy that threw `problem`: a denial, or an error, which is also logged. */
export function threw(policy: Policy, review: Review, problem: unknown): Outcome {
  try {
    const denial = denialIn(problem);
    if (denial !== undefined) return limited(denied(review, denial));
    if (problem instanceof MalformedPayload) return failure(status.INVALID_ARGUMENT, problem.message);
  } catch {
    // Anything can be thrown, also what refuses to be looked at; the other calls of the batch are to be answered.
  }
  logFailure(policy, review, problem);
  return failure(status.INTERNAL, textOf(problem));
}

/** Returns the text of anything thrown, with its type if that adds information. */
export function textOf(problem: unknown): string {
  try {
    if (!(problem instanceof Error)) return String(problem);
    const name = problem.name === "Error" ? problem.constructor.name : problem.name;
    const message = String(problem.message);
    if (message === "") return name;
    return name === "Error" ? message : `${name}: ${message}`;
  } catch {
    return `a thrown ${typeof problem}`;
  }
}

/** Copied and cleaned here: policies get at both lists, and something of theirs may still run and add to them. */
function said(review: Review): Pick<ReviewResponseMessage, "warnings" | "auditAnnotations"> {
  const annotations = [...review.annotations].map(([key, value]) => [cleanText(key), cleanText(value)]);
  return {
    warnings: review.warnings.map(cleanText),
    auditAnnotations: Object.fromEntries(annotations) as Record<string, string>,
  };
}

function denied(review: Review, denial: Denied): ReviewResponseMessage {
  const isCode = Number.isInteger(denial.code) && denial.code >= 400 && denial.code <= 599;
  const causes = denial.causes.map((cause) => ({
    reason: cleanText(cause?.reason ?? "FieldValueForbidden"),
    message: cleanText(cause?.message ?? ""),
    field: cleanText(cause?.field ?? ""),
  }));
  const reason = cleanText(denial.reason);
  const message = cleanText(denial.message);
  return {
    allowed: false,
    status: { code: isCode ? denial.code : 400, reason, message, causes, ...details(denial) },
    ...said(review),
  };
}

/** Only what there is: protobufjs would write a field that is empty. */
function details({ retryAfterSeconds, about }: Denied): Partial<StatusMessage> {
  const isTime = Number.isInteger(retryAfterSeconds) && retryAfterSeconds > 0 && retryAfterSeconds < 2 ** 31;
  const found: Partial<StatusMessage> = isTime ? { retryAfterSeconds } : {};
  // Denials of another copy of this package, of an earlier version, have neither.
  for (const field of ["name", "group", "kind", "uid"] as const) {
    const text = cleanText(about?.[field] ?? "");
    if (text !== "") found[field] = text;
  }
  return found;
}

/** Returns the response; if it is too large, an error, or a denial with a shortened status. */
function limited(response: ReviewResponseMessage): Outcome {
  const bytesAtMost = bound(response);
  if (bytesAtMost <= MAX_RESPONSE_BYTES) return { response, bytesAtMost };
  const size = reviewResponse.encode(response).length;
  if (size <= MAX_RESPONSE_BYTES) return { response, bytesAtMost: size + AROUND_A_TEXT };
  if (!response.allowed && response.status !== undefined) {
    const { code, reason, message, retryAfterSeconds } = response.status;
    const texts = { reason: beginning(reason, 64), message: beginning(message, 4096) };
    const short = {
      code,
      ...texts,
      causes: [],
      ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
    };
    return limited({ allowed: false, status: short });
  }
  const patched = response.patch?.length ?? 0;
  return failure(
    status.RESOURCE_EXHAUSTED,
    `the answer has ${size} bytes (${patched} of them patch), more than ${MAX_RESPONSE_BYTES}`,
  );
}

/** Returns an upper bound of the response's size, without encoding it. */
function bound(response: ReviewResponseMessage): number {
  let units = 0;
  let texts = 1;
  const add = (text: string): void => {
    units += text.length;
    texts++;
  };
  response.warnings?.forEach(add);
  for (const [key, value] of Object.entries(response.auditAnnotations ?? {})) {
    add(key);
    add(value);
  }
  if (response.status !== undefined) {
    add(response.status.reason);
    add(response.status.message);
    for (const field of ["name", "group", "kind", "uid"] as const) add(response.status[field] ?? "");
    for (const cause of response.status.causes) {
      add(cause.reason);
      add(cause.message);
      add(cause.field);
    }
  }
  return (response.patch?.length ?? 0) + 3 * units + AROUND_A_TEXT * (texts + 1);
}

/** Returns the first characters of a text, none of them cut in two. */
function beginning(text: string, characters: number): string {
  return Array.from(text.slice(0, 2 * characters))
    .slice(0, characters)
    .join("");
}
