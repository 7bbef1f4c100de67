"""``audit --continuous`` of a real API server: what it knows follows what changes there and in its files."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.audit.kit import policy_documents
from tests.e2e.client import Api
from tests.e2e.objects import config_map, deployment
from tests.e2e.report_definitions import GROUP, define_reports
from tests.e2e.setups import chart_account, rule
from tests.kit import Process, metric_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster

ACCOUNT: Final = "admission-gateway-audit"
KINDS: Final = "configmaps,pods,deployments.apps"
CHART: Final = (
    *("--set=audit.enabled=true", "--set=audit.continuous=true", "--set=audit.reports=true"),
    f"--set=audit.kinds={{{KINDS}}}",
)
NAMED: Final = "has(object.metadata.labels) && 'team' in object.metadata.labels"
LIMITED: Final = "object.spec.containers.all(c, has(c.resources.limits) && 'memory' in c.resources.limits)"
LIMITS: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "memory"},
    "spec": {"limits": [{"type": "Container", "default": {"memory": "1Gi"}}]},
}
TEAM: Final[dict[str, Any]] = {"metadata": {"labels": {"team": "a"}}}


@pytest.fixture
def account(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig with the rights that the chart gives a continuous audit, and no others."""
    define_reports(cluster)
    with chart_account(cluster, tmp_path, ACCOUNT, *CHART) as kubeconfig:
        yield kubeconfig


def test_the_api_server_puts_its_requests_into_the_flow_schema_of_the_chart(
    cluster: Cluster, account: Path
) -> None:
    (user,) = yaml.safe_load(account.read_text())["users"]
    api = Api(cluster.port, cluster.ca_file, user["user"]["token"])
    schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
    uid = cluster.api.get(f"{schemas}/{ACCOUNT}").document["metadata"]["uid"]

    def is_classified() -> bool:
        answer = api.get("/api/v1/namespaces")
        return (answer.status, answer.headers["X-Kubernetes-Pf-Flowschema-Uid"]) == (200, uid)

    try:
        eventually(is_classified)
    finally:
        api.close()


class Audit(Process):
    """A continuous audit of the objects in one namespace, with its metrics and its reports."""

    def __init__(self, cluster: Cluster, kubeconfig: Path, config: Path, namespace: str) -> None:
        super().__init__(
            *(sys.executable, "-m", "gateway", "audit", "--continuous", "--interval", "2s", "--reports"),
            *("--config", str(config), "--kubeconfig", str(kubeconfig), "--kinds", KINDS),
            *("--requests-per-second", "1000", "--metrics-listen", "127.0.0.1:0"),
            stdout=subprocess.DEVNULL,
        )
        self._cluster = cluster
        self._namespace = namespace
        self._port = self.expect(r"metrics on port (\d+)")[1]

    def metric(self, name: str, **labels: str) -> float:
        """Return a number of the metrics; 0 before there are any."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=30) as answer:
            return metric_of(answer.read().decode(), f"admission_gateway_audit_{name}", labels)

    def finds(self, objects: int, restarts: int) -> None:
        """Wait until so many *objects* and next Pods are denied, in metrics and in the report."""
        expected = (objects, restarts, restarts, 1)

        def denied() -> tuple[float, ...]:
            of = {"finding": "denied", "namespace": self._namespace}
            parts = (self.metric("findings", part=part, **of) for part in ("object", "restart"))
            return (*parts, self.metric("workloads_refused_at_restart"), self.metric("complete"))

        eventually(lambda: denied() == expected, f"the metrics {expected}; log:\n{self.log}")
        eventually(lambda: self._reported() == objects + restarts, "the report")

    def _reported(self) -> int:
        path = f"{GROUP}/namespaces/{self._namespace}/reports/admission-gateway-audit"
        answer = self._cluster.api.get(path)
        return 0 if answer.status == 404 else int(answer.document["summary"]["fail"])


def test_metrics_and_reports_follow_objects_namespaces_policies_and_a_restart_of_the_api_server(
    cluster: Cluster, account: Path, namespace: str, tmp_path: Path
) -> None:
    api, own = cluster.api, f"/api/v1/namespaces/{namespace}"
    maps, deployments = f"{own}/configmaps", f"/apis/apps/v1/namespaces/{namespace}/deployments"
    config = tmp_path / "config"
    config.mkdir()

    def write(name: str, expression: str, resources: str) -> None:
        selected = {
            "namespaceSelector": {"matchLabels": {"audited": namespace}},
            "resourceRules": [rule(resources, "CREATE")],
        }
        documents = policy_documents(name, expression, matchConstraints=selected)
        (config / f"{name}.yaml").write_text(yaml.safe_dump_all(documents))

    def label(value: str | None) -> None:
        assert api.patch(own, {"metadata": {"labels": {"audited": value}}}).status == 200

    def add(name: str) -> None:
        assert api.create(maps, config_map(name, None, key="value")).status == 201

    write("named", NAMED, "pods configmaps")
    write("limited", LIMITED, "pods")
    label(namespace)
    add("old")
    assert api.create(f"{own}/limitranges", LIMITS).status == 201
    assert api.create(deployments, deployment("web")).status == 201
    audit = Audit(cluster, account, config, namespace)
    try:
        audit.finds(1, 1)
        add("new")
        audit.finds(2, 1)
        assert api.patch(f"{maps}/old", TEAM).status == 200
        audit.finds(1, 1)
        assert api.patch(f"{deployments}/web", {"spec": {"template": TEAM}}).status == 200
        audit.finds(1, 0)
        assert api.delete(f"{maps}/new").status == 200
        audit.finds(0, 0)

        assert api.delete(f"{own}/limitranges/memory").status == 200
        audit.finds(0, 1)
        assert api.create(f"{own}/limitranges", LIMITS).status == 201
        audit.finds(0, 0)

        write("named", "false", "pods configmaps")
        audit.finds(1, 1)
        label(None)
        audit.finds(0, 0)
        label(namespace)
        audit.finds(1, 1)

        # What it has been told waits in its connections, which end with the API server.
        audit.signal(signal.SIGSTOP)
        add("meanwhile")
        add("too")
        assert api.delete(f"{deployments}/web").status == 200
        cluster.restart_api_server()
        audit.signal(signal.SIGCONT)
        audit.finds(3, 0)
        audit.signal(signal.SIGTERM)
        assert audit.wait() == 0, audit.log
    finally:
        audit.signal(signal.SIGCONT)
        audit.stop()
