"""Operation: reload, drain, processes, metrics, and messages for mistakes."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.rotating import write_whole
from tests.kit import PATIENCE_S, REVIEWS, WORKER, call_command, pool_document, run_command, webhook_document
from tests.process.kit import children_of, runs, state_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import StartGateway
    from tests.worker.server import StartWorker

pytestmark = pytest.mark.process

POD = "pod-create-mutate"


def denial(message: str) -> dict[str, Any]:
    return {"deny": {"message": message}}


@pytest.mark.parametrize("by_signal", [pytest.param(True, marks=pytest.mark.smoke), False])
def test_a_changed_configuration_is_used_and_a_bad_one_refused(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, by_signal: bool
) -> None:
    worker = start_worker()
    file = tmp_path / "c.yaml"
    pool = pool_document("pool", worker.target)
    file.write_text(pool + webhook_document("validate", "v", "pool", denial("first")))
    gateway = start_gateway(tmp_path)
    connection = gateway.connect()
    body = (REVIEWS / f"{POD}.json").read_bytes()

    def message() -> str:
        answer = json.loads(gateway.post("/validate", body, connection))
        text: str = answer["response"]["status"]["message"]
        return text

    def change(text: str, expected_log: str) -> None:
        seen = len(gateway.log)
        write_whole(file, text)
        if by_signal:
            gateway.signal(signal.SIGHUP)
        gateway.expect(expected_log, after=seen)

    assert message() == "h0.v.test: first"
    change(pool + webhook_document("validate", "v", "pool", denial("second")), "configuration reloaded")
    assert message() == "h0.v.test: second"
    assert gateway.metric("admission_gateway_config_last_reload_successful") == 1
    change(pool + webhook_document("validate", "v", "pol", denial("third")), "configuration refused")
    assert "webhooks[0].clientConfig.worker.pool" in gateway.log
    assert message() == "h0.v.test: second"
    assert gateway.metric("admission_gateway_config_last_reload_successful") == 0
    assert gateway.admin("/readyz")[0] == 200
    change(pool + webhook_document("validate", "v", "pool", denial("fourth")), "configuration reloaded")
    assert message() == "h0.v.test: fourth"
    connection.close()


def test_a_review_keeps_the_configuration_it_started_with(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    old, new = start_worker(), start_worker()
    file = tmp_path / "c.yaml"
    gate = tmp_path / "gate"
    patient = {"sideEffects": "NoneOnDryRun", "timeoutSeconds": 30}
    slow = {"until": str(gate), "warnings": ["old"]}
    file.write_text(
        pool_document("old", old.target) + webhook_document("mutate", "m", "old", slow, slow, **patient)
    )
    gateway = start_gateway(tmp_path)
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(gateway.review("/mutate", POD)))
    thread.start()
    eventually(lambda: gateway.metric("admission_gateway_reviews_in_flight") == 1)
    seen = len(gateway.log)
    file.write_text(
        pool_document("new", new.target) + webhook_document("mutate", "n", "new", {"warnings": ["new"]})
    )
    gateway.expect("configuration reloaded", after=seen)
    assert gateway.review("/mutate", POD)["warnings"] == ["new"]
    gate.touch()
    thread.join(PATIENCE_S)
    assert answers[0]["warnings"] == ["old"]
    assert answers[0]["allowed"] is True


@pytest.mark.smoke
def test_sigterm_answers_what_is_in_flight(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    worker = start_worker()
    gate = tmp_path / "gate"
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target)
        + webhook_document(
            "validate", "v", "pool", {"until": str(gate), "warnings": ["done"]}, timeoutSeconds=30
        )
    )
    gateway = start_gateway(tmp_path)
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(gateway.review("/validate", POD)))
    thread.start()
    eventually(lambda: gateway.metric("admission_gateway_reviews_in_flight") == 1)
    gateway.signal(signal.SIGTERM)
    gateway.expect("stopping")
    # The message is logged a moment before the drain begins.
    eventually(lambda: gateway.admin("/readyz")[0] == 503)
    gate.touch()
    thread.join(PATIENCE_S)
    assert answers[0]["warnings"] == ["done"]
    assert gateway.wait() == 0
    assert "Traceback" not in gateway.log


def test_calls_are_cancelled_when_the_client_disconnects(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    worker = start_worker()
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target)
        + webhook_document("validate", "v", "pool", {"hang": True}, timeoutSeconds=30)
    )
    gateway = start_gateway(tmp_path)
    connection = gateway.connect()
    body = (REVIEWS / f"{POD}.json").read_bytes()
    connection.request("POST", "/validate", body, {"Content-Type": "application/json"})
    eventually(lambda: gateway.metric("admission_gateway_reviews_in_flight") == 1)
    connection.close()
    eventually(lambda: gateway.metric("admission_gateway_worker_calls_total", code="CANCELLED") == 1)
    assert gateway.metric("admission_gateway_reviews_in_flight") == 0


@pytest.mark.smoke
def test_several_processes_answer_as_one(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    worker = start_worker()
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target) + webhook_document("validate", "v", "pool", denial("first"))
    )
    gateway = start_gateway(tmp_path, "--processes", "2")
    for _ in range(20):
        assert gateway.review("/validate", POD)["status"]["message"] == "h0.v.test: first"
    assert gateway.metric("admission_gateway_review_duration_seconds_count") == 20
    eventually(lambda: gateway.metric("admission_gateway_worker_endpoints", state="ready") == 2)
    assert gateway.metric("admission_gateway_config_last_reload_successful") == 1
    seen = len(gateway.log)
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target) + webhook_document("validate", "v", "pool", denial("second"))
    )
    gateway.expect(r"(?s)configuration reloaded.*configuration reloaded", after=seen)
    # Each refuses a folder without webhooks.
    (tmp_path / "c.yaml").unlink()
    gateway.expect(r"(?s)found no webhooks.*found no webhooks", after=seen)
    for _ in range(10):
        assert gateway.review("/validate", POD)["status"]["message"] == "h0.v.test: second"
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0
    assert "Traceback" not in gateway.log


def test_a_scrape_fails_when_one_process_does_not_answer(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", start_worker().target) + webhook_document("validate", "v", "pool", {})
    )
    gateway = start_gateway(tmp_path, "--processes", "2")
    for _ in range(10):
        gateway.review("/validate", POD)
    stopped = children_of(gateway.child.pid)[0]
    os.kill(stopped, signal.SIGSTOP)
    eventually(lambda: state_of(stopped) == "T")
    try:
        status, body = gateway.admin("/metrics")
        assert (status, json.loads(body)["error"][:8]) == (503, "process ")
        assert body.endswith(': does not answer"}')
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert gateway.metric("admission_gateway_worker_calls_total") == 10


@pytest.mark.smoke
def test_a_worker_started_by_a_command_is_started_again_and_stopped_at_the_end(
    tmp_path: Path, start_gateway: StartGateway
) -> None:
    pool = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "local"},
        "spec": {"command": ["python", *WORKER[1:]]},
    }
    (tmp_path / "c.yaml").write_text(
        json.dumps(pool)
        + "\n---\n"
        + webhook_document("validate", "dies", "local", {"exit": True})
        + webhook_document("validate", "lives", "local", denial("alive"))
    )
    gateway = start_gateway(tmp_path)
    assert gateway.review("/validate/lives", POD)["status"]["message"] == "h0.lives.test: alive"
    assert "UNAVAILABLE" in gateway.review("/validate/dies", POD)["status"]["message"]
    eventually(lambda: gateway.review("/validate/lives", POD)["status"]["message"] == "h0.lives.test: alive")
    (worker,) = children_of(gateway.child.pid)
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0
    assert not runs(worker)


@pytest.mark.smoke
def test_check_reports_all_problems(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        webhook_document("validate", "v", "nowhere", {}, {"webhook": {"timeoutSeconds": 31}})
    )
    result = run_command("check", "--config", str(tmp_path))
    assert result.returncode == 1
    assert "webhooks[0].clientConfig.worker.pool" in result.stderr
    assert "webhooks[1].timeoutSeconds" in result.stderr
    assert "Traceback" not in result.stderr
    assert call_command("check").returncode == 2
    good = call_command("check", "--config", "gateway/dev.yaml")
    assert good.returncode == 0
    assert good.stderr == "warning: no tls.certFile: serve needs --tls-cert and --tls-key, or --dev\n"


def test_a_start_that_is_impossible_is_reported_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "empty.yaml"
    config.write_text("")
    dev = "--dev", "--state", str(tmp_path)
    for flags, status, expected in (
        ((), 2, "there is no configuration: expected --config, --dev"),
        ((*dev, "--listen", "127.0.0.1:nope"), 2, '--listen: found "127.0.0.1:nope", expected HOST:PORT'),
        ((*dev, "--processes", "0"), 2, "--processes: found 0, expected a number from 1 to 1024"),
        ((*dev, "--tls-cert", "x"), 2, "--tls-cert and --tls-key go together"),
        ((*dev, "--listen", "127.0.0.1:9", "--admin-listen", "127.0.0.1:9"), 1, "both 127.0.0.1:9"),
        (("--config", str(tmp_path / "nowhere")), 1, "nowhere"),
        (("--config", str(config)), 1, "tls.certFile"),
    ):
        result = run_command("serve", "--admin-listen", "127.0.0.1:0", *flags)
        assert (result.returncode, result.stdout) == (status, ""), flags
        assert expected in result.stderr
        assert result.stderr.count("\n") == 1


@pytest.mark.smoke
def test_review_runs_both_phases_and_explains_them(tmp_path: Path, start_worker: StartWorker) -> None:
    worker = start_worker()
    only_nodes = {
        "rules": [
            {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"]}
        ]
    }
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target)
        + webhook_document("mutate", "m", "pool", {"label": "added"}, {"webhook": only_nodes})
        + webhook_document(
            "validate", "v", "pool", {"label": "added", "webhook": {"failurePolicy": "Ignore"}}
        )
    )
    pod = REVIEWS / f"{POD}.json"
    result = run_command("review", str(pod), "--config", str(tmp_path), "--explain")
    assert result.returncode == 0, result.stderr
    response = json.loads(result.stdout)["response"]
    assert response["allowed"] is True
    assert "patch" in response
    explained = result.stderr.splitlines()
    assert explained[0].startswith("mutate m/h0.m.test: matched, allowed in ")
    assert "changed the object: [" in explained[0]
    assert explained[1] == (
        "mutate m/h1.m.test: not matched, no rule is for CREATE core/v1 pods in namespace default"
    )
    # The validating phase gets the object with the label, so it sends no patch.
    assert explained[2].startswith("validate v/h0.v.test: matched, allowed in ")
    yaml = call_command("review", "-", "--config", str(tmp_path), "--phase", "mutate", stdin=pod.read_bytes())
    assert json.loads(yaml.stdout)["response"]["patch"] == response["patch"]
    for text in (b"", b"{", b"kind: Pod", b"a: [1"):
        wrong = call_command("review", "-", "--config", str(tmp_path), stdin=text)
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert "Traceback" not in wrong.stderr
        assert wrong.stderr.startswith("admission-gateway: ")
