"""The arithmetic of the benchmark: rounds of windows to ratios."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.ratios import middle, ratio
from tests.loadtest.build import a_round, a_window


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    rounds = [
        a_round(floor=[10, 30], stream_4=60),  # 3
        a_round(floor=[40], stream_4=80),  # 2: a slower machine, and a better ratio
        a_round(floor=[10], stream_4=90),  # 9
    ]
    assert ratio("stream-4", "floor", rounds) == 3.0


def test_a_round_without_one_of_the_two_counts_for_nothing() -> None:
    rounds = [a_round(floor=10, stream_4=60), a_round(floor=10), a_round(stream_4=60)]
    assert ratio("stream-4", "floor", rounds) == 6.0
    with pytest.raises(ValueError, match="never measured in one round"):
        ratio("unary-4", "floor", rounds)


def test_the_two_sides_may_be_different_figures() -> None:
    rounds = [(a_window("stream-4", 30.0, worker_us=20.0), a_window("agnhost", 100.0, worker_us=1.0))]
    assert ratio("stream-4", "agnhost", rounds, "total_us", "front_us") == 0.5
    assert ratio("stream-4", "agnhost", rounds, "worker_us") == 20.0


@given(st.floats(0.01, 100.0), st.lists(st.floats(1.0, 1e4), min_size=1, max_size=5))
def test_a_machine_that_is_slower_by_a_factor_changes_no_ratio(factor: float, costs: list[float]) -> None:
    rounds = [a_round(floor=cost, stream_4=3 * cost + number) for number, cost in enumerate(costs)]
    slower = [
        a_round(floor=cost * factor, stream_4=(3 * cost + number) * factor)
        for number, cost in enumerate(costs)
    ]
    assert ratio("stream-4", "floor", slower) == pytest.approx(ratio("stream-4", "floor", rounds))


@given(st.lists(st.floats(1.0, 1e4), min_size=1, max_size=9))
def test_the_middle_has_as_many_windows_above_as_below(costs: list[float]) -> None:
    found = middle("stream-4", [a_round(stream_4=cost, floor=1) for cost in costs], "front_us")
    assert sum(cost < found for cost in costs) == sum(cost > found for cost in costs) or found in costs
    assert min(costs) <= found <= max(costs)


def test_what_was_never_measured_has_no_middle() -> None:
    with pytest.raises(ValueError, match="stream-4 was never measured"):
        middle("stream-4", [a_round(floor=1)], "front_us")
