"""The soak: its plan, its checks, and a short run with faults in which everything adds up."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from loadtest import soak
from loadtest.http_client import Answer
from loadtest.soak import memory_mib, parse, report, run
from loadtest.soak_accounting import Sample, Series, count_checks, growth_percent, memory_checks
from loadtest.soak_clients import FAULTY, Review, Tally, reviews, wrong
from loadtest.soak_worker import DENIAL

if TYPE_CHECKING:
    from collections.abc import Mapping

BY_NAME = {kind.name: kind for kind in FAULTY}


# -- memory ---------------------------------------------------------------------------------------


def samples(*gateway_mib: float) -> list[Sample]:
    """Return samples a thousand reviews apart."""
    return [Sample(1000 * number, mib, 40.0) for number, mib in enumerate(gateway_mib)]


@given(st.lists(st.floats(1, 1e3), min_size=2, max_size=20), st.floats(-1, 1))
def test_growth_is_the_slope_of_the_last_half(before: list[float], slope: float) -> None:
    last = [100.0 + slope * number for number in range(len(before) + 2)]
    rise = last[-1] - last[(len(before) + len(last) - 1 + 1) // 2 - len(before)]
    begin = last[(len(before) + len(last) - 1 + 1) // 2 - len(before)]
    assert growth_percent(samples(*before, *last)) == pytest.approx(rise / begin * 100, abs=1e-6)


def test_a_single_high_sample_is_no_growth() -> None:
    flat = [100.0] * 10
    assert growth_percent(samples(*flat, *flat, 104.0)) == 0.0


@pytest.mark.parametrize(
    ("mib", "is_met"),
    [
        ((60, 100, 100, 101, 101.9), [True, True]),
        ((60, 100, 100, 101, 102.1), [True, False]),
        ((60, 121, 110, 110, 110), [False, True]),
        ((60, 61, 62), []),
    ],
)
def test_memory_is_judged_by_its_maximum_and_by_its_growth(
    mib: tuple[float, ...], is_met: list[bool]
) -> None:
    assert [check.is_met for check in memory_checks(samples(*mib), 120.0)] == is_met


@pytest.mark.parametrize(("idle_mib", "is_met"), [(60.0, True), (59.9, False)])
def test_the_memory_of_an_idle_gateway_has_its_own_limit(idle_mib: float, is_met: bool) -> None:
    idle, *_ = memory_checks(samples(60, 100, 100, 100, 100), 120.0, idle_mib)
    assert (idle.found, idle.is_met) == (60, is_met)


def test_the_memory_of_a_process_is_read() -> None:
    assert 0 < memory_mib(os.getpid()) <= memory_mib(os.getpid(), is_peak=True)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    assert memory_mib(ended.pid) == 0


# -- the plan -------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(0, 40))
def test_the_plan_follows_from_the_seed(seed: int, count: int) -> None:
    plan = list(reviews(FAULTY, seed, count))
    assert plan == list(reviews(FAULTY, seed, count))
    assert len({review.uid for review in plan}) == count
    for review in plan:
        head, separator, body = review.data.partition(b"\r\n\r\n")
        length = head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
        is_complete = bool(separator) and len(body) == int(length)
        assert (bool(review.leaves), is_complete) == (
            bool(review.kind.leaves),
            review.kind.leaves != "within",
        )
        assert review.data
        if is_complete:
            assert orjson.loads(body)["request"]["uid"] == review.uid


def answer(uid: str = "u", *, allowed: bool, code: int = 0, message: str = "") -> bytes:
    response: dict[str, Any] = {"uid": uid, "allowed": allowed}
    if code:
        response["status"] = {"code": code, "message": message}
    return orjson.dumps({"kind": "AdmissionReview", "response": response})


EXPIRED = "DEADLINE_EXCEEDED: no answer within 1s"


@pytest.mark.parametrize(
    ("kind", "body", "problem"),
    [
        ("allowed", answer(allowed=True), ""),
        ("allowed", answer("v", allowed=True), "lost: expected the uid u, found v"),
        ("denied", answer(allowed=False, code=403, message=DENIAL), ""),
        ("denied", answer(allowed=False, code=400, message=DENIAL), f"denied: 400: {DENIAL}"),
        ("denied", answer(allowed=False, code=403), "denied: 403: "),
        ("denied", answer(allowed=True), "allowed: "),
        ("times-out", answer(allowed=False, code=500, message=EXPIRED), ""),
        ("times-out", answer(allowed=False, code=500, message="X"), "failed: X"),
        ("fails-open", answer(allowed=True), "allowed: "),
        ("incomplete", answer(allowed=True), "an answer to an incomplete request"),
    ],
)
def test_an_answer_must_have_the_planned_outcome_and_text(kind: str, body: bytes, problem: str) -> None:
    assert wrong(Review("u", b"", kind=BY_NAME[kind]), Answer(b"HTTP/1.1 200 OK", body)) == problem


# -- the counts -----------------------------------------------------------------------------------

numbers = st.integers(0, 50)
worlds = st.fixed_dictionaries(
    {kind.name: numbers for kind in FAULTY}
    | {"unread": numbers, "lost": numbers, "doubled": numbers, "given up": numbers, "refused": numbers}
)


def world(found: Mapping[str, int]) -> tuple[Tally, dict[str, int], tuple[int, int]]:
    """Return consistent counts of clients, gateway and workers after *found* reviews by kind."""
    tally = Tally()
    cancelled = found["abandoned"]
    answered = {kind.name: found[kind.name] for kind in FAULTY if not kind.leaves}
    tally.answered.update(answered)
    tally.abandoned["abandoned"] = found["abandoned"] + found["unread"]
    tally.incomplete["incomplete"] = found["incomplete"]
    tally.refused["allowed"] = found["refused"]
    answered["abandoned"] = found["unread"]
    late = sum(answered[name] for name in ("times-out", "short-timeout", "fails-open", "abandoned"))
    given_up = min(found["given up"], late)
    verdicts = answered["allowed"] + answered["changed"] + 2 * answered["denied"]
    refusing = answered["denied"] + answered["times-out"] + answered["short-timeout"] + answered["abandoned"]
    review = 'review_duration_seconds_count{type="%s",operation="CREATE",allowed="%s"}'
    webhook = 'webhook_requests_total{name="w",type="validating",operation="CREATE",code="%s",rejected="x"}'
    call = 'worker_calls_total{pool="p",endpoint="e",code="%s"}'
    rejection = 'webhook_rejections_total{name="w",error_type="%s"}'
    series = {
        review % ("admit", "true"): answered["changed"],
        review % ("validating", "true"): answered["allowed"] + answered["fails-open"],
        review % ("validating", "false"): refusing,
        'reviews_cancelled_total{type="validating"}': cancelled,
        'requests_refused_total{code="503"}': found["refused"],
        "reviews_in_flight": 0,
        webhook % 200: verdicts - answered["denied"],
        webhook % 403: answered["denied"],
        webhook % 503: given_up,
        webhook % 504: late - given_up,
        "webhook_admission_duration_seconds_count": verdicts + late,
        rejection % "no_error": answered["denied"],
        rejection % "calling_webhook_error": refusing - answered["denied"],
        'webhook_fail_open_total{name="w"}': answered["fails-open"],
        call % "OK": verdicts,
        call % "DEADLINE_EXCEEDED": late - given_up + found["doubled"],
        call % "CANCELLED": cancelled,
        call % "UNAVAILABLE": given_up + found["lost"],
        'worker_retries_total{pool="p"}': found["lost"] + found["doubled"],
        'worker_hedges_total{pool="p"}': 0,
    }
    return tally, series, (verdicts + late, verdicts)


def failed(tally: Tally, series: Mapping[str, int], calls: tuple[int, int]) -> list[str]:
    exposition = "".join(f"admission_gateway_{name} {value}\n" for name, value in series.items())
    checks = count_checks(Series(exposition), tally, FAULTY, calls)
    return [check.text for check in checks if not check.is_met]


@given(worlds)
def test_consistent_counts_pass_all_checks(found: dict[str, int]) -> None:
    assert failed(*world(found)) == []


SOME = {kind.name: 5 for kind in FAULTY} | {"unread": 2, "lost": 2, "doubled": 2, "given up": 2, "refused": 2}


@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize("name", sorted(world(SOME)[1]))
def test_a_count_that_is_off_by_one_fails_a_check(name: str, by: int) -> None:
    tally, series, calls = world(SOME)
    if series[name] + by >= 0:
        assert failed(tally, series | {name: series[name] + by}, calls)


def test_a_verdict_without_a_worker_and_a_call_without_the_gateway_fail_a_check() -> None:
    tally, series, (received, answered) = world(SOME)
    assert failed(tally, series, (received, answered - 1))
    made = sum(value for name, value in series.items() if name.startswith("worker_calls"))
    assert failed(tally, series, (made + 1, answered))


# -- a run ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "hedge"), [(1, "20ms"), (2, "")])
def test_everything_adds_up_in_a_run_with_faults(
    processes: int, hedge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "PARTS", 2)  # too few samples to judge memory
    count = "3000"
    options = parse(["--faults", "--count", count, "--processes", str(processes), "--hedge", hedge])
    ran = uvloop.run(run(options))
    failures = [check.row for check in ran.checks if not check.is_met]
    assert failures == [], (ran.tally.wrong, ran.log[-4000:])
    assert ran.faults["cut"]
    assert len(ran.samples) == 3
    assert "| abandoned     | never" in report(ran, options, 1.0)


@pytest.mark.slow
def test_everything_adds_up_in_a_run_without_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "PARTS", 2)
    options = parse(["--count", "100", "--clients", "4"])
    ran = uvloop.run(run(options))
    assert [check.row for check in ran.checks if not check.is_met] == []
    assert ran.tally.connections == 8
