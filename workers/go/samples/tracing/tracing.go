// Package tracing has a sample policy that continues the gateway's trace with OpenTelemetry. It is a module of its own, so
// that the SDK does not depend on OpenTelemetry.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"

	"admission-gateway.io/worker"
)

// KnownTeam denies objects without a team, and records its work as a span below the gateway's span of the call.
func KnownTeam(ctx context.Context, review *worker.Review) error {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": review.Traceparent()})
	ctx, span := otel.Tracer("policies").Start(ctx, "known-team")
	defer span.End()
	return lookUp(ctx, review)
}

func lookUp(_ context.Context, review *worker.Review) error {
	labels, _ := review.Object()["metadata"].(map[string]any)["labels"].(map[string]any)
	if labels["team"] == nil {
		return worker.Deny("metadata.labels[team]: every workload names its team: add the label")
	}
	return nil
}
