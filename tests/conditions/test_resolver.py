"""Tasks of matchConditions are completed beside the event loop, in time, and only while they are needed."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from gateway.pure.cel.compile import compile_condition
from gateway.pure.cel.errors import CostExceeded
from gateway.pure.cel.meter import count_steps, long_limit, start
from gateway.pure.conditions.match_conditions import CompiledConditions
from gateway.pure.conditions.resolver import EXPIRED, NO_AUTHORIZER, ConditionResolver, FairExecutor
from gateway.pure.core.conditions import AccessCheck, AccessDecision, Excluded, LongEvaluation
from gateway.pure.core.verdict import Failed
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gateway.pure.conditions.resolver import Authorize
    from gateway.pure.core.conditions import ConditionResult

CHECK = AccessCheck(b"{}")
LONG_S = 60.0
NONE = CompiledConditions([])


@contextmanager
def made(authorize: Authorize | None = None) -> Iterator[ConditionResolver]:
    executor = FairExecutor()
    try:
        yield ConditionResolver(executor, authorize)
    finally:
        executor.close()


async def result_of(start: Callable[[Callable[[object], None]], object]) -> object:
    """Return the argument with which *start* has its callback called, which must be after it has returned."""
    result: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    start(result.set_result)
    assert not result.done()
    async with asyncio.timeout(LONG_S):
        return await result


def test_without_a_cluster_there_is_no_authorizer_and_nothing_is_allowed() -> None:
    async def scenario() -> object:
        with made() as resolver:
            return await result_of(lambda on_result: resolver.resolve(CHECK, LONG_S, on_result))

    decision = asyncio.run(scenario())
    assert decision is NO_AUTHORIZER
    assert not NO_AUTHORIZER.allowed
    assert NO_AUTHORIZER.error


async def test_a_check_goes_to_the_authorizer() -> None:
    checks: list[tuple[AccessCheck, float]] = []
    cancelled: list[bool] = []

    def authorize(
        check: AccessCheck, timeout_s: float, on_result: Callable[[AccessDecision], None]
    ) -> Callable[[], None]:
        checks.append((check, timeout_s))
        return lambda: cancelled.append(True)

    with made(authorize) as resolver:
        cancel = resolver.resolve(CHECK, 3.0, lambda _: None)
        assert checks == [(CHECK, 3.0)]
        cancel()
    assert cancelled == [True]


async def test_a_long_evaluation_runs_in_another_thread_while_the_loop_goes_on() -> None:
    may_end, threads = threading.Event(), list[int]()

    def evaluate() -> ConditionResult:
        threads.append(threading.get_ident())
        assert may_end.wait(LONG_S)
        return Excluded("slow")

    asyncio.get_running_loop().call_soon(may_end.set)
    slow = LongEvaluation(NONE, evaluate)
    with made() as resolver:
        result = await result_of(lambda on_result: resolver.resolve(slow, LONG_S, on_result))
    assert result == Excluded("slow")
    assert threads != [threading.get_ident()]


async def test_an_evaluation_without_a_result_in_time_has_failed() -> None:
    may_end = threading.Event()

    def evaluate() -> ConditionResult:
        may_end.wait(LONG_S)
        return None

    slow = LongEvaluation(NONE, evaluate)
    with made() as resolver:
        assert await result_of(lambda on_result: resolver.resolve(slow, 0.0, on_result)) is EXPIRED
        may_end.set()


def test_an_internal_error_is_a_failure_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def evaluate() -> ConditionResult:
        raise AssertionError("a bug")

    async def scenario() -> object:
        with made() as resolver:
            return await result_of(
                lambda on_result: resolver.resolve(LongEvaluation(NONE, evaluate), LONG_S, on_result)
            )

    result = asyncio.run(scenario())
    assert isinstance(result, Failed)
    assert "a bug" not in result.cause
    assert "a bug" in caplog.text


async def test_webhooks_take_turns() -> None:
    """The evaluations of one webhook wait for each other; those of another webhook wait for one of them."""
    may_end, ran = threading.Event(), list[str]()
    busy, other = CompiledConditions([]), CompiledConditions([])

    def evaluation(conditions: CompiledConditions, name: str) -> LongEvaluation:
        def evaluate() -> ConditionResult:
            assert may_end.wait(LONG_S)
            ran.append(name)
            return None

        return LongEvaluation(conditions, evaluate)

    loop = asyncio.get_running_loop()
    ends = [loop.create_future() for _ in range(7)]
    names = [*((busy, f"busy {number}") for number in range(5)), (other, "other 0"), (other, "other 1")]
    with made() as resolver:
        for (conditions, name), end in zip(names, ends, strict=True):
            resolver.resolve(evaluation(conditions, name), LONG_S, end.set_result)
        may_end.set()
        await asyncio.gather(*ends)
    assert [name for name in ran if name.startswith("busy")] == [f"busy {number}" for number in range(5)]
    assert ran.index("other 0") <= 2
    assert ran.index("other 1") <= 4


async def test_a_cancelled_evaluation_does_not_begin_and_has_no_result() -> None:
    has_begun, may_end, ran = threading.Event(), threading.Event(), list[str]()
    results: list[object] = []

    def first() -> ConditionResult:
        has_begun.set()
        may_end.wait(LONG_S)
        return None

    def second() -> ConditionResult:
        ran.append("second")
        return None

    with made() as resolver:
        cancel_first = resolver.resolve(LongEvaluation(NONE, first), LONG_S, results.append)
        assert has_begun.wait(LONG_S)
        cancel_second = resolver.resolve(LongEvaluation(NONE, second), LONG_S, results.append)
        cancel_first()
        cancel_second()
        may_end.set()
        third = LongEvaluation(NONE, lambda: Excluded("third"))
        result = await result_of(lambda on_result: resolver.resolve(third, LONG_S, on_result))
    assert result == Excluded("third")
    assert "second" not in ran
    assert results == []


@pytest.mark.parametrize("end", ["cancelled", "late", "closed"])
async def test_an_evaluation_that_nobody_waits_for_ends(end: str) -> None:
    """Where it counts steps, and before a further expression. The next evaluation is not affected."""
    condition = compile_condition("condition", "request.name == ''")
    has_begun, may_go_on, is_over = threading.Event(), threading.Event(), threading.Event()
    ended_at: list[str] = []

    def is_ended(act: Callable[[], object]) -> bool:
        try:
            act()
        except CostExceeded:
            return True
        return False

    def count() -> None:
        start(long_limit())
        count_steps(1)

    def evaluate() -> ConditionResult:
        count()
        has_begun.set()
        assert may_go_on.wait(LONG_S)
        if is_ended(lambda: count_steps(1)):
            ended_at.append("steps")
        if is_ended(lambda: condition.evaluate([None, None, {"name": "a"}, *[None] * 20], long_limit())):
            ended_at.append("expression")
        is_over.set()
        return None

    results: list[object] = []
    executor = FairExecutor()
    resolver = ConditionResolver(executor)
    with closing(executor):
        timeout_s = 0.0 if end == "late" else LONG_S
        cancel = resolver.resolve(LongEvaluation(NONE, evaluate), timeout_s, results.append)
        assert has_begun.wait(LONG_S)
        if end == "late":
            await until(lambda: results == [EXPIRED])
        elif end == "cancelled":
            cancel()
        else:
            executor.close()
        may_go_on.set()
        assert is_over.wait(LONG_S)
        assert ended_at == ["steps", "expression"]
        cancel()
        if end != "closed":
            after = LongEvaluation(NONE, lambda: None if is_ended(count) else Excluded("after"))
            result = await result_of(lambda on_result: resolver.resolve(after, LONG_S, on_result))
            assert result == Excluded("after")


def test_the_switch_interval_of_the_process_is_set_while_the_thread_is_there() -> None:
    found = sys.getswitchinterval()
    sys.setswitchinterval(0.005)  # an exporter of traces sets a shorter one for good
    try:
        before = sys.getswitchinterval()
        executor = FairExecutor()
        evaluation = LongEvaluation(NONE, lambda: None)
        executor.submit(evaluation).result(LONG_S)
        assert sys.getswitchinterval() < before
        executor.close()
        assert sys.getswitchinterval() == before
    finally:
        sys.setswitchinterval(found)
