"""Rules that match nothing known."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config.kinds.rule_warnings import rule_warnings
from gateway.pure.core.webhook import Rule
from gateway.pure.openapi.built_in_resources import RESOURCES


def found(resource: str, *groups: str, **others: Any) -> list[tuple[str, str]]:
    rule = Rule(("CREATE",), groups or ("",), ("v1",), (resource,))
    values = {name: getattr(rule, name) for name in Rule.__slots__} | others
    return list(rule_warnings(Rule(**values)))


@pytest.mark.parametrize(
    ("resource", "groups", "message"),
    [
        ("pod", [""], '"pod" matches no known resource of the group ""; did you mean "pods"?'),
        ("pod", ["*"], '"pod" matches no known resource of any group; did you mean "pods"?'),
        ("po", [""], '"po" matches no known resource of the group ""; did you mean "pods"?'),
        ("podz", [""], '"podz" matches no known resource of the group ""; did you mean "pods"?'),
        ("qqqqq", ["", "apps"], '"qqqqq" matches no known resource of the group "", "apps"'),
        (
            "deployments",
            [""],
            '"deployments" matches no known resource of the group ""; it is in the group "apps"',
        ),
        (
            "Pod",
            [""],
            '"Pod" matches nothing: names of resources are plural and in lower case; did you mean "pods"?',
        ),
        (
            "Things",
            ["a.example"],
            '"Things" matches nothing: names of resources are plural and in lower case',
        ),
        (
            "pods/exce",
            [""],
            (
                '"pods/exce" matches nothing: no such subresource is known that admission is for; '
                'did you mean "exec"?'
            ),
        ),
        (
            "pods/exec",
            [""],
            '"pods/exec" matches nothing with these operations; its only operation is CONNECT',
        ),
    ],
)
def test_a_resource_that_is_not_known_is_a_warning(resource: str, groups: list[str], message: str) -> None:
    assert found(resource, *groups) == [("resources[0]", message)]


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("core", '"core" matches nothing; the core group is ""'),
        ("apps/v1", '"apps/v1" matches nothing; a group has no version: "apps"'),
        (
            "networking",
            (
                '"networking" matches nothing known: groups of custom resources contain a dot; '
                'did you mean "networking.k8s.io"?'
            ),
        ),
    ],
)
def test_a_group_that_is_not_known_is_a_warning(group: str, message: str) -> None:
    assert found("things", group) == [("apiGroups[0]", message)]


def test_a_version_with_a_group_and_a_wrong_scope_are_warnings() -> None:
    assert [path for path, _ in found("deployments", "apps", api_versions=("apps/v1",))] == ["apiVersions[0]"]
    assert found("nodes", scope="Namespaced") == [
        ("resources[0]", '"nodes" matches nothing with scope Namespaced; its scope is Cluster')
    ]
    assert [path for path, _ in found("pods", operations=("CONNECT",))] == ["resources[0]"]


@pytest.mark.parametrize("resource", ["*", "*/*", "*/status", "pods/*"])
@pytest.mark.parametrize("group", ["", "*"])
def test_wildcards_are_no_warning(resource: str, group: str) -> None:
    assert found(resource, group) == []


def test_resources_of_other_groups_are_no_warning() -> None:
    assert found("widgets", "*") == found("widgets", "example.com") == found("widgets", "", "a.b") == []
    assert found("deployments", "extensions") == []


def test_a_known_resource_is_a_warning_only_if_nothing_is_called_for_it() -> None:
    for group, resources in RESOURCES.items():
        for name, one in resources.items():
            is_never_sent = group == "admissionregistration.k8s.io" or name.endswith("reviews")
            for entry in (name, *(f"{name}/{sub}" for sub in one.sub_resources)):
                texts = [text for _, text in found(entry, group, operations=("*",))]
                expected = (
                    f'"{entry}" matches nothing: the gateway calls no webhook and no policy for this resource'
                )
                assert texts == [expected] * is_never_sent, entry
