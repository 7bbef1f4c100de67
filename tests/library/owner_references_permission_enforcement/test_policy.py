"""Source of the cases: kubernetes plugin/pkg/admission/gc gc_admission_test.go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.library.builtin import of, refusal

if TYPE_CHECKING:
    from tests.library.api_server import ApiServer

NAME = "owner-references-permission-enforcement"
NO_DELETE = "cannot set an ownerRef on a resource you can't delete: "
NO_FINALIZERS = (
    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: "
)
NO_MAPPING = (
    "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {} Kind {}: {}"
)


def pod(*references: Any) -> dict[str, Any]:
    return {"metadata": {"name": "web", "ownerReferences": list(references)}}


def silent(kind: str, name: str = "one", api_version: str = "v1") -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name}


def blocking(kind: str, name: str = "one", api_version: str = "v1") -> dict[str, Any]:
    return {**silent(kind, name, api_version), "blockOwnerDeletion": True}


def free(kind: str, name: str = "one") -> dict[str, Any]:
    return {**silent(kind, name), "blockOwnerDeletion": False}


RC, NODE = "ReplicationController", "Node"
FIRST, SECOND = {"name": "first"}, {"name": "second"}


@pytest.fixture(autouse=True)
def rights(api_server: ApiServer) -> None:
    """``no-PLURAL`` lacks the rights on PLURAL, ``nothing`` all, and both may not finalize everything."""

    def answer(spec: dict[str, Any]) -> dict[str, Any]:
        attributes = spec["resourceAttributes"]
        user, resource = spec["user"], attributes["resource"]
        if user == "super":
            return {"allowed": True}
        if resource == "*" or user in ("nothing", f"no-{resource}"):
            return {"allowed": False, "reason": "by rule"}
        return {"allowed": True}

    api_server.rights = answer
    api_server.others["/api/v1"] = {
        "resources": [
            {"name": "nodes", "namespaced": False, "kind": "Node"},
            {"name": "nodes/status", "namespaced": False, "kind": "Node"},
            {"name": "replicationcontrollers", "namespaced": True, "kind": RC},
        ]
    }
    api_server.others["/apis/apps/v1"] = {
        "resources": [{"name": "daemonsets", "namespaced": True, "kind": "DaemonSet"}]
    }


def check(user: str, new: Any, old: Any = None, plural: str = "pods") -> str:
    found = refusal(NAME, of(plural, "Pod", new, old, userInfo={"username": user}))
    return found.removeprefix('pods "web" is forbidden: ')


@pytest.mark.parametrize(
    ("user", "plural", "old", "new", "is_denied"),
    [
        *(
            (user, "pods", None, pod(*refs), False)
            for user in ("super", "nothing")
            for refs in ((), (FIRST,))
        ),
        ("no-pods", "pods", None, pod(FIRST), False),
        ("no-pods", "not-pods", None, pod(FIRST), False),
        *(
            (user, "pods", pod(*refs), pod(*refs), False)
            for user in ("super", "nothing", "no-pods")
            for refs in ((), (FIRST,))
        ),
        ("super", "pods", pod(), pod(FIRST), False),
        ("nothing", "pods", pod(), pod(FIRST), True),
        ("nothing", "pods", pod(FIRST), pod(FIRST, SECOND), True),
        ("nothing", "pods", pod(FIRST), pod(), True),
        ("nothing", "pods", pod(FIRST, SECOND), pod(SECOND, FIRST), True),
        ("no-pods", "pods/status", pod(), pod(FIRST), False),
        ("no-pods", "pods", pod(), pod(FIRST), True),
        ("no-pods", "not-pods", pod(), pod(FIRST), False),
    ],
)
def test_changes_need_the_right_to_delete(
    user: str, plural: str, old: Any, new: Any, is_denied: bool
) -> None:
    assert check(user, new, old, plural) == (f"{NO_DELETE}by rule, <nil>" if is_denied else "")


@pytest.mark.parametrize(
    ("user", "old", "new", "is_denied"),
    [
        ("super", None, (), False),
        ("super", None, (free(RC), free(RC, "two")), False),
        ("super", None, (blocking(RC), blocking(RC, "two"), blocking(NODE)), False),
        ("no-replicationcontrollers", None, (), False),
        ("no-replicationcontrollers", None, (free(RC), silent(RC, "two")), False),
        ("no-nodes", None, (free(NODE),), False),
        ("no-replicationcontrollers", None, (blocking(RC), free(RC, "two")), True),
        ("no-replicationcontrollers", None, (blocking("DaemonSet", api_version="apps/v1"),), False),
        ("no-nodes", None, (blocking(NODE),), True),
        ("super", (silent(RC), silent(NODE)), (free(RC), free(NODE)), False),
        ("super", (free(RC), free(NODE)), (blocking(RC), blocking(NODE)), False),
        ("super", (), (blocking(RC), blocking(NODE)), False),
        ("no-replicationcontrollers", (silent(RC),), (free(RC),), False),
        ("no-replicationcontrollers", (free(RC),), (blocking(RC),), True),
        ("no-replicationcontrollers", (silent(RC),), (blocking(RC),), True),
        ("no-nodes", (silent(NODE),), (blocking(NODE),), True),
        ("no-replicationcontrollers", (blocking(RC),), (free(RC),), False),
        ("no-replicationcontrollers", (blocking(RC),), (silent(RC),), False),
        ("no-replicationcontrollers", (), (free(RC),), False),
        ("no-replicationcontrollers", (), (blocking(RC),), True),
        ("no-replicationcontrollers", (), (blocking("DaemonSet", api_version="apps/v1"),), False),
    ],
)
def test_blocking_needs_the_right_to_finalize(user: str, old: Any, new: Any, is_denied: bool) -> None:
    before = None if old is None else pod(*old)
    assert check(user, pod(*new), before) == (f"{NO_FINALIZERS}by rule, <nil>" if is_denied else "")


def test_the_rights_that_are_asked_for(api_server: ApiServer) -> None:
    check("ann", pod(blocking(RC), blocking(NODE)), pod())
    update = {"verb": "update", "version": "v1", "subresource": "finalizers", "name": "one"}
    assert [each["resourceAttributes"] for each in api_server.reviewed] == [
        {"verb": "delete", "namespace": "default", "version": "v1", "resource": "pods", "name": "web"},
        {**update, "group": "*", "version": "*", "resource": "*", "name": "*"},
        {**update, "namespace": "default", "resource": "replicationcontrollers"},
        {**update, "resource": "nodes"},
    ]


@pytest.mark.parametrize(
    ("api_version", "kind", "problem"),
    [
        ("v1", "Widget", 'no matches for kind "Widget" in version "v1"'),
        ("example.com/v1", "Widget", 'no matches for kind "Widget" in version "example.com/v1"'),
        ("a/b/c", "Widget", "unexpected GroupVersion string: a/b/c"),
    ],
)
def test_an_owner_of_an_unknown_kind(api_version: str, kind: str, problem: str) -> None:
    found = check("ann", pod(blocking(kind, api_version=api_version)))
    assert found == NO_MAPPING.format(api_version, kind, problem)


def test_requests_without_an_object(api_server: ApiServer) -> None:
    assert refusal(NAME, of("pods", "Pod", None, pod(FIRST), operation="DELETE")) == ""
    assert api_server.requests == []
