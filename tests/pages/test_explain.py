"""Which request is made of a text to explain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ReviewError
from gateway.pure.core.review import decode
from gateway.server.pages.explain import MAX_JSON_BYTES, MAX_YAML_BYTES, request_of
from tests.kit import REVIEWS

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {}}


def made(content: object, **query: str) -> dict[str, Any]:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    found = request_of(body, query)
    # It has to be one that the gateway reads.
    decode(
        json.dumps(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": found}
        ).encode()
    )
    return found


def test_a_review_stays_as_it_is_apart_from_its_dry_run() -> None:
    body = (REVIEWS / "pod-create-mutate.json").read_bytes()
    assert made(body, user="other") == {**json.loads(body)["request"], "dryRun": True}


def test_an_object_becomes_a_create_in_its_namespace_or_the_given_one() -> None:
    found = made(POD, user="ann", groups="a, b", namespace="shop")
    assert found["operation"] == "CREATE"
    assert found["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert found["requestKind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert found["userInfo"] == {"username": "ann", "groups": ["a", "b"]}
    assert found["namespace"] == found["object"]["metadata"]["namespace"] == "shop"
    assert found["oldObject"] is None
    assert found["dryRun"] is True
    assert made(POD)["namespace"] == "default"


@pytest.mark.parametrize(
    ("operation", "has_object", "has_old"),
    [("CREATE", True, False), ("UPDATE", True, True), ("DELETE", False, True), ("CONNECT", True, False)],
)
def test_an_operation_decides_which_objects_there_are(
    operation: str, has_object: bool, has_old: bool
) -> None:
    found = made(POD, operation=operation)
    assert (found["object"] is not None, found["oldObject"] is not None) == (has_object, has_old)


@pytest.mark.parametrize(
    ("api_version", "kind", "resource", "is_namespaced"),
    [
        ("apps/v1", "Deployment", "deployments", True),
        ("networking.k8s.io/v1", "Ingress", "ingresses", True),
        ("v1", "Node", "nodes", False),
        ("v1", "Endpoints", "endpoints", True),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", False),
        ("example.com/v1", "Policy", "policies", True),
        ("example.com/v1", "Gateway", "gateways", True),
        ("example.com/v1", "Box", "boxes", True),
    ],
)
def test_the_resource_is_that_of_the_kind(
    api_version: str, kind: str, resource: str, is_namespaced: bool
) -> None:
    found = made({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}})
    assert found["resource"]["resource"] == resource
    assert bool(found.get("namespace")) is is_namespaced


def test_a_subresource_can_be_named() -> None:
    found = made(POD, resource="pods/exec", operation="CONNECT")
    assert (found["resource"]["resource"], found["subResource"]) == ("pods", "exec")


def test_the_namespace_of_a_namespace_is_itself() -> None:
    assert (
        made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})["namespace"] == "shop"
    )


def test_yaml_is_read() -> None:
    assert made(b"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n")["name"] == "web"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "found 0 documents"),
        (b"a: b: c", "1:5: mapping values"),
        (b"[1]", "expected an AdmissionReview or an object"),
        (b"{}", "apiVersion: found null, expected the apiVersion of an object"),
        (b'{"kind":"AdmissionReview"}', "has no request"),
        (b"a: 1\n---\nb: 1\n", "found 2 documents"),
        (b"#" + b"x" * MAX_YAML_BYTES, f"YAML of at most {MAX_YAML_BYTES} bytes"),
        (b" " * (MAX_JSON_BYTES + 1), f"at most {MAX_JSON_BYTES}"),
    ],
)
def test_other_texts_are_refused_with_the_reason(content: bytes, text: str) -> None:
    with pytest.raises(ReviewError) as raised:
        request_of(content, {})
    assert text in str(raised.value)


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(ReviewError, match='operation: found "PATCH", expected CREATE'):
        made(POD, operation="PATCH")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.fixed_dictionaries(
    {"apiVersion": st.sampled_from(["v1", "apps/v1"]) | JSON, "kind": st.sampled_from(["Pod"]) | JSON},
    optional={"metadata": JSON, "request": JSON},
)


@given(content=st.binary(max_size=200) | st.builds(lambda found: json.dumps(found).encode(), OBJECTS | JSON))
def test_every_text_is_a_request_or_refused(content: bytes) -> None:
    try:
        found = request_of(content, {"operation": "UPDATE"})
    except ReviewError:
        return
    assert found["dryRun"] is True
