"""Webhooks that are not called in the namespaces that a registration excludes."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.kinds.namespace import NAME_LABEL
from gateway.engine.paths import Paths
from gateway.pure.cel.compile import compile_condition
from gateway.pure.conditions.match_conditions import CompiledConditions
from gateway.pure.core.labels import Requirement, Selector
from gateway.tools.inspection.model import ClusterState
from gateway.tools.inspection.registration import inspect
from gateway.tools.registration.plan import RegistrationOptions, plan
from tests.core.build import webhook
from tests.inspection.kit import NOW, PODS, Registered
from tests.registration.apiserver import version_sent
from tests.registration.kit import SERVICE, as_json, configured, requests, rule, rule_lists

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook
    from tests.registration.apiserver import ClientRequest

KUBE_SYSTEM = "kube-system"


def is_not(*namespaces: str) -> Selector:
    return Selector((Requirement(NAME_LABEL, "NotIn", frozenset(namespaces)),))


def test_webhooks_that_are_not_called_in_kube_system_are_an_error(tmp_path: Path) -> None:
    case = Registered(tmp_path)
    error, warning = case.lost()
    assert (error.severity, error.place) == ("error", "namespace kube-system")
    assert error.message == (
        "excluded by the registration: 2 webhooks are not called there, but would be if registered directly: "
        "mutate policies/a.policies.test; validate policies/b.policies.test"
    )
    assert error.advice == (
        "run admission-gateway manifests --apply again with --include kube-system, or accept it: "
        "check --cluster --exclude-namespace kube-system"
    )
    assert (warning.severity, warning.place) == ("warning", "namespace policies"), "the gateway's own"
    assert warning.advice.endswith("with --include own-namespace")


def test_an_accepted_gap_is_a_warning(tmp_path: Path) -> None:
    (finding,) = Registered(tmp_path).lost(KUBE_SYSTEM)
    assert (finding.severity, finding.place) == ("warning", "namespaces kube-system, policies")
    assert "policies/a.policies.test" in finding.message
    assert "policies/b.policies.test" in finding.message


@pytest.mark.parametrize(
    ("included", "excluded", "places"),
    [
        ([], ["storage"], [("error", "namespaces kube-system, storage"), ("warning", "namespace policies")]),
        (["kube-system"], [], [("warning", "namespace policies")]),
        (["kube-system", "own-namespace"], [], []),
        (["own-namespace"], [], [("error", "namespace kube-system")]),
    ],
)
def test_gaps_follow_from_excluded_namespaces(
    tmp_path: Path, included: list[str], excluded: list[str], places: list[tuple[str, str]]
) -> None:
    case = Registered(tmp_path)
    wishes = RegistrationOptions(
        case.backend, excluded_namespaces=tuple(excluded), included=frozenset(included)
    )
    made = plan(case.config, wishes)
    case.seen.configurations = copy.deepcopy(made.documents)
    assert [(one.severity, one.place) for one in case.lost()] == places
    lost = {name for loss in made.coverage_gaps for name in loss.namespaces}
    assert lost == {name for _, place in places for name in place.split(" ", 1)[1].split(", ")}


def conditions(*expressions: str) -> CompiledConditions:
    return CompiledConditions(
        [compile_condition(f"c{number}", text) for number, text in enumerate(expressions)]
    )


@pytest.mark.parametrize(
    ("members", "labels", "is_lost"),
    [
        ({}, {}, True),
        ({"failure_policy": "Ignore"}, {}, True),
        ({"rules": (rule("pods", scope="Cluster"),)}, {}, False),
        ({"rules": (rule("nodes persistentvolumes"),)}, {}, False),
        ({"rules": (rule("nodes persistentvolumes secrets"),)}, {}, True),
        ({"rules": (rule("clusterroles", groups="rbac.authorization.k8s.io"),)}, {}, False),
        ({"rules": (rule("nodes", groups="example.com"),)}, {}, True),
        # The Namespace object itself is matched by its own labels.
        ({"rules": (rule("namespaces", scope="Cluster"),)}, {}, True),
        ({"rules": (rule("namespaces", scope="Namespaced"),)}, {}, False),
        ({"rules": (rule("*", groups="*", scope="Cluster"),)}, {}, True),
        ({"rules": (rule("*/status", scope="Cluster"),)}, {}, True),
        ({"rules": (rule("tokenreviews", groups="authentication.k8s.io"),)}, {}, False),
        ({"namespace_selector": is_not(KUBE_SYSTEM)}, {}, False),
        ({"namespace_selector": Selector((Requirement("team", "Exists"),))}, {}, False),
        ({"namespace_selector": Selector((Requirement("team", "Exists"),))}, {"team": "a"}, True),
        ({"match_conditions": conditions("request.namespace != 'kube-system'")}, {}, False),
        ({"match_conditions": conditions("request.namespace.startsWith('team-')")}, {}, False),
        ({"match_conditions": conditions("true", "!(request.namespace in ['kube-system'])")}, {}, False),
        ({"match_conditions": conditions("object.metadata.namespace != 'kube-system'")}, {}, False),
        (
            {"match_conditions": conditions("request.userInfo.username == 'x' && request.namespace == 'y'")},
            {},
            False,
        ),
        # What else a request holds might make it true.
        (
            {"match_conditions": conditions("has(request.name) || request.namespace != 'kube-system'")},
            {},
            True,
        ),
        ({"match_conditions": conditions("request.namespace == 'kube-system'")}, {}, True),
        ({"match_conditions": conditions("has(object.spec)")}, {}, True),
        ({"match_conditions": conditions("size(object) > 99")}, {}, True),
        ({"match_conditions": conditions("authorizer.path('/x').check('get').allowed()")}, {}, True),
        (
            {
                "match_conditions": conditions("request.operation != 'CREATE'"),
                "rules": (rule(operations="*"),),
            },
            {},
            True,
        ),
        ({"match_conditions": conditions("request.operation != 'CREATE'")}, {}, False),
        (
            {"match_conditions": conditions("object == null"), "rules": (rule(operations="DELETE"),)},
            {},
            True,
        ),
    ],
)
def test_only_webhooks_that_would_be_called_there_are_named(
    tmp_path: Path, members: dict[str, Any], labels: dict[str, str], *, is_lost: bool
) -> None:
    case = Registered(tmp_path, webhook("b.policies.test", phase="validate", **{"rules": (PODS,), **members}))
    case.seen.labels[KUBE_SYSTEM] = labels
    found = [one for one in case.lost() if KUBE_SYSTEM in one.place]
    assert [one.severity for one in found] == ["error"] * is_lost


def test_unknown_labels_make_a_gap_a_warning(tmp_path: Path) -> None:
    selector = Selector((Requirement("team", "Exists"),))
    hook = webhook("b.policies.test", phase="validate", rules=(PODS,), namespace_selector=selector)
    case = Registered(tmp_path, hook)
    (finding,) = case.lost()
    assert finding.severity == "warning"
    assert "labels of the namespace match the namespaceSelector: validate policies/b.po" in finding.message
    (loss,) = plan(case.config, RegistrationOptions(case.backend)).coverage_gaps
    assert (loss.is_certain, loss.webhooks[0].name) == (False, "b.policies.test")


def test_an_entry_for_the_namespace_closes_the_gap(tmp_path: Path) -> None:
    case = Registered(tmp_path)
    again = copy.deepcopy(case.entry())
    again["name"] = "by-hand.admission-gateway.io"
    again["namespaceSelector"] = {"matchLabels": {NAME_LABEL: KUBE_SYSTEM}}
    case.seen.configurations[1]["webhooks"].append(again)
    (error,) = [one for one in case.lost() if one.severity == "error"]
    assert "a.policies.test" in error.message
    assert "b.policies.test" not in error.message
    again["rules"] = [as_json(rule("secrets"))]
    assert "b.policies.test" in case.lost()[0].message


label_selectors = st.builds(
    lambda *requirements: Selector(tuple(one for one in requirements if one)),
    st.none() | st.builds(Requirement, st.just("team"), st.sampled_from(["Exists", "DoesNotExist"])),
    st.none()
    | st.builds(
        Requirement,
        st.just(NAME_LABEL),
        st.sampled_from(["In", "NotIn"]),
        st.sets(st.sampled_from([KUBE_SYSTEM, "storage", "x"]), min_size=1).map(frozenset),
    ),
)


@st.composite
def hooks(draw: st.DrawFn) -> list[Webhook]:
    return [
        webhook(
            f"h{number}.policies.test",
            phase=draw(st.sampled_from(["mutate", "validate"])),
            rules=tuple(draw(rule_lists)),
            namespace_selector=draw(label_selectors),
        )
        for number in range(draw(st.integers(1, 4)))
    ]


@settings(max_examples=100, deadline=None)
@given(
    hooks(),
    st.sets(st.sampled_from([KUBE_SYSTEM, "own-namespace"])),
    st.sets(st.sampled_from(["storage"])),
    st.sampled_from([{}, {"team": "a"}]),
    requests(20),
)
def test_exactly_the_webhooks_that_lose_requests_are_named(
    several: list[Webhook],
    included: set[str],
    left_out: set[str],
    labels: dict[str, str],
    client_request: list[ClientRequest],
) -> None:
    """Each request that the API server would send to a webhook directly reaches it, or it is named."""
    config = configured(*several)
    wishes = RegistrationOptions(SERVICE, excluded_namespaces=tuple(left_out), included=frozenset(included))
    documents: list[Any] = plan(config, wishes).documents
    paths = Paths(config)
    of_hook = {hook: entries_of(hook, paths, documents) for hook in several}
    rules_of = {hook: [as_json(one) for one in hook.rules] for hook in several}
    for namespace in (KUBE_SYSTEM, "policies", "storage", "elsewhere"):
        named = names_lost(config, documents, namespace, labels)
        whole = {NAME_LABEL: namespace, **labels}
        here = [replace(each, namespace=namespace) for each in client_request]
        for hook in several:
            name = f"{hook.configuration}/{hook.name}"
            is_meant = hook.namespace_selector.matches(whole)
            bringing = [entry for entry in of_hook[hook] if selector_of(entry).matches(whole)]
            if name in named:
                assert is_meant
                assert not bringing
            elif is_meant:
                for one in here:
                    assert not is_sent(rules_of[hook], one) or any(
                        is_sent(entry["rules"], one) for entry in bringing
                    )


def is_sent(rules: list[dict[str, Any]], client_request: ClientRequest) -> bool:
    return version_sent(rules, "Equivalent", client_request) is not None


def entries_of(hook: Webhook, paths: Paths, documents: list[Any]) -> list[dict[str, Any]]:
    """The entries for which the gateway calls *hook*."""
    return [
        entry
        for document in documents
        for entry in document["webhooks"]
        if any(one.name == hook.name for one in paths[entry["clientConfig"]["service"]["path"]].webhooks)
    ]


def selector_of(entry: dict[str, Any]) -> Selector:
    found = entry.get("namespaceSelector", {"matchExpressions": []})["matchExpressions"]
    return Selector(
        tuple(Requirement(one["key"], one["operator"], frozenset(one.get("values", ()))) for one in found)
    )


def names_lost(config: Config, documents: list[Any], namespace: str, labels: dict[str, str]) -> set[str]:
    seen = ClusterState(
        configurations=documents, labels=dict.fromkeys((KUBE_SYSTEM, "policies", "storage"), labels)
    )
    found = [
        one
        for one in inspect(config, seen, NOW, 30)
        if one.place.startswith("namespace") and namespace in one.place.split(" ", 1)[1].split(", ")
    ]
    return {
        name
        for one in found
        for part in one.message.rpartition(": ")[2].split("; ")
        for name in part.split(" ", 1)[1].split(", ")
    }
