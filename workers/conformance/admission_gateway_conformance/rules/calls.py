"""Rules of deadlines, cancellation and the number of calls in flight on the stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from admission_gateway_conformance.answers import describe, expect_kind, kind
from admission_gateway_conformance.requests import numbered_pod, pod
from admission_gateway_conformance.rule import ANSWER_S, Group, Violation, expect
from admission_gateway_conformance.rules.unary import UNKNOWN, expect_own
from admission_gateway_conformance.worker import expect_baseline

if TYPE_CHECKING:
    from admission_gateway_conformance.stream import Stream
    from admission_gateway_conformance.worker import Worker

_TIMEOUT_MS: Final = 200
_EARLY_MS: Final = 20
"""Tolerance for clocks of millisecond resolution, and for event loop time, which is constant in a step."""
_LATE_S: Final = 2.0
"""Allowed delay after the deadline, on a busy machine."""
_LONGEST_MS: Final = 2**32 - 1
_SILENCE_S: Final = 0.4
"""Time to wait for a verdict that must not be sent."""
_AFTERWARDS: Final = 2**63
"""Id of a call whose verdict shows that the worker has read what was sent before."""
_MOST: Final = 4096
_LEAST: Final = 1024
"""The default maxInFlight of the gateway."""

DEADLINES: Final = Group("Deadlines and cancellation on the stream", "ReviewStream", "Deadlines")


@DEADLINES.rule(
    "answers other calls while a call of the same batch waits",
    section="Batching",
    samples=("sleeps", "deny-latest-tag"),
)
async def call_slow_neighbour(worker: Worker) -> None:
    """Calls before and after it in the batch, and in later batches."""
    async with worker.stream() as stream:
        calls = [(1, "sleeps"), (2, "deny-latest-tag"), (3, "sleeps"), (4, "deny-latest-tag")]
        await stream.send(calls, [numbered_pod(7)], action="a batch of sleeps and deny-latest-tag")
        answers = await stream.verdicts((2, 4))
        expect_own(stream.action, 7, answers[2])
        await stream.send(
            [(5, "deny-latest-tag")], [numbered_pod(7)], action="another batch, while sleeps is in flight"
        )
        expect_own(stream.action, 7, await stream.verdict(5))
        expect_no_verdict(stream, 1, 3)


@DEADLINES.rule("answers DEADLINE_EXCEEDED at once for a timeout of 0", samples=("sleeps",))
async def call_no_time(worker: Worker) -> None:
    """0 means no time left, not unlimited."""
    async with worker.stream() as stream:
        await stream.send([(1, "sleeps")], [pod()], timeout_ms=0, action="sleeps with timeout_millis 0")
        expect_kind(stream.action, await stream.verdict(1, _LATE_S), "DEADLINE_EXCEEDED")


@DEADLINES.rule("answers DEADLINE_EXCEEDED at the timeout of a call", samples=("sleeps",))
async def call_timeout(worker: Worker) -> str:
    """Not before the timeout, and not much later."""
    loop = asyncio.get_running_loop()
    async with worker.stream() as stream:
        began = loop.time()
        action = f"sleeps with timeout_millis {_TIMEOUT_MS}"
        await stream.send([(1, "sleeps")], [pod()], timeout_ms=_TIMEOUT_MS, action=action)
        answer = await stream.verdict(1, _TIMEOUT_MS / 1000 + _LATE_S)
        expect_kind(action, answer, "DEADLINE_EXCEEDED")
        took_ms = (stream.came_at[1] - began) * 1000
        expect(
            took_ms > _TIMEOUT_MS - _EARLY_MS,
            action,
            f"a verdict after {took_ms:.0f} ms",
            "not before the timeout",
        )
    return f"after {took_ms:.0f} ms"


@DEADLINES.rule("accepts the longest timeout", samples=("sleeps", "deny-latest-tag"))
async def call_longest_timeout(worker: Worker) -> None:
    """2^32-1 milliseconds, which overflows the timers of some languages."""
    async with worker.stream() as stream:
        action = f"sleeps and deny-latest-tag with timeout_millis {_LONGEST_MS}"
        calls = [(1, "sleeps"), (2, "deny-latest-tag")]
        await stream.send(calls, [numbered_pod(2)], timeout_ms=_LONGEST_MS, action=action)
        expect_own(action, 2, await stream.verdict(2))
        await expect_silence(stream, 1)


@DEADLINES.rule("sends no verdict for a cancelled call", section="Cancellation", samples=("sleeps",))
async def call_cancelled(worker: Worker) -> None:
    """Also not at its deadline."""
    timeout_ms = _TIMEOUT_MS
    while not await _expect_cancelled(worker, timeout_ms):
        timeout_ms *= 2


@DEADLINES.rule("does not answer a call that is cancelled in the same batch", section="Cancellation")
async def call_cancelled_at_once(worker: Worker) -> None:
    """The policy does not run."""
    async with worker.stream() as stream:
        action = "two calls, the first of them cancelled in the same batch"
        await stream.send([(1, worker.policy), (2, worker.policy)], [pod()], cancelled=[1], action=action)
        expect_baseline(worker.facts, action, await stream.verdict(2))
        await expect_silence(stream, 1)


@DEADLINES.rule("ignores cancelled ids that are not in flight", section="Cancellation")
async def call_cancelled_unknown(worker: Worker) -> None:
    """Ids that were never used, and the id of an answered call."""
    async with worker.stream() as stream:
        await stream.send([(1, worker.policy)], [pod()])
        await stream.verdict(1)
        await stream.send([], [], cancelled=[0, 1, 7, 2**64 - 1])
        await stream.send([(2, worker.policy)], [pod()], action="a call after cancelled ids not in flight")
        expect_baseline(worker.facts, stream.action, await stream.verdict(2))


@DEADLINES.rule("accepts an id again after the verdict or the cancellation of its call", section="Batching")
async def call_id_again(worker: Worker) -> None:
    """Ids are unique among the calls in flight."""
    sleeper = "sleeps" in worker.facts.samples
    async with worker.stream() as stream:
        for turn in range(3):
            action = f"a call with id 1, use {turn + 1}"
            await stream.send([(1, worker.policy)], [pod()], action=action)
            expect_baseline(worker.facts, action, await stream.verdict(1))
            stream.forget(1)
            if sleeper:
                await stream.send([(1, "sleeps")], [pod()], action="sleeps with id 1")
                await stream.send([], [], cancelled=[1])


@DEADLINES.rule(
    f"accepts {_LEAST} calls in flight, and rejects calls above {_MOST} with RESOURCE_EXHAUSTED",
    section="Sizes and connections",
    samples=("sleeps",),
)
async def call_too_many(worker: Worker) -> str:
    """Cancelled calls do not count."""
    count = _MOST + 10
    async with worker.stream() as stream:
        action = f"{count} calls of sleeps"
        await stream.send([(i, "sleeps") for i in range(count)], [pod()], action=action)
        if not await stream.until(lambda: len(stream.answers) >= count - _MOST, ANSWER_S):
            expected = f"at least {count - _MOST} rejected"
            found = f"{len(stream.answers)} verdicts after {worker.within(ANSWER_S):g} s"
            raise Violation(action, found, expected)
        for number, answer in stream.answers.items():
            expect_kind(f"{action}: number {number}", answer, "RESOURCE_EXHAUSTED")
        refused = len(stream.answers)
        expect(refused <= count - _LEAST, action, f"{refused} rejected", f"at least {_LEAST} accepted")
        taken = [i for i in range(count) if i not in stream.answers]
        await stream.send([], [], cancelled=taken)
        action = f"{_LEAST} calls of sleeps after the cancellation of all earlier calls"
        new = range(count, count + _LEAST)
        await stream.send([(i, "sleeps") for i in new], [pod()], timeout_ms=_TIMEOUT_MS, action=action)
        for answer in [(await stream.verdicts(new))[i] for i in new]:
            expect_kind(action, answer, "DEADLINE_EXCEEDED")
    return f"{len(taken)} accepted"


async def _expect_cancelled(worker: Worker, timeout_ms: int) -> bool:
    """Check a call that is cancelled; return False if the machine was too slow for its timeout."""
    loop = asyncio.get_running_loop()
    async with worker.stream() as stream:
        ends_at = loop.time() + timeout_ms / 1000
        await stream.send([(1, "sleeps"), (2, "sleeps")], [pod()], timeout_ms=timeout_ms)
        action = f"sleeps with timeout_millis {timeout_ms}, cancelled before that"
        if not await cancelled_before(ends_at, stream, 1, action=action):
            return False
        expect_kind("the call that was not cancelled", await stream.verdict(2), "DEADLINE_EXCEEDED")
        await expect_silence(stream, 1)
    return True


async def cancelled_before(ends_at: float, stream: Stream, *numbers: int, action: str) -> bool:
    """Cancel calls; return whether the worker has certainly read that before the loop's time *ends_at*."""
    await stream.send([], [], cancelled=numbers, action=action)
    await stream.send([(_AFTERWARDS, UNKNOWN)], [pod()], action=action)
    await stream.verdict(_AFTERWARDS)
    return asyncio.get_running_loop().time() < ends_at


async def expect_silence(stream: Stream, *numbers: int) -> None:
    """Raise a Violation if one of the calls has or gets a verdict, or the stream ends."""
    await asyncio.sleep(_SILENCE_S)
    expect_no_verdict(stream, *numbers)


def expect_no_verdict(stream: Stream, *numbers: int) -> None:
    """Raise a Violation if one of the calls has a verdict, or the stream has ended."""
    for number in numbers:
        answer = stream.answers.get(number)
        if answer is not None:
            raise Violation(stream.action, f"a verdict for call {number}: {describe(answer)}", "no verdict")
    if stream.ended is not None:
        raise Violation(stream.action, f"{stream.describe_end()} ({kind(stream.ended)})", "an open stream")
