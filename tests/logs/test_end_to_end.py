"""A gateway as a process, and hostile texts from every side: each record of its log stays one line."""

from __future__ import annotations

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from admission_gateway_worker.log_lines import CONTINUED
from tests.faults.rotating import command_pool, settings_document
from tests.kit import GatewayProcess, pool_document, run_command, webhook_document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.kit import StartWorker
    from tests.kit import StartGateway

pytestmark = pytest.mark.process

HOSTILE = "\r\n2026-01-01 00:00:00,000 ERROR forged\x1b[2K\x9b2J\u2028\u202e\x7f end"
RECORD = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) (?!forged)"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z decision [A-Z]\w+: "
)


def assert_log_is_whole(gateway: GatewayProcess) -> None:
    gateway.stop()
    for line in gateway.log.removesuffix("\n").split("\n"):
        assert RECORD.match(line) or line.startswith(CONTINUED), line
        assert line.isprintable(), line


class LyingHealth(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    def Watch(self, request: object, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        yield health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)
        context.abort(grpc.StatusCode.DATA_LOSS, HOSTILE)


@contextmanager
def lying_workers(number: int) -> Iterator[list[str]]:
    """Serve workers whose texts are hostile; yields their addresses."""
    servers, targets = [], []
    for _ in range(number):
        server = grpc.server(ThreadPoolExecutor(4))
        health_pb2_grpc.add_HealthServicer_to_server(LyingHealth(), server)
        targets.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        server.start()
        servers.append(server)
    try:
        yield targets
    finally:
        for server in servers:
            server.stop(None).wait()


def test_status_of_a_worker_is_one_record(tmp_path: Path, start_gateway: StartGateway) -> None:
    """gRPC decodes %0A in grpc-message, so that the text has a line feed."""
    with lying_workers(2) as targets:
        (tmp_path / "c.yaml").write_text(
            pool_document("pool", *targets, transport="Unary") + webhook_document("validate", "v", "pool", {})
        )
        gateway = start_gateway(tmp_path)
        gateway.expect("health watch of worker .* failed: .*DATA_LOSS")
        answer = gateway.review("/validate", "pod-create-validate")
        assert not answer["allowed"]
        assert_log_is_whole(gateway)


def test_texts_of_answers_are_records_of_their_own(
    tmp_path: Path, start_gateway: StartGateway, start_worker: StartWorker
) -> None:
    """A denial, a failure, a dropped annotation. The text for the user is unchanged."""
    worker = start_worker()
    scripts: list[dict[str, Any]] = [
        {"deny": {"message": HOSTILE}},
        {"status": "INTERNAL", "details": HOSTILE},
        {"annotations": {HOSTILE: HOSTILE}},
    ]
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target) + webhook_document("validate", "v", "pool", *scripts)
    )
    gateway = start_gateway(tmp_path)
    answer = gateway.review("/validate", "pod-create-validate")
    assert HOSTILE in answer["status"]["message"]
    gateway.expect("audit annotation dropped: ")
    assert_log_is_whole(gateway)


def test_output_of_a_local_worker_is_records(tmp_path: Path, start_gateway: StartGateway) -> None:
    script = f"import sys, time; print({HOSTILE!r}); print({HOSTILE!r}, file=sys.stderr); time.sleep(1000)"
    (tmp_path / "c.yaml").write_text(
        command_pool("pool", sys.executable, "-u", "-X", "utf8", "-c", script)
        + webhook_document("validate", "v", "pool", {})
    )
    gateway = start_gateway(tmp_path)
    gateway.expect(r"ERROR worker pool: forged\\x1b\[2K(.|\n)*forged")
    assert_log_is_whole(gateway)


def test_problems_of_a_hostile_configuration_have_a_line_each(
    tmp_path: Path, start_gateway: StartGateway, start_worker: StartWorker
) -> None:
    good = pool_document("pool", start_worker().target)
    (tmp_path / "c.yaml").write_text(good)
    gateway = start_gateway(tmp_path, "--allow-empty")
    bad = {HOSTILE: HOSTILE, "kind": HOSTILE, "apiVersion": HOSTILE, "metadata": {"name": HOSTILE}}
    file = tmp_path / f"{HOSTILE.replace('/', '')}.yaml"
    file.write_text(yaml.safe_dump(bad))
    gateway.expect("configuration refused, the one in force stays")
    check = run_command("check", "--config", tmp_path)
    assert check.returncode == 1
    assert check.stderr.replace("\n", "").isprintable()
    assert not re.search("^2026", check.stderr, re.MULTILINE)
    assert_log_is_whole(gateway)


def test_errors_of_a_credential_plugin_are_one_record(tmp_path: Path, start_gateway: StartGateway) -> None:
    program = f"import sys; sys.stderr.write({HOSTILE!r}); sys.exit(3)"
    command = {"command": sys.executable, "args": ["-X", "utf8", "-c", program]}
    users = [{"name": "*", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **command}}}]
    config = tmp_path / "config"
    config.mkdir()
    (tmp_path / "kubeconfig").write_text(json.dumps({"kind": "Config", "users": users}))
    webhook = webhook_document("validate", "v", "", {}, clientConfig={"url": "https://127.0.0.1:1/x"})
    settings = settings_document(webhookKubeConfigFile=str(tmp_path / "kubeconfig"))
    (config / "c.yaml").write_text(settings + webhook)
    gateway = start_gateway(config)
    assert not gateway.review("/validate", "pod-create-validate")["allowed"]
    gateway.expect(r"WARNING exec plug-in failed: .*forged")
    assert_log_is_whole(gateway)


def test_output_of_review_is_lines(tmp_path: Path, start_worker: StartWorker) -> None:
    worker = start_worker()
    scripts: list[dict[str, Any]] = [{"warnings": ["\u202e\x85"], "deny": {"message": HOSTILE}}]
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target) + webhook_document("validate", "v", "pool", *scripts)
    )
    run = run_command(
        *("review", "tests/reviews/pod-create-validate.json", "--config", tmp_path, "--explain"),
        *("--phase", "validate"),
    )
    assert run.returncode == 1, run.stderr
    denied, warned = run.stderr.removesuffix("\n").split("\n")
    assert denied.isprintable()
    assert warned.isprintable()
    (printed,) = run.stdout.removesuffix("\n").split("\n")
    assert printed.isprintable()
    assert HOSTILE in json.loads(printed)["response"]["status"]["message"]
