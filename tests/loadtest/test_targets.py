"""The targets: checked at their limits, and not checked if the machine cannot measure them."""

from __future__ import annotations

import math

import pytest

from loadtest.cases import CASES
from loadtest.targets import MIN_CORES_FOR_TWO, SDK, TARGETS, Found, Target, judge
from tests.loadtest.test_results import a_window


@pytest.mark.parametrize("bound", ["at most", "at least", "below"])
def test_a_target_is_met_up_to_its_limit_and_not_beyond(bound: str) -> None:
    def verdict(figure: float) -> str:
        target = Target("0", "a figure", ("a",), lambda found: found.numbers["a"], bound, 2.0)  # type: ignore[arg-type]
        [result] = judge([target], Found([], {"a": figure}))
        return result.verdict

    less, more = verdict(math.nextafter(2.0, 0)), verdict(math.nextafter(2.0, 3))
    assert (less, verdict(2.0), more) == {
        "at most": ("pass", "pass", "FAIL"),
        "at least": ("FAIL", "pass", "pass"),
        "below": ("pass", "FAIL", "FAIL"),
    }[bound]


def test_targets_need_cases_that_exist() -> None:
    assert {name for target in TARGETS for name in target.needs} <= {*CASES, SDK}


def test_a_target_without_one_of_its_cases_is_left_out() -> None:
    found = Found([(a_window("floor", 10), a_window("stream-1", 20), a_window("mutate-4", 31))])
    assert [(result.target.needs, result.found) for result in judge(TARGETS, found)] == [
        (("stream-1", "floor"), 2.0)
    ]


def test_a_case_that_this_machine_cannot_start_is_not_judged() -> None:
    found = Found([(a_window("stream-4"),)], missing={"agnhost": "not built"})
    remarks = [(result.verdict, result.remark) for result in judge(TARGETS, found)]
    assert ("not judged", "agnhost: not built") in remarks


@pytest.mark.parametrize(("windows", "remark"), [(1, ""), (2, "the floor, at half of its own: 4.0")])
def test_the_tail_of_the_floor_stands_beside_that_of_the_gateway(windows: int, remark: str) -> None:
    measured = (
        a_window("rate-50", p50_ms=1.0, p99_ms=5.0),
        a_window("floor-rate-50", p50_ms=0.5, p99_ms=2.0),
    )
    [result] = judge(TARGETS, Found([measured[:windows]]))
    assert (result.found, result.verdict, result.remark) == (5.0, "FAIL", remark)


@pytest.mark.parametrize(("busy", "verdict"), [(0.94, "not judged"), (0.95, "FAIL")])
def test_the_throughput_of_an_idle_floor_is_no_reference(busy: float, verdict: str) -> None:
    windows = (
        a_window("stream-4", reviews_per_s=1.0),
        a_window("floor", reviews_per_s=1000.0, busy=busy),
    )
    [result] = [
        result for result in judge(TARGETS, Found([windows])) if "of the floor's" in result.target.text
    ]
    assert result.verdict == verdict


@pytest.mark.parametrize(
    ("cores", "verdict"), [(MIN_CORES_FOR_TWO - 1, "not judged"), (MIN_CORES_FOR_TWO, "FAIL")]
)
def test_two_processes_are_judged_on_enough_cores(cores: int, verdict: str) -> None:
    windows = (a_window("two-processes", reviews_per_s=1100.0), a_window("one-process"))
    [result] = judge(TARGETS, Found([windows], cores=cores))
    assert (result.verdict, result.found) == (verdict, 1.1)
