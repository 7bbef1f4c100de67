"""The requests that are sent for the kinds of a constraint."""

from __future__ import annotations

import pytest

from gateway.pure.core.webhook import Rule
from gateway.pure.gatekeeper.matching import Kinds
from gateway.pure.gatekeeper.registration import rules_for

WRITES = ("CREATE", "UPDATE")


@pytest.mark.parametrize(
    ("groups", "kinds", "expected"),
    [
        (("",), ("Pod",), {"": {"pods", "pods/ephemeralcontainers", "pods/resize"}}),
        (("",), ("Service",), {"": {"services", "services/status"}}),
        (("apps",), ("Deployment", "StatefulSet"), {"apps": {"deployments", "statefulsets"}}),
        (("networking.k8s.io",), ("Ingress",), {"networking.k8s.io": {"ingresses"}}),
        (("policy",), ("Eviction",), {"": {"pods/eviction"}}),
        (("",), ("PodExecOptions",), {"": {"pods/exec"}}),
        (("example.com",), ("Widget",), {"example.com": {"*"}}),
        (("", "apps"), ("Namespace", "Deployment"), {"": {"namespaces"}, "apps": {"deployments"}}),
        (("",), ("Deployment",), {"": {"*"}}),
        (("apps",), ("*",), {"apps": {"*"}}),
        (("*",), ("Deployment",), {"*": {"deployments"}}),
        (
            ("autoscaling",),
            ("Scale",),
            {
                "": {"replicationcontrollers/scale"},
                "apps": {"deployments/scale", "replicasets/scale", "statefulsets/scale"},
            },
        ),
    ],
)
def test_built_in_kinds_have_their_resources(
    groups: tuple[str, ...], kinds: tuple[str, ...], expected: dict[str, set[str]]
) -> None:
    rules = rules_for([Kinds(groups, kinds)], WRITES)
    assert {rule.api_groups[0]: {*rule.resources} for rule in rules} == expected
    assert {(rule.operations, rule.api_versions, rule.scope) for rule in rules} == {(WRITES, ("*",), "*")}


def test_everything_includes_the_subresources_that_gatekeeper_is_called_for() -> None:
    everything = rules_for((), WRITES)
    assert everything == rules_for([Kinds((), ())], WRITES) == rules_for([Kinds(("*",), ("*",))], WRITES)
    by_group = {rule.api_groups[0]: rule.resources for rule in everything}
    assert "*" in by_group["*"]
    assert {"pods/exec", "services/status", "deployments/scale"} <= {
        name for names in by_group.values() for name in names
    }


def test_mutators_are_for_whole_objects() -> None:
    for kinds, expected in (
        ((), ("*",)),
        ([Kinds(("",), ("Pod", "Service"))], ("pods", "services")),
        # Only subresources have such objects.
        ([Kinds(("autoscaling",), ("Scale",))], ("*",)),
    ):
        (rule,) = rules_for(kinds, WRITES, with_subresources=False)
        assert rule.resources == expected


def test_kinds_that_are_not_known_are_one_for_each_group() -> None:
    """All pairs of five thousand groups and kinds would take half a minute."""
    groups = tuple(f"g{each:04}" for each in range(5000))
    rules = rules_for([Kinds(groups, tuple(f"K{each}" for each in range(5000)))], WRITES)
    assert rules == tuple(Rule(WRITES, (each,), ("*",), ("*",)) for each in groups)


def test_entries_of_one_group_are_one_rule() -> None:
    rules = rules_for([Kinds(("",), ("ConfigMap",)), Kinds(("",), ("Secret",))], ("*",))
    assert rules == (Rule(("*",), ("",), ("*",), ("configmaps", "secrets")),)
