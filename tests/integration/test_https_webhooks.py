"""A gateway process with HTTPS webhooks and workers, and recorded reviews."""

from __future__ import annotations

import base64
import itertools
import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import REVIEWS, pool_document, webhook_document
from tests.webhook_process import WebhookProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kit import GatewayProcess, StartGateway
    from tests.worker.server import StartWorker

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookProcess]:
    process = WebhookProcess(tmp_path_factory.mktemp("webhook"))
    yield process
    process.stop()


def label(name: str) -> list[dict[str, Any]]:
    return [{"op": "add", "path": f"/metadata/annotations/{name}", "value": name}]


def patching(name: str) -> dict[str, Any]:
    patch = base64.b64encode(json.dumps(label(name)).encode()).decode()
    return {"patch": patch, "patchType": "JSONPatch", "auditAnnotations": {"by": name}}


def over_https(webhook: WebhookProcess, answer: dict[str, Any], **script: Any) -> dict[str, Any]:
    return {"webhook": {"clientConfig": webhook.client_config({"answer": answer, **script})}}


def annotated_review() -> bytes:
    review = json.loads((REVIEWS / "pod-create-mutate.json").read_bytes())
    review["request"]["object"]["metadata"]["annotations"] = {"was": "there"}
    return json.dumps(review).encode()


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_the_answer_does_not_depend_on_which_webhook_answers_first(
    tmp_path: Path,
    webhook: WebhookProcess,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    phase: str,
) -> None:
    worker = start_worker()
    gateway: GatewayProcess | None = None
    answers = set()
    for number, delays_s in enumerate(itertools.permutations((0.0, 0.02, 0.04))):
        delays_ms = [round(delay * 1000) for delay in delays_s]
        if phase == "mutate":
            scripts = [
                over_https(webhook, patching("a"), delay_s=delays_s[0]),
                {"patch": label("b"), "delay_ms": delays_ms[1], "annotations": {"by": "b"}},
                over_https(webhook, {"warnings": ["c"], **patching("c")}, delay_s=delays_s[2]),
            ]
        else:
            status = {"code": 422, "reason": "Invalid", "message": "not a"}
            scripts = [
                over_https(webhook, {"allowed": False, "status": status}, delay_s=delays_s[0]),
                {"deny": {"code": 403, "message": "not b"}, "delay_ms": delays_ms[1]},
                over_https(webhook, {"warnings": ["c"]}, delay_s=delays_s[2], status=503),
            ]
        (tmp_path / "c.yaml").write_text(
            pool_document("pool", worker.target) + webhook_document(phase, "m.test", "pool", *scripts)
        )
        if gateway is None:
            gateway = start_gateway(tmp_path)
        else:
            seen = len(gateway.log)
            gateway.signal(signal.SIGHUP)
            gateway.expect("configuration reloaded", after=seen)
        for _ in range(3):
            answers.add(gateway.post(f"/{phase}", annotated_review()))
        assert len(answers) == 1, number
    (answer,) = answers
    response = json.loads(answer)["response"]
    if phase == "mutate":
        patch = {
            change["path"]: change["value"] for change in json.loads(base64.b64decode(response["patch"]))
        }
        assert patch == {f"/metadata/annotations/{name}": name for name in "abc"}
        assert response["warnings"] == ["c"]
        assert response["auditAnnotations"]["h0.m.test.test.by"] == "a"
    else:
        assert response["status"]["code"] == 422
        assert response["status"]["message"].splitlines() == [
            "h0.m.test.test: not a",
            "h1.m.test.test: not b",
            (
                'failed calling webhook "h2.m.test.test": failed to call webhook: '
                "the server is currently unable to handle the request"
            ),
        ]


def test_webhooks_with_side_effects_are_called_as_often_as_in_a_serial_run(
    tmp_path: Path, webhook: WebhookProcess, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    client = webhook.client({"answer": {"warnings": ["side effects"]}})
    last = over_https(webhook, {"warnings": ["side effects"]})
    last["webhook"]["sideEffects"] = "NoneOnDryRun"
    worker = start_worker()
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target)
        + webhook_document("mutate", "m.test", "pool", {"deny": {"message": "no"}, "delay_ms": 50}, last)
    )
    gateway = start_gateway(tmp_path)
    assert gateway.review("/mutate", "pod-create-mutate")["allowed"] is False
    assert not webhook.requests(client)


def test_failures_obey_failure_policy_and_are_counted(
    tmp_path: Path, webhook: WebhookProcess, start_gateway: StartGateway
) -> None:
    broken = over_https(webhook, {}, status=404)
    (tmp_path / "c.yaml").write_text(
        webhook_document("validate", "a.test", "", broken, failurePolicy="Ignore")
        + webhook_document("mutate", "a.test", "", broken)
    )
    gateway = start_gateway(tmp_path)
    assert gateway.review("/validate", "pod-create-validate")["allowed"] is True
    refused = gateway.review("/mutate", "pod-create-mutate")
    assert (refused["allowed"], refused["status"]["code"]) == (False, 500)
    assert refused["status"]["message"] == (
        'failed calling webhook "h0.a.test.test": failed to call webhook: '
        "the server could not find the requested resource"
    )
    url = broken["webhook"]["clientConfig"]["url"]
    calls = "admission_gateway_worker_calls_total"
    assert gateway.metric(calls, pool="https", endpoint=url, code="404") == 2
    assert gateway.metric("admission_gateway_webhook_fail_open_total", name="h0.a.test.test") == 1


def test_dry_runs(tmp_path: Path, webhook: WebhookProcess, start_gateway: StartGateway) -> None:
    script = over_https(webhook, {"warnings": ["dry"]})
    (tmp_path / "c.yaml").write_text(webhook_document("mutate", "a.test", "", script))
    gateway = start_gateway(tmp_path)
    assert gateway.review("/mutate", "pod-create-dryrun-mutate")["warnings"] == ["dry"]
    (request,) = webhook.requests(webhook.client({"answer": {"warnings": ["dry"]}}))
    assert json.loads(request["body"])["request"]["dryRun"] is True


def test_a_reload_takes_another_bundle_and_keeps_connections_otherwise(
    tmp_path: Path, webhook: WebhookProcess, start_gateway: StartGateway
) -> None:
    script = over_https(webhook, {"warnings": ["reloaded"]})
    client = webhook.client({"answer": {"warnings": ["reloaded"]}})
    (tmp_path / "c.yaml").write_text(webhook_document("validate", "a.test", "", script))
    gateway = start_gateway(tmp_path)
    assert gateway.review("/validate", "pod-create-validate")["warnings"] == ["reloaded"]
    for bundle, is_trusted in ((None, True), (webhook.other_ca.cert_pem.bytes(), False)):
        if bundle is not None:
            script["webhook"]["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
        (tmp_path / "c.yaml").write_text(
            webhook_document("validate", "a.test", "", script, timeoutSeconds=20)
        )
        seen = len(gateway.log)
        gateway.signal(signal.SIGHUP)
        gateway.expect("configuration reloaded", after=seen)
        response = gateway.review("/validate", "pod-create-validate")
        assert response["allowed"] is is_trusted
        assert is_trusted or "tls: failed to verify certificate" in response["status"]["message"]
    assert len({request["connection"] for request in webhook.requests(client)}) == 1


def test_changed_credentials_are_used(
    tmp_path: Path, webhook: WebhookProcess, start_gateway: StartGateway
) -> None:
    client = webhook.client({"answer": {"warnings": ["known"]}})
    users = tmp_path / "users"
    users.write_text(json.dumps({"users": [{"name": "*", "user": {"token": "first"}}]}))
    settings = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "webhookKubeConfigFile": "users",
    }
    (tmp_path / "c.yaml").write_text(
        webhook_document("validate", "a.test", "", over_https(webhook, {"warnings": ["known"]}))
        + json.dumps(settings)
    )
    gateway = start_gateway(tmp_path)
    gateway.review("/validate", "pod-create-validate")
    seen = len(gateway.log)
    users.write_text(json.dumps({"users": [{"name": "*", "user": {"token": "the second"}}]}))
    gateway.expect("configuration reloaded", after=seen)
    gateway.review("/validate", "pod-create-validate")
    sent = [request["headers"]["Authorization"] for request in webhook.requests(client)]
    assert sent == ["Bearer first", "Bearer the second"]
