"""``rollout.plan`` of a webhook in configuration files and in custom resources."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config.merge.merged import merge
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.webhook import Enforcement, Rollout
from gateway.pure.rollout_plan.model import Gates, Group, Plan, Rollback, Stage, at_step, plan_of
from tests.config.documents import load_documents, problems_of
from tests.config.test_rollout import NEXT, custom, with_rollout
from tests.config.test_webhooks import POOL
from tests.core.build import labelled

AT = "webhooks[0].rollout.plan"
SHARES = {"maxFailures": 3, "maxNewlyDeniedPercent": 0.5, "maxDeniedPercent": 2}
STAGES: list[dict[str, Any]] = [
    {"mode": "Audit", "for": "24h", "gates": {"maxNewlyDeniedOwners": 0, "minReviews": 100}},
    {"mode": "Warn", "groups": ["canary"], "for": "1h30m", "gates": {"maxP99Milliseconds": 200}},
    {"mode": "Warn", "percentOfNamespaces": 25, "for": "24h", "gates": SHARES, "approval": "Required"},
    {"mode": "Enforce"},
]
GROUPS = [
    {"name": "canary", "namespaceSelector": {"matchLabels": {"tier": "dev"}}},
    {"name": "critical", "namespaceSelector": {"matchLabels": {"tier": "prod"}}},
]
PLAN: dict[str, Any] = {"stages": STAGES, "groups": GROUPS}
MANY = {
    "name": "many",
    "namespaceSelector": {
        "matchExpressions": [
            {"key": "team", "operator": "In", "values": [f"team-{number}" for number in range(4_998)]}
        ]
    },
}
"""With those of ``GROUPS`` more than a plan may have."""


def with_plan(**members: object) -> dict[str, Any]:
    return with_rollout({"plan": {**PLAN, **members}})


def test_all_fields_are_read_and_the_first_stage_is_in_force() -> None:
    document = with_plan(salt="v1", rollback={"minOwners": 10, "minNamespaces": 3}, maxWait="48h")
    (hook,) = load_documents(document, POOL).mutating
    dev, prod = labelled("tier", "dev"), labelled("tier", "prod")
    stages = (
        Stage("Audit", 0, 86_400, Gates(max_newly_denied_owners=0, min_reviews=100)),
        Stage("Warn", 0, 5400, Gates(max_p99_ms=200), ("canary",)),
        Stage(
            "Warn",
            25,
            86_400,
            Gates(max_failures=3, max_newly_denied_percent=0.5, max_denied_percent=2),
            needs_approval=True,
        ),
        Stage("Enforce"),
    )
    expected = Plan.of(
        stages,
        (Group("canary", dev), Group("critical", prod)),
        salt="v1",
        rollback=Rollback(10, 3),
        max_wait_s=172_800,
    )
    assert plan_of(hook) == expected
    assert hook.rollout == Rollout("Audit")
    assert at_step(hook, 1).rollout == Rollout(
        "Warn", Enforcement(EVERYTHING, 0, included=(dev,), excluded=(prod,), salt="v1")
    )
    assert at_step(hook, 2).rollout == Rollout(
        "Warn", Enforcement(EVERYTHING, 25, included=(dev,), excluded=(prod,), salt="v1")
    )
    assert at_step(hook, 3).rollout == Rollout("Enforce")


def test_a_candidate_stays_in_all_stages() -> None:
    (hook,) = load_documents(with_rollout({"plan": PLAN, "candidate": NEXT}), POOL).mutating
    assert hook.rollout is not None
    assert hook.rollout.candidate is not None
    for step in range(4):
        rollout = at_step(hook, step).rollout
        assert rollout is not None
        assert rollout.candidate == hook.rollout.candidate


def test_a_custom_resource_has_a_plan_too() -> None:
    resources = custom({"plan": PLAN})
    merged = merge(load_documents(POOL), resources, None)
    (hook,) = merged.config.mutating
    (in_file,) = load_documents(with_plan(), POOL).mutating
    assert hook.plan == in_file.plan


def stage(index: int, **members: object) -> dict[str, Any]:
    """The plan with other *members* in one stage."""
    stages = [{**one, **members} if index == at else one for at, one in enumerate(STAGES)]
    return with_plan(stages=stages)


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        (with_rollout({"plan": PLAN, "mode": "Warn"}), "mode", "is not allowed with plan"),
        (with_plan(stages=[]), "plan.stages", "is required with at least one entry"),
        (with_plan(salt="a\u202e"), "plan.salt", 'found "a\\u202e", expected at most 253 printable'),
        (with_plan(salt="s" * 254), "plan.salt", 'found "sss'),
        (
            with_plan(groups=[*GROUPS, MANY]),
            "plan.groups",
            "found 5003 conditions and values, expected at most",
        ),
        (stage(0, mode=None), "plan.stages[0].mode", "is required; expected Enforce, Warn, Audit or Shadow"),
        (stage(0, mode="Deny"), "plan.stages[0].mode", 'found "Deny", expected Enforce'),
        (
            stage(1, mode="Shadow"),
            "plan.stages[1].mode",
            "found Shadow, which is weaker than Audit of stages[0]",
        ),
        (
            stage(1, percentOfNamespaces=30),
            "plan.stages[2].percentOfNamespaces",
            "found 25, which is below 30 of stages[1]",
        ),
        (
            stage(3, percentOfNamespaces=50),
            "plan.stages[3].mode",
            "Enforce holds in every namespace, expected the mode of the others, such as Warn",
        ),
        (stage(1, groups=["canaries"]), "plan.stages[1].groups[0]", 'found "canaries", expected the name of'),
        (stage(2, groups=["canary"]), "plan.stages[2].groups[0]", 'found "canary" again: it stays enforced'),
        (
            stage(0, **{"for": "24"}),
            "plan.stages[0].for",
            'found the string "24", expected a duration such as',
        ),
        (stage(0, gates={"maxDenials": 1}), "plan.stages[0].gates.maxDenials", "unknown field"),
        (
            stage(0, gates={"maxNewlyDeniedOwners": 201}),
            "plan.stages[0].gates.maxNewlyDeniedOwners",
            "found the number 201, expected",
        ),
        (
            stage(2, gates={"maxDifferences": 0}),
            "plan.stages[2].gates.maxDifferences",
            "requires rollout.candidate, with which the webhook is compared",
        ),
        (
            stage(0, gates={"maxDeniedPercent": 1}),
            "plan.stages[0].gates.maxDeniedPercent",
            "is never known in a stage that is enforced nowhere",
        ),
        (
            stage(3, gates={"maxNewlyDeniedPercent": 1}),
            "plan.stages[3].gates.maxNewlyDeniedPercent",
            "is never known in a stage that is enforced everywhere",
        ),
        (stage(0, approval="Optional"), "plan.stages[0].approval", 'found "Optional", expected Required'),
        (with_plan(groups=[*GROUPS, GROUPS[0]]), "plan.groups[2].name", 'found "canary" twice'),
        (
            with_plan(groups=[{"name": "all", "namespaceSelector": {}}], stages=[{"mode": "Enforce"}]),
            "plan.groups[0].namespaceSelector",
            "selects every namespace, expected labels",
        ),
        (with_plan(rollback={"minOwners": 3}), "plan.rollback.minNamespaces", "is required"),
        (
            with_plan(rollback={"minOwners": 3, "minNamespaces": 2}, critical=True),
            "plan.rollback",
            "found critical true, with which a plan never goes back by itself",
        ),
    ],
)
def test_problems_are_named(document: dict[str, Any], field: str, message: str) -> None:
    ((found, text),) = problems_of(document, POOL)
    assert found == f"webhooks[0].rollout.{field}"
    assert text.startswith(message)


def test_a_plan_with_shadows_requires_a_webhook_without_side_effects() -> None:
    stages = [{"mode": "Shadow", "for": "1h"}, *STAGES]
    document = with_rollout({"plan": {**PLAN, "stages": stages}}, sideEffects="NoneOnDryRun")
    ((found, message),) = problems_of(document, POOL)
    assert found == AT
    assert "a stage Shadow requires sideEffects None" in message
    assert problems_of(with_rollout({"plan": PLAN}, sideEffects="NoneOnDryRun"), POOL) == []


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        (stage(0, gates={}), "stages[0].gates", "no limit: everything passes that gives at least one review"),
        (
            stage(1, **{"for": None}),
            "stages[1].for",
            "none: the stage ends with the first review that passes",
        ),
        (with_plan(stages=STAGES[:1]), "stages[0].mode", "the last stage is Audit: it is never enforced"),
    ],
)
def test_what_decides_nothing_is_warned_about(document: dict[str, Any], field: str, message: str) -> None:
    ((found, text),) = [(one.field, one.message) for one in load_documents(document, POOL).warnings]
    assert found == f"{AT}.{field}"
    assert text.startswith(message)
