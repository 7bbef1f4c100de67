"""The rules of streams as a whole: how they end, and that they leave each other alone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from gateway.dispatch.dialer import Unreachable
from gateway.pb import worker_pb2 as pb
from workers.conformance.answers import expect_kind, in_words, kind
from workers.conformance.requests import pod, unlike
from workers.conformance.rule import ANSWER_S, Breach, Group, expect
from workers.conformance.rules.unary import GARBAGE, expect_own
from workers.conformance.target import Recorder
from workers.conformance.worker import STREAM, expect_usual

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from workers.conformance.stream import Stream
    from workers.conformance.worker import Worker

_STREAMS: Final = 8
_CALLS: Final = 50

STREAMS: Final = Group("Streams", "ReviewStream", "Batching")


@STREAMS.rule("is understood by the gateway's own stream")
async def stream_of_the_gateway(worker: Worker) -> None:
    """Which is not gRPC's: see gateway/dispatch/http2.py."""
    recorder = Recorder()
    asked = "a batch over the gateway's own HTTP/2"
    try:
        connection = await worker.target.dial(STREAM, recorder)
    except Unreachable as error:
        raise Breach(asked, str(error), "a stream") from None
    try:
        batch = pb.ReviewBatch(payloads=[pb.Payload(admission_request=pod())])
        for number in range(_CALLS):
            batch.calls.add(id=number, policy=worker.policy, timeout_millis=20_000)
        connection.send(batch.SerializeToString())

        def answered() -> int:
            return sum(len(pb.VerdictBatch.FromString(message).verdicts) for message in recorder.messages)

        await recorder.until(lambda: answered() >= _CALLS or recorder.status is not None, ANSWER_S)
        expect(answered() == _CALLS, asked, f"{answered()} verdicts", f"{_CALLS}")
        connection.finish_writing()
        await recorder.until(lambda: recorder.status is not None, ANSWER_S)
        found = (
            "an open stream"
            if recorder.status is None
            else f"{recorder.status.code} {recorder.status.details}"
        )
        expect(
            recorder.status is not None and recorder.status.code == "OK", f"{asked}, half-closed", found, "OK"
        )
    finally:
        await connection.close()


@STREAMS.rule("answers what is in flight after a half-close, and ends with OK")
async def stream_half_close(worker: Worker) -> None:
    """No more calls will come, but verdicts will."""
    async with worker.stream() as stream:
        calls = [(i, worker.policy) for i in range(_CALLS)]
        ids = list(range(_CALLS))
        if "sleeps" in worker.facts.samples:
            calls.append((_CALLS, "sleeps"))
            ids.append(_CALLS)
        await stream.send(calls, [pod()], timeout_ms=300, asked=f"{len(calls)} calls, and a half-close")
        await stream.half_close()
        await stream.verdicts(ids)
        status = await stream.end()
        expect(status.code == 0, stream.asked, stream.how_it_ended(), "OK")


@STREAMS.rule("ends a stream on which nothing was asked with OK after a half-close")
async def stream_half_close_at_once(worker: Worker) -> None:
    """As the gateway may find that it has nothing to ask."""
    async with worker.stream() as stream:
        await stream.half_close()
        status = await stream.end()
        expect(status.code == 0, "a stream that is half-closed at once", stream.how_it_ended(), "OK")


@STREAMS.rule(
    "ends a stream on which an id in flight is used again with INVALID_ARGUMENT, and no other",
    samples=("sleeps",),
)
async def stream_duplicate_id(worker: Worker) -> None:
    """In one batch as well as in two."""
    async with _another(worker) as other:
        async with worker.stream() as stream:
            await stream.send([(7, "sleeps")], [pod()])
            await stream.send([(7, "sleeps")], [pod()], asked="two calls of sleeps with id 7, in two batches")
            expect_kind(stream.asked, await stream.end(), "INVALID_ARGUMENT")
        async with worker.stream() as stream:
            await stream.send(
                [(7, "sleeps"), (7, "sleeps")], [pod()], asked="two calls with id 7 in one batch"
            )
            expect_kind(stream.asked, await stream.end(), "INVALID_ARGUMENT")
        await _expect_alive(worker, other)


@STREAMS.rule("ends a stream on which no ReviewBatch comes, not with OK, and no other")
async def stream_garbage(worker: Worker) -> None:
    """What is in flight on it has no answer."""
    async with _another(worker) as other:
        async with worker.stream() as stream:
            await stream.send([(1, worker.policy)], [pod()])
            await stream.verdict(1)
            stream.asked = "a message that is no protobuf"
            await stream.write(GARBAGE)
            status = await stream.end()
            expect(status.code != 0, stream.asked, stream.how_it_ended(), "a status other than OK")
        await _expect_alive(worker, other)


@STREAMS.rule(
    "answers on several streams at once, each on the one it came by",
    samples=("deny-latest-tag",),
    asks_a_policy=False,
)
async def stream_several(worker: Worker) -> str:
    """With the same ids on all: they are unique within a stream only."""
    async with contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(worker.stream()) for _ in range(_STREAMS)]
        for index, stream in enumerate(streams):
            payloads = [unlike(1000 * index + number) for number in range(_CALLS)]
            calls = [(number, "deny-latest-tag", number) for number in range(_CALLS)]
            await stream.send(calls, payloads, asked=f"{_STREAMS} streams with {_CALLS} calls each")
        for index, stream in enumerate(streams):
            answers = await stream.verdicts(range(_CALLS))
            for number in range(_CALLS):
                expect_own(stream.asked, 1000 * index + number, answers[number])
    return f"{_STREAMS} streams"


@STREAMS.rule("lives on when a stream with calls in flight is cancelled", section="Cancellation")
async def stream_cancelled(worker: Worker) -> None:
    """And when one is cut off with verdicts under way."""
    slow = "sleeps" if "sleeps" in worker.facts.samples else worker.policy
    async with _another(worker) as other:
        for policy in (slow, worker.policy):
            async with worker.stream() as stream:
                await stream.send([(i, policy) for i in range(1000)], [pod()])
                stream.cancel()
        await _expect_alive(worker, other)
        await worker.expect_usual("cancelled streams")


@contextlib.asynccontextmanager
async def _another(worker: Worker) -> AsyncIterator[Stream]:
    """A stream on the same connection, in use."""
    async with worker.stream() as other:
        await other.send([(1, worker.policy)], [pod()], asked="a call on a stream")
        await other.verdict(1)
        yield other


async def _expect_alive(worker: Worker, other: Stream) -> None:
    await other.send([(2, worker.policy)], [pod()], asked="a call on another stream, after that")
    answer = await other.verdict(2)
    expect_usual(worker.facts, other.asked, answer)
    if other.ended is not None:
        raise Breach(other.asked, f"{in_words(answer)}; then {kind(other.ended)}", "an open stream")
