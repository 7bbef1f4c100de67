/** How a policy says no. */

/** One entry of `status.details.causes`: what is wrong with one field. */
export interface Cause {
  message: string;
  /** Path such as `spec.containers[0].image`; empty for the whole object. */
  field?: string;
  /** One of Kubernetes' CauseTypes: FieldValueRequired, FieldValueInvalid, ...; FieldValueForbidden by default. */
  reason?: string;
}

export interface DenialOptions {
  /** HTTP status that the user gets, 400 to 599; anything else is answered as 400. 403 by default. */
  code?: number;
  /** Machine-readable reason such as `Forbidden`; left to the gateway where empty. */
  reason?: string;
  /** Path of the offending field; short for one cause with the same message, put first. */
  field?: string;
  /** Further causes, shown in this order. */
  causes?: Iterable<Cause>;
}

/** Marks denials of every copy of this package: a policy may come from a package that has a copy of its own. */
const BRAND = Symbol.for("admission-gateway-worker.Denied");

/** Thrown by a policy to deny the request; the message is shown to the user who made it and says what to change. */
export class Denied extends Error {
  readonly code: number;
  readonly reason: string;
  readonly causes: readonly Cause[];
  readonly [BRAND] = true;

  constructor(message: string, options: DenialOptions = {}) {
    super(message);
    this.name = "Denied";
    this.code = options.code ?? 403;
    this.reason = options.reason ?? "";
    const own = options.field === undefined ? [] : [{ message, field: options.field }];
    this.causes = [...own, ...(options.causes ?? [])];
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
