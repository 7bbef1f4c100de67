"""Rules of bounds: no message stops a worker, or takes all of its memory."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from admission_gateway_conformance.answers import expect_kind
from admission_gateway_conformance.memory import resident_bytes
from admission_gateway_conformance.requests import MAX_MESSAGE_BYTES, MIB, many_containers, numbered_pod, pod
from admission_gateway_conformance.rule import ANSWER_S, Group, Violation
from admission_gateway_conformance.rules.unary import UNKNOWN, expect_own
from admission_gateway_conformance.worker import Worker, expect_baseline
from admission_gateway_worker.pb import worker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from admission_gateway_conformance.stream import Stream

MAX_GROWTH_BYTES: Final = 1024 * MIB
"""Growth of the worker's memory in a rule. A worker without bounds takes several times as much."""

_LOOK_S: Final = 0.02
_PAYLOAD_BYTES: Final = 400_000
_CALLS: Final = 4096
_MAX_CALLS: Final = 8192
_FIRST_ID: Final = 1000
_MUTATING: Final = "inject-sidecar"
_OTHER: Final = "deny-latest-tag"
_REVIEWS: Final = 3
_BEFORE_S: Final = 1.0
"""Time for which the worker has the batch before others call it."""

BOUNDS: Final = Group("Bounds", "ReviewStream", "Bounds of a worker", timeout_s=60.0)


@BOUNDS.rule("ends only the stream with INVALID_ARGUMENT after a batch with too many items")
async def bounds_of_a_batch(worker: Worker) -> None:
    """A batch with as many as are allowed is accepted."""
    async with worker.stream() as other:
        await other.send([(1, worker.policy)], [pod()])
        await other.verdict(1)
        for name, (make, bound) in _ITEMS.items():
            async with worker.stream() as stream:
                _expect_calls(stream)
                await stream.write(make(bound))
                action = f"a call after a batch with {bound} {name}"
                await stream.send([(1, worker.policy)], [pod()], action=action)
                expect_baseline(worker.facts, action, await stream.verdict(1))
            async with worker.stream() as stream:
                _expect_calls(stream)
                stream.action = f"a batch with {bound + 1} {name}"
                await stream.write(make(bound + 1))
                expect_kind(stream.action, await stream.end(), "INVALID_ARGUMENT")
        await other.send([(2, worker.policy)], [pod()], action="a call on another stream, after that")
        expect_baseline(worker.facts, other.action, await other.verdict(2))


@BOUNDS.rule("ends only the stream with INVALID_ARGUMENT after 8 MiB of empty payloads")
async def bounds_empty_payloads(worker: Worker) -> str:
    """The memory is that of the message, not that of four million objects."""
    action = "a batch of 8 MiB with empty payloads"
    async with _within_memory(worker, action) as note:
        async with worker.stream() as stream:
            stream.action = action
            await stream.write(b"\x0a\x00" * (MAX_MESSAGE_BYTES // 2))
            expect_kind(action, await stream.end(), "INVALID_ARGUMENT")
        await worker.expect_baseline(action)
    return note


@BOUNDS.rule(
    "answers other connections while 4096 calls of a policy that changes a large object are evaluated",
    samples=(_MUTATING, _OTHER),
)
async def bounds_many_calls(worker: Worker) -> str:
    """The memory does not grow with the number of calls."""
    action = f"{_CALLS} calls of {_MUTATING} on one payload of {_PAYLOAD_BYTES // 1000} kB"
    async with (
        _within_memory(worker, action) as note,
        Worker(worker.target, worker.facts) as other,
        worker.stream() as stream,
    ):
        await other.expect_baseline("a new connection")
        calls = [(number, _MUTATING) for number in range(_CALLS)]
        await stream.send(calls, [many_containers(_PAYLOAD_BYTES // 66)], action=action)
        await asyncio.sleep(_BEFORE_S)
        for number in range(_REVIEWS):
            answer = await other.review(_OTHER, numbered_pod(number), timeout_s=ANSWER_S)
            expect_own(f"a Review on another connection beside {action}", number, answer)
    await worker.expect_baseline(action)
    return note


def _calls(count: int) -> bytes:
    calls = [pb.Call(id=_FIRST_ID + index, policy=UNKNOWN) for index in range(count)]
    return pb.ReviewBatch(calls=calls, payloads=[pb.Payload(admission_request=pod())]).SerializeToString()


def _expect_calls(stream: Stream) -> None:
    """Expect verdicts of ``_calls``, which are errors."""
    for index in range(_MAX_CALLS + 1):
        stream.expect_id(_FIRST_ID + index, UNKNOWN)


_ITEMS: Final[dict[str, tuple[Callable[[int], bytes], int]]] = {
    "payloads": (lambda count: b"\x0a\x00" * count, 4096),
    "calls": (_calls, _MAX_CALLS),
    "cancelled ids": (lambda count: pb.ReviewBatch(cancelled=range(count)).SerializeToString(), 4096),
    "parameters": (lambda count: b"\x22\x06\x08\x01\x12\x02{}" * count, 256),
}
"""The items of a batch: a function that returns the bytes of so many, and how many a batch may have."""


@asynccontextmanager
async def _within_memory(worker: Worker, action: str) -> AsyncIterator[str]:
    """Look at the memory of the worker during the block, if its process is known; the value is a note.

    Raises:
        Violation: it grew by more than ``MAX_GROWTH_BYTES``.
    """
    process = worker.facts.process
    before = None if process is None else resident_bytes(process.pid)
    if process is None or before is None:
        yield "its memory was not looked at: needs --pid N or --command WORD..."
        return
    peak = before

    async def look() -> None:
        nonlocal peak
        while True:
            peak = max(peak, resident_bytes(process.pid) or 0)
            await asyncio.sleep(_LOOK_S)

    looking = asyncio.create_task(look())
    try:
        yield ""
    finally:
        looking.cancel()
    found = f"the worker's memory grew by {(peak - before) // MIB} MiB"
    if peak - before > MAX_GROWTH_BYTES:
        raise Violation(action, found, f"at most {MAX_GROWTH_BYTES // MIB} MiB")
