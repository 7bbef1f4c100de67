"""The half minutes of the last fifteen minutes, by a clock of the test."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.telemetry.series import Numbers
from gateway.observe.telemetry.timeline import BUCKET_S, BUCKETS, Point, Timeline

KEY = "mutate", "a.b.c"


def numbers(calls: int, denied: int = 0, failed: int = 0) -> dict[tuple[str, str], Numbers]:
    return {
        KEY: Numbers([calls, 0], denied=denied, failed_closed=failed - failed // 2, failed_open=failed // 2)
    }


def test_a_half_minute_has_what_was_counted_in_it() -> None:
    timeline = Timeline(0.0)
    timeline.take(numbers(10, 2), BUCKET_S)
    timeline.take(numbers(10, 2), 2 * BUCKET_S)
    timeline.take(numbers(14, 2, 3), 2.5 * BUCKET_S)  # somebody looks
    found = timeline.take(numbers(15, 3, 3), 3 * BUCKET_S)
    assert found == {KEY: {0: (10, 2, 0, 0), 2: (5, 1, 2, 1)}}


def test_a_reading_that_is_late_belongs_to_the_half_minute_that_it_is_about() -> None:
    timeline = Timeline(0.0)
    timeline.take(numbers(1), 1.2 * BUCKET_S)
    assert timeline.take(numbers(3), 2.1 * BUCKET_S) == {KEY: {0: (1, 0, 0, 0), 1: (2, 0, 0, 0)}}


def test_what_is_older_than_fifteen_minutes_is_gone() -> None:
    timeline = Timeline(0.0)
    timeline.take(numbers(7), BUCKET_S)
    last = BUCKETS * BUCKET_S
    assert timeline.take(numbers(7), last - 1) == {KEY: {0: (7, 0, 0, 0)}}
    assert timeline.take(numbers(7), last) == {}


@given(st.lists(st.tuples(st.floats(0.1, 100), st.integers(0, 5)), max_size=60))
def test_all_that_is_kept_adds_up(readings: list[tuple[float, int]]) -> None:
    timeline, now, calls, expected = Timeline(1000.0), 1000.0, 0, Counter[int]()
    found: dict[tuple[str, str], dict[int, Point]] = {}
    for passed, more in readings:
        middle = now + passed / 2
        now, calls = now + passed, calls + more
        expected[int(middle / BUCKET_S)] += more
        found = timeline.take(numbers(calls), now)
    oldest = int(now / BUCKET_S) - BUCKETS
    kept = {number: sum_ for number, sum_ in expected.items() if sum_ and number > oldest}
    assert {number: point[0] for number, point in found.get(KEY, {}).items()} == kept
