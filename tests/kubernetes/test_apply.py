"""Server-side apply, against an API server with prepared answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import ClusterError
from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.server.kubernetes.apply import apply, delete, wait_for_endpoint
from tests.kubernetes.server import ApiServer, hang_up, refuse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.in_process import Stage


def document(kind: str = "MutatingWebhookConfiguration", **members: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "gateway"},
        "webhooks": [],
        **members,
    }


def applied(server: ApiServer, folder: Path, *documents: dict[str, Any], force: bool = False) -> list[str]:
    settings = KubernetesSettings(server.kubeconfig(folder))
    return asyncio.run(apply(settings, documents, field_manager="us", force=force))


def test_the_result_of_each_document_is_returned(server: ApiServer, tmp_path: Path) -> None:
    mutating, validating = document(), document("ValidatingWebhookConfiguration")
    assert applied(server, tmp_path, mutating, validating) == [
        "MutatingWebhookConfiguration/gateway applied (created)",
        "ValidatingWebhookConfiguration/gateway applied (created)",
    ]
    changed = document(webhooks=[{"name": "a"}])
    assert applied(server, tmp_path, changed, validating, force=True) == [
        "MutatingWebhookConfiguration/gateway applied (configured)",
        "ValidatingWebhookConfiguration/gateway applied (unchanged)",
    ]
    patches = [parameters for kind, parameters in server.requests if kind == "patch"]
    apply_type = "application/apply-patch+yaml"
    assert patches[0] == {"fieldManager": "us", "force": "false", "type": apply_type}
    assert patches[2] == {"fieldManager": "us", "force": "true", "type": apply_type}
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gateway"
    assert server.objects[path]["webhooks"] == [{"name": "a"}]


def test_apply_works_without_the_right_to_read(server: ApiServer, tmp_path: Path) -> None:
    applied(server, tmp_path, document())
    server.faults["get"].append(refuse(403))
    assert applied(server, tmp_path, document()) == [
        "MutatingWebhookConfiguration/gateway applied (configured)"
    ]


OTHERS = '"helm" (.webhooks, .metadata.labels.b); "kubectl" (.metadata.labels.a)'
CONFLICT = refuse(
    409,
    "Apply failed with 3 conflicts",
    causes=[
        {"reason": "FieldManagerConflict", "message": 'conflict with "helm" using v1', "field": ".webhooks"},
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "kubectl"',
            "field": ".metadata.labels.a",
        },
        {"reason": "FieldManagerConflict", "message": 'conflict with "helm"', "field": ".metadata.labels.b"},
    ],
)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (CONFLICT, f"has fields owned by {OTHERS}; to take them over, force it"),
        (refuse(409, "changed meanwhile"), "the API server answers 409: changed meanwhile"),
        (refuse(401, "Unauthorized"), "the API server answers 401: Unauthorized"),
        (refuse(422, "webhooks[0].name: Required value"), "answers 422: webhooks[0].name: Required value"),
    ],
)
def test_the_error_names_the_object_and_the_reason(
    server: ApiServer, tmp_path: Path, fault: Callable[[object], None], said: str
) -> None:
    server.faults["patch"].append(fault)
    with pytest.raises(ClusterError) as caught:
        applied(server, tmp_path, document())
    assert str(caught.value).startswith("MutatingWebhookConfiguration/gateway: ")
    assert said in str(caught.value)


LEFT = [
    {"reason": "FieldValueRequired", "message": "Required value", "field": f"webhooks[1].{name}"}
    for name in ("clientConfig", "sideEffects")
]


@pytest.mark.parametrize(
    ("causes", "other", "names"),
    [
        (LEFT, "watchdog", ["a"]),
        # Of another entry, and so of one that is to come.
        ([*LEFT, {"field": "webhooks[0].name"}], "watchdog", ["a", "b"]),
        # Nobody else has a field in it.
        (LEFT, "us", ["a", "b"]),
        ([], "watchdog", ["a", "b"]),
    ],
)
def test_an_entry_that_another_manager_has_a_field_in_is_removed_before_it_makes_the_apply_invalid(
    server: ApiServer, tmp_path: Path, causes: list[dict[str, Any]], other: str, names: list[str]
) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gateway"
    applied(server, tmp_path, document(webhooks=[{"name": "a"}, {"name": "b"}]))
    owned: dict[str, Any] = {"f:webhooks": {".": {}, **{f'k:{{"name":"{name}"}}': {} for name in "ab"}}}
    server.objects[path]["metadata"]["managedFields"] = [
        {"manager": "us", "operation": "Apply", "fieldsV1": owned},
        {"manager": other, "operation": "Apply", "fieldsV1": {"f:webhooks": {'k:{"name":"b"}': {}}}},
    ]
    server.faults["patch"].append(refuse(422, "is invalid", causes=causes))
    if names == ["a"]:
        applied(server, tmp_path, document(webhooks=[{"name": "a"}]))
        types = [parameters["type"] for kind, parameters in server.requests if kind == "patch"]
        assert types[-2:] == ["application/json-patch+json", "application/apply-patch+yaml"]
    else:
        with pytest.raises(ClusterError, match="422"):
            applied(server, tmp_path, document(webhooks=[{"name": "a"}]))
    assert [one["name"] for one in server.objects[path]["webhooks"]] == names


def test_the_error_of_an_unreachable_server_is_one_line(server: ApiServer, tmp_path: Path) -> None:
    server.faults["get"].append(hang_up)
    with pytest.raises(ClusterError, match=f"{server.url}: Server disconnected"):
        applied(server, tmp_path, document())


@pytest.mark.parametrize(
    "wrong", [document("Pod"), document(apiVersion="v1"), document(metadata={}), {"kind": "Pod"}]
)
def test_other_objects_are_not_sent(server: ApiServer, tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ClusterError, match="cannot apply a "):
        applied(server, tmp_path, document(), wrong)
    assert server.requests == []


def deleted(server: ApiServer, folder: Path) -> list[str]:
    return asyncio.run(delete(KubernetesSettings(server.kubeconfig(folder)), "gateway"))


def labelled(kind: str) -> dict[str, Any]:
    return document(
        kind, metadata={"name": "gateway", "labels": {"app.kubernetes.io/name": "admission-gateway"}}
    )


def test_the_objects_that_were_applied_are_deleted(server: ApiServer, tmp_path: Path) -> None:
    applied(server, tmp_path, labelled("ValidatingWebhookConfiguration"))
    assert deleted(server, tmp_path) == [
        "MutatingWebhookConfiguration/gateway was not there",
        "ValidatingWebhookConfiguration/gateway deleted",
    ]
    assert not [path for path in server.objects if "webhookconfigurations" in path]


def test_an_object_of_another_program_is_not_deleted(server: ApiServer, tmp_path: Path) -> None:
    applied(server, tmp_path, document())
    with pytest.raises(ClusterError, match=r"MutatingWebhookConfiguration/gateway: it has no label"):
        deleted(server, tmp_path)
    assert [path for path in server.objects if "webhookconfigurations" in path]


SLICES = "/apis/discovery.k8s.io/v1/namespaces/policies/endpointslices"


def test_the_wait_ends_with_the_first_ready_endpoint(server: ApiServer, tmp_path: Path, stage: Stage) -> None:
    settings = KubernetesSettings(server.kubeconfig(tmp_path))
    server.objects[SLICES] = {"items": [{"endpoints": [{"conditions": {"ready": False}}]}]}
    waiting = stage.loop.create_task(wait_for_endpoint(settings, ("policies", "gateway"), 60.0))
    stage.eventually(lambda: server.asked("get") > 1)
    assert not waiting.done()
    server.objects[SLICES] = {"items": [{"endpoints": [{}]}]}
    stage.run(waiting)


def test_the_wait_names_the_service_and_the_last_reason(
    server: ApiServer, tmp_path: Path, stage: Stage
) -> None:
    settings = KubernetesSettings(server.kubeconfig(tmp_path))
    with pytest.raises(ClusterError, match=r"policies/gateway did not become ready in 60 s: .*404"):
        stage.run(wait_for_endpoint(settings, ("policies", "gateway"), 60.0))
