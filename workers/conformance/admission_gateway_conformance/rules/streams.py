"""Rules of whole streams: their end, and their independence of each other."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from admission_gateway_conformance.answers import describe, expect_kind, kind
from admission_gateway_conformance.requests import numbered_pod, pod
from admission_gateway_conformance.rule import ANSWER_S, Group, Violation, expect
from admission_gateway_conformance.rules.unary import GARBAGE, expect_own
from admission_gateway_conformance.target import Recorder
from admission_gateway_conformance.worker import STREAM, expect_baseline
from admission_gateway_worker.pb import worker_pb2 as pb
from gateway.engine.dispatch.dialer import Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission_gateway_conformance.stream import Stream
    from admission_gateway_conformance.worker import Worker

_STREAMS: Final = 8
_CALLS: Final = 50

STREAMS: Final = Group("Streams", "ReviewStream", "Batching")


@STREAMS.rule("works with the gateway's own HTTP/2 client")
async def stream_of_the_gateway(worker: Worker) -> None:
    """The gateway's streams do not use the gRPC library: see admission_gateway_worker.http2."""
    recorder = Recorder()
    action = "a batch over the gateway's own HTTP/2"
    try:
        connection = await worker.target.dial(STREAM, recorder)
    except Unreachable as error:
        raise Violation(action, str(error), "a stream") from None
    try:
        batch = pb.ReviewBatch(payloads=[pb.Payload(admission_request=pod())])
        for number in range(_CALLS):
            batch.calls.add(id=number, policy=worker.policy, timeout_millis=20_000)
        connection.send(batch.SerializeToString())

        def answered() -> int:
            return sum(len(pb.VerdictBatch.FromString(message).verdicts) for message in recorder.messages)

        answer_s = worker.within(ANSWER_S)
        await recorder.until(lambda: answered() >= _CALLS or recorder.status is not None, answer_s)
        expect(answered() == _CALLS, action, f"{answered()} verdicts", f"{_CALLS}")
        connection.finish_writing()
        await recorder.until(lambda: recorder.status is not None, answer_s)
        status = recorder.status
        found = "an open stream" if status is None else f"{status.code} {status.details}"
        expect(status is not None and status.code == "OK", f"{action}, half-closed", found, "OK")
    finally:
        await connection.close()


@STREAMS.rule("answers calls in flight after a half-close, then ends the stream with OK")
async def stream_half_close(worker: Worker) -> None:
    """A half-close ends calls, not verdicts."""
    async with worker.stream() as stream:
        calls = [(i, worker.policy) for i in range(_CALLS)]
        ids = list(range(_CALLS))
        if "sleeps" in worker.facts.samples:
            calls.append((_CALLS, "sleeps"))
            ids.append(_CALLS)
        await stream.send(calls, [pod()], timeout_ms=300, action=f"{len(calls)} calls, and a half-close")
        await stream.half_close()
        await stream.verdicts(ids)
        status = await stream.end()
        expect(status.code == 0, stream.action, stream.describe_end(), "OK")


@STREAMS.rule("ends an unused stream with OK after a half-close")
async def stream_half_close_at_once(worker: Worker) -> None:
    """The gateway may close a stream without a call."""
    async with worker.stream() as stream:
        await stream.half_close()
        status = await stream.end()
        expect(status.code == 0, "a stream that is half-closed at once", stream.describe_end(), "OK")


@STREAMS.rule(
    "ends only the stream with INVALID_ARGUMENT after a duplicate id in flight",
    samples=("sleeps",),
)
async def stream_duplicate_id(worker: Worker) -> None:
    """In one batch, and in two batches."""
    async with _another(worker) as other:
        async with worker.stream() as stream:
            await stream.send([(7, "sleeps")], [pod()])
            await stream.send([(7, "sleeps")], [pod()], action="two calls with id 7 in two batches")
            expect_kind(stream.action, await stream.end(), "INVALID_ARGUMENT")
        async with worker.stream() as stream:
            await stream.send(
                [(7, "sleeps"), (7, "sleeps")], [pod()], action="two calls with id 7 in one batch"
            )
            expect_kind(stream.action, await stream.end(), "INVALID_ARGUMENT")
        await _expect_alive(worker, other)


@STREAMS.rule("ends only the stream, not with OK, after a malformed ReviewBatch")
async def stream_garbage(worker: Worker) -> None:
    """Calls in flight on that stream get no answer."""
    async with _another(worker) as other:
        async with worker.stream() as stream:
            await stream.send([(1, worker.policy)], [pod()])
            await stream.verdict(1)
            stream.action = "a message that is not protobuf"
            await stream.write(GARBAGE)
            status = await stream.end()
            expect(status.code != 0, stream.action, stream.describe_end(), "a status other than OK")
        await _expect_alive(worker, other)


@STREAMS.rule(
    "answers each call on its own stream",
    samples=("deny-latest-tag",),
    needs_policy=False,
)
async def stream_several(worker: Worker) -> str:
    """All streams use the same ids, which are unique only within a stream."""
    async with contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(worker.stream()) for _ in range(_STREAMS)]
        for index, stream in enumerate(streams):
            payloads = [numbered_pod(1000 * index + number) for number in range(_CALLS)]
            calls = [(number, "deny-latest-tag", number) for number in range(_CALLS)]
            await stream.send(calls, payloads, action=f"{_STREAMS} streams with {_CALLS} calls each")
        for index, stream in enumerate(streams):
            answers = await stream.verdicts(range(_CALLS))
            for number in range(_CALLS):
                expect_own(stream.action, 1000 * index + number, answers[number])
    return f"{_STREAMS} streams"


@STREAMS.rule("keeps serving after a stream with calls in flight is cancelled", section="Cancellation")
async def stream_cancelled(worker: Worker) -> None:
    """Also while it sends verdicts."""
    slow = "sleeps" if "sleeps" in worker.facts.samples else worker.policy
    async with _another(worker) as other:
        for policy in (slow, worker.policy):
            async with worker.stream() as stream:
                await stream.send([(i, policy) for i in range(1000)], [pod()])
                stream.cancel()
        await _expect_alive(worker, other)
        await worker.expect_baseline("cancelled streams")


@contextlib.asynccontextmanager
async def _another(worker: Worker) -> AsyncIterator[Stream]:
    """A second stream on the same connection, with a call answered."""
    async with worker.stream() as other:
        await other.send([(1, worker.policy)], [pod()], action="a call on a stream")
        await other.verdict(1)
        yield other


async def _expect_alive(worker: Worker, other: Stream) -> None:
    await other.send([(2, worker.policy)], [pod()], action="a call on another stream, after that")
    answer = await other.verdict(2)
    expect_baseline(worker.facts, other.action, answer)
    if other.ended is not None:
        raise Violation(other.action, f"{describe(answer)}; then {kind(other.ended)}", "an open stream")
