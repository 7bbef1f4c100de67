"""Evidence: merging parts of sources, and what a total says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.rollout_plan.evidence import (
    BOUNDS_MS,
    MAX_NAME,
    Evidence,
    Part,
    Tally,
    namespaces_of,
    owner_of,
    p99_ms,
)
from tests.rollout_plan.build import good, newly_denied

PARTS = st.builds(
    lambda sequence, reviews, denied: replace(
        newly_denied(number=denied), sequence=sequence, reviews=reviews
    ),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(1, 3),
)
EVIDENCE = st.builds(Evidence, st.just("w"), st.dictionaries(st.sampled_from("abc"), PARTS))


@given(a=EVIDENCE, b=EVIDENCE, c=EVIDENCE)
def test_merging_is_commutative_associative_and_idempotent(a: Evidence, b: Evidence, c: Evidence) -> None:
    assert a.merged(b) == b.merged(a)
    assert a.merged(b).merged(c) == a.merged(b.merged(c))
    assert a.merged(b).merged(b) == a.merged(b)
    assert a.merged(Evidence("another", {"a": good()})) == a


def test_of_one_source_the_later_part_counts_and_another_start_is_another_source() -> None:
    early, late = good(3), good(10)
    assert Evidence("w", {"a": late}).merged(Evidence("w", {"a": early})).total.reviews == 10
    assert Evidence("w", {"a/1": late}).merged(Evidence("w", {"a/2": early})).total.reviews == 13


def test_one_owner_that_tries_again_at_every_replica_is_one_owner() -> None:
    found = Evidence("w", {name: newly_denied(number=50) for name in "abc"}).total
    assert (found.newly_denied, len(found.newly_denied_owners)) == (150, 1)
    assert namespaces_of(found.newly_denied_owners) == {"team-1"}


def test_names_of_namespaces_and_users_are_not_in_the_evidence() -> None:
    tally = Tally()
    tally.answered("payments", "ann@example.com")
    assert "payments" not in str(tally.part().as_json())
    assert "ann" not in str(tally.part().as_json())


@pytest.mark.parametrize(
    ("found", "owner"),
    [
        ({"metadata": {"name": "a"}}, "Pod/a"),
        ({"metadata": {"generateName": "a-"}}, "Pod/a-"),
        (
            {
                "metadata": {
                    "name": "a",
                    "ownerReferences": [
                        {"kind": "Node", "name": "n"},
                        {"kind": "ReplicaSet", "name": "r", "controller": True},
                    ],
                }
            },
            "ReplicaSet/r",
        ),
        ({"metadata": {"ownerReferences": {"controller": True}}}, "Pod/"),
        ({"metadata": []}, "Pod/"),
        (None, "Pod/"),
    ],
)
def test_the_owner_is_the_controller_or_the_object(found: object, owner: str) -> None:
    assert owner_of(found, "Pod") == owner
    assert len(owner_of({"metadata": {"name": "x" * 9999}}, "Pod")) == MAX_NAME


def test_the_owner_of_a_secret_has_no_name_of_it() -> None:
    one, other = (owner_of({"metadata": {"name": name}}, "Secret") for name in ("prod-db", "stage-db"))
    assert one != other
    assert one.startswith("Secret/")
    assert "prod" not in one


@given(st.lists(st.floats(0, 40), min_size=100, max_size=300))
def test_the_percentile_is_in_its_bucket(seconds: list[float]) -> None:
    tally = Tally()
    for one in seconds:
        tally.answered("a", "u", one)
    exact = sorted(seconds)[-(-len(seconds) * 99 // 100) - 1] * 1000
    lower = p99_ms(tally.part().latencies)
    assert lower is not None
    upper = next((bound for bound in BOUNDS_MS if bound > lower), float("inf"))
    assert exact == 0 or lower < exact <= upper


def test_of_few_calls_there_is_no_percentile() -> None:
    assert p99_ms(good(99).latencies) is None
    assert p99_ms(Part().latencies) is None
