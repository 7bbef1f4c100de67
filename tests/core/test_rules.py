"""Facts of kube-apiserver's rule matching, and the gateway's matchPolicy."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.pure.core.rules import is_never_sent, rules_match
from gateway.pure.core.webhook import MatchPolicy, Rule, Scope
from tests.core.build import request, resource, webhook

PODS = "/v1/pods"
DEPLOYMENTS = "apps/v1/deployments"


def matches(rule: Rule, policy: MatchPolicy = "Exact", **members: Any) -> bool:
    return rules_match(webhook(rules=(rule,), match_policy=policy), request(**members))


@pytest.mark.parametrize(
    ("entry", "pods", "pods_exec", "deployments", "deployments_scale"),
    [
        ("*", True, False, True, False),
        ("*/*", True, True, True, True),
        ("pods", True, False, False, False),
        ("pods/*", True, True, False, False),
        ("pods/exec", False, True, False, False),
        ("*/scale", False, False, False, True),
        ("*/", True, False, True, False),
        ("deployments", False, False, True, False),
    ],
)
@pytest.mark.parametrize("policy", ["Exact", "Equivalent"])
def test_resources_and_subresources(
    entry: str,
    pods: bool,
    pods_exec: bool,
    deployments: bool,
    deployments_scale: bool,
    policy: MatchPolicy,
) -> None:
    rule = Rule(("*",), ("*",), ("*",), (entry,))
    assert matches(rule, policy, resource=resource(PODS)) is pods
    assert matches(rule, policy, resource=resource(PODS), subResource="exec") is pods_exec
    assert matches(rule, policy, resource=resource(DEPLOYMENTS)) is deployments
    assert matches(rule, policy, resource=resource(DEPLOYMENTS), subResource="scale") is deployments_scale


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE", "CONNECT"])
@pytest.mark.parametrize(
    ("operations", "matching"),
    [
        (("*",), {"CREATE", "UPDATE", "DELETE", "CONNECT"}),
        (("CREATE",), {"CREATE"}),
        (("UPDATE", "DELETE"), {"UPDATE", "DELETE"}),
        ((), set()),
    ],
)
def test_operations(operation: str, operations: tuple[str, ...], matching: set[str]) -> None:
    rule = Rule(operations, ("*",), ("*",), ("*",))
    assert matches(rule, operation=operation) is (operation in matching)


@pytest.mark.parametrize(
    ("groups", "versions", "given", "expected"),
    [
        (("*",), ("*",), "apps/v1/deployments", True),
        (("apps",), ("v1",), "apps/v1/deployments", True),
        (("apps",), ("*",), "apps/v1beta1/deployments", True),
        (("",), ("v1",), "/v1/deployments", True),
        (("",), ("*",), "apps/v1/deployments", False),
        (("extensions",), ("*",), "apps/v1/deployments", False),
        (("apps",), ("v2",), "apps/v1/deployments", False),
        (("extensions", "apps"), ("v2", "v1"), "apps/v1/deployments", True),
        ((), ("*",), "apps/v1/deployments", False),
        (("*",), (), "apps/v1/deployments", False),
    ],
)
def test_groups_and_versions(
    groups: tuple[str, ...], versions: tuple[str, ...], given: str, expected: bool
) -> None:
    rule = Rule(("*",), groups, versions, ("*",))
    assert matches(rule, resource=resource(given)) is expected


@pytest.mark.parametrize(
    ("given", "sub_resource", "namespace", "scope", "expected"),
    [
        ("/v1/pods", "", "default", "*", True),
        ("/v1/pods", "", "default", "Namespaced", True),
        ("/v1/pods", "", "default", "Cluster", False),
        ("/v1/nodes", "", None, "*", True),
        ("/v1/nodes", "", None, "Namespaced", False),
        ("/v1/nodes", "", None, "Cluster", True),
        # A Namespace carries its own name as the request's namespace, and none with generateName.
        ("/v1/namespaces", "", "default", "*", True),
        ("/v1/namespaces", "", "default", "Namespaced", False),
        ("/v1/namespaces", "", "default", "Cluster", True),
        ("/v1/namespaces", "", None, "Cluster", True),
        ("/v1/namespaces", "finalize", "default", "Namespaced", False),
        ("/v1/namespaces", "finalize", "default", "Cluster", True),
        # The special case is the core group's alone.
        ("example.test/v1/namespaces", "", "default", "Namespaced", True),
        ("example.test/v1/namespaces", "", "default", "Cluster", False),
    ],
)
@pytest.mark.parametrize("policy", ["Exact", "Equivalent"])
def test_scope(
    given: str,
    sub_resource: str,
    namespace: str | None,
    scope: Scope,
    expected: bool,
    policy: MatchPolicy,
) -> None:
    rule = Rule(("*",), ("*",), ("*",), ("*/*",), scope)
    members = {"resource": resource(given), "subResource": sub_resource, "namespace": namespace}
    assert matches(rule, policy, **members) is expected


def test_each_dimension_of_a_rule_has_to_match() -> None:
    rule = Rule(("CREATE",), ("apps",), ("v1",), ("deployments",), "Namespaced")
    right: dict[str, Any] = {"operation": "CREATE", "resource": resource(DEPLOYMENTS), "namespace": "a"}
    assert matches(rule, **right)
    differences: tuple[dict[str, Any], ...] = (
        {"operation": "UPDATE"},
        {"resource": resource("batch/v1/deployments")},
        {"resource": resource("apps/v2/deployments")},
        {"resource": resource("apps/v1/statefulsets")},
        {"subResource": "scale"},
        {"namespace": None},
    )
    for wrong in differences:
        assert not matches(rule, **{**right, **wrong}), wrong


def test_one_matching_rule_is_enough_and_none_matches_nothing() -> None:
    create = Rule(("CREATE",), ("*",), ("*",), ("*",))
    delete = Rule(("DELETE",), ("*",), ("*",), ("*",))
    assert rules_match(webhook(rules=(delete, create)), request())
    assert not rules_match(webhook(rules=(delete,)), request())
    assert not rules_match(webhook(rules=()), request())


SENT_AS_V2 = {
    "resource": resource("autoscaling/v2/horizontalpodautoscalers"),
    "requestResource": resource("autoscaling/v1/horizontalpodautoscalers"),
}


@pytest.mark.parametrize(
    ("policy", "groups", "version", "members", "expected"),
    [
        # Exact: only the resource of the client.
        ("Exact", "autoscaling", "v1", SENT_AS_V2, True),
        ("Exact", "autoscaling", "v2", SENT_AS_V2, False),
        ("Exact", "autoscaling", "v2", {"resource": SENT_AS_V2["resource"]}, True),
        # Equivalent: either, in any version.
        ("Equivalent", "autoscaling", "v1", SENT_AS_V2, True),
        ("Equivalent", "autoscaling", "v2", SENT_AS_V2, True),
        ("Equivalent", "autoscaling", "v2beta2", SENT_AS_V2, True),
        ("Equivalent", "apps", "v1", SENT_AS_V2, False),
        (
            "Equivalent",
            "apps",
            "v1",
            {
                "resource": resource("apps/v1/horizontalpodautoscalers"),
                "requestResource": resource("extensions/v1beta1/horizontalpodautoscalers"),
            },
            True,
        ),
        (
            "Equivalent",
            "extensions",
            "v1",
            {
                "resource": resource("apps/v1/horizontalpodautoscalers"),
                "requestResource": resource("extensions/v1beta1/horizontalpodautoscalers"),
            },
            True,
        ),
    ],
)
def test_match_policy(
    policy: MatchPolicy, groups: str, version: str, members: dict[str, object], expected: bool
) -> None:
    rule = Rule(("*",), (groups,), (version,), ("horizontalpodautoscalers",))
    assert matches(rule, policy, **members) is expected


@pytest.mark.parametrize(
    ("policy", "entry", "expected"),
    [
        ("Exact", "deployments/scale", True),
        ("Exact", "deployments/resize", False),
        ("Equivalent", "deployments/scale", True),
        ("Equivalent", "deployments/resize", True),
        ("Equivalent", "deployments", False),
    ],
)
def test_match_policy_pairs_each_resource_with_its_own_subresource(
    policy: MatchPolicy, entry: str, expected: bool
) -> None:
    rule = Rule(("*",), ("apps",), ("*",), (entry,))
    members = {
        "resource": resource(DEPLOYMENTS),
        "subResource": "resize",
        "requestResource": resource(DEPLOYMENTS),
        "requestSubResource": "scale",
    }
    assert matches(rule, policy, **members) is expected


def test_scope_under_equivalent_is_that_of_the_resource_compared() -> None:
    rule = Rule(("*",), ("example.test",), ("v1",), ("namespaces",), "Namespaced")
    members = {
        "resource": resource("example.test/v1/namespaces"),
        "requestResource": resource("/v1/namespaces"),
        "namespace": "a",
    }
    assert matches(rule, "Equivalent", **members)
    assert not matches(rule, "Exact", **members)


ADMISSION_KINDS = (
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
)


@pytest.mark.parametrize("kind", ADMISSION_KINDS)
@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_admission_configuration_is_never_sent(kind: str, version: str) -> None:
    group_kind = {"group": "admissionregistration.k8s.io", "version": version, "kind": kind}
    assert is_never_sent(request(kind=group_kind))
    assert is_never_sent(request(kind=group_kind, subResource="status"))
    assert is_never_sent(request(requestKind=group_kind))
    assert not is_never_sent(request(kind={**group_kind, "group": "example.test"}))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("authentication.k8s.io/v1/selfsubjectreviews", True),
        ("authentication.k8s.io/v1/tokenreviews", True),
        ("authorization.k8s.io/v1/localsubjectaccessreviews", True),
        ("authorization.k8s.io/v1/selfsubjectaccessreviews", True),
        ("authorization.k8s.io/v1/selfsubjectrulesreviews", True),
        ("authorization.k8s.io/v1beta1/subjectaccessreviews", True),
        ("authentication.k8s.io/v1/subjectaccessreviews", False),
        ("authorization.k8s.io/v1/tokenreviews", False),
        ("/v1/serviceaccounts", False),
        ("/v1/pods", False),
    ],
)
def test_access_reviews_are_never_sent(given: str, expected: bool) -> None:
    assert is_never_sent(request(resource=resource(given))) is expected
    assert is_never_sent(request(requestResource=resource(given))) is expected
