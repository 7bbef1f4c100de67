/**
 * The messages of worker.proto. Coders are made from the file itself when this is loaded; the types below only say
 * what they give and take.
 */

import { readFileSync } from "node:fs";

import protobuf from "protobufjs";

/** A uint64 as protobufjs has it: a double cannot hold all of them. */
export interface Id {
  readonly high: number;
  readonly low: number;
}

export interface Payload {
  readonly admissionRequest: Buffer;
  readonly namespaceObject: Buffer;
}

export interface Call {
  readonly id: Id;
  readonly payload: number;
  readonly policy: string;
  readonly timeoutMillis: number;
  /** Id of an earlier call of the batch; 0: none. */
  readonly after: Id;
  /** Not validated. */
  readonly traceparent: string;
  /** Id; 0: none. */
  readonly parameters: number;
}

/** Parameters with the id by which calls name them. */
export interface Parameters {
  readonly id: number;
  readonly json: Buffer;
}

export interface ReviewRequestMessage extends Payload {
  readonly policy: string;
  readonly parameters: Buffer;
}

export interface CheckParametersRequest {
  readonly policy: string;
  readonly parameters: Buffer;
}

export interface ReviewBatch {
  readonly payloads: readonly Payload[];
  readonly calls: readonly Call[];
  readonly cancelled: readonly Id[];
  readonly parameters: readonly Parameters[];
}

export interface StatusCause {
  reason: string;
  message: string;
  field: string;
}

export interface StatusMessage {
  code: number;
  reason: string;
  message: string;
  causes: StatusCause[];
  retryAfterSeconds?: number;
  name?: string;
  group?: string;
  kind?: string;
  uid?: string;
}

export interface ReviewResponseMessage {
  allowed: boolean;
  status?: StatusMessage;
  patch?: Buffer;
  auditAnnotations?: Record<string, string>;
  warnings?: string[];
  parametersApplied?: boolean;
}

export interface ErrorMessage {
  code: number;
  message: string;
}

export interface Verdict {
  id: Id;
  response?: ReviewResponseMessage;
  error?: ErrorMessage;
  chained?: boolean;
}

export interface VerdictBatch {
  verdicts: Verdict[];
  draining: boolean;
}

export interface PolicyMessage {
  name: string;
  description: string;
  mutating: boolean;
  version: string;
  /** Absent if it takes no parameters. */
  parametersSchema?: string;
}

export interface Decoder<Message> {
  decode(bytes: Uint8Array): Message;
}

interface Encoder<Message> {
  encode(message: Message): Buffer;
}

const PACKAGE = "admissiongateway.worker.v1";

/** Beside this file once it is built; copied from `protos/`, the one place where it is written. */
const schema = protobuf.parse(readFileSync(new URL("./worker.proto", import.meta.url), "utf8")).root;

/** Full name of the service. */
export const SERVICE = `${PACKAGE}.PolicyWorker`;

export const reviewRequest = decoder<ReviewRequestMessage>(schema, `${PACKAGE}.ReviewRequest`);
export const reviewBatch = decoder<ReviewBatch>(schema, `${PACKAGE}.ReviewBatch`);
export const checkParametersRequest = decoder<CheckParametersRequest>(
  schema,
  `${PACKAGE}.CheckParametersRequest`,
);
export const checkParametersResponse = encoder<{ problem: string }>(
  schema,
  `${PACKAGE}.CheckParametersResponse`,
);
export const reviewResponse = encoder<ReviewResponseMessage>(schema, `${PACKAGE}.ReviewResponse`);
export const verdictBatch = encoder<VerdictBatch>(schema, `${PACKAGE}.VerdictBatch`);
export const listPoliciesResponse = encoder<{ policies: PolicyMessage[] }>(
  schema,
  `${PACKAGE}.ListPoliciesResponse`,
);

/** Returns the coder for reading a message of that name. */
export function decoder<Message>(root: protobuf.Root, name: string): Decoder<Message> {
  const type = root.lookupType(name);
  return { decode: (bytes) => type.decode(bytes) as unknown as Message };
}

/** Returns the coder for writing a message of that name. */
export function encoder<Message>(root: protobuf.Root, name: string): Encoder<Message> {
  const type = root.lookupType(name);
  return { encode: (message) => type.encode(message as object).finish() as Buffer };
}

/** Returns an id as a key for a Map, exact: a number up to 2^53, a bigint beyond. */
export function keyOf(id: Id): number | bigint {
  const high = id.high >>> 0;
  const low = id.low >>> 0;
  return high < 0x20_0000 ? high * 0x1_0000_0000 + low : (BigInt(high) << 32n) | BigInt(low);
}
