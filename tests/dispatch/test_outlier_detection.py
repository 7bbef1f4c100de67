"""Outlier detection, retries, hedging and shedding: workers that are lost, stop, fail or are overloaded."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.kinds.worker_pool import Hedge
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

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from gateway.engine.dispatch.endpoint import WorkerEndpoint
    from gateway.engine.dispatch.pool import Pool
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.verdict import Verdict
    from tests.dispatch.conftest import Bed
    from tests.kit import WorkerProcess

    OnBed = Callable[[Callable[[Bed], Awaitable[None]]], None]


def verdicts(evaluation: Evaluation) -> list[Verdict]:
    return [outcome.call.verdict for outcome in evaluation.outcomes if outcome.call and outcome.call.verdict]


def never(evaluation: object) -> None:
    pytest.fail(f"an unexpected answer: {evaluation}")


async def endpoint_with_call(pool: Pool) -> WorkerEndpoint:
    """Return the endpoint whose worker has received a call."""
    await until(lambda: any(group.was_sent for endpoint in pool.endpoints for group in endpoint.calls.groups))
    (busy,) = (endpoint for endpoint in pool.endpoints if endpoint.calls.count)
    return busy


async def two(bed: Bed, workers: list[WorkerProcess], **settings: Any) -> Pool:
    pool = await bed.add_pool(*(worker.target for worker in workers), **settings)
    await bed.all_ready(pool)
    return pool


def worker_of(endpoint: WorkerEndpoint, workers: list[WorkerProcess]) -> WorkerProcess:
    """Return the worker at *endpoint*; they listen at sockets."""
    (found,) = (worker for worker in workers if worker.target == endpoint.address)
    return found


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
@pytest.mark.parametrize(("side_effects", "is_saved"), [("None", True), ("Some", False)])
def test_calls_of_a_lost_worker_are_retried_elsewhere_unless_they_have_side_effects(
    on_bed: OnBed,
    start_worker: Callable[..., WorkerProcess],
    transport: str,
    side_effects: str,
    is_saved: bool,
    tmp_path: Path,
) -> None:
    workers = [start_worker(), start_worker()]
    gate = tmp_path / "gate"

    async def test(bed: Bed) -> None:
        pool = await two(bed, workers, transport=transport)
        settled: list[Evaluation] = []
        bed.start([{"until": str(gate), "side_effects": side_effects}], settled.append)
        worker_of(await endpoint_with_call(pool), workers).signal(signal.SIGKILL)
        gate.touch()
        await until(lambda: settled)
        (verdict,) = verdicts(settled[0])
        assert (verdict is ALLOWED) == is_saved
        assert bed.metrics.pool("pool").retries == is_saved
        assert bed.calls("UNAVAILABLE") == 1
        assert bed.calls("OK") == is_saved

    on_bed(test)


def test_a_call_that_crashes_two_workers_is_not_sent_to_a_third(
    on_bed: OnBed, start_worker: Callable[..., WorkerProcess]
) -> None:
    workers = [start_worker() for _ in range(3)]

    async def test(bed: Bed) -> None:
        pool = await two(bed, workers)
        verdict = await bed.ask({"exit": True})
        assert isinstance(verdict, Failed)
        assert verdict.cause.startswith("UNAVAILABLE: ")
        await until(
            lambda: sorted(endpoint.state for endpoint in pool.endpoints) == ["down", "down", "ready"]
        )

    on_bed(test)


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
def test_a_stopped_worker_fails_no_call_and_gets_calls_again_when_it_resumes(
    on_bed: OnBed, start_worker: Callable[..., WorkerProcess], transport: str, tmp_path: Path
) -> None:
    workers = [start_worker(), start_worker()]
    gate = tmp_path / "gate"

    async def test(bed: Bed) -> None:
        pool = await two(bed, workers, transport=transport)
        settled: list[Evaluation] = []
        bed.start([{"until": str(gate), "timeout_s": 6}], settled.append)
        stopped = await endpoint_with_call(pool)
        worker_of(stopped, workers).signal(signal.SIGSTOP)
        gate.touch()
        try:
            await until(lambda: settled)
            assert verdicts(settled[0]) == [ALLOWED]
            assert stopped.state == "stalled"
            assert await bed.ask({}) is ALLOWED
        finally:
            worker_of(stopped, workers).signal(signal.SIGCONT)
        await until(lambda: stopped.state == "ready")

    on_bed(test)


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
def test_a_slow_answer_does_not_stall_the_endpoint(
    on_bed: OnBed, start_worker: Callable[..., WorkerProcess], transport: str
) -> None:
    workers = [start_worker(), start_worker()]

    async def test(bed: Bed) -> None:
        pool = await two(bed, workers, transport=transport)
        assert await bed.ask({"delay_ms": 3500, "timeout_s": 6}) is ALLOWED
        assert bed.metrics.pool("pool").retries == 0
        assert {endpoint.state for endpoint in pool.endpoints} == {"ready"}

    on_bed(test)


def test_calls_of_fail_webhooks_displace_those_of_ignore_webhooks(
    on_bed: OnBed, start_worker: Callable[..., WorkerProcess]
) -> None:
    worker = start_worker()

    async def test(bed: Bed) -> None:
        pool = await bed.add_pool(worker.target, max_in_flight=2)
        await bed.all_ready(pool)
        shed: list[Evaluation] = []
        bed.start([{"hang": True, "failure_policy": "Ignore"}], shed.append)
        cancel = bed.start([{"hang": True}], never)
        assert isinstance(refused := await bed.ask({"failure_policy": "Ignore"}), Failed)
        assert refused.cause.startswith("RESOURCE_EXHAUSTED: ")
        assert not shed
        assert await bed.ask({}) is ALLOWED
        await until(lambda: shed)
        assert verdicts(shed[0]) == [refused]
        full = bed.start([{"hang": True}], never)
        assert isinstance(await bed.ask({}), Failed)
        cancel()
        full()

    on_bed(test)


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
def test_calls_that_are_not_enforced_make_room_for_others_and_displace_none(
    on_bed: OnBed, start_worker: Callable[..., WorkerProcess], failure_policy: str
) -> None:
    worker = start_worker()

    async def test(bed: Bed) -> None:
        pool = await bed.add_pool(worker.target, max_in_flight=2)
        await bed.all_ready(pool)
        shed: list[Evaluation] = []
        cancel = bed.start([{"hang": True, "failure_policy": "Ignore"}], never)
        bed.start([{"hang": True, "mode": "Warn"}], shed.append)
        assert isinstance(refused := await bed.ask({"mode": "Audit"}), Failed)
        assert not shed
        assert await bed.ask({"failure_policy": failure_policy}) is ALLOWED
        await until(lambda: shed)
        assert verdicts(shed[0]) == [refused]
        cancel()

    on_bed(test)


def test_calls_in_the_mode_shadow_use_half_of_an_endpoint_at_most(
    on_bed: OnBed, start_worker: Callable[..., WorkerProcess]
) -> None:
    worker = start_worker()

    async def test(bed: Bed) -> None:
        pool = await bed.add_pool(worker.target, max_in_flight=4)
        await bed.all_ready(pool)
        cancels = [bed.start([{"hang": True, "mode": mode}], never) for mode in ("Shadow", "Enforce")]
        found = await bed.ask({"mode": "Shadow"})
        assert isinstance(found, Failed)
        assert found.cause == "RESOURCE_EXHAUSTED: half of maxInFlight is in use"
        assert await bed.ask({}) is ALLOWED
        for cancel in cancels:
            cancel()

    on_bed(test)


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
def test_failures_of_calls_that_are_not_enforced_do_not_count_against_the_endpoint(
    on_bed: OnBed, start_worker: Callable[..., WorkerProcess], transport: str
) -> None:
    worker = start_worker()

    async def test(bed: Bed) -> None:
        pool = await bed.add_pool(worker.target, transport=transport)
        await bed.all_ready(pool)
        (endpoint,) = pool.endpoints
        for script in ({"status": "INTERNAL"}, {"hang": True, "timeout_s": 0.05}):
            for mode in ("Warn", "Audit", "Shadow"):
                assert isinstance(await bed.ask({**script, "mode": mode}), Failed)
            assert endpoint.outlier.consecutive_failures == 0
            assert isinstance(await bed.ask(script), Failed)
            assert endpoint.outlier.consecutive_failures == 1
            assert await bed.ask({}) is ALLOWED

    on_bed(test)


def test_a_call_in_the_mode_shadow_is_not_retried(
    on_bed: OnBed, start_worker: Callable[..., WorkerProcess]
) -> None:
    workers = [start_worker(), start_worker()]

    async def test(bed: Bed) -> None:
        pool = await two(bed, workers)
        settled: list[Evaluation] = []
        bed.start([{"hang": True, "mode": "Shadow"}], settled.append)
        worker_of(await endpoint_with_call(pool), workers).signal(signal.SIGKILL)
        await until(lambda: settled)
        assert isinstance(verdicts(settled[0])[0], Failed)
        assert bed.metrics.pool("pool").retries == 0

    on_bed(test)


def test_the_first_answer_of_a_hedged_call_counts(
    on_bed: OnBed, start_worker: Callable[..., WorkerProcess]
) -> None:
    quick = start_worker()
    slow = start_worker(None, "--override", '{"hang": true}')

    async def test(bed: Bed) -> None:
        await two(bed, [quick, slow], hedge=Hedge(after_s=0.02, budget_percent=100))
        for _ in range(20):
            assert await bed.ask({}) is ALLOWED
        hedged = bed.metrics.pool("pool").hedges
        assert hedged
        assert bed.calls("CANCELLED") == hedged
        assert bed.calls("OK") == 20
        settled = await bed.settle({}, {"side_effects": "Some", "timeout_s": 1})
        assert verdicts(settled)[0] is ALLOWED

    on_bed(test)


def test_a_review_of_many_calls_may_overdraw_the_hedging_budget_which_is_repaid(
    on_bed: OnBed, start_worker: Callable[..., WorkerProcess]
) -> None:
    slow = start_worker(None, "--override", '{"hang": true}')
    quick = start_worker()

    async def test(bed: Bed) -> None:
        pool = await two(bed, [slow, quick], hedge=Hedge(after_s=0.02, budget_percent=5))
        pool._pick = lambda _: 0
        calls = [{"timeout_s": 3}] * 8
        assert verdicts(await bed.settle(*calls)) == [ALLOWED] * 8
        assert not any(verdict is ALLOWED for verdict in verdicts(await bed.settle(*calls)))
        assert bed.metrics.pool("pool").hedges == 8

    on_bed(test)


def test_a_call_ahead_of_its_turn_displaces_no_other(
    on_bed: OnBed, start_worker: Callable[..., WorkerProcess]
) -> None:
    worker = start_worker()

    async def test(bed: Bed) -> None:
        pool = await bed.add_pool(worker.target, max_in_flight=2)
        await bed.all_ready(pool)
        shed: list[Evaluation] = []
        cancel = bed.start([{"hang": True, "failure_policy": "Ignore"}], shed.append)
        settled = await bed.settle({"delay_ms": 20}, {}, phase="mutate")
        assert verdicts(settled) == [ALLOWED, ALLOWED]
        assert not shed
        cancel()

    on_bed(test)


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
