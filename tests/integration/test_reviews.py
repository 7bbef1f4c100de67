"""Recorded reviews, from their bytes to those of the answers."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import jsonpatch
import pytest

from tests.kit import REVIEWS, pool_document, webhook_document
from tests.world import simulated

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import StartGateway
    from tests.worker.server import StartWorker
    from tests.world import SimulatedWorld


def patched(review: str, response: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded review's object after the patch of *response*."""
    request = json.loads((REVIEWS / f"{review}.json").read_bytes())["request"]
    assert response["patchType"] == "JSONPatch"
    patch = json.loads(base64.b64decode(response["patch"], validate=True))
    result: dict[str, Any] = jsonpatch.apply_patch(request["object"], patch)
    return result


@pytest.mark.process
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


@simulated
async def test_answers_keep_the_version_of_the_review(world: SimulatedWorld) -> None:
    await world.serve(webhook_document("validate", "v", "pool", {"deny": {"message": "no"}}))
    body = (REVIEWS / "pod-create-mutate.json").read_bytes()
    assert await world.post(
        "/validate", body.replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1")
    ) == (
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":'
        b'{"uid":"d6ac54b0-7080-491f-884c-e236f7528ce0","allowed":false,"status":'
        b'{"code":400,"message":"h0.v.test: no","status":"Failure"}}}'
    )


@pytest.mark.parametrize("phase", ["mutate", "validate"])
@simulated
async def test_the_same_review_gets_the_same_bytes_whatever_the_order_of_answers(
    world: SimulatedWorld, phase: str
) -> None:
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
    await world.serve(
        pool_document("two", world.start_worker().target, transport="Unary"),
        webhook_document(phase, "a", "pool", *scripts[:2]),
        webhook_document(phase, "b", "two", *scripts[2:], failing),
    )
    body = (REVIEWS / "deployment-create.json").read_bytes()
    answers = {await world.post(f"/{phase}", body) for _ in range(100)}
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


@simulated
async def test_patches_build_on_each_other_and_the_final_one_applies(world: SimulatedWorld) -> None:
    container = {"name": "added", "image": "i"}
    await world.serve(
        webhook_document(
            "mutate",
            "m",
            "pool",
            {"patch": [{"op": "add", "path": "/spec/containers/-", "value": container}]},
            {"patch": [{"op": "replace", "path": "/spec/containers/1/image", "value": "changed"}]},
            {"patch": [{"op": "remove", "path": "/nowhere"}], "webhook": {"failurePolicy": "Ignore"}},
        )
    )
    response = await world.review("/mutate", "pod-create-mutate")
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
@simulated
async def test_the_failure_policy_decides_after_a_failure(
    world: SimulatedWorld, script: dict[str, Any], cause: str
) -> None:
    ignoring = {**script, "webhook": {**script.get("webhook", {}), "failurePolicy": "Ignore"}}
    await world.serve(
        webhook_document("mutate", "closed", "pool", script),
        webhook_document("mutate", "open", "pool", ignoring),
    )
    closed = await world.review("/mutate/closed", "pod-create-mutate")
    assert closed["allowed"] is False
    assert closed["status"]["code"] == 500
    assert closed["status"]["reason"] == "InternalError"
    assert closed["status"]["message"].startswith(f'failed calling webhook "h0.closed.test": {cause}')
    opened = await world.review("/mutate/open", "pod-create-mutate")
    assert opened["allowed"] is True
    assert opened["auditAnnotations"]["failed-open.round_0_index_0"] == "h0.open.test"
    name = "admission_gateway_webhook"
    assert world.metric(f"{name}_fail_open_total", name="h0.open.test", type="admit") == 1
    rejections = world.metric(
        f"{name}_rejections_total", name="h0.closed.test", error_type="calling_webhook_error"
    )
    assert rejections == 1


@simulated
async def test_a_patch_where_none_is_allowed_is_a_failure(world: SimulatedWorld) -> None:
    patch = {"patch": [{"op": "add", "path": "/x", "value": 1}]}
    await world.serve(
        webhook_document("mutate", "m", "pool", patch), webhook_document("validate", "v", "pool", patch)
    )
    assert (await world.review("/mutate", "configmap-delete"))["status"]["message"] == (
        'failed calling webhook "h0.m.test": answered a patch, but a DELETE request has no object to change'
    )
    assert (await world.review("/validate", "configmap-create"))["status"]["message"] == (
        'failed calling webhook "h0.v.test": a validating webhook may not answer a patch'
    )


@pytest.mark.process
def test_the_timeout_of_the_review_limits_the_timeout_of_the_webhook(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    worker = start_worker()
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target) + webhook_document("validate", "v", "pool", {"hang": True})
    )
    gateway = start_gateway(tmp_path)
    response = gateway.review("/validate?timeout=1s", "pod-create-mutate")
    assert response["status"]["message"].endswith("DEADLINE_EXCEEDED: no answer within 900ms")


@simulated
async def test_namespace_and_object_selectors_apply(world: SimulatedWorld) -> None:
    denied = {"deny": {"message": "called"}}
    production = {"namespaceSelector": {"matchLabels": {"stage": "production"}}}
    labelled = {"objectSelector": {"matchLabels": {"app": "nowhere"}}}
    known = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "labels": {"stage": "test"}},
    }
    await world.serve(
        json.dumps(known) + "\n---\n",
        webhook_document(
            "validate", "v", "pool", {**denied, "webhook": production}, {**denied, "webhook": labelled}
        ),
    )
    assert (await world.review("/validate", "pod-create-mutate"))["allowed"] is True
    lease = await world.review("/validate", "lease-update-system-apiserver")
    assert lease["status"]["message"].startswith(
        'failed calling webhook "h0.v.test": namespace "kube-system"'
    )


@simulated
async def test_a_webhook_that_fails_open_and_is_not_reinvoked_is_counted_once(world: SimulatedWorld) -> None:
    selector = {"matchLabels": {"team": "a"}}
    unknown = {"webhook": {"namespaceSelector": selector, "failurePolicy": "Ignore"}}
    await world.serve(webhook_document("mutate", "m", "pool", unknown, {"label": "added"}))
    response = await world.review("/mutate", "pod-create-mutate")
    failed_open = [key for key in response["auditAnnotations"] if key.startswith("failed-open.")]
    assert failed_open == ["failed-open.round_0_index_0"]
    assert world.metric("admission_gateway_webhook_fail_open_total", name="h0.m.test") == 1
