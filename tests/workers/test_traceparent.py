"""The trace context of a call: as a value for every policy, and as the context of its spans."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import get_current_span

from admission_gateway_worker import PolicyServer
from admission_gateway_worker.pb import worker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission_gateway_worker import Review

EVENT_LOOPS = ("uvloop",)

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
SPAN = 0xB7AD6B7169203331
SAMPLED = f"00-{TRACE:032x}-{SPAN:016x}-01"
NOT_SAMPLED = f"00-{TRACE:032x}-{SPAN:016x}-00"

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = provider.get_tracer("policies")


def traced() -> PolicyServer:
    """Return a server whose policies make a span each, in every way in which a policy can run."""
    server = PolicyServer()

    @server.policy("plain")
    def plain(review: Review) -> None:
        with tracer.start_as_current_span("plain"):
            review.warn(review.traceparent)

    @server.policy("thread", blocking=True)
    def thread(review: Review) -> None:
        with tracer.start_as_current_span("thread"):
            review.warn(review.traceparent)

    @server.policy("one-step")
    async def one_step(review: Review) -> None:
        with tracer.start_as_current_span("one-step"):
            review.warn(review.traceparent)

    @server.policy("task")
    async def task(review: Review) -> None:
        await asyncio.sleep(0)
        with tracer.start_as_current_span("task"):
            review.warn(review.traceparent)

    return server


POLICIES = ("plain", "thread", "one-step", "task")


def batch_of(policies: Sequence[str], traceparent: str) -> pb.ReviewBatch:
    """Return a batch with a call of each of *policies*, with ids from 1 on."""
    batch = pb.ReviewBatch(payloads=[pb.Payload(admission_request=b"{}")])
    for number, policy in enumerate(policies, 1):
        batch.calls.add(id=number, policy=policy, timeout_millis=60_000, traceparent=traceparent)
    return batch


@pytest.mark.parametrize("method", ["stream", "unary"])
@pytest.mark.parametrize("policy", POLICIES)
def test_spans_of_a_policy_are_children_of_its_call(serve: Any, policy: str, method: str) -> None:
    exporter.clear()

    async def scenario() -> Any:
        async with serve(traced()) as worker:
            if method == "unary":
                message = pb.ReviewRequest(policy=policy, admission_request=b"{}")
                metadata = (("traceparent", SAMPLED),)
                return await worker.review(message.SerializeToString(), metadata=metadata)
            stream = worker.stream()
            await stream.call.write(batch_of([policy], SAMPLED))
            answer = (await stream.verdicts(1))[1]
            await stream.close()
            return answer

    answer = uvloop.run(scenario())
    assert list(answer.warnings) == [SAMPLED]
    (span,) = exporter.get_finished_spans()
    assert span.parent is not None
    assert (span.name, span.parent.trace_id, span.parent.span_id) == (policy, TRACE, SPAN)


@pytest.mark.parametrize("traceparent", ["", NOT_SAMPLED, "00-invalid", "\n" * 55])
async def test_a_call_that_is_not_sampled_has_no_spans(serve: Any, traceparent: str) -> None:
    exporter.clear()
    async with serve(traced()) as worker:
        stream = worker.stream()
        await stream.call.write(batch_of(POLICIES, traceparent))
        answers = await stream.verdicts(len(POLICIES))
        valid = traceparent if traceparent == NOT_SAMPLED else ""
        assert all(list(answer.warnings) == [valid] for answer in answers.values())
        await stream.close()
    traces = {span.context.trace_id for span in exporter.get_finished_spans()}
    assert TRACE not in traces
    assert len(traces) == (0 if traceparent == NOT_SAMPLED else len(POLICIES))


async def test_the_context_ends_with_the_policy(serve: Any) -> None:
    async with serve(traced()) as worker:
        stream = worker.stream()
        await stream.call.write(batch_of(POLICIES, SAMPLED))
        await stream.verdicts(len(POLICIES))
        assert not get_current_span().get_span_context().is_valid
        await stream.close()


def test_a_worker_without_tracing_imports_nothing_of_opentelemetry() -> None:
    program = (
        "import sys; from admission_gateway_worker import PolicyServer, Review\n"
        "from admission_gateway_worker.invoke import run\n"
        "from admission_gateway_worker.policy import Policy\n"
        "policy = Policy('a', lambda review: None)\n"
        f"run(policy, Review(b'{{}}', traceparent={SAMPLED!r}))\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout == "[]\n"
