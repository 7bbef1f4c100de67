"""A gateway process with worker processes, and recorded reviews over TLS."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import jsonpatch
import pytest

from tests.kit import REVIEWS, pool_document, webhook_document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kit import GatewayProcess, WorkerProcess

    StartWorker = Callable[..., WorkerProcess]
    StartGateway = Callable[..., GatewayProcess]

pytestmark = pytest.mark.process


def patched(review: str, response: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded review's object after the patch of *response*."""
    request = json.loads((REVIEWS / f"{review}.json").read_bytes())["request"]
    assert response["patchType"] == "JSONPatch"
    patch = json.loads(base64.b64decode(response["patch"], validate=True))
    result: dict[str, Any] = jsonpatch.apply_patch(request["object"], patch)
    return result


def test_every_recorded_review_is_answered(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    worker = start_worker()
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target)
        + webhook_document("mutate", "m.test", "pool", {}, {"warnings": ["w"]})
        + webhook_document("validate", "v.test", "pool", {}, {"annotations": {"seen": "yes"}})
    )
    gateway = start_gateway(tmp_path)
    connection = gateway.connect()
    for file in sorted(REVIEWS.glob("*.json")):
        body = file.read_bytes()
        for path in ("/mutate", "/validate", "/mutate/m.test", "/validate/v.test"):
            answer = json.loads(gateway.post(f"{path}?timeout=10s", body, connection))
            response = answer["response"]
            assert response["allowed"] is True, file
            assert response["uid"] == json.loads(body)["request"]["uid"]
            assert "patch" not in response
            assert ("warnings" in response) == path.startswith("/mutate")
            assert ("h1.v.test.test.seen" in response.get("auditAnnotations", {})) == path.startswith("/val")
    connection.close()


def test_answers_keep_the_version_of_the_review(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    worker = start_worker()
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target)
        + webhook_document("validate", "v", "pool", {"deny": {"message": "no"}})
    )
    gateway = start_gateway(tmp_path)
    body = (REVIEWS / "pod-create-mutate.json").read_bytes()
    assert gateway.post("/validate", body.replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1")) == (
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":'
        b'{"uid":"d6ac54b0-7080-491f-884c-e236f7528ce0","allowed":false,"status":'
        b'{"code":400,"message":"h0.v.test: no","status":"Failure"}}}'
    )


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_the_same_review_gets_the_same_bytes_whatever_the_order_of_answers(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, phase: str
) -> None:
    first, second = start_worker(), start_worker()
    shuffled = {"delay_ms": [0, 15]}
    scripts: list[dict[str, Any]] = [
        {**shuffled, "warnings": [f"warning {number}"], "annotations": {"k": str(number)}}
        for number in range(4)
    ]
    if phase == "mutate":
        for number, script in enumerate(scripts):
            script["label"] = f"l{number}"
            script["webhook"] = {"reinvocationPolicy": "IfNeeded"}
    else:
        for number, script in enumerate(scripts[1:], 1):
            script["deny"] = {"message": f"no {number}", "code": 400 + number}
    failing = {**shuffled, "status": "INTERNAL", "details": "broken", "webhook": {"failurePolicy": "Ignore"}}
    (tmp_path / "c.yaml").write_text(
        pool_document("one", first.target)
        + pool_document("two", second.target, transport="Unary")
        + webhook_document(phase, "a", "one", *scripts[:2])
        + webhook_document(phase, "b", "two", *scripts[2:], failing)
    )
    gateway = start_gateway(tmp_path)
    connection = gateway.connect()
    body = (REVIEWS / "deployment-create.json").read_bytes()
    answers = {gateway.post(f"/{phase}", body, connection) for _ in range(100)}
    connection.close()
    assert len(answers) == 1
    response = json.loads(answers.pop())["response"]
    assert response["warnings"] == [f"warning {number}" for number in range(4)]
    assert response["auditAnnotations"]["failed-open.round_0_index_4"] == "h2.b.test"
    if phase == "mutate":
        labels = patched("deployment-create", response)["metadata"]["labels"]
        assert {f"l{number}" for number in range(4)} <= labels.keys()
    else:
        assert response["status"]["code"] == 401
        assert response["status"]["message"] == "h1.a.test: no 1\nh0.b.test: no 2\nh1.b.test: no 3"


def test_patches_build_on_each_other_and_the_final_one_applies(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    worker = start_worker()
    container = {"name": "added", "image": "i"}
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target)
        + webhook_document(
            "mutate",
            "m",
            "pool",
            {"patch": [{"op": "add", "path": "/spec/containers/-", "value": container}]},
            {"patch": [{"op": "replace", "path": "/spec/containers/1/image", "value": "changed"}]},
            {"patch": [{"op": "remove", "path": "/nowhere"}], "webhook": {"failurePolicy": "Ignore"}},
        )
    )
    response = start_gateway(tmp_path).review("/mutate", "pod-create-mutate")
    assert patched("pod-create-mutate", response)["spec"]["containers"][1] == {
        "name": "added",
        "image": "changed",
    }
    assert response["auditAnnotations"]["failed-open.round_0_index_2"] == "h2.m.test"


FAILURES: list[tuple[dict[str, Any], str]] = [
    ({"status": "UNAVAILABLE", "details": "away"}, "UNAVAILABLE: away"),
    ({"hang": True, "webhook": {"timeoutSeconds": 1}}, "DEADLINE_EXCEEDED: no answer within 1s"),
    ({"empty": True}, "malformed answer: a verdict without an outcome"),
    ({"patch": "{"}, "the answer's patch is not a JSON Patch: "),
    (
        {"patch": [{"op": "remove", "path": "/nowhere"}]},
        "the answer's patch does not apply: operation 0: cannot remove '/nowhere'",
    ),
]


@pytest.mark.parametrize(
    ("script", "cause"), FAILURES, ids=[cause.partition(":")[0] for _, cause in FAILURES]
)
def test_the_failure_policy_decides_after_a_failure(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, script: dict[str, Any], cause: str
) -> None:
    worker = start_worker()
    ignoring = {**script, "webhook": {**script.get("webhook", {}), "failurePolicy": "Ignore"}}
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target)
        + webhook_document("mutate", "closed", "pool", script)
        + webhook_document("mutate", "open", "pool", ignoring)
    )
    gateway = start_gateway(tmp_path)
    closed = gateway.review("/mutate/closed", "pod-create-mutate")
    assert closed["allowed"] is False
    assert closed["status"]["code"] == 500
    assert closed["status"]["reason"] == "InternalError"
    assert closed["status"]["message"].startswith(f'failed calling webhook "h0.closed.test": {cause}')
    opened = gateway.review("/mutate/open", "pod-create-mutate")
    assert opened["allowed"] is True
    assert opened["auditAnnotations"]["failed-open.round_0_index_0"] == "h0.open.test"
    name = "admission_gateway_webhook"
    assert gateway.metric(f"{name}_fail_open_total", name="h0.open.test", type="admit") == 1
    rejections = gateway.metric(
        f"{name}_rejections_total", name="h0.closed.test", error_type="calling_webhook_error"
    )
    assert rejections == 1


def test_a_patch_where_none_is_allowed_is_a_failure(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    worker = start_worker()
    patch = {"patch": [{"op": "add", "path": "/x", "value": 1}]}
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target)
        + webhook_document("mutate", "m", "pool", patch)
        + webhook_document("validate", "v", "pool", patch)
    )
    gateway = start_gateway(tmp_path)
    assert gateway.review("/mutate", "configmap-delete")["status"]["message"] == (
        'failed calling webhook "h0.m.test": answered a patch, but a DELETE request has no object to change'
    )
    assert gateway.review("/validate", "configmap-create")["status"]["message"] == (
        'failed calling webhook "h0.v.test": a validating webhook may not answer a patch'
    )


def test_the_timeout_of_the_review_limits_the_timeout_of_the_webhook(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    worker = start_worker()
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target) + webhook_document("validate", "v", "pool", {"hang": True})
    )
    gateway = start_gateway(tmp_path)
    response = gateway.review("/validate?timeout=5s", "pod-create-mutate")
    assert response["status"]["message"].endswith("DEADLINE_EXCEEDED: no answer within 4.9s")


def test_namespace_and_object_selectors_apply(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    worker = start_worker()
    denied = {"deny": {"message": "called"}}
    production = {"namespaceSelector": {"matchLabels": {"stage": "production"}}}
    labelled = {"objectSelector": {"matchLabels": {"app": "nowhere"}}}
    known = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "labels": {"stage": "test"}},
    }
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target)
        + json.dumps(known)
        + "\n---\n"
        + webhook_document(
            "validate", "v", "pool", {**denied, "webhook": production}, {**denied, "webhook": labelled}
        )
    )
    gateway = start_gateway(tmp_path)
    assert gateway.review("/validate", "pod-create-mutate")["allowed"] is True
    lease = gateway.review("/validate", "lease-update-system-apiserver")
    assert lease["status"]["message"].startswith(
        'failed calling webhook "h0.v.test": namespace "kube-system"'
    )


def test_a_webhook_that_fails_open_and_is_not_reinvoked_is_counted_once(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    worker = start_worker()
    selector = {"matchLabels": {"team": "a"}}
    unknown = {"webhook": {"namespaceSelector": selector, "failurePolicy": "Ignore"}}
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target)
        + webhook_document("mutate", "m", "pool", unknown, {"label": "added"})
    )
    gateway = start_gateway(tmp_path)
    response = gateway.review("/mutate", "pod-create-mutate")
    failed_open = [key for key in response["auditAnnotations"] if key.startswith("failed-open.")]
    assert failed_open == ["failed-open.round_0_index_0"]
    assert gateway.metric("admission_gateway_webhook_fail_open_total", name="h0.m.test") == 1
