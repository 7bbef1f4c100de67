"""A worker whose policy makes a span: ``python -m tests.e2e.tracing_worker COLLECTOR --listen …``."""

from __future__ import annotations

import sys

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from admission_gateway_worker import Denied, PolicyServer, Review

server = PolicyServer()
tracer = trace.get_tracer("policies")


@server.policy("traced")
async def traced(review: Review) -> None:
    """Deny what carries the label ``refused``."""
    with tracer.start_as_current_span("check labels"):
        if "refused" in (review.object["metadata"].get("labels") or {}):
            raise Denied(review.traceparent)


if __name__ == "__main__":
    collector = sys.argv.pop(1)
    provider = TracerProvider(resource=Resource.create({"service.name": "policies"}))
    exporter = OTLPSpanExporter(f"{collector}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=200))
    trace.set_tracer_provider(provider)
    server.main()
