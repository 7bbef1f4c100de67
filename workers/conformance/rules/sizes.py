"""The rules of how large messages may be, by ``Review`` and on the stream."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from workers.conformance.answers import expect_kind, in_words
from workers.conformance.requests import MAX_MESSAGE_BYTES, MIB, many_containers, pod
from workers.conformance.rule import Group, expect
from workers.conformance.worker import expect_usual

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from workers.conformance.worker import Worker

_SECTION: Final = "Sizes and connections"
_CONTAINERS: Final = 100_000
"""A Pod of 6 MiB, which grows by over 2 MiB when each gets an imagePullPolicy."""
_LARGE_S: Final = 15.0
"""For one call that carries some MiB."""

_STREAM: Final = "ReviewStream"

SIZES: Final = Group("Sizes", "Review", _SECTION, within_s=2 * _LARGE_S)


@SIZES.rule("answers a request of 7 MiB")
async def review_of_7_mib(worker: Worker) -> None:
    """A large object comes twice in an update, and the default limit of gRPC is 4 MiB."""
    answer = await worker.review(worker.policy, pod(padding=7 * MIB - 2048), within_s=_LARGE_S)
    expect_usual(worker.facts, "Review with a request of 7 MiB", answer)


@SIZES.rule("refuses a request over 8 MiB with RESOURCE_EXHAUSTED, and lives on")
async def review_over_8_mib(worker: Worker) -> None:
    """Calls beside it on the connection go on."""
    async with _neighbour(worker):
        answer = await worker.review(worker.policy, pod(padding=MAX_MESSAGE_BYTES), within_s=_LARGE_S)
        expect_kind("Review with a request of over 8 MiB", answer, "RESOURCE_EXHAUSTED")
        await worker.expect_usual("a request of over 8 MiB")


@SIZES.rule(
    "answers RESOURCE_EXHAUSTED where the answer would be over 8 MiB, and lives on",
    samples=("always-pull-images",),
)
async def review_answer_over_8_mib(worker: Worker) -> None:
    """Calls beside it on the connection go on."""
    async with _neighbour(worker):
        answer = await worker.review("always-pull-images", many_containers(_CONTAINERS), within_s=_LARGE_S)
        asked = f"Review of always-pull-images on a Pod of {_CONTAINERS} containers"
        expect_kind(asked, answer, "RESOURCE_EXHAUSTED")
        await worker.expect_usual("an answer of over 8 MiB")


@SIZES.rule("answers a batch of 7 MiB", method=_STREAM)
async def stream_of_7_mib(worker: Worker) -> None:
    """Of many payloads, as the gateway has it."""
    async with worker.stream() as stream:
        payloads = [pod(padding=64 * 1024 - 1024)] * 112
        calls = [(i, worker.policy, i) for i in range(len(payloads))]
        await stream.send(calls, payloads, asked="a batch of 112 payloads, 7 MiB together")
        for answer in (await stream.verdicts(range(len(payloads)), _LARGE_S)).values():
            expect_usual(worker.facts, stream.asked, answer)


@SIZES.rule(
    "ends a stream with RESOURCE_EXHAUSTED for a batch over 8 MiB, and no other",
    method=_STREAM,
)
async def stream_over_8_mib(worker: Worker) -> None:
    """Other streams of the connection go on."""
    async with worker.stream() as other, worker.stream() as stream:
        await other.send([(1, worker.policy)], [pod()])
        await other.verdict(1)
        await stream.send([(1, worker.policy)], [pod(padding=MAX_MESSAGE_BYTES)], asked="a batch over 8 MiB")
        await stream.until(lambda: bool(stream.answers) or stream.ended is not None, _LARGE_S)
        answered = bool(stream.answers)
        expect(not answered, stream.asked, "a verdict", "the end of the stream with RESOURCE_EXHAUSTED")
        expect_kind(stream.asked, await stream.end(), "RESOURCE_EXHAUSTED")
        await other.send([(2, worker.policy)], [pod()], asked="a call on another stream, after that")
        expect_usual(worker.facts, other.asked, await other.verdict(2))


@SIZES.rule(
    "gives the verdict RESOURCE_EXHAUSTED where the answer would be over 8 MiB, and goes on",
    method=_STREAM,
    samples=("always-pull-images",),
)
async def stream_answer_over_8_mib(worker: Worker) -> None:
    """On the same stream."""
    async with worker.stream() as stream:
        asked = f"always-pull-images on a Pod of {_CONTAINERS} containers"
        await stream.send([(1, "always-pull-images")], [many_containers(_CONTAINERS)], asked=asked)
        expect_kind(asked, await stream.verdict(1, _LARGE_S), "RESOURCE_EXHAUSTED")
        await stream.send([(2, worker.policy)], [pod()], asked="a call on the stream, after that")
        expect_usual(worker.facts, stream.asked, await stream.verdict(2))


@SIZES.rule(
    "sends verdicts that do not fit into one message in several",
    method=_STREAM,
    samples=("deny-latest-tag",),
)
async def stream_verdicts_split(worker: Worker) -> str:
    """Each message is under 8 MiB; the stream's reader sees to that on any stream."""
    async with worker.stream() as stream:
        # Each denial has the image twice: in its message and in its cause.
        calls = [(i, "deny-latest-tag") for i in range(8)]
        image = f"registry.example/{'x' * MIB}:latest"
        await stream.send(calls, [pod([image])], asked="8 calls with answers of over 2 MiB each")
        answers = await stream.verdicts(range(8), _LARGE_S)
        for answer in answers.values():
            expect_kind(stream.asked, answer, "denied")
            expect(answer.ByteSize() > 2 * MIB, stream.asked, in_words(answer), "the whole of its message")
    return f"{len(stream.messages)} messages, the largest of {max(m.size for m in stream.messages)} bytes"


@contextlib.asynccontextmanager
async def _neighbour(worker: Worker) -> AsyncIterator[None]:
    """A call that waits on the same connection, if there is a policy for it; it has to be there still."""
    if "sleeps" not in worker.facts.samples:
        yield
        return
    waiting = asyncio.create_task(worker.review("sleeps", pod(), within_s=4 * _LARGE_S))
    await asyncio.sleep(0.05)
    try:
        yield
        if waiting.done():
            found = f"it ended: {in_words(waiting.result())}"
            expect(False, "Review of sleeps on the same connection", found, "it goes on")  # noqa: FBT003
    finally:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
