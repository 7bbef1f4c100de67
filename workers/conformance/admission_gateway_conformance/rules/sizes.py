"""Rules of message sizes, for ``Review`` and on the stream."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from admission_gateway_conformance.answers import describe, expect_kind
from admission_gateway_conformance.requests import MAX_MESSAGE_BYTES, MIB, many_containers, pod
from admission_gateway_conformance.rule import Group, expect
from admission_gateway_conformance.worker import expect_baseline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission_gateway_conformance.worker import Worker

_SECTION: Final = "Sizes and connections"
_CONTAINERS: Final = 100_000
"""A Pod of 6 MiB, to which imagePullPolicy adds more than 2 MiB."""
_LARGE_S: Final = 15.0
"""Timeout of a call with some MiB."""

_STREAM: Final = "ReviewStream"

SIZES: Final = Group("Sizes", "Review", _SECTION, timeout_s=2 * _LARGE_S)


@SIZES.rule("answers a request of 7 MiB")
async def review_of_7_mib(worker: Worker) -> None:
    """An update contains the object twice; gRPC's default limit is 4 MiB."""
    answer = await worker.review(worker.policy, pod(padding=7 * MIB - 2048), timeout_s=_LARGE_S)
    expect_baseline(worker.facts, "Review with a request of 7 MiB", answer)


@SIZES.rule("rejects a request above 8 MiB with RESOURCE_EXHAUSTED and keeps serving")
async def review_over_8_mib(worker: Worker) -> None:
    """Other calls on the connection continue."""
    async with _neighbour(worker):
        answer = await worker.review(worker.policy, pod(padding=MAX_MESSAGE_BYTES), timeout_s=_LARGE_S)
        expect_kind("Review with a request of above 8 MiB", answer, "RESOURCE_EXHAUSTED")
        await worker.expect_baseline("a request of above 8 MiB")


@SIZES.rule(
    "answers RESOURCE_EXHAUSTED instead of an answer above 8 MiB and keeps serving",
    samples=("always-pull-images",),
)
async def review_answer_over_8_mib(worker: Worker) -> None:
    """Other calls on the connection continue."""
    async with _neighbour(worker):
        answer = await worker.review("always-pull-images", many_containers(_CONTAINERS), timeout_s=_LARGE_S)
        action = f"Review of always-pull-images on a Pod of {_CONTAINERS} containers"
        expect_kind(action, answer, "RESOURCE_EXHAUSTED")
        await worker.expect_baseline("an answer of above 8 MiB")


@SIZES.rule("answers a batch of 7 MiB", method=_STREAM)
async def stream_of_7_mib(worker: Worker) -> None:
    """Of many payloads, as the gateway sends them."""
    async with worker.stream() as stream:
        payloads = [pod(padding=64 * 1024 - 1024)] * 112
        calls = [(i, worker.policy, i) for i in range(len(payloads))]
        await stream.send(calls, payloads, action="a batch of 112 payloads, 7 MiB together")
        for answer in (await stream.verdicts(range(len(payloads)), _LARGE_S)).values():
            expect_baseline(worker.facts, stream.action, answer)


@SIZES.rule(
    "ends only the stream with RESOURCE_EXHAUSTED after a batch above 8 MiB",
    method=_STREAM,
)
async def stream_over_8_mib(worker: Worker) -> None:
    """Other streams of the connection continue."""
    async with worker.stream() as other, worker.stream() as stream:
        await other.send([(1, worker.policy)], [pod()])
        await other.verdict(1)
        await stream.send(
            [(1, worker.policy)], [pod(padding=MAX_MESSAGE_BYTES)], action="a batch above 8 MiB"
        )
        await stream.until(lambda: bool(stream.answers) or stream.ended is not None, _LARGE_S)
        answered = bool(stream.answers)
        expect(not answered, stream.action, "a verdict", "the end of the stream with RESOURCE_EXHAUSTED")
        expect_kind(stream.action, await stream.end(), "RESOURCE_EXHAUSTED")
        await other.send([(2, worker.policy)], [pod()], action="a call on another stream, after that")
        expect_baseline(worker.facts, other.action, await other.verdict(2))


@SIZES.rule(
    "answers RESOURCE_EXHAUSTED instead of a verdict above 8 MiB, and continues the stream",
    method=_STREAM,
    samples=("always-pull-images",),
)
async def stream_answer_over_8_mib(worker: Worker) -> None:
    """A later call on the same stream is answered."""
    async with worker.stream() as stream:
        action = f"always-pull-images on a Pod of {_CONTAINERS} containers"
        await stream.send([(1, "always-pull-images")], [many_containers(_CONTAINERS)], action=action)
        expect_kind(action, await stream.verdict(1, _LARGE_S), "RESOURCE_EXHAUSTED")
        await stream.send([(2, worker.policy)], [pod()], action="a call on the stream, after that")
        expect_baseline(worker.facts, stream.action, await stream.verdict(2))


@SIZES.rule(
    "splits verdicts that exceed one message",
    method=_STREAM,
    samples=("deny-latest-tag",),
)
async def stream_verdicts_split(worker: Worker) -> str:
    """The client side of the stream checks that each message is below 8 MiB."""
    async with worker.stream() as stream:
        # Each denial contains the image twice: in its message and in its cause.
        calls = [(i, "deny-latest-tag") for i in range(8)]
        image = f"registry.example/{'x' * MIB}:latest"
        await stream.send(calls, [pod([image])], action="8 calls with answers above 2 MiB each")
        answers = await stream.verdicts(range(8), _LARGE_S)
        for answer in answers.values():
            expect_kind(stream.action, answer, "denied")
            expect(answer.ByteSize() > 2 * MIB, stream.action, describe(answer), "the whole message")
    return f"{len(stream.messages)} messages, the largest of {max(m.size for m in stream.messages)} bytes"


@contextlib.asynccontextmanager
async def _neighbour(worker: Worker) -> AsyncIterator[None]:
    """Keep a call in flight on the same connection, if ``sleeps`` is served, and check that it survives."""
    if "sleeps" not in worker.facts.samples:
        yield
        return
    waiting = asyncio.create_task(worker.review("sleeps", pod(), timeout_s=4 * _LARGE_S))
    await asyncio.sleep(0.05)
    try:
        yield
        if waiting.done():
            found = f"it ended: {describe(waiting.result())}"
            expect(False, "Review of sleeps on the same connection", found, "no end")  # noqa: FBT003
    finally:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
