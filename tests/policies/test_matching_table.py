"""Which requests a policy and a binding match, as documents with a review.

Source of the tables: k8s.io/apiserver pkg/admission/plugin/policy/matching/matching_test.go, matching.go.
"""

# ruff: noqa: E501 - tables

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.pure.core.namespace import Namespace
from tests.core.build import resource
from tests.policies.documents import binding, decided, mutating, policy, written

if TYPE_CHECKING:
    from pathlib import Path

    Json = dict[str, Any]

APPS, BETA, EXTENSIONS = "apps/v1/deployments", "apps/v1beta1/deployments", "extensions/v1beta1/deployments"


def rule(groups: str, versions: str, *resources: str, **more: Any) -> Json:
    return {
        "operations": ["*"],
        "apiGroups": [groups],
        "apiVersions": [versions],
        "resources": list(resources),
        **more,
    }


def deployments(group_version: str, *names: str, scale: bool = False) -> Json:
    group, version = group_version.split("/")
    resources = ["deployments", "deployments/scale"] if scale else ["deployments"]
    return rule(group, version, *resources, **({"resourceNames": names} if names else {}))


def requested(made: str, sent: str = "", sub: str = "", **members: Any) -> Json:
    """A request of a client in the version *made*, which the API server sends in the version *sent*."""
    return {
        "requestResource": resource(made),
        "resource": resource(sent or made),
        "subResource": sub,
        "requestSubResource": sub,
        "name": "name",
        **members,
    }


THREE = [deployments("extensions/v1"), deployments("apps/v1beta1"), deployments("apps/v1")]
OLD = [deployments("extensions/v1beta1"), deployments("apps/v1beta1")]
OLD_SCALE = [deployments("extensions/v1beta1", scale=True), deployments("apps/v1beta1", scale=True)]
ALL, EXCLUDED = [rule("*", "*", "*")], {"excludeResourceRules": [deployments("extensions/v1beta1")]}
EXACT = {"matchPolicy": "Exact"}

# Rules, the rest of the match, request, whether it matches.
RULES: dict[str, tuple[list[Json], Json, Json, bool]] = {
    "everything": (ALL, {}, requested(APPS), True),
    "the version of the request": (THREE, {}, requested(APPS), True),
    "other versions, exact": (OLD, EXACT, requested(APPS), False),
    "other versions, exact, sent in one of them": (OLD, EXACT, requested(APPS, EXTENSIONS), False),
    "equivalent, first another group": (OLD, {}, requested(APPS, EXTENSIONS), True),
    "equivalent, first the group": (OLD[::-1], {}, requested(APPS, BETA), True),
    "subresource in the version of the request": ([*OLD_SCALE, deployments("apps/v1", scale=True)], {}, requested(APPS, sub="scale"), True),
    "subresource in other versions, exact": (OLD_SCALE, EXACT, requested(APPS, sub="scale"), False),
    "subresource equivalent, first another group": (OLD_SCALE, {}, requested(APPS, EXTENSIONS, "scale"), True),
    "subresource equivalent, first the group": (OLD_SCALE[::-1], {}, requested(APPS, BETA, "scale"), True),
    "subresource of no rule": (OLD, {}, requested(APPS, EXTENSIONS, "scale"), False),
    "name": ([deployments("apps/v1", "name")], {}, requested(APPS), True),
    "another name": ([deployments("apps/v1", "wrong-name")], {}, requested(APPS), False),
    "name in a rule of two": ([deployments("apps/v1", "wrong-name"), deployments("apps/v1", "other", "name")], {}, requested(APPS), True),
    "name that the API server makes": ([deployments("apps/v1", "name")], {}, requested(APPS, name=""), False),
    "name and equivalent subresource": ([deployments("apps/v1", "name", scale=True)], {}, requested(EXTENSIONS, APPS, "scale"), True),
    "another name and equivalent subresource": ([deployments("apps/v1", "wrong-name", scale=True)], {}, requested(EXTENSIONS, APPS, "scale"), False),
    "excluded is another group": (ALL, {**EXCLUDED, **EXACT}, requested(APPS), True),
    "excluded": (ALL, {**EXCLUDED, **EXACT}, requested(EXTENSIONS), False),
    "excluded, sent in another version": (ALL, {**EXCLUDED, **EXACT}, requested(EXTENSIONS, APPS), False),
    "excluded equivalent": (ALL, EXCLUDED, requested(APPS, EXTENSIONS), False),
    "excluded name": (ALL, {"excludeResourceRules": [deployments("apps/v1", "name")]}, requested(APPS), False),
    "excluded other name": (ALL, {"excludeResourceRules": [deployments("apps/v1", "wrong-name")]}, requested(APPS), True),
    "excluded name that the API server makes": (ALL, {"excludeResourceRules": [deployments("apps/v1", "name")]}, requested(APPS, name=""), True),
    "excluded operation": (ALL, {"excludeResourceRules": [rule("*", "*", "*", operations=["DELETE"])]}, requested(APPS), True),
    "excluded scope": (ALL, {"excludeResourceRules": [rule("*", "*", "*", scope="Namespaced")]}, requested(APPS), False),
    "excluded other scope": (ALL, {"excludeResourceRules": [rule("*", "*", "*", scope="Cluster")]}, requested(APPS), True),
    "excluded subresource": ([rule("*", "*", "*/*")], {"excludeResourceRules": [rule("*", "*", "*/scale")]}, requested(APPS, sub="scale"), False),
    "excluded other subresource": ([rule("*", "*", "*/*")], {"excludeResourceRules": [rule("*", "*", "*/scale")]}, requested(APPS), True),
    "scope": ([rule("*", "*", "*", scope="Namespaced")], {}, requested(APPS), True),
    "other scope": ([rule("*", "*", "*", scope="Cluster")], {}, requested(APPS), False),
    "scope of a cluster-scoped object": ([rule("*", "*", "*", scope="Cluster")], {}, requested("/v1/nodes", namespace=""), True),
    "scope of a Namespace": ([rule("*", "*", "*", scope="Cluster")], {}, requested("/v1/namespaces", namespace="name"), True),
    "operation": ([rule("*", "*", "*", operations=["UPDATE", "CREATE"])], {}, requested(APPS), True),
    "other operations": ([rule("*", "*", "*", operations=["UPDATE", "DELETE"])], {}, requested(APPS), False),
    "subresource by a wildcard": (ALL, {}, requested(APPS, sub="scale"), False),
}  # fmt: skip
TEAM = {"matchLabels": {"team": "a"}}
NOT_TEAM = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}
MINE: Json = {"metadata": {"name": "name", "labels": {"team": "a"}}}
NAMESPACES = {**requested("/v1/namespaces"), "kind": {"group": "", "version": "v1", "kind": "Namespace"}, "namespace": "name"}  # fmt: skip
# The namespace has the label env: prod.
SELECTORS: dict[str, tuple[list[Json], Json, Json, bool]] = {
    "namespace": (ALL, {"namespaceSelector": {"matchLabels": {"env": "prod"}}}, requested(APPS), True),
    "other namespace": (ALL, {"namespaceSelector": TEAM}, requested(APPS), False),
    "namespaces of cluster-scoped objects": (ALL, {"namespaceSelector": TEAM}, requested("/v1/nodes", namespace=""), True),
    "a Namespace itself": (ALL, {"namespaceSelector": TEAM}, {**NAMESPACES, "object": MINE}, True),
    "another Namespace itself": (ALL, {"namespaceSelector": NOT_TEAM}, {**NAMESPACES, "object": MINE}, False),
    "object": (ALL, {"objectSelector": TEAM}, requested(APPS, object=MINE), True),
    "other object": (ALL, {"objectSelector": NOT_TEAM}, requested(APPS, object=MINE), False),
    "old object": (ALL, {"objectSelector": TEAM}, requested(APPS, object={"metadata": {}}, oldObject=MINE, operation="UPDATE"), True),
    "deleted object": (ALL, {"objectSelector": TEAM}, requested(APPS, object=None, oldObject=MINE, operation="DELETE"), True),
    "object without labels": (ALL, {"objectSelector": NOT_TEAM}, requested(APPS, object={"metadata": {}}), True),
    "object without metadata": (ALL, {"objectSelector": NOT_TEAM}, requested(APPS, object={"kind": "DeploymentOptions"}), False),
}  # fmt: skip
CASES = {**RULES, **SELECTORS}
LABELS = {"env": "prod"}
SPACE = Namespace("default", LABELS, json.dumps({"metadata": {"name": "default", "labels": LABELS}}).encode())


def in_place(place: str, match: Json) -> list[Json]:
    """A policy with its binding; *place* is the one of both that has *match*."""
    of_policy: Json = {"matchConstraints": match} if place == "policy" else {}
    of_binding: Json = {"matchResources": match} if place == "binding" else {}
    return [policy(**of_policy), binding(**of_binding)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("place", ["policy", "binding", "mutating policy"])
def test_matches(tmp_path: Path, place: str, case: str) -> None:
    rules, rest, members, expected = CASES[case]
    match = {"resourceRules": rules, **rest}
    if place == "mutating policy":
        if members.get("operation") == "DELETE" or any("DELETE" in each["operations"] for each in rules):
            return
        change = '[JSONPatch{op: "add", path: "/new", value: "1"}]'
        documents = mutating("p", change, matchConstraints=match)
        answer = decided(tmp_path, documents, members, phase="mutate", space=SPACE)
        assert bool(answer.evaluation.outcomes) is expected
        assert answer.evaluation.has_changed is expected
        return
    documents = in_place(place, match)
    answer = decided(tmp_path, documents, members, space=SPACE)
    assert answer.denials == (["failed expression: false"] if expected else [])
    assert bool(answer.evaluation.outcomes) is expected


def test_a_binding_without_rules_matches_what_it_does_not_exclude(tmp_path: Path) -> None:
    documents = [policy(), binding(matchResources={**EXCLUDED, **EXACT})]
    assert decided(tmp_path, documents, requested(APPS)).denials
    assert not decided(tmp_path, documents, requested(EXTENSIONS)).denials


def test_policy_and_binding_both_have_to_match(tmp_path: Path) -> None:
    made = policy(matchConstraints={"resourceRules": THREE})
    for rules, expected in ((THREE, True), ([rule("apps", "v1", "statefulsets")], False)):
        documents = [made, binding(matchResources={"resourceRules": rules})]
        assert bool(decided(tmp_path, documents, requested(APPS)).denials) is expected


def test_an_expression_sees_the_version_that_was_sent_and_the_one_that_was_requested(tmp_path: Path) -> None:
    shown = (
        "[request.kind.group, request.kind.kind, request.requestKind.group, request.requestResource.group]"
    )
    made = policy(
        matchConstraints={"resourceRules": OLD},
        validations=[{"expression": "false", "messageExpression": f"{shown}.join(' ')"}],
    )
    members = requested(APPS, EXTENSIONS)
    kinds = {
        "kind": {"group": "extensions", "version": "v1beta1", "kind": "Deployment"},
        "requestKind": {"group": "apps", "version": "v1", "kind": "Deployment"},
    }
    answer = decided(tmp_path, [made, binding()], {**members, **kinds})
    assert answer.denials == ["extensions Deployment apps apps"]


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ("admissionregistration.k8s.io/v1/validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io/v1/mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
        ("authentication.k8s.io/v1/tokenreviews", "TokenReview"),
        ("authorization.k8s.io/v1/subjectaccessreviews", "SubjectAccessReview"),
    ],
)  # fmt: skip
def test_some_kinds_are_never_matched(tmp_path: Path, made: str, kind: str) -> None:
    group, version, _ = made.split("/")
    members = {**requested(made), "kind": {"group": group, "version": version, "kind": kind}}
    assert not decided(tmp_path, [policy(), binding()], members).evaluation.outcomes


@pytest.mark.parametrize("selector", ["namespaceSelector", "objectSelector"])
@pytest.mark.parametrize("place", ["policy", "binding"])
def test_a_selector_that_is_wrong_is_refused(tmp_path: Path, selector: str, place: str) -> None:
    wrong = {"matchExpressions": [{"key": "key", "operator": "In", "values": ["bad value"]}]}
    match = {"resourceRules": ALL, selector: wrong}
    documents = in_place(place, match)
    written(tmp_path, documents)
    with pytest.raises(ConfigError, match="bad value"):
        load([tmp_path])
