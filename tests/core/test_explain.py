"""The lines of ``review --explain``."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import Mock

import pytest

from gateway.pure.core.conditions import Excluded
from gateway.pure.core.explain import explain
from gateway.pure.core.matching import Selection
from gateway.pure.core.verdict import Denied, Failed, FailureReason, Verdict
from gateway.pure.core.webhook import PolicyRef, Rule, Webhook
from tests.core.build import ANYTHING, add, labelled, patch, request, resource, settle, webhook

NAMESPACES = {"default": {"team": "a"}}


def lines(*hooks: Webhook, verdicts: dict[str, Verdict] | None = None, **members: Any) -> list[str]:
    evaluation = settle(hooks, request(**members), verdicts, NAMESPACES)
    said = explain(evaluation, Selection(hooks[0].phase, hooks))
    return [re.sub(r"[0-9.]+ ms", "N ms", line) for line in said]


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (patch(), "matched, allowed in N ms"),
        (Denied(403, "", "no"), "matched, denied in N ms with 403: no"),
        (Denied(), "matched, denied in N ms with 400: no explanation"),
        (
            Failed(FailureReason.STATUS, "UNAVAILABLE"),
            "matched, failed in N ms: UNAVAILABLE; failurePolicy Fail rejects the request",
        ),
        (
            patch(add("/x", 1)),
            'matched, allowed in N ms, changed the object: [{"op":"add","path":"/x","value":1}]',
        ),
        (
            patch({"op": "test", "path": "/x"}),
            'matched, allowed in N ms, changed nothing: [{"op":"test","path":"/x"}]',
        ),
    ],
)
def test_the_line_of_each_outcome(verdict: Verdict, said: str) -> None:
    assert lines(webhook("a"), verdicts={"a": verdict}) == [f"mutate policies/a: {said}"]


def test_the_line_of_a_failure_under_ignore() -> None:
    hook = webhook("a", failure_policy="Ignore", phase="validate")
    (said,) = lines(hook, verdicts={"a": Failed(FailureReason.STATUS, "X")})
    assert said == "validate policies/a: matched, failed in N ms: X; failurePolicy Ignore lets it pass"


def test_a_second_round_has_its_own_line() -> None:
    hooks = [webhook("a", reinvocation_policy="IfNeeded"), webhook("b")]
    said = lines(*hooks, verdicts={"b": patch(add("/x", 1))})
    assert said[:2] == [
        "mutate policies/a: matched, allowed in N ms",
        "mutate policies/a: matched again, allowed in N ms",
    ]


@pytest.mark.parametrize(
    ("hook", "members", "said"),
    [
        (
            webhook("a", side_effects="Some"),
            {"dryRun": True},
            "not called: sideEffects Some forbids a dry run, which rejects the request",
        ),
        (
            webhook("a", rules=(Rule(("DELETE",), ("*",), ("*",), ("*",)),)),
            {},
            "not matched, no rule is for CREATE core/v1 pods in namespace default",
        ),
        (
            webhook("a", rules=()),
            {
                "resource": resource("apps/v1/deployments"),
                "subResource": "scale",
                "requestResource": resource("extensions/v1beta1/deployments"),
                "requestSubResource": "scale",
                "namespace": None,
            },
            (
                "not matched, no rule is for CREATE extensions/v1beta1 deployments/scale"
                " (sent as apps/v1 deployments/scale)"
            ),
        ),
        (
            webhook("a", object_selector=labelled("team", "b")),
            {},
            "not matched, its namespaceSelector or objectSelector does not select the request",
        ),
        (
            webhook("a", rules=(ANYTHING,)),
            {"resource": resource("authentication.k8s.io/v1/tokenreviews")},
            "not matched, authentication.k8s.io/v1 tokenreviews is never sent to webhooks",
        ),
    ],
)
def test_the_line_of_a_webhook_that_does_not_match(hook: Webhook, members: dict[str, Any], said: str) -> None:
    (line,) = lines(hook, **members)
    assert line.endswith(said)


def test_the_line_of_a_webhook_after_a_rejection() -> None:
    said = lines(webhook("a"), webhook("b"), verdicts={"a": Denied()})
    assert said[1] == "mutate policies/b: not reached, the request was rejected before its turn"


@pytest.mark.parametrize(
    ("excluded", "said"),
    [
        (Excluded("is-a-pod"), 'not matched, its matchCondition "is-a-pod" is false'),
        (Excluded("", 1), "not matched, its matchConditions have no value, and its failurePolicy is Ignore"),
        (Excluded("ns/e", is_exception=True), "not called, exempted by PolicyException ns/e"),
    ],
)
def test_the_line_of_a_policy_that_says_why_it_does_not_decide(excluded: Excluded, said: str) -> None:
    answers = {"excludes.return_value": False, "evaluate.return_value": excluded}
    policy = Mock(can_allow_fast=False, has_namespace_selectors=False, **answers)
    (line,) = lines(webhook("a", phase="validate", client=PolicyRef("ValidatingPolicy", policy)))
    assert line == f"validate policies/a: {said}"
