"""How long a worker is left alone after what it did."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.dispatch.outlier_detection import FREE_BREAKS, HONEST_FOR_S, LONGEST_BAN_S, OutlierState


def test_each_ban_is_twice_as_long_up_to_a_minute() -> None:
    outlier, now, bans = OutlierState(), 100.0, []
    for _ in range(9):
        bans.append(outlier.ban(now))
        # What it answers at once, and a new connection, change nothing.
        now = outlier.banned_until + 1.0
        outlier.reset()
        outlier.succeeded(now)
    assert bans == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_minute_of_answers_is_needed_for_a_short_ban() -> None:
    outlier = OutlierState()
    outlier.ban(100.0)
    outlier.ban(101.0)
    outlier.succeeded(outlier.banned_until + HONEST_FOR_S - 1)
    assert outlier.ban(200.0) == 4
    outlier.succeeded(outlier.banned_until + HONEST_FOR_S)
    assert outlier.ban(300.0) == 1


@given(st.lists(st.floats(0.0, 100.0), max_size=40))
def test_streams_that_break_again_and_again_wait_longer_and_never_too_long(gaps: list[float]) -> None:
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
