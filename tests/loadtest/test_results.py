"""The arithmetic of the benchmark's figures: CPU for a review, ratios within a round, medians over rounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.cases import FLOOR, GROUPS
from loadtest.report import drift, group_table, markdown_table
from loadtest.results import Round, Window, checked, difference, in_flight, middle, ratio, window
from loadtest.servers import BenchError

costs = st.floats(1.0, 1e4)


def a_window(case: str, gateway_us: float = 50.0, **figures: Any) -> Window:
    usual = {"reviews_per_s": 1000.0, "worker_us": 7.0, "busy": 0.5, "p50_ms": 1.25, "p99_ms": 9.875}
    return Window(case, gateway_us=gateway_us, **{**usual, **figures})


def a_round(**cases: list[float]) -> Round:
    """Return a round with a window of each case (``_`` for ``-``) for each of its costs."""
    return tuple(a_window(name.replace("_", "-"), cost) for name, found in cases.items() for cost in found)


def printed(**members: Any) -> dict[str, Any]:
    cpu_s = {"11": 0.5, "12": 0.1, "13": 0.02, "load": 0.4}
    usual = {"reviews": 2000, "seconds": 2.0, "latencies_ms": {"p50": 1.0, "p99": 3.0}, "errors": {}}
    return {**usual, "cpu_s": cpu_s, **members}


@pytest.mark.parametrize(
    ("gateway", "gateway_us", "worker_us", "busy"),
    [(["11"], 250.0, 60.0, 0.25), (["11", "12"], 300.0, 10.0, 0.3)],
)
def test_cpu_is_divided_by_the_reviews_and_that_of_the_generator_is_left_out(
    gateway: list[str], gateway_us: float, worker_us: float, busy: float
) -> None:
    found = window("stream-4", gateway, printed())
    assert (found.reviews_per_s, found.p50_ms, found.p99_ms, found.tail) == (1000.0, 1.0, 3.0, 3.0)
    assert found.gateway_us == pytest.approx(gateway_us)
    assert found.worker_us == pytest.approx(worker_us)
    assert found.total_us == pytest.approx(gateway_us + worker_us)
    assert found.busy == pytest.approx(busy)


def test_a_background_load_is_in_flight_for_its_rate_times_its_latency() -> None:
    assert in_flight(printed(reviews=10, latencies_ms={"p50": 40.0})) == pytest.approx(0.2)
    assert in_flight(printed(reviews=10, latencies_ms={"p50": 400.0})) == 1.0


@pytest.mark.parametrize("members", [{"errors": {"HTTP/1.1 503": 3}}, {"reviews": 0}])
def test_a_measurement_with_errors_or_without_reviews_ends_the_benchmark(members: dict[str, Any]) -> None:
    with pytest.raises(BenchError, match=r"stream-4: (3 times HTTP/1\.1 503|no review was answered)"):
        checked("stream-4", printed(**members))


ROUNDS = [
    a_round(floor=[10, 30], stream_4=[60]),  # 3 times, by the mean of the floor; 40 more
    a_round(floor=[40], stream_4=[80]),  # 2 times, in a slower round
    a_round(floor=[10], stream_4=[90]),
    a_round(floor=[1000]),
    a_round(stream_4=[10]),
]


def test_ratios_and_differences_are_medians_of_those_within_rounds() -> None:
    assert ratio("stream-4", "floor", ROUNDS) == 3.0
    assert difference("stream-4", "floor", ROUNDS, "gateway_us") == 40.0
    # The figures of the two sides may differ.
    assert ratio("stream-4", "floor", ROUNDS[:1], "gateway_us", "worker_us") == pytest.approx(60 / 7)
    with pytest.raises(ValueError, match="no round has both unary-4 and floor"):
        ratio("unary-4", "floor", ROUNDS)


@given(st.floats(0.01, 100.0), st.lists(costs, min_size=1, max_size=5))
def test_a_machine_that_is_slower_by_a_factor_changes_no_ratio(factor: float, floors: list[float]) -> None:
    rounds = [a_round(floor=[cost], stream_4=[3 * cost + n]) for n, cost in enumerate(floors)]
    slower = [tuple(a_window(found.case, found.gateway_us * factor) for found in round_) for round_ in rounds]
    assert ratio("stream-4", "floor", slower) == pytest.approx(ratio("stream-4", "floor", rounds))


@given(st.lists(costs, min_size=1, max_size=9))
def test_the_middle_has_as_many_windows_above_as_below(found: list[float]) -> None:
    value = middle("stream-4", [a_round(stream_4=[cost], floor=[1]) for cost in found], "gateway_us")
    assert sum(cost < value for cost in found) <= len(found) / 2
    assert sum(cost > value for cost in found) <= len(found) / 2


def test_the_table_of_a_group_has_medians_and_ratios_of_its_measured_cases() -> None:
    rounds = [a_round(floor=[10, 12], stream_4=[30]), a_round(floor=[11], stream_4=[44])]
    table = group_table(next(group for group in GROUPS if group.reference is FLOOR), rounds)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert len({len(line) for line in table.splitlines()}) == 1
    assert [row[1:5] for row in rows[2:]] == [
        ["1,000", "11.0", "1.00", "7.0"],
        ["1,000", "37.0", "3.36", "7.0"],
    ]
    assert drift(rounds) == "floor, 3 times: 10.0 us first, 11.0 us last, 10.0 to 12.0 us in all"


def test_a_table_without_rows_has_its_headings() -> None:
    assert markdown_table(("a", "b"), [], left=(0,)).splitlines() == ["| a | b |", "| - | : |"]
