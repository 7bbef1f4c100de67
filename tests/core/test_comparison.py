"""Differences between the answer of a candidate and that in force."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.steps import finish
from gateway.pure.core.comparison import Comparison, compare, is_sampled
from gateway.pure.core.verdict import ALLOWED, Allowed, Cause, Denied, Failed, FailureReason, Verdict
from tests.core.build import add, patch, request, settle, webhook

NO = Denied(403, message="no team")


def compared(in_force: Verdict, candidate: Verdict, **members: Any) -> Comparison:
    first, second = (
        settle([webhook(**members)], request(), {"a.policies.test": verdict}).outcomes[0]
        for verdict in (in_force, candidate)
    )
    return finish(compare(first, second))


@pytest.mark.parametrize(
    ("in_force", "candidate", "kinds"),
    [
        (ALLOWED, ALLOWED, ()),
        (NO, NO, ()),
        (ALLOWED, NO, ("newly_denied",)),
        (NO, ALLOWED, ("newly_allowed",)),
        (ALLOWED, Failed(FailureReason.STATUS, "UNAVAILABLE"), ("failed",)),
        (NO, Denied(422, message="no team"), ("code",)),
        (NO, Denied(403, message="no label"), ("message",)),
        (NO, Denied(403, message="no team", causes=(Cause("R"),)), ("message",)),
        (NO, Denied(400, "Mine", "other"), ("code", "message")),
        (ALLOWED, Allowed(warnings=("careful",)), ("warnings",)),
        (Allowed(warnings=("a",)), Denied(403, warnings=("b",)), ("newly_denied", "warnings")),
        (ALLOWED, patch(add("/x", 1)), ("object",)),
        (ALLOWED, patch(add("/none/x", 1)), ("failed",)),
        (ALLOWED, patch({"op": "test", "path": "/spec/replicas", "value": 1}), ()),
        (patch(add("/x", 1), add("/y", 2)), patch(add("/y", 2), add("/x", 1)), ()),
        (patch(add("/x", {"b": 1, "a": 2})), patch(add("/x", {}), add("/x/a", 2), add("/x/b", 1)), ()),
        (patch(add("/x", 1)), patch(add("/x", 1.0)), ("object",)),
    ],
)
def test_answers_are_compared_by_meaning(
    in_force: Verdict, candidate: Verdict, kinds: tuple[str, ...]
) -> None:
    assert compared(in_force, candidate).kinds == kinds


def test_the_paths_of_a_difference_are_named() -> None:
    found = compared(patch(add("/x", 1)), patch(add("/metadata/labels/team", "b")))
    assert sorted(found.paths) == ["/metadata/labels/team", "/x"]


@given(uid=st.text(), percents=st.lists(st.floats(0, 100), min_size=2))
def test_a_higher_percentage_of_reviews_only_adds_reviews(uid: str, percents: list[float]) -> None:
    found = [is_sampled(uid, percent) for percent in sorted(percents)]
    assert found == sorted(found)
    assert is_sampled(uid, 100)
    assert not is_sampled(uid, 0)


def test_the_share_of_reviews_is_about_the_percentage() -> None:
    assert 80 <= sum(is_sampled(f"uid-{number}", 10) for number in range(1000)) <= 125
