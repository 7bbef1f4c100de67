"""Shedding, and the state of outlier detection, whose effect is in ``tests/simulation/test_rows.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.dispatch.outlier_detection import (
    BAN_RESET_AFTER_S,
    EJECT_AFTER,
    FIRST_EJECTION_S,
    FREE_BREAKS,
    LONGEST_BAN_S,
    LONGEST_EJECTION_S,
    OutlierState,
)
from gateway.pure.core.verdict import ALLOWED, Failed
from tests.waiting import until
from tests.world import simulated

if TYPE_CHECKING:
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.verdict import Verdict
    from tests.world import SimulatedWorld


def verdicts(evaluation: Evaluation) -> list[Verdict]:
    return [outcome.call.verdict for outcome in evaluation.outcomes if outcome.call and outcome.call.verdict]


def never(evaluation: object) -> None:
    pytest.fail(f"an unexpected answer: {evaluation}")


@simulated
async def test_calls_of_fail_webhooks_displace_those_of_ignore_webhooks(world: SimulatedWorld) -> None:
    await world.ready_pool(max_in_flight=2)
    shed: list[Evaluation] = []
    world.start([{"hang": True, "failure_policy": "Ignore"}], shed.append)
    cancel = world.start([{"hang": True}], never)
    assert isinstance(refused := await world.ask({"failure_policy": "Ignore"}), Failed)
    assert refused.cause.startswith("RESOURCE_EXHAUSTED: ")
    assert not shed
    assert await world.ask({}) is ALLOWED
    await until(lambda: shed)
    assert verdicts(shed[0]) == [refused]
    full = world.start([{"hang": True}], never)
    assert isinstance(await world.ask({}), Failed)
    cancel()
    full()


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
@simulated
async def test_calls_that_are_not_enforced_make_room_for_others_and_displace_none(
    world: SimulatedWorld, failure_policy: str
) -> None:
    await world.ready_pool(max_in_flight=2)
    shed: list[Evaluation] = []
    cancel = world.start([{"hang": True, "failure_policy": "Ignore"}], never)
    world.start([{"hang": True, "mode": "Warn"}], shed.append)
    assert isinstance(refused := await world.ask({"mode": "Audit"}), Failed)
    assert not shed
    assert await world.ask({"failure_policy": failure_policy}) is ALLOWED
    await until(lambda: shed)
    assert verdicts(shed[0]) == [refused]
    cancel()


@simulated
async def test_calls_in_the_mode_shadow_use_half_of_an_endpoint_at_most(world: SimulatedWorld) -> None:
    await world.ready_pool(max_in_flight=4)
    cancels = [world.start([{"hang": True, "mode": mode}], never) for mode in ("Shadow", "Enforce")]
    found = await world.ask({"mode": "Shadow"})
    assert isinstance(found, Failed)
    assert found.cause == "RESOURCE_EXHAUSTED: half of maxInFlight is in use"
    assert await world.ask({}) is ALLOWED
    for cancel in cancels:
        cancel()


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
@simulated
async def test_failures_of_calls_that_are_not_enforced_do_not_count_against_the_endpoint(
    world: SimulatedWorld, transport: str
) -> None:
    pool = await world.ready_pool(transport=transport)
    (endpoint,) = pool.endpoints
    for script in ({"status": "INTERNAL"}, {"hang": True, "timeout_s": 0.05}):
        for mode in ("Warn", "Audit", "Shadow"):
            assert isinstance(await world.ask({**script, "mode": mode}), Failed)
        assert endpoint.outlier.consecutive_failures == 0
        assert isinstance(await world.ask(script), Failed)
        assert endpoint.outlier.consecutive_failures == 1
        assert await world.ask({}) is ALLOWED


@simulated
async def test_a_call_ahead_of_its_turn_displaces_no_other(world: SimulatedWorld) -> None:
    await world.ready_pool(max_in_flight=2)
    shed: list[Evaluation] = []
    cancel = world.start([{"hang": True, "failure_policy": "Ignore"}], shed.append)
    settled = await world.settle({"delay_ms": 20}, {}, phase="mutate")
    assert verdicts(settled) == [ALLOWED, ALLOWED]
    assert not shed
    cancel()


@given(st.lists(st.tuples(st.floats(0, 1000), st.booleans()), max_size=30))
def test_ejections_grow_up_to_their_limit(steps: list[tuple[float, bool]]) -> None:
    outlier, now = OutlierState(), 0.0
    for wait_s, is_good in steps:
        for _ in range(EJECT_AFTER):
            outlier.failed("INTERNAL", 1)
        for_s = outlier.eject(now)
        assert outlier.ejected_until == now + for_s
        assert FIRST_EJECTION_S <= for_s <= LONGEST_EJECTION_S
        now += for_s
        outlier.uneject(now)
        assert outlier.state == "ready"
        if is_good:
            outlier.succeeded(now)
        assert (outlier.consecutive_failures == 0) == is_good
        again = OutlierState()
        for name in OutlierState.__slots__:
            setattr(again, name, getattr(outlier, name))
        # At once after its return it is out for twice as long as before, within the bound.
        assert again.eject(now) == min(LONGEST_EJECTION_S, 2 * for_s)
        now += wait_s


@pytest.mark.parametrize("code", ["CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"])
def test_statuses_of_load_and_cancellation_do_not_eject(code: str) -> None:
    outlier = OutlierState()
    outlier.failed(code, 100)
    assert outlier.consecutive_failures == 0


def test_timeouts_eject_only_a_worker_that_answers_nothing() -> None:
    outlier = OutlierState()
    outlier.timed_out(1.0)
    assert outlier.consecutive_failures == 1
    outlier.succeeded(2.0)
    outlier.timed_out(1.5)
    assert outlier.consecutive_failures == 0
    outlier.timed_out(2.5)
    assert outlier.consecutive_failures == 1


def test_each_ban_is_twice_as_long_up_to_a_minute() -> None:
    outlier, now, bans = OutlierState(), 100.0, []
    for _ in range(9):
        bans.append(outlier.ban(now))
        # Immediate answers and a new connection change nothing.
        now = outlier.banned_until + 1.0
        outlier.reset()
        outlier.succeeded(now)
    assert bans == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_short_ban_follows_only_a_minute_of_answers() -> None:
    outlier = OutlierState()
    outlier.ban(100.0)
    outlier.ban(101.0)
    outlier.succeeded(outlier.banned_until + BAN_RESET_AFTER_S - 1)
    assert outlier.ban(200.0) == 4
    outlier.succeeded(outlier.banned_until + BAN_RESET_AFTER_S)
    assert outlier.ban(300.0) == 1


@given(st.lists(st.floats(0.0, 100.0), max_size=40))
def test_repeated_stream_breaks_delay_the_next_stream_up_to_the_limit(gaps: list[float]) -> None:
    outlier, now = OutlierState(), 1000.0
    for count, gap in enumerate(gaps, 1):
        now += gap
        before = outlier.stream_after
        outlier.stream_broke(now)
        assert outlier.stream_after <= now + LONGEST_BAN_S
        if count <= FREE_BREAKS:
            assert outlier.stream_after == 0.0
        else:
            assert outlier.stream_after > now
            assert outlier.stream_after >= min(before, now + LONGEST_BAN_S)
