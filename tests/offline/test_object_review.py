"""Requests for plain objects, as kube-apiserver would make them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import MalformedReview
from gateway.engine.object_review import RequestOptions, request_for, review_of
from gateway.pure.core.review import decode
from tests.kit import REVIEWS

POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}
NAMESPACE: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prod"}}
NODE: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
SAME = ("kind", "resource", "requestKind", "requestResource", "name", "namespace", "operation", "object")


@pytest.mark.parametrize(
    "file",
    [
        "pod-create-mutate",
        "deployment-create",
        "cronjob-create",
        "namespace-create",
        "node-create",
        "role-create",
    ],
)
def test_a_creation_is_the_request_that_a_real_api_server_makes(file: str) -> None:
    recorded = orjson.loads((REVIEWS / f"{file}.json").read_bytes())["request"]
    user = recorded["userInfo"]
    resource = recorded["resource"]["resource"]
    made = request_for(
        recorded["object"], RequestOptions("CREATE", user["username"], tuple(user["groups"]), "", resource)
    )
    assert {key: made.get(key) for key in SAME} == {key: recorded.get(key) for key in SAME}
    decode(review_of(made))


def test_a_deletion_has_the_object_as_the_old_one() -> None:
    made = request_for(POD, RequestOptions("DELETE"))
    assert made["object"] is None
    assert made["oldObject"]["metadata"] == {"name": "a", "namespace": "default"}


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_the_options_are_those_of_the_operation(operation: str) -> None:
    options = RequestOptions(operation, old=POD if operation == "UPDATE" else None)
    kind = f"{operation.capitalize()}Options"
    of_dry_run = {"apiVersion": "meta.k8s.io/v1", "kind": kind, "dryRun": ["All"]}
    assert request_for(POD, options)["options"] == of_dry_run
    assert "dryRun" not in request_for(POD, replace(options, is_dry_run=False))["options"]


def test_a_connection_has_no_options_and_no_metadata_of_its_own() -> None:
    connected = {"apiVersion": "v1", "kind": "PodExecOptions", "command": ["sh"]}
    made = request_for(connected, RequestOptions("CONNECT", namespace="shop", resource="pods/exec"))
    assert (made["object"], made["namespace"], made["options"]) == (connected, "shop", None)


def test_an_update_has_both_objects_in_one_namespace() -> None:
    made = request_for(POD, RequestOptions("UPDATE", namespace="shop", old={**POD, "spec": {"a": 1}}))
    assert made["namespace"] == "shop"
    assert made["object"]["metadata"]["namespace"] == made["oldObject"]["metadata"]["namespace"] == "shop"
    assert made["oldObject"]["spec"] == {"a": 1}


def test_a_namespace_is_in_itself_and_a_node_in_none() -> None:
    assert request_for(NAMESPACE, RequestOptions())["namespace"] == "prod"
    assert "namespace" not in request_for(NODE, RequestOptions())


def test_a_subresource_is_named_by_the_resource() -> None:
    made = request_for(POD, RequestOptions("CONNECT", resource="pods/exec"))
    assert (made["resource"]["resource"], made["subResource"]) == ("pods", "exec")


@pytest.mark.parametrize(
    ("kind", "plural"),
    [("Policy", "policies"), ("Gateway", "gateways"), ("Box", "boxes"), ("Widget", "widgets")],
)
def test_the_plural_of_a_custom_resource_is_guessed(kind: str, plural: str) -> None:
    made = request_for({"apiVersion": "example.com/v1", "kind": kind}, RequestOptions())
    assert made["resource"] == {"group": "example.com", "version": "v1", "resource": plural}


@pytest.mark.parametrize(
    ("found", "options", "text"),
    [
        ({"kind": "Pod"}, RequestOptions(), "apiVersion: found null"),
        ({**POD, "kind": 3}, RequestOptions(), "kind: found 3"),
        ({**POD, "metadata": []}, RequestOptions(), "metadata: found []"),
        (POD, RequestOptions("PATCH"), 'operation: found "PATCH", expected CREATE'),
        (POD, RequestOptions("UPDATE"), "UPDATE needs the old object"),
        (POD, RequestOptions(old=POD), "expected none for the operation CREATE"),
        (NODE, RequestOptions(namespace="shop"), 'namespace: found "shop", expected none'),
        (
            {**POD, "metadata": {"namespace": "a"}},
            RequestOptions(namespace="b"),
            'metadata.namespace: found "a", expected "b"',
        ),
        ({**POD, "metadata": {"namespace": 1}}, RequestOptions(), "metadata.namespace: found 1"),
    ],
)
def test_what_contradicts_itself_is_refused(
    found: dict[str, Any], options: RequestOptions, text: str
) -> None:
    with pytest.raises(MalformedReview) as raised:
        request_for(found, options)
    assert text in str(raised.value)


OBJECTS = st.dictionaries(
    st.sampled_from(["apiVersion", "kind", "metadata", "spec"]),
    st.recursive(
        st.none() | st.integers(-9, 9) | st.sampled_from(["v1", "Pod", "apps/v1", "Deployment", "x"]),
        lambda inner: st.dictionaries(st.sampled_from(["name", "namespace", "labels"]), inner),
    ),
)


@given(
    found=OBJECTS,
    old=st.none() | OBJECTS,
    operation=st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT"]),
)
def test_any_object_gives_a_valid_review_or_a_sentence(
    found: dict[str, Any], old: dict[str, Any] | None, operation: str
) -> None:
    try:
        made = request_for(found, RequestOptions(operation, old=old))
    except MalformedReview:
        return
    assert request_for(found, RequestOptions(operation, old=old)) == made
    assert decode(review_of(made)).operation == operation
