"""The roles of users by their bindings: as GetRoleRef of Kyverno's pkg/userinfo/roleRef.go finds them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.core.role_bindings import (
    CLUSTER_ROLE_BINDING,
    ROLE_BINDING,
    RoleIndex,
    entries_of,
)

Json = dict[str, Any]

NAMES = st.sampled_from(["a", "b", "a:b", "system:serviceaccount:a:b", ""])
NAMESPACES = st.sampled_from(["a", "b"])
SUBJECTS = st.fixed_dictionaries(
    {"kind": st.sampled_from(["User", "Group", "ServiceAccount", "Other"]), "name": NAMES},
    optional={"namespace": st.sampled_from(["", "a", "b"]), "apiGroup": NAMES},
)
BINDINGS = st.builds(
    lambda namespace, kind, name, subjects: (
        ROLE_BINDING if namespace else CLUSTER_ROLE_BINDING,
        {
            "metadata": {"name": "x", "namespace": namespace} if namespace else {"name": "x"},
            "roleRef": {"kind": kind, "name": name},
            **({} if subjects is None else {"subjects": subjects}),
        },
    ),
    NAMESPACES | st.none(),
    st.sampled_from(["Role", "ClusterRole", "Other"]),
    NAMES,
    st.lists(SUBJECTS, max_size=3) | st.none(),
)


def names_user(subject: Json, namespace: str, user: str, groups: list[str]) -> bool:
    if subject["kind"] == "ServiceAccount":
        namespace = subject.get("namespace") or namespace
        return bool(namespace) and user == f"system:serviceaccount:{namespace}:{subject['name']}"
    if subject["kind"] == "Group":
        return subject["name"] in groups
    return bool(subject["kind"] == "User" and user == subject["name"])


def searched(bindings: list[Any], user: str, groups: list[str], requested: str) -> tuple[set[str], set[str]]:
    """The roles and cluster roles by a search in all bindings."""
    roles, cluster_roles = set(), set()
    for kind, binding in bindings:
        namespace = binding["metadata"].get("namespace", "")
        of_cluster = kind == CLUSTER_ROLE_BINDING
        ref = binding["roleRef"]
        if not any(names_user(one, namespace, user, groups) for one in binding.get("subjects", ())):
            continue
        if ref["kind"] == "Role" and not of_cluster:
            roles.add(f"{namespace}:{ref['name']}")
        if ref["kind"] == "ClusterRole" and (of_cluster or namespace == requested):
            cluster_roles.add(ref["name"])
    return roles, cluster_roles


@given(
    st.lists(BINDINGS, max_size=6), st.data(), NAMES, st.lists(NAMES, max_size=3), NAMESPACES | st.just("")
)
def test_the_index_has_what_a_search_finds(
    bindings: list[Any], data: st.DataObject, user: str, groups: list[str], requested: str
) -> None:
    index = RoleIndex()
    for kind, binding in bindings:
        index.change((), entries_of(kind, binding))
    for number in data.draw(st.lists(st.integers(0, max(0, len(bindings) - 1)), max_size=4)):
        if bindings:
            changed = data.draw(BINDINGS)
            index.change(entries_of(*bindings[number]), entries_of(*changed))
            bindings[number] = changed
    grants = {grant for found in index.of(user, [*groups, None, 5]) for grant in found}
    roles = {name for namespace, name in grants if namespace is None}
    cluster_roles = {name for namespace, name in grants if namespace in ("", requested)}
    assert (roles, cluster_roles) == searched(bindings, user, groups, requested)


@given(st.lists(BINDINGS, max_size=6))
def test_nothing_is_left_of_bindings_that_are_gone(bindings: list[Any]) -> None:
    index = RoleIndex()
    for each in bindings:
        index.change((), entries_of(*each))
    for each in bindings:
        index.change(entries_of(*each), ())
    assert not index._of_users
    assert not index._of_groups


def test_a_binding_in_files_without_a_namespace_is_of_the_default_one() -> None:
    binding = {
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "s"}],
    }
    entries = ((False, "system:serviceaccount:default:s", (None, "default:r")),)
    assert entries_of(ROLE_BINDING, binding) == entries
    assert entries_of(("v1", "RoleBinding"), binding) == ()


def test_what_is_no_binding_gives_nothing() -> None:
    refs: list[Any] = [None, [], {}, {"kind": "Role"}, {"name": "r"}, {"kind": "Role", "name": 5}]
    for ref in refs:
        assert entries_of(ROLE_BINDING, {"roleRef": ref, "subjects": [{"kind": "User", "name": "u"}]}) == ()
    subjects: list[Any] = [None, {}, 5, [5], [{}], [{"kind": "User"}], [{"kind": "User", "name": 5}]]
    for found in subjects:
        binding = {"metadata": None, "roleRef": {"kind": "Role", "name": "r"}, "subjects": found}
        assert entries_of(ROLE_BINDING, binding) == ()
