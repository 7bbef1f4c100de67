"""Patches that change the identity of an object, or make its metadata malformed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.pure.core.decision import decide
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.matching import Selection
from gateway.pure.core.response import encode
from gateway.pure.core.verdict import Allowed, Failed, FailureReason
from tests.core.build import request, resource, webhook

UID = "4b0e0a50-0000-4000-8000-000000000000"
OTHER_UID = "5c1f1b61-0000-4000-8000-000000000000"
TIME = "2030-01-31T12:00:00Z"
ENTRY = {
    "manager": "m",
    "operation": "Update",
    "apiVersion": "v1",
    "time": TIME,
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:data": {}},
}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "n", "uid": UID}


def held(api_version: str = "v1", kind: str = "Pod", **metadata: Any) -> dict[str, Any]:
    named = {"name": "web", "namespace": "default", "uid": UID, "labels": {"team": "a"}}
    return {"apiVersion": api_version, "kind": kind, "metadata": {**named, **metadata}, "spec": {}}


def given(operation: str, sub_resource: str = "", **members: Any) -> dict[str, Any]:
    old = held() if operation == "UPDATE" else None
    sub = {"subResource": sub_resource} if sub_resource else {}
    return {"operation": operation, "object": held(), "oldObject": old, **sub, **members}


def outcome(operations: object, failure_policy: str = "Ignore", **members: Any) -> tuple[Any, Any]:
    """Return the effective verdict of an answer with a patch, and the gateway's response."""
    review = request(**(members or given("UPDATE")))
    hook = webhook(failure_policy=failure_policy)
    evaluation = Evaluation(Selection("mutate", [hook]), review, None)
    (call,) = evaluation.start()
    evaluation.receive(call, Allowed(orjson.dumps(operations)))
    assert evaluation.done
    answer = orjson.loads(encode(review.api_version, review.uid, decide(evaluation, "Request")))
    return evaluation.outcomes[0].verdict, answer["response"]


def add(path: str, value: Any) -> list[dict[str, object]]:
    return [{"op": "add", "path": path, "value": value}]


REFUSED: dict[str, tuple[object, str]] = {
    "apiVersion": (add("/apiVersion", "v2"), 'apiVersion: found "v2", expected "v1"'),
    "apiVersion-type": (add("/apiVersion", 3), 'apiVersion: found 3, expected "v1"'),
    "kind": (add("/kind", "Secret"), 'kind: found "Secret", expected "Pod"'),
    "metadata": (add("/metadata", "x"), 'metadata: found "x", expected an object'),
    "no-metadata": ([{"op": "remove", "path": "/metadata"}], 'metadata.name: found nothing, expected "web"'),
    "name": (add("/metadata/name", "other"), 'metadata.name: found "other", expected "web"'),
    "no-name": (add("/metadata/name", None), 'metadata.name: found nothing, expected "web"'),
    "name-type": (add("/metadata/name", 3), "metadata.name: found 3, expected a string"),
    "namespace": (add("/metadata/namespace", "b"), 'metadata.namespace: found "b", expected "default"'),
    "uid": (add("/metadata/uid", OTHER_UID), f'metadata.uid: found "{OTHER_UID}", expected "{UID}"'),
    "label": (add("/metadata/labels/b", 1), 'metadata.labels["b"]: found 1, expected a string'),
    "labels": (add("/metadata/labels", []), "metadata.labels: found an array, expected an object of strings"),
    "annotation": (
        add("/metadata/annotations", {"b": {"c": "d"}}),
        'metadata.annotations["b"]: found an object, expected a string',
    ),
    "finalizer": (
        add("/metadata/finalizers", ["a/b", 1]),
        "metadata.finalizers[1]: found 1, expected a string",
    ),
    "owner": (
        add("/metadata/ownerReferences", [3]),
        "metadata.ownerReferences[0]: found 3, expected an object",
    ),
    "owner-flag": (
        add("/metadata/ownerReferences", [OWNER, {**OWNER, "controller": "yes"}]),
        'metadata.ownerReferences[1].controller: found "yes", expected true or false',
    ),
    "generation": (
        add("/metadata/generation", 1.0),
        "metadata.generation: found 1.0, expected a whole number of 64 bits",
    ),
    "grace": (
        add("/metadata/deletionGracePeriodSeconds", "5"),
        'metadata.deletionGracePeriodSeconds: found "5", expected a whole number of 64 bits',
    ),
    "time": (
        add("/metadata/creationTimestamp", "yesterday"),
        'metadata.creationTimestamp: found "yesterday", expected a time such as 2030-01-31T12:00:00Z',
    ),
    "managed": (
        add("/metadata/managedFields", [{**ENTRY, "manager": 3}]),
        "metadata.managedFields[0].manager: found 3, expected a string",
    ),
    "managed-type": (
        add("/metadata/managedFields", {}),
        "metadata.managedFields: found an object, expected an array of objects",
    ),
    "managed-time": (
        add("/metadata/managedFields", [{**ENTRY, "time": "x"}]),
        'metadata.managedFields[0].time: found "x", expected a time such as 2030-01-31T12:00:00Z',
    ),
}

ACCEPTED: dict[str, object] = {
    "no-kind": [{"op": "remove", "path": "/kind"}],
    "no-api-version": add("/apiVersion", ""),
    "no-namespace": [{"op": "remove", "path": "/metadata/namespace"}],
    "no-uid": add("/metadata/uid", None),
    "null-label": add("/metadata/labels/b", None),
    "no-labels": add("/metadata/labels", None),
    "owner": add("/metadata/ownerReferences", [{**OWNER, "controller": None}]),
    "managed": add(
        "/metadata/managedFields", [ENTRY, {"operation": "X"}, None, {"fieldsV1": 3, "time": None}]
    ),
    "time": add("/metadata/creationTimestamp", "2024-02-29T23:59:59.123456+02:00"),
    "generation": add("/metadata/generation", -1),
    "unknown": add("/metadata/surprise", {"a": 1}),
    "spec": add("/spec", 3),
}


@pytest.mark.parametrize(("operations", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_patch_that_the_api_server_would_refuse_is_a_failure(operations: object, problem: str) -> None:
    verdict, response = outcome(operations)
    cause = f"the answer's patch makes an object that the API server refuses: {problem}"
    assert verdict == Failed(FailureReason.PATCH_REFUSED, cause, 500)
    assert response["allowed"] is True
    assert "patch" not in response
    assert [key for key in response["auditAnnotations"] if key.startswith("failed-open.")]
    verdict, response = outcome(operations, "Fail")
    assert response["allowed"] is False
    assert response["status"]["code"] == 500
    assert response["status"]["message"] == f'failed calling webhook "a.policies.test": {cause}'


@pytest.mark.parametrize("operations", ACCEPTED.values(), ids=ACCEPTED)
def test_a_patch_that_the_api_server_accepts_or_corrects_is_applied(operations: object) -> None:
    verdict, response = outcome(operations)
    assert isinstance(verdict, Allowed)
    assert "patch" in response


@pytest.mark.parametrize(
    ("members", "field", "is_refused"),
    [
        (given("CREATE"), "name", False),
        (given("CREATE"), "uid", False),
        (given("CREATE"), "namespace", True),
        (given("UPDATE", "status"), "name", True),
        (given("UPDATE", "scale"), "name", False),
        (given("UPDATE", "scale"), "namespace", False),
        (given("UPDATE", "scale"), "uid", True),
        (given("CREATE", "eviction"), "name", True),
        (given("CREATE", "eviction"), "namespace", False),
        (given("CREATE", "eviction"), "uid", False),
        (given("CREATE", "binding"), "name", True),
        (given("CREATE", "binding"), "namespace", False),
        (given("CREATE", "binding"), "uid", True),
        (given("CREATE", "token"), "name", True),
        (given("CREATE", "token"), "namespace", True),
        (given("CREATE", "token"), "uid", True),
        # Neither in a namespace nor, as a Namespace, called by one.
        (given("CREATE", namespace="", object=held(namespace=None)), "namespace", False),
        (given("CREATE", object=held(namespace=None)), "namespace", True),
        (
            given("CREATE", object=held(namespace=None), resource=resource("/v1/namespaces")),
            "namespace",
            False,
        ),
    ],
)
def test_identity_may_change_where_the_api_server_allows_it(
    members: dict[str, Any], field: str, *, is_refused: bool
) -> None:
    verdict, _ = outcome(add(f"/metadata/{field}", OTHER_UID), **members)
    assert isinstance(verdict, Failed) is is_refused


def test_a_new_object_needs_a_name_or_generate_name() -> None:
    gone = [{"op": "remove", "path": "/metadata/name"}]
    verdict, _ = outcome(gone, **given("CREATE"))
    assert isinstance(verdict, Failed)
    assert verdict.cause.endswith("metadata.name: found nothing, expected a name, or metadata.generateName")
    verdict, _ = outcome(gone, **given("CREATE", object=held(generateName="web-")))
    assert isinstance(verdict, Allowed)


def test_a_token_request_needs_no_name() -> None:
    verdict, _ = outcome([{"op": "remove", "path": "/metadata/name"}], **given("CREATE", "token"))
    assert isinstance(verdict, Allowed)


def test_custom_resources_need_api_version_and_kind() -> None:
    custom = held("widgets.test/v1", "Widget")
    for field in ("apiVersion", "kind"):
        verdict, _ = outcome([{"op": "remove", "path": f"/{field}"}], **given("CREATE", object=custom))
        assert isinstance(verdict, Failed)


def test_invalid_metadata_of_the_client_is_no_failure_of_a_webhook() -> None:
    sent = held(generation="7", labels={"a": 1})
    verdict, _ = outcome(add("/metadata/labels/b", "c"), **given("CREATE", object=sent))
    assert isinstance(verdict, Allowed)


def test_a_later_webhook_gets_the_object_without_the_refused_patch() -> None:
    review = request(**given("UPDATE"))
    hooks = [webhook("a", failure_policy="Ignore"), webhook("b")]
    evaluation = Evaluation(Selection("mutate", hooks), review, None)
    first, second = evaluation.start()
    evaluation.receive(second, Allowed())
    evaluation.receive(first, Allowed(orjson.dumps(add("/kind", "Secret"))))
    assert evaluation.done
    assert evaluation.final_object == held()
    assert evaluation.discarded_ahead == 0


@pytest.mark.parametrize(
    "text",
    [
        "2030-02-30T00:00:00Z",
        "2030-05-32T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "2030-13-01T00:00:00Z",
        "2030-01-31",
        "2030-01-31t00:00:00z",
        "2030-01-31T24:00:00Z",
        "2030-01-31T00:00:00",
        "",
    ],
)
def test_times_are_valid_if_the_api_server_reads_them(text: str) -> None:
    verdict, _ = outcome(add("/metadata/deletionTimestamp", text))
    assert isinstance(verdict, Failed)
