"""Parameters of policies in a gateway process with real workers: by webhook and by namespace."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.decisions.test_line import is_valid
from tests.kit import REVIEWS, Process, pool_document, run_command
from tests.waiting import eventually

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from tests.kit import GatewayProcess, StartGateway

pytestmark = pytest.mark.process

KEY = "example.com/images"
MISMATCHES = "admission_gateway_webhook_policy_mismatches"
WORKER = """
from admission_gateway_worker import Denied, PolicyServer, Review

SCHEMA = {
    "type": "object",
    "properties": {"max": {"type": "integer"}, "text": {"type": "string"}},
    "additionalProperties": False,
}
server = PolicyServer()


@server.policy("limit", parameters=SCHEMA, prepare=lambda parameters: parameters.get("max", 9))
def limit(review: Review) -> None:
    raise Denied(f"at most {review.parameters}")


@server.policy("plain")
def plain(review: Review) -> None:
    pass


server.main()
"""


@pytest.fixture
def worker(processes: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("w")
    (folder / "worker.py").write_text(WORKER)
    target = f"unix:{folder}/s"
    process = Process(sys.executable, str(folder / "worker.py"), "--listen", target)
    processes.callback(process.stop)
    process.expect("serving")
    return target


def configure(folder: Path, target: str, *workers: dict[str, Any], **fields: Any) -> Path:
    hooks = [
        {
            "name": f"h{number}.v.test",
            "clientConfig": {"worker": {"pool": "pool", "policy": "limit", **worker}},
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **fields,
        }
        for number, worker in enumerate(workers)
    ]
    webhooks = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "v"},
        "webhooks": hooks,
    }
    (folder / "c.yaml").write_text(pool_document("pool", target) + json.dumps(webhooks))
    return folder


def namespace(folder: Path, annotation: str | None) -> None:
    review = json.loads((REVIEWS / "pod-create-mutate.json").read_bytes())
    annotations = {} if annotation is None else {KEY: annotation}
    metadata = {"name": review["request"]["namespace"], "annotations": annotations}
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    (folder / "namespace.json").write_text(json.dumps(document))


def message(gateway: GatewayProcess) -> str:
    found: str = gateway.review("/validate", "pod-create-mutate")["status"]["message"]
    return found


@pytest.mark.smoke
@pytest.mark.parametrize("transport", ["Stream", "Unary"])
def test_each_webhook_has_its_own_parameters(
    tmp_path: Path, worker: str, start_gateway: StartGateway, transport: str
) -> None:
    given: list[dict[str, Any]] = [{"parameters": {"text": "x", "max": 3}}, {}, {"parameters": {"max": 4}}]
    configure(tmp_path, worker, *given)
    text = (tmp_path / "c.yaml").read_text()
    (tmp_path / "c.yaml").write_text(text.replace('"target"', f'"transport": "{transport}", "target"', 1))
    log = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
    (tmp_path / "g.json").write_text(json.dumps({**log, "logging": {"format": "json"}}))
    gateway = start_gateway(tmp_path)
    for _ in range(3):
        assert [message(gateway).count(f"at most {limit}") for limit in (3, 9, 4)] == [1, 1, 1]
    record = json.loads(gateway.expect(r"\{.*\"log\":\"decision\".*\}")[0])
    assert is_valid(record)
    first, second, third = record["webhooks"]
    assert first["parametersDigest"] == hashlib.sha256(b'{"max":3,"text":"x"}').hexdigest()[:16]
    assert "parametersDigest" not in second
    assert first["parametersDigest"] != third["parametersDigest"]
    found = json.loads(gateway.admin(f"/decisions/{record['uid']}?format=json")[1])
    assert [one["parameters"] for one in found["decision"]["webhooks"]] == [
        {"max": 3, "text": "x"},
        None,
        {"max": 4},
    ]
    shown = json.loads(gateway.admin("/configz?format=json")[1])["validating"][0]["clientConfig"]["worker"]
    assert shown == {"pool": "pool", "policy": "limit", "parameters": {"max": 3, "text": "x"}}
    assert gateway.admin("/readyz?verbose") == (200, "ok\n")


def test_a_namespace_has_its_own_values(tmp_path: Path, worker: str, start_gateway: StartGateway) -> None:
    configure(tmp_path, worker, {"parameters": {"max": 3}, "parametersFrom": {"namespaceAnnotation": KEY}})
    namespace(tmp_path, None)
    gateway = start_gateway(tmp_path)
    assert "at most 3" in message(gateway)
    namespace(tmp_path, '{"max": 5}')
    eventually(lambda: "at most 5" in message(gateway))
    namespace(tmp_path, '{"max": "many"}')
    eventually(lambda: "many" in message(gateway))
    assert (
        'failed calling webhook "h0.v.test": annotation example.com/images of the namespace: parameters.max: '
        'found the string "many", expected a value of type integer'
    ) in message(gateway)
    namespace(tmp_path, "max=5")
    eventually(lambda: "found no JSON, expected a JSON object" in message(gateway))


def test_parameters_that_the_policy_refuses_are_told(
    tmp_path: Path, worker: str, start_gateway: StartGateway
) -> None:
    given: list[dict[str, Any]] = [
        {"parameters": {"max": "3"}},
        {"parameters": {"mx": 3}},
        {"policy": "plain", "parameters": {}},
    ]
    configure(tmp_path, worker, *given, failurePolicy="Ignore")
    gateway = start_gateway(tmp_path)
    expected = [
        'c.yaml: document 2: ValidatingWebhookConfiguration "v": webhooks[0].clientConfig.worker: webhook ',
        'v/h0.v.test: policy "limit" of pool pool: parameters.max: found the string "3", expected a value ',
        f"of type integer (according to {worker}), so that calls fail open",
        'policy "limit" of pool pool: parameters.mx: unknown parameter; did you mean "max"?',
        'policy "plain" of pool pool: parameters: found parameters, expected none: the policy takes none',
    ]
    for text in expected:
        gateway.expect(re.escape(text))
    eventually(lambda: all(text in gateway.admin("/readyz?verbose")[1] for text in expected))
    eventually(lambda: gateway.metric(MISMATCHES, name="h0.v.test", reason="parameters") == 1)
    assert gateway.review("/validate", "pod-create-mutate")["allowed"]
    done = run_command("check", "--config", tmp_path, "--workers", "--json")
    findings = json.loads(done.stdout)
    assert (done.returncode, [one["severity"] for one in findings]) == (1, ["error"] * 3)
    # A new configuration is checked as soon as it is loaded.
    configure(tmp_path, worker, {"parameters": {"max": 3}})
    eventually(lambda: gateway.admin("/readyz?verbose") == (200, "ok\n"))
    assert "at most 3" in message(gateway)
    assert run_command("check", "--config", tmp_path, "--workers").returncode == 0
