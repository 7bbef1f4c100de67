"""A deadline has an instant and a budget, and a call never outlives its review."""

from __future__ import annotations

import pytest

from gateway.pure.core.deadline import Deadline


def test_a_deadline_is_its_start_and_its_budget() -> None:
    deadline = Deadline.after(10.0, 1000.0)
    assert (deadline.at, deadline.budget_s) == (1010.0, 10.0)
    assert deadline.remaining_s(1004.0) == 6.0
    assert not deadline.has_passed(1009.0)
    assert deadline.has_passed(1010.0)


@pytest.mark.parametrize(
    ("timeout_s", "now", "at", "budget_s"),
    [
        (2, 1000.0, 1002.0, 2),  # the call's own timeout ends it
        (10, 1005.0, 1010.0, 10),  # the review ends first
        (30, 1000.0, 1010.0, 10.0),
    ],
)
def test_a_call_ends_with_its_review_at_the_latest(
    timeout_s: int, now: float, at: float, budget_s: float
) -> None:
    capped = Deadline.after(10.0, 1000.0).capped(timeout_s, now)
    assert (capped.at, capped.budget_s) == (at, budget_s)
