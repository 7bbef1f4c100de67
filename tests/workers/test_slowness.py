"""Which long runs move a policy to threads."""

from __future__ import annotations

import random

import pytest

from admission_gateway_worker.slowness import FIRST_PAUSE_S, LONG_RUNS, MAX_PAUSE_S, Cause, Slowness


def moves(slowness: Slowness, runs: int, long_share: float, cause: Cause) -> int:
    """Return how often a policy moves to threads if a random share of its *runs* is long."""
    draw = random.Random(1).random
    found = 0
    for _ in range(runs):
        if draw() < long_share:
            found += slowness.note_long(cause, 0.0)
        elif slowness:
            slowness.note_short()
    return found


@pytest.mark.parametrize("cause", ["blocked", "computed"])
def test_a_policy_that_is_always_slow_moves_after_few_runs(cause: Cause) -> None:
    slowness = Slowness()
    assert [slowness.note_long(cause, 100.0) for _ in range(LONG_RUNS)] == [False] * (LONG_RUNS - 1) + [True]
    assert slowness.until == 100.0 + FIRST_PAUSE_S


def test_a_policy_that_waits_in_one_of_ten_runs_moves() -> None:
    assert moves(Slowness(), 100, 0.1, "blocked") > 0


def test_stolen_time_moves_no_policy() -> None:
    """A policy of 10 us, of which a hypervisor takes the CPU every 10 ms."""
    assert moves(Slowness(), 1_000_000, 0.001, "computed") == 0


def test_long_runs_long_ago_do_not_count() -> None:
    slowness = Slowness()
    for _ in range(100):
        assert not slowness.note_long("blocked", 0.0)
        assert slowness
        while slowness:
            slowness.note_short()


def test_after_a_pause_a_single_long_run_begins_a_longer_one() -> None:
    slowness = Slowness()
    for _ in range(LONG_RUNS - 1):
        slowness.note_long("blocked", 0.0)
    pauses = []
    for _ in range(12):
        assert slowness.note_long("blocked", 1000.0)
        pauses.append(slowness.until - 1000.0)
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == MAX_PAUSE_S
    while slowness:
        slowness.note_short()
    assert moves(slowness, LONG_RUNS, 1.0, "blocked") == 1
    assert slowness.until == FIRST_PAUSE_S
