"""Runs the configuration, worker, certificate and paths of the manifest on this machine."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import sys
from typing import TYPE_CHECKING

import pytest

from tests.deploy.cluster import GATEWAY, REGISTRATION, WORKER, container, objects, write_config_map
from tests.kit import PATIENCE_S, REVIEWS, Process
from tests.kubernetes.server import ApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack
    from pathlib import Path

    from tests.kit import GatewayProcess, StartGateway


def start_sample_worker(processes: ExitStack) -> str:
    """Start the program of the worker's image; return its address."""
    worker = Process(sys.executable, "-m", "admission_gateway_worker.samples", "--listen", "127.0.0.1:0")
    processes.callback(worker.stop)
    return worker.expect(r"serving \d+ policies on (\S+)")[1]


def call_as_the_api_server(
    gateway: GatewayProcess, certificates: Path, context: ssl.SSLContext | None = None
) -> http.client.HTTPSConnection:
    """Connect by the Service's name, by default with the CA of the registration as the only root."""
    (names,) = {
        (service["name"], service["namespace"])
        for o in objects(REGISTRATION)
        for service in [webhook["clientConfig"]["service"] for webhook in o["webhooks"]]
    }
    host = f"{'.'.join(names)}.svc"
    connection = http.client.HTTPSConnection(host, timeout=PATIENCE_S)
    context = context or ssl.create_default_context(cafile=certificates / "ca.crt")
    raw = socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_S)
    connection.sock = context.wrap_socket(raw, server_hostname=host)
    return connection


@pytest.fixture
def api_server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def test_the_registered_paths_are_answered_by_the_configured_policies(
    tmp_path: Path,
    made_certificates: Path,
    processes: ExitStack,
    start_gateway: StartGateway,
    api_server: ApiServer,
) -> None:
    address = start_sample_worker(processes)
    folder = write_config_map(tmp_path)
    pools = (folder / "pools.yaml").read_text()
    target = f"{WORKER}.{GATEWAY}.svc:50051"
    assert target in pools
    (folder / "pools.yaml").write_text(pools.replace(target, address))
    settings = (folder / "gateway.yaml").read_text()
    assert "kubernetes: {}" in settings
    file = api_server.kubeconfig(tmp_path)
    file.rename(tmp_path / "cluster")
    (folder / "gateway.yaml").write_text(
        settings.replace("kubernetes: {}", "kubernetes: {kubeconfig: cluster}")
    )
    gateway = start_gateway(
        folder,
        f"--tls-cert={made_certificates / 'tls.crt'}",
        f"--tls-key={made_certificates / 'tls.key'}",
    )

    gateway.expect("namespaces synced")
    for probe in ("readinessProbe", "livenessProbe"):
        assert gateway.admin(container(GATEWAY)[probe]["httpGet"]["path"]) == (200, "ok\n")

    review = json.loads((REVIEWS / "pod-create-validate.json").read_bytes())
    review["request"]["object"]["spec"]["hostNetwork"] = True
    connection = call_as_the_api_server(gateway, made_certificates)
    allowed = {}
    for o in objects(REGISTRATION):
        for webhook in o["webhooks"]:
            path = f"{webhook['clientConfig']['service']['path']}?timeout={webhook['timeoutSeconds']}s"
            status, answer = gateway.exchange(path, json.dumps(review).encode(), connection)
            assert status == 200
            allowed[webhook["name"]] = json.loads(answer)["response"]["allowed"]
    connection.close()
    assert allowed == {
        "mutate.admission-gateway.io": True,
        "mandatory.validate.admission-gateway.io": False,
    }
