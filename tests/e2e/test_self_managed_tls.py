"""A certificate that the gateway issues itself, with the deployed roles."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.cluster import NAMESPACE
from tests.e2e.objects import pod
from tests.e2e.setups import KINDS, REGISTRATIONS, BehindGateway, Hook, deployed_account, run_manifests
from tests.kit import GatewayProcess, Process
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster

NAME = "admission-gateway"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/admission-gateway-tls"


@pytest.fixture
def account(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig of the deployed service account, with the rights of self-managed-tls.yaml."""
    with deployed_account(cluster, tmp_path, "self-managed-tls.yaml") as kubeconfig:
        yield kubeconfig


class SelfManaged(BehindGateway):
    """A gateway without certificate files, whose registration is made without a caBundle."""

    def start_gateway(self, port: int | None = None) -> GatewayProcess:
        listen = f"127.0.0.1:{port or self.port}"
        self.gateway = GatewayProcess(
            self.config, None, self.cluster.authority, "--listen", listen, *self._flags
        )
        self.stack.callback(self.gateway.stop)
        return self.gateway

    def manifests(self) -> list[dict[str, Any]]:
        service = f"{NAMESPACE}/{self.name}:{self.port}"
        done = run_manifests("--config", self.config, "--service", service, *self._manifests)
        assert done.returncode == 0, done.stderr
        return list(yaml.safe_load_all(done.stdout))


def secret(cluster: Cluster) -> dict[str, str]:
    data: dict[str, str] = cluster.api.get(SECRET).document.get("data", {})
    return data


def bundles(cluster: Cluster) -> set[str]:
    found = [cluster.api.get(f"{REGISTRATIONS}/{kind.lower()}s/{NAME}").document for kind in KINDS.values()]
    return {entry["clientConfig"].get("caBundle") for one in found for entry in one["webhooks"]}


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_api_server_trusts_a_certificate_that_the_gateway_made(
    cluster: Cluster, account: Path, tmp_path: Path, processes: str
) -> None:
    settings = {
        "kubernetes": {"kubeconfig": str(account)},
        "tls": {"selfManaged": {"service": f"{NAMESPACE}/{NAME}"}},
    }
    hooks = [Hook("validate", "own.tls.test", {"deny": {"message": "trusted"}})]
    pods = "/api/v1/namespaces/default/pods"

    def is_trusted() -> bool:
        return cluster.api.create(pods, pod("a")).message.endswith("own.tls.test: trusted")

    setup = SelfManaged(cluster, tmp_path, hooks, NAME, gateway=settings, flags=("--processes", processes))
    try:
        with setup:
            first = secret(cluster)
            assert bundles(cluster) == {first["ca.crt"]}
            assert is_trusted()
            # A second replica uses the same Secret.
            other = GatewayProcess(setup.config, None, cluster.authority)
            other.stop()
            assert secret(cluster) == first

            # A new CA, and the registration follows.
            cluster.api.delete(SECRET)
            eventually(lambda: secret(cluster).get("ca.crt", first["ca.crt"]) != first["ca.crt"])
            eventually(lambda: bundles(cluster) == {secret(cluster)["ca.crt"]})
            eventually(is_trusted)
            # An update of the registration that loses the caBundle is repaired.
            for document in setup.manifests():
                path = f"{REGISTRATIONS}/{document['kind'].lower()}s/{NAME}"
                current = cluster.api.get(path).document
                for entry in current["webhooks"]:
                    entry["clientConfig"].pop("caBundle", None)
                assert cluster.api.update(path, current).status == 200
            eventually(lambda: bundles(cluster) == {secret(cluster)["ca.crt"]})
            eventually(is_trusted)
            assert "forbidden" not in setup.gateway.log
            assert "Traceback" not in setup.gateway.log
    finally:
        cluster.api.delete(SECRET)


def test_a_secret_of_another_program_is_not_touched(cluster: Cluster, account: Path, tmp_path: Path) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "admission-gateway-tls"},
        "data": {"tls.crt": "YQ=="},
    }
    assert cluster.api.create(SECRET.rpartition("/")[0], document).status == 201
    settings = {
        "kubernetes": {"kubeconfig": str(account)},
        "tls": {"selfManaged": {"service": f"{NAMESPACE}/{NAME}"}},
    }
    setup = SelfManaged(cluster, tmp_path, [], NAME, gateway=settings)
    setup.write_configuration()
    command = (
        sys.executable,
        "-m",
        "gateway",
        "serve",
        "--config",
        str(setup.config),
        "--listen",
        "127.0.0.1:0",
    )
    gateway = Process(*command)
    try:
        gateway.expect(f"Secret {NAMESPACE}/admission-gateway-tls was not made by the gateway")
        assert secret(cluster) == {"tls.crt": "YQ=="}
    finally:
        gateway.stop()
        cluster.api.delete(SECRET)
