"""What conditions need to know is found out beside the loop, in time, and for those who still want it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from gateway.cel.conditions import Conditions
from gateway.core.conditions import Check, CheckAnswer, Excluded, Work
from gateway.core.verdict import Failed
from gateway.dispatch.questions import NOBODY, TOO_LATE, Questions

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from gateway.core.conditions import Judgement

CHECK = Check(b"{}")
LONG_S = 60.0
NONE = Conditions([])


async def told(start: Callable[[Callable[[object], None]], object]) -> object:
    """Return what *start* has its argument told, which must not be before it returns."""
    found: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    start(found.set_result)
    assert not found.done()
    async with asyncio.timeout(LONG_S):
        return await found


def test_without_a_cluster_there_is_nobody_who_allows_anything() -> None:
    async def scenario() -> object:
        return await told(lambda found: Questions().ask(CHECK, LONG_S, found))

    answer = asyncio.run(scenario())
    assert answer is NOBODY
    assert not NOBODY.allowed
    assert NOBODY.error


def test_a_check_goes_to_the_authorizer() -> None:
    async def scenario() -> None:
        asked: list[tuple[Check, float]] = []
        withdrawn: list[bool] = []

        def authorize(
            check: Check, within_s: float, found: Callable[[CheckAnswer], None]
        ) -> Callable[[], None]:
            asked.append((check, within_s))
            return lambda: withdrawn.append(True)

        withdraw = Questions(authorize).ask(CHECK, 3.0, lambda _: None)
        assert asked == [(CHECK, 3.0)]
        withdraw()
        assert withdrawn == [True]

    asyncio.run(scenario())


def test_work_is_done_in_another_thread_while_the_loop_goes_on() -> None:
    async def scenario() -> None:
        may_end, threads = threading.Event(), list[int]()

        def work() -> Judgement:
            threads.append(threading.get_ident())
            assert may_end.wait(LONG_S)
            return Excluded("slow")

        asyncio.get_running_loop().call_soon(may_end.set)
        slow = Work(NONE, work)
        assert await told(lambda found: Questions().ask(slow, LONG_S, found)) == Excluded("slow")
        assert threads != [threading.get_ident()]

    asyncio.run(scenario())


def test_what_comes_too_late_has_failed() -> None:
    async def scenario() -> None:
        may_end = threading.Event()

        def work() -> Judgement:
            may_end.wait(LONG_S)
            return None

        assert await told(lambda found: Questions().ask(Work(NONE, work), 0.0, found)) is TOO_LATE
        may_end.set()

    asyncio.run(scenario())


def test_a_fault_of_the_gateway_is_a_failure_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def work() -> Judgement:
        raise AssertionError("a bug")

    async def scenario() -> object:
        return await told(lambda found: Questions().ask(Work(NONE, work), LONG_S, found))

    answer = asyncio.run(scenario())
    assert isinstance(answer, Failed)
    assert "a bug" not in answer.cause
    assert "a bug" in caplog.text


def test_webhooks_take_turns() -> None:
    """Whoever is asked much waits for itself, and others wait for it once."""

    async def scenario() -> None:
        may_end, ran, questions = threading.Event(), list[str](), Questions()
        busy, other = Conditions([]), Conditions([])

        def work(of: Conditions, name: str) -> Work:
            def judge() -> Judgement:
                assert may_end.wait(LONG_S)
                ran.append(name)
                return None

            return Work(of, judge)

        loop = asyncio.get_running_loop()
        ends = [loop.create_future() for _ in range(7)]
        names = [*((busy, f"busy {number}") for number in range(5)), (other, "other 0"), (other, "other 1")]
        for (of, name), end in zip(names, ends, strict=True):
            questions.ask(work(of, name), LONG_S, end.set_result)
        may_end.set()
        await asyncio.gather(*ends)
        assert [name for name in ran if name.startswith("busy")] == [f"busy {number}" for number in range(5)]
        assert ran.index("other 0") <= 2
        assert ran.index("other 1") <= 4

    asyncio.run(scenario())


def test_what_is_withdrawn_is_not_told_and_not_begun() -> None:
    async def scenario() -> None:
        has_begun, may_end, ran = threading.Event(), threading.Event(), list[str]()
        heard: list[object] = []
        questions = Questions()

        def first() -> Judgement:
            has_begun.set()
            may_end.wait(LONG_S)
            return None

        def second() -> Judgement:
            ran.append("second")
            return None

        withdraw_first = questions.ask(Work(NONE, first), LONG_S, heard.append)
        assert has_begun.wait(LONG_S)
        withdraw_second = questions.ask(Work(NONE, second), LONG_S, heard.append)
        withdraw_first()
        withdraw_second()
        may_end.set()
        third = Work(NONE, lambda: Excluded("third"))
        assert await told(lambda found: questions.ask(third, LONG_S, found)) == Excluded("third")
        assert "second" not in ran
        assert heard == []

    asyncio.run(scenario())
