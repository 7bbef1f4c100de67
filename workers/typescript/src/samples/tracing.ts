/** A sample policy that continues the gateway's trace with OpenTelemetry. It is not served by `main.ts`. */

import { propagation, ROOT_CONTEXT, trace } from "@opentelemetry/api";

import { Denied, type Review } from "../index.js";

/** Denies objects without a team, and records its work as a span below the gateway's span of the call. */
export async function knownTeam(review: Review): Promise<void> {
  const parent = propagation.extract(ROOT_CONTEXT, { traceparent: review.traceparent });
  return trace.getTracer("policies").startActiveSpan("known-team", {}, parent, async (span) => {
    try {
      if (!review.object?.metadata.labels?.team) {
        throw new Denied("metadata.labels[team]: every workload names its team: add the label");
      }
    } finally {
      span.end();
    }
  });
}
