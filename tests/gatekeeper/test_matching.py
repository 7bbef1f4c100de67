"""What a constraint matches."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.core.labels import Requirement, Selector
from gateway.pure.gatekeeper.matching import (
    Included,
    Kinds,
    Match,
    MatchError,
    Reviewed,
    Wildcards,
    is_excluded,
    matches,
)

Json = dict[str, Any]

NAMES = st.text("ab-:1", max_size=5)
PATTERNS = st.builds(
    lambda begin, name, end: f"{begin}{name}{end}",
    st.sampled_from(["", "*"]),
    NAMES,
    st.sampled_from(["", "*"]),
)


def pod(
    name: str = "web", namespace: str = "shop", kind: str = "Pod", version: str = "v1", **more: Any
) -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **more}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def space(name: str = "shop", **labels: str) -> Json:
    return pod(name, "", "Namespace", labels=labels)


NODE = pod("node-1", "", "Node")
TEAM = Selector((Requirement("team", "In", frozenset({"a"})),))
NOTHING = Selector()


def found(match: Match | None, *objects: Json, namespace: str | None = None, labels: Any = None) -> bool:
    """Whether *match* matches; the namespace of the request is by default that of the first object."""
    if namespace is None:
        namespace = objects[0]["metadata"].get("namespace", "")
    return matches(match, map(Reviewed, objects), namespace, labels)


@pytest.mark.parametrize(
    ("kinds", "thing", "is_matched"),
    [
        ((), pod(), True),
        ((Kinds((), ()),), pod(), True),
        ((Kinds(("",), ("Pod",)),), pod(), True),
        ((Kinds(("*",), ("*",)),), pod(), True),
        ((Kinds(("apps",), ("Pod",)),), pod(), False),
        ((Kinds(("",), ("Service",)),), pod(), False),
        ((Kinds(("",), ("Service",)), Kinds((), ("Pod",))), pod(), True),
        ((Kinds(("apps",), ()),), pod(kind="Deployment", version="apps/v1"), True),
        ((Kinds(("apps",), ()),), pod(kind="Deployment", version="apps/v1beta1"), True),
        ((Kinds(("",), ("Service",)), Kinds(("apps",), ("Pod",))), pod(), False),
        ((Kinds(("",), ("",)),), pod(kind="Deployment", version="a/b/c"), True),
    ],
)
def test_kinds_are_those_of_the_object_in_one_entry(
    kinds: tuple[Kinds, ...], thing: Json, is_matched: bool
) -> None:
    assert found(Match(kinds), thing) == is_matched


@pytest.mark.parametrize(
    ("scope", "of_pod", "of_node", "of_namespace"),
    [
        ("*", True, True, True),
        ("Cluster", False, True, True),
        ("Namespaced", True, False, False),
        ("cluster", True, True, True),
    ],
)
def test_a_namespace_is_cluster_scoped(
    scope: str, *, of_pod: bool, of_node: bool, of_namespace: bool
) -> None:
    match = Match(scope=scope)
    assert [found(match, each) for each in (pod(), NODE, space())] == [of_pod, of_node, of_namespace]


@pytest.mark.parametrize(
    ("patterns", "is_matched"),
    [
        *((each, True) for each in (("shop",), ("sh*",), ("*op",), ("*ho*",), ("other", "s*"))),
        *((each, False) for each in (("other",), ("*sh",), ("op*",), ("*x*",))),
    ],
)
def test_namespaces_are_patterns(patterns: tuple[str, ...], *, is_matched: bool) -> None:
    only, without = Match(namespaces=Wildcards(patterns)), Match(excluded_namespaces=Wildcards(patterns))
    for thing in (pod(), space()):
        assert found(only, thing) == is_matched
        assert found(without, thing) != is_matched
    assert found(only, NODE)
    assert found(without, NODE)


def test_the_namespace_of_the_request_counts_before_the_object_s() -> None:
    match = Match(namespaces=Wildcards(("shop",)))
    assert found(match, pod(namespace="other"), namespace="shop")
    assert not found(match, pod(namespace="shop"), namespace="other")
    assert found(match, pod(namespace="shop"), namespace="")


@pytest.mark.parametrize(
    ("pattern", "named", "generated"),
    [
        ("web", True, False),
        ("we*", True, True),
        ("*eb", True, False),
        ("*e*", True, True),
        ("x*", False, False),
    ],
)
def test_a_generated_name_matches_patterns_with_an_open_end(
    pattern: str, *, named: bool, generated: bool
) -> None:
    match = Match(name=Wildcards((pattern,)))
    without_name = {**pod(), "metadata": {"generateName": "web-", "namespace": "shop"}}
    assert (found(match, pod()), found(match, without_name)) == (named, generated)


def test_label_selectors_read_the_object() -> None:
    match = Match(label_selector=TEAM)
    assert found(match, pod(labels={"team": "a"}))
    assert not found(match, pod(labels={"team": "b"}), labels={"team": "a"})
    assert not found(match, pod())
    # For Gatekeeper there are no labels if one is not a text.
    assert not found(match, pod(labels={"team": "a", "number": 1}))
    assert found(Match(label_selector=NOTHING), pod())


def test_namespace_selectors_read_the_namespace_or_the_namespace_itself() -> None:
    match = Match(namespace_selector=TEAM)
    assert found(match, pod(), labels={"team": "a"})
    assert not found(match, pod(labels={"team": "a"}), labels={})
    assert found(match, space(team="a"), namespace="")
    assert not found(match, space(team="b"), namespace="")
    assert found(match, NODE)


def test_an_unknown_namespace_is_an_error_only_if_everything_before_it_matches() -> None:
    with pytest.raises(MatchError) as raised:
        found(Match(namespace_selector=NOTHING), pod())
    assert str(raised.value) == (
        "unable to match constraints: error matching the requested object: web :failed to run Match "
        "criteria: namespace selector for namespace-scoped object but missing Namespace"
    )
    assert not found(Match((Kinds(("",), ("Service",)),), namespace_selector=NOTHING), pod())
    with pytest.raises(MatchError):
        found(Match(namespace_selector=NOTHING, name=Wildcards(("x",))), pod())


def test_generated_objects_are_not_those_of_requests() -> None:
    assert [found(Match(source=each), pod()) for each in ("All", "Original", "Generated")] == [
        True,
        True,
        False,
    ]


def test_without_a_match_everything_is_matched() -> None:
    assert matches(None, [], "", None)
    with pytest.raises(MatchError):
        matches(Match(), [], "", None)


def test_excluded_namespaces_count_for_namespaces_too() -> None:
    excluded = Wildcards(("shop",))
    assert is_excluded(excluded, Reviewed(pod()), "shop")
    assert is_excluded(excluded, Reviewed(space("shop")), "anything")
    assert not is_excluded(excluded, Reviewed(space("other")), "shop")
    assert not is_excluded(excluded, Reviewed(NODE), "")
    # As in Gatekeeper, a star matches the empty namespace of other cluster-scoped objects.
    assert is_excluded(Wildcards(("*",)), Reviewed(NODE), "")


@given(st.lists(PATTERNS, max_size=4), NAMES)
def test_patterns_are_those_of_a_shell(patterns: list[str], name: str) -> None:
    expected = any(fnmatch.fnmatchcase(name, each) for each in patterns)
    assert Wildcards(tuple(patterns)).match(name) == expected


OBJECTS = st.builds(
    pod,
    st.sampled_from(["web", "db"]),
    st.sampled_from(["shop", "bank", ""]),
    st.sampled_from(["Pod", "Service", "Namespace"]),
    st.sampled_from(["v1", "apps/v1"]),
    labels=st.sampled_from([{}, {"team": "a"}, {"team": "b"}]),
)
MATCHES = st.builds(
    Match,
    st.sampled_from([(), (Kinds(("",), ("Pod",)),), (Kinds(("*",), ("Service", "Namespace")),)]),
    st.sampled_from(["*", "Cluster", "Namespaced"]),
    st.sampled_from([Wildcards(()), Wildcards(("sh*",))]),
    st.sampled_from([Wildcards(()), Wildcards(("*nk",))]),
    st.sampled_from([None, TEAM]),
    st.sampled_from([None, TEAM]),
    st.sampled_from([Wildcards(()), Wildcards(("w*",))]),
)


@given(MATCHES, OBJECTS, OBJECTS, st.sampled_from([{}, {"team": "a"}]))
def test_the_object_or_the_old_one_is_enough(match: Match, new: Json, old: Json, labels: Json) -> None:
    each = [found(match, one, namespace="shop", labels=labels) for one in (new, old)]
    assert found(match, new, old, namespace="shop", labels=labels) == any(each)


@given(MATCHES, OBJECTS, st.sampled_from(["shop", "bank"]))
def test_a_namespace_that_is_not_included_has_no_object_that_matches(
    match: Match, one: Json, name: str
) -> None:
    """So such constraints need not be compared with each object of a namespace."""
    if one["kind"] == "Namespace":
        one["metadata"]["name"] = name
    if not Included(match, Wildcards(())).may_include({"kubernetes.io/metadata.name": name}):
        assert not found(match, one, namespace=name, labels={})
