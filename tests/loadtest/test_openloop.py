"""The open loop, against real servers that stall, are too slow, or go away."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import TYPE_CHECKING

import pytest
import uvloop

from loadtest import openloop
from loadtest.exchange import Target
from loadtest.measurement import Measurement, Plan
from loadtest.openloop import OpenLoop, measure_open, ticking
from tests.loadtest.review_server import REVIEW, RIGHT, ReviewServer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

STALL_S = 0.3


def test_all_that_is_due_is_answered_and_timed(certificate: tuple[Path, Path]) -> None:
    with ReviewServer(certificate) as server:
        plan = Plan(connections=4, warmup_s=0.1, window_s=0.3)
        found = uvloop.run(measure_open(Target(server.url, REVIEW), 200.0, plan))
    assert found.errors == {}
    assert (found.intended, found.answered, found.unanswered) == (60, 60, 0)
    assert server.reviews == 80
    assert list(found.latencies_ms) == ["p50", "p90", "p99", "p999", "max"]
    assert sorted(found.latencies_ms.values()) == list(found.latencies_ms.values())
    assert found.late_ms["max"] <= found.latencies_ms["max"]


@pytest.mark.parametrize("connections", [1, 64])
def test_a_stall_is_a_stall_for_all_reviews_that_were_due_meanwhile(
    certificate: tuple[Path, Path], connections: int
) -> None:
    def answer(number: int) -> bytes:
        if number == 5:
            time.sleep(STALL_S)
        return RIGHT

    with ReviewServer(certificate, answer) as server:
        plan = Plan(connections=connections, warmup_s=0.0, count=100)
        found = uvloop.run(measure_open(Target(server.url, REVIEW), 200.0, plan))
    assert found.errors == {}
    # Sixty of the hundred reviews are due during the stall, thirty of them in its first half, and none of
    # these can be answered before its end. A closed loop would have one slow answer a connection.
    assert found.latencies_ms["p90"] >= STALL_S / 2 * 1000
    assert found.answered == server.reviews == 100


def test_a_server_that_is_too_slow_ends_the_run_with_what_was_waiting(
    certificate: tuple[Path, Path],
) -> None:
    def answer(_: int) -> bytes:
        time.sleep(0.02)
        return RIGHT

    with ReviewServer(certificate, answer) as server:
        plan = Plan(connections=2, warmup_s=0.0, window_s=60.0)
        found = uvloop.run(measure_open(Target(server.url, REVIEW), 1000.0, plan, backlog=50))
    (error,) = found.errors
    stated = re.fullmatch(r"too much load: (\d+) reviews were still waiting for one of 2 connections", error)
    assert stated is not None
    assert int(stated[1]) > 50
    assert found.intended == 60_000
    assert found.unanswered == found.intended - found.answered
    assert found.answered <= server.reviews < 50


def test_wrong_answers_are_errors_and_not_timed(certificate: tuple[Path, Path]) -> None:
    with ReviewServer(certificate, lambda number: RIGHT if number % 2 else b"{}") as server:
        plan = Plan(connections=1, warmup_s=0.0, count=20)
        found = uvloop.run(measure_open(Target(server.url, REVIEW), 1000.0, plan))
    assert list(found.errors.values()) == [1, 9]
    assert found.answered == 20
    assert found.reviews <= 10


@pytest.mark.parametrize("last", [3, 0])
def test_a_review_lost_with_its_connection_stays_unanswered(
    certificate: tuple[Path, Path], last: int
) -> None:
    with ReviewServer(certificate, lambda number: RIGHT if number < last else None) as server:
        plan = Plan(connections=1, warmup_s=0.0, count=10)
        found = uvloop.run(measure_open(Target(server.url, REVIEW), 1000.0, plan))
    assert found.errors == {"connection lost: closed by the server": 1}
    assert (found.answered, found.unanswered) == (last, 10 - last)


def test_what_is_not_answered_in_time_is_an_error(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openloop, "DRAIN_WITHIN_S", 0.05)
    go_on = threading.Event()

    def answer(number: int) -> bytes:
        if number == 5:
            go_on.wait()
        return RIGHT

    with ReviewServer(certificate, answer) as server:
        plan = Plan(connections=1, warmup_s=0.0, count=10)
        found = uvloop.run(measure_open(Target(server.url, REVIEW), 1000.0, plan))
        go_on.set()
    assert found.errors == {
        "no answer 0.05 s after the last was due": 1,
        "too much load: 4 reviews were still waiting for one of 1 connections": 1,
    }
    assert (found.answered, found.unanswered) == (5, 5)


def test_the_lateness_of_the_generator_itself_is_measured(certificate: tuple[Path, Path]) -> None:
    async def busy() -> Measurement:
        def hog() -> None:
            time.sleep(0.05)
            asyncio.get_running_loop().call_later(0.001, hog)

        hog()
        return await measure_open(Target(server.url, REVIEW), 200.0, Plan(8, 0.0, count=40))

    with ReviewServer(certificate) as server:
        found = uvloop.run(busy())
    assert found.errors == {}
    # Five reviews are due in the first half of such a pause, and wait for its end.
    assert found.late_ms["max"] >= 25


@pytest.mark.parametrize(("late_s", "doubts"), [(0.001, 0), (0.004, 0), (0.006, 1)])
def test_lateness_is_doubted_where_it_may_be_most_of_the_latency(late_s: float, doubts: int) -> None:
    async def doubted() -> list[str]:
        pace = OpenLoop(Target("https://127.0.0.1:1/", REVIEW), 100.0, Plan(), 10)
        pace.latencies_s.extend([0.010] * 100)
        pace.late_s.extend([0.0] * 98 + [late_s] * 2)
        return pace.doubts()

    assert len(uvloop.run(doubted())) == doubts


def test_no_tick_comes_before_its_time() -> None:
    async def collect() -> list[float]:
        ticks: list[float] = []
        done = asyncio.Event()

        def tick() -> None:
            ticks.append(time.perf_counter() - first)
            if len(ticks) == 10:
                done.set()

        first = time.perf_counter() + 0.01
        with ticking(tick, first, 1 / 300):
            await done.wait()
        return ticks

    assert all(tick >= number / 300 for number, tick in enumerate(uvloop.run(collect())))
