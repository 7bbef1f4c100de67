/** Denials. */

/** One entry of `status.details.causes`: the problem of one field. */
export interface Cause {
  message: string;
  /** Path such as `spec.containers[0].image`; empty for the whole object. */
  field?: string;
  /** One of Kubernetes' CauseTypes: FieldValueRequired, FieldValueInvalid, ...; FieldValueForbidden by default. */
  reason?: string;
}

export interface DenialOptions {
  /** HTTP status, 400 to 599; any other value is sent as 400. Default 403. */
  code?: number;
  /** Machine-readable reason such as `Forbidden`; empty: chosen by the gateway. */
  reason?: string;
  /** Path of the offending field; shorthand for a first cause with the same message. */
  field?: string;
  /** Further causes, shown in this order. */
  causes?: Iterable<Cause>;
  /**
   * After how many seconds the client may try again, which it reads in the header `Retry-After`; anything but a whole
   * number from 1 to 2^31 - 1 is left out.
   */
  retryAfterSeconds?: number;
  /** Name of the denial's object. */
  name?: string;
  /** Its API group. */
  group?: string;
  /** Its kind. With the reason `Invalid` kubectl prints `The KIND "NAME" is invalid` instead of the message. */
  kind?: string;
  /** Its uid. */
  uid?: string;
}

/** Marks denials of every copy of this package: a policy may come from a package that has a copy of its own. */
const BRAND = Symbol.for("admission-gateway-worker.Denied");

/**
 * Thrown by a policy to deny the request. The user sees the message: the field, what is wrong with it, and what to do.
 */
export class Denied extends Error {
  readonly code: number;
  readonly reason: string;
  readonly causes: readonly Cause[];
  readonly retryAfterSeconds: number;
  /** What the denial is about; `name` is that of the error. */
  readonly about: {
    readonly name: string;
    readonly group: string;
    readonly kind: string;
    readonly uid: string;
  };
  readonly [BRAND] = true;

  constructor(message: string, options: DenialOptions = {}) {
    super(message);
    this.name = "Denied";
    this.code = options.code ?? 403;
    this.reason = options.reason ?? "";
    const own = options.field === undefined ? [] : [{ message, field: options.field }];
    this.causes = [...own, ...(options.causes ?? [])];
    this.retryAfterSeconds = options.retryAfterSeconds ?? 0;
    const { name = "", group = "", kind = "", uid = "" } = options;
    this.about = { name, group, kind, uid };
  }
}

/** Returns the denial that was thrown; also the first one within an AggregateError, as `Promise.any` throws it. */
export function denialIn(problem: unknown): Denied | undefined {
  if (typeof problem !== "object" || problem === null) return undefined;
  if (BRAND in problem) return problem as Denied;
  if (!(problem instanceof AggregateError)) return undefined;
  for (const inner of problem.errors) {
    const found = denialIn(inner);
    if (found !== undefined) return found;
  }
  return undefined;
}
