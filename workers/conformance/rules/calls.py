"""The rules of deadlines, cancellation and how many calls, on the stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from workers.conformance.answers import expect_kind, in_words, kind
from workers.conformance.requests import pod, unlike
from workers.conformance.rule import ANSWER_S, Breach, Group, expect
from workers.conformance.rules.unary import expect_own
from workers.conformance.worker import expect_usual

if TYPE_CHECKING:
    from workers.conformance.stream import Stream
    from workers.conformance.worker import Worker

_TIMEOUT_MS: Final = 200
_EARLY_MS: Final = 20
"""For clocks that count whole milliseconds, or that of the event loop, which stands still within a step."""
_LATE_S: Final = 2.0
"""After the deadline, on a machine that is busy."""
_LONGEST_MS: Final = 2**32 - 1
_SILENCE_S: Final = 0.4
"""In which a verdict that must not come would have come."""
_MOST: Final = 4096
_LEAST: Final = 1024
"""What the gateway sends at the most unless it is told otherwise."""

DEADLINES: Final = Group("Deadlines and cancellation on the stream", "ReviewStream", "Deadlines")


@DEADLINES.rule(
    "answers others while a call of the same batch takes its time",
    section="Batching",
    samples=("sleeps", "deny-latest-tag"),
)
async def call_slow_neighbour(worker: Worker) -> None:
    """Before, behind and in batches after it."""
    async with worker.stream() as stream:
        calls = [(1, "sleeps"), (2, "deny-latest-tag"), (3, "sleeps"), (4, "deny-latest-tag")]
        await stream.send(calls, [unlike(7)], asked="a batch of sleeps and deny-latest-tag")
        answers = await stream.verdicts((2, 4))
        expect_own(stream.asked, 7, answers[2])
        await stream.send(
            [(5, "deny-latest-tag")], [unlike(7)], asked="another batch, while sleeps is in flight"
        )
        expect_own(stream.asked, 7, await stream.verdict(5))
        _expect_asleep(stream, 1, 3)


@DEADLINES.rule("gives a call without any time left DEADLINE_EXCEEDED at once", samples=("sleeps",))
async def call_no_time(worker: Worker) -> None:
    """0 means that no time is left, and not that there is no limit."""
    async with worker.stream() as stream:
        await stream.send([(1, "sleeps")], [pod()], timeout_ms=0, asked="sleeps with timeout_millis 0")
        expect_kind(stream.asked, await stream.verdict(1, _LATE_S), "DEADLINE_EXCEEDED")


@DEADLINES.rule("gives a call whose time runs out DEADLINE_EXCEEDED then", samples=("sleeps",))
async def call_timeout(worker: Worker) -> str:
    """Not before, and not much after."""
    loop = asyncio.get_running_loop()
    async with worker.stream() as stream:
        began = loop.time()
        asked = f"sleeps with timeout_millis {_TIMEOUT_MS}"
        await stream.send([(1, "sleeps")], [pod()], timeout_ms=_TIMEOUT_MS, asked=asked)
        answer = await stream.verdict(1, _TIMEOUT_MS / 1000 + _LATE_S)
        expect_kind(asked, answer, "DEADLINE_EXCEEDED")
        took_ms = (stream.came_at[1] - began) * 1000
        expect(
            took_ms > _TIMEOUT_MS - _EARLY_MS, asked, f"its verdict after {took_ms:.0f} ms", "not before it"
        )
    return f"after {took_ms:.0f} ms"


@DEADLINES.rule("takes the longest timeout for a long one", samples=("sleeps", "deny-latest-tag"))
async def call_longest_timeout(worker: Worker) -> None:
    """2^32-1 milliseconds: more than the timers of some languages can hold."""
    async with worker.stream() as stream:
        asked = f"sleeps and deny-latest-tag with timeout_millis {_LONGEST_MS}"
        calls = [(1, "sleeps"), (2, "deny-latest-tag")]
        await stream.send(calls, [unlike(2)], timeout_ms=_LONGEST_MS, asked=asked)
        expect_own(asked, 2, await stream.verdict(2))
        await stream.until(lambda: 1 in stream.answers, _SILENCE_S)
        _expect_asleep(stream, 1)


@DEADLINES.rule("sends no verdict for a call that was cancelled", section="Cancellation", samples=("sleeps",))
async def call_cancelled(worker: Worker) -> None:
    """Not at its deadline either."""
    async with worker.stream() as stream:
        await stream.send([(1, "sleeps"), (2, "sleeps")], [pod()], timeout_ms=_TIMEOUT_MS)
        asked = f"sleeps with timeout_millis {_TIMEOUT_MS}, cancelled before that"
        await stream.send([], [], cancelled=[1], asked=asked)
        expect_kind("the call beside the one cancelled", await stream.verdict(2), "DEADLINE_EXCEEDED")
        await stream.until(lambda: 1 in stream.answers, _SILENCE_S)
        _expect_asleep(stream, 1)


@DEADLINES.rule("does not answer a call that is cancelled in its own batch", section="Cancellation")
async def call_cancelled_at_once(worker: Worker) -> None:
    """It is not run."""
    async with worker.stream() as stream:
        asked = "two calls, the first of them cancelled in the same batch"
        await stream.send([(1, worker.policy), (2, worker.policy)], [pod()], cancelled=[1], asked=asked)
        expect_usual(worker.facts, asked, await stream.verdict(2))
        await stream.until(lambda: 1 in stream.answers, _SILENCE_S)
        _expect_asleep(stream, 1)


@DEADLINES.rule("passes over cancelled ids that are not in flight", section="Cancellation")
async def call_cancelled_unknown(worker: Worker) -> None:
    """Ids never used, and one that has its verdict."""
    async with worker.stream() as stream:
        await stream.send([(1, worker.policy)], [pod()])
        await stream.verdict(1)
        await stream.send([], [], cancelled=[0, 1, 7, 2**64 - 1])
        await stream.send([(2, worker.policy)], [pod()], asked="a call after cancelled ids not in flight")
        expect_usual(worker.facts, stream.asked, await stream.verdict(2))


@DEADLINES.rule("takes an id again once its call has its verdict, or is cancelled", section="Batching")
async def call_id_again(worker: Worker) -> None:
    """Ids are unique among what is in flight."""
    sleeper = "sleeps" in worker.facts.samples
    async with worker.stream() as stream:
        for turn in range(3):
            asked = f"a call with id 1, for the {turn + 1}. time"
            await stream.send([(1, worker.policy)], [pod()], asked=asked)
            expect_usual(worker.facts, asked, await stream.verdict(1))
            stream.forget(1)
            if sleeper:
                await stream.send([(1, "sleeps")], [pod()], asked="sleeps with id 1")
                await stream.send([], [], cancelled=[1])


@DEADLINES.rule(
    f"takes {_LEAST} calls that wait, and refuses those past {_MOST} with RESOURCE_EXHAUSTED",
    section="Sizes and connections",
    samples=("sleeps",),
)
async def call_too_many(worker: Worker) -> str:
    """Cancelling makes room again."""
    count = _MOST + 10
    async with worker.stream() as stream:
        asked = f"{count} calls of sleeps"
        await stream.send([(i, "sleeps") for i in range(count)], [pod()], asked=asked)
        if not await stream.until(lambda: len(stream.answers) >= count - _MOST, ANSWER_S):
            expected = f"at least {count - _MOST} refused"
            raise Breach(asked, f"{len(stream.answers)} verdicts after {ANSWER_S:g} s", expected)
        for number, answer in stream.answers.items():
            expect_kind(f"{asked}: number {number}", answer, "RESOURCE_EXHAUSTED")
        refused = len(stream.answers)
        expect(refused <= count - _LEAST, asked, f"{refused} refused", f"{_LEAST} taken")
        taken = [i for i in range(count) if i not in stream.answers]
        await stream.send([], [], cancelled=taken)
        asked = f"{_LEAST} calls of sleeps after all before are cancelled"
        new = range(count, count + _LEAST)
        await stream.send([(i, "sleeps") for i in new], [pod()], timeout_ms=_TIMEOUT_MS, asked=asked)
        for answer in [(await stream.verdicts(new))[i] for i in new]:
            expect_kind(asked, answer, "DEADLINE_EXCEEDED")
    return f"{len(taken)} taken"


def _expect_asleep(stream: Stream, *numbers: int) -> None:
    for number in numbers:
        answer = stream.answers.get(number)
        if answer is not None:
            raise Breach(stream.asked, f"a verdict for call {number}: {in_words(answer)}", "none")
    if stream.ended is not None:
        raise Breach(stream.asked, f"{stream.how_it_ended()} ({kind(stream.ended)})", "an open stream")
