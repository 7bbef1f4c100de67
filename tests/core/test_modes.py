"""The mode of each webhook in a review: where ``rollout.enforce`` matches."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.matching import Selection
from gateway.pure.core.modes import modes_of, rank
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.verdict import Failed, FailureReason
from gateway.pure.core.webhook import Enforcement, FailurePolicy, Mode, Rollout
from gateway.pure.rollout_plan.model import Plan, Stage
from tests.core.build import labelled, request, resource, webhook

DEV = labelled("tier", "dev")
TWO_STAGES = Plan.of([Stage("Audit"), Stage("Enforce")])
RED = Namespace("red", {"tier": "dev"}, b"")
UNKNOWN = Failed(FailureReason.NAMESPACE, "no answer")
NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=63)


def mode(
    enforce: Enforcement | None,
    found: Namespace | Failed | None = RED,
    at_s: float = 0.0,
    hook_name: str = "a.policies.test",
    failure_policy: FailurePolicy = "Fail",
    **members: Any,
) -> Mode:
    """The mode of one webhook, Warn where *enforce* does not match; *found* is the namespace."""
    hook = webhook(hook_name, rollout=Rollout("Warn", enforce), failure_policy=failure_policy)
    given = request(**{"namespace": found.name if isinstance(found, Namespace) else "red", **members})
    return modes_of(Selection("mutate", [hook]), given, found, at_s).get(0, "Enforce")


def is_chosen(hook: str, namespace: str, percent: int) -> bool:
    """The documented algorithm in other words: the hash, as a part of one, is below the percentage."""
    found = hashlib.sha256(f"{hook}/{namespace}".encode()).hexdigest()[:16]
    return Fraction(int(found, 16), 2**64) < Fraction(percent, 100)


@given(hook=NAMES, namespace=NAMES, percent=st.integers(0, 100))
def test_a_percentage_of_namespaces_is_that_of_the_documented_hash(
    hook: str, namespace: str, percent: int
) -> None:
    found = mode(Enforcement(EVERYTHING, percent), Namespace(namespace, {}, b""), hook_name=hook)
    assert (found == "Enforce") is is_chosen(hook, namespace, percent)


@given(hook=NAMES, namespace=NAMES, percents=st.lists(st.integers(0, 100), min_size=2))
def test_a_higher_percentage_only_adds_namespaces(hook: str, namespace: str, percents: list[int]) -> None:
    found = [
        mode(Enforcement(EVERYTHING, percent), Namespace(namespace, {}, b""), hook_name=hook) == "Enforce"
        for percent in sorted(percents)
    ]
    assert found == sorted(found)


@given(
    uid=st.uuids(),
    user=st.text(max_size=8),
    operation=st.sampled_from(["CREATE", "UPDATE", "DELETE"]),
    name=NAMES,
)
def test_the_mode_of_a_namespace_does_not_depend_on_the_request(
    uid: object, user: str, operation: str, name: str
) -> None:
    members: dict[str, Any] = {
        "uid": str(uid),
        "userInfo": {"username": user},
        "operation": operation,
        "name": name,
    }
    for percent in (0, 25, 50, 100):
        enforce = Enforcement(EVERYTHING, percent)
        assert mode(enforce, **members) == mode(enforce)


def test_the_ranks_in_the_documentation() -> None:
    found = {
        name: rank("require-team-label.example.com", name) for name in ("team-a", "payments", "kube-system")
    }
    assert found == {"team-a": 18, "payments": 50, "kube-system": 70}


def test_the_share_of_namespaces_is_about_the_percentage() -> None:
    chosen = sum(rank("a.policies.test", f"team-{number}") < 25 for number in range(4000))
    assert 900 <= chosen <= 1100


def test_without_enforce_the_mode_holds_everywhere() -> None:
    assert mode(None) == "Warn"


def test_all_conditions_have_to_match() -> None:
    always = rank("a.policies.test", "red") + 1
    assert mode(Enforcement(DEV)) == "Enforce"
    assert mode(Enforcement(DEV), Namespace("red", {"tier": "prod"}, b"")) == "Warn"
    assert mode(Enforcement(DEV, always)) == "Enforce"
    assert mode(Enforcement(DEV, always - 1)) == "Warn"
    assert mode(Enforcement(DEV, always, 100.0), at_s=99.9) == "Warn"
    assert mode(Enforcement(DEV, always, 100.0), at_s=100.0) == "Enforce"


def test_an_object_without_a_namespace_is_enforced_only_where_no_condition_is_about_namespaces() -> None:
    node: dict[str, Any] = {"resource": resource("/v1/nodes"), "namespace": None}
    assert mode(Enforcement(EVERYTHING, 100, 1.0), None, 1.0, **node) == "Enforce"
    assert mode(Enforcement(EVERYTHING, 99), None, **node) == "Warn"
    assert mode(Enforcement(DEV), None, **node) == "Warn"


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
@pytest.mark.parametrize("namespace", ["red", ""])
def test_a_namespace_is_in_itself(operation: str, namespace: str) -> None:
    own: dict[str, Any] = {
        "resource": resource("/v1/namespaces"),
        "operation": operation,
        "name": "red",
        "namespace": namespace,
        "object": {"metadata": {"name": "red", "labels": {"tier": "dev"}}},
    }
    limit = rank("a.policies.test", "red")
    stored = Namespace("red", {"tier": "dev" if operation == "DELETE" else "prod"}, b"")
    assert mode(Enforcement(DEV), stored, **own) == "Enforce"
    assert mode(Enforcement(EVERYTHING, limit + 1), None, **own) == "Enforce"
    assert mode(Enforcement(EVERYTHING, limit), None, **own) == "Warn"


@pytest.mark.parametrize("namespace", [UNKNOWN, None])
def test_the_failure_policy_decides_where_the_labels_are_not_known(namespace: Failed | None) -> None:
    assert mode(Enforcement(DEV), namespace) == "Enforce"
    assert mode(Enforcement(DEV), namespace, failure_policy="Ignore") == "Warn"
    assert mode(Enforcement(EVERYTHING, 0), namespace) == "Warn"


def test_a_selection_notes_whether_any_webhook_may_be_in_another_mode() -> None:
    for rollout, expected in (
        (None, False),
        (Rollout(), False),
        (Rollout("Enforce", Enforcement(DEV)), False),
        (Rollout("Audit", Enforcement(DEV)), True),
    ):
        assert Selection("mutate", [webhook(), webhook(rollout=rollout)]).has_modes is expected


def test_a_selection_fails_open_where_no_failure_can_reject() -> None:
    ignored = webhook(failure_policy="Ignore")
    for rollout, expected in (
        (None, False),
        (Rollout("Enforce", Enforcement(DEV)), False),
        (Rollout("Warn", Enforcement(DEV)), False),
        (Rollout("Warn"), True),
        (Rollout("Shadow"), True),
    ):
        assert Selection("mutate", [ignored, webhook(rollout=rollout)]).fails_open is expected


def test_groups_are_not_part_of_the_percentage_and_those_that_wait_win() -> None:
    groups = Enforcement(EVERYTHING, 0, included=(DEV,), excluded=(labelled("hold", "yes"),))
    both = Namespace("red", {"tier": "dev", "hold": "yes"}, b"")
    other = Namespace("red", {"tier": "prod"}, b"")
    assert [mode(groups, one) for one in (RED, both, other)] == ["Enforce", "Warn", "Warn"]
    everywhere = replace(groups, percent_of_namespaces=100)
    assert [mode(everywhere, one) for one in (RED, both, other)] == ["Enforce", "Warn", "Enforce"]
    assert mode(everywhere, None, namespace="") == "Warn"
    assert mode(replace(everywhere, excluded=()), None, namespace="") == "Enforce"
    assert mode(groups, UNKNOWN) == "Enforce"
    assert mode(groups, UNKNOWN, failure_policy="Ignore") == "Warn"


def test_a_salt_replaces_the_name_of_the_webhook() -> None:
    salted = Enforcement(EVERYTHING, 50, salt="a.policies.test")
    for index in range(50):
        found = Namespace(f"n{index}", {}, b"")
        renamed = mode(salted, found, hook_name="b.policies.test")
        assert renamed == mode(Enforcement(EVERYTHING, 50), found)


def test_the_stage_of_a_plan_is_in_force_in_place_of_the_rollout() -> None:
    planned = webhook("a.policies.test", rollout=Rollout("Audit"), plan=TWO_STAGES)
    plain = webhook("b.policies.test", rollout=Rollout("Audit"))
    selection = Selection("mutate", [planned, plain])
    given = request(namespace="red")
    assert modes_of(selection, given, RED, 0.0) == {0: "Audit", 1: "Audit"}
    for rollout, expected in (
        (Rollout("Shadow"), {0: "Shadow", 1: "Audit"}),
        (Rollout("Warn", Enforcement(DEV)), {1: "Audit"}),
        (Rollout(), {1: "Audit"}),
    ):
        assert modes_of(selection, given, RED, 0.0, {planned.id: rollout}) == expected
    # The stage of a plan that was removed holds too.
    assert modes_of(selection, given, RED, 0.0, {plain.id: Rollout()}) == {0: "Audit"}


def test_a_webhook_with_a_plan_may_come_into_any_mode() -> None:
    planned = webhook("a.policies.test", rollout=Rollout(), plan=TWO_STAGES)
    assert Selection("mutate", [planned]).has_modes
    assert not Selection("mutate", [replace(planned, rollout=Rollout("Shadow"))]).fails_open
