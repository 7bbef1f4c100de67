"""``audit`` of a real API server: objects that are older than a policy, restarts, and reports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.audit.kit import policy_documents
from tests.e2e.objects import config_map, deployment, pod
from tests.e2e.report_definitions import GROUP, define_reports
from tests.kit import run_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster

NAMED = "has(object.metadata.labels) && 'team' in object.metadata.labels"


@pytest.fixture
def reports(cluster: Cluster) -> None:
    """The definitions of OpenReports."""
    define_reports(cluster)


@pytest.mark.usefixtures("reports")
def test_stored_objects_and_restarts_are_audited_and_reported_and_again_only_what_changed(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    core, apps = (f"{path}/namespaces/{namespace}" for path in ("/api/v1", "/apis/apps/v1"))
    for path, document in (
        (f"{core}/configmaps", config_map("old", None, key="value")),
        (f"{core}/configmaps", config_map("named", {"team": "a"}, key="value")),
        (f"{core}/pods", pod("alone")),
        (f"{apps}/deployments", deployment("web")),
    ):
        made = cluster.api.create(path, document)
        assert made.status == 201, made
    config = tmp_path / "config"
    config.mkdir()
    selected = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "resourceRules": [
            {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": resources}
            for resources in (["pods", "configmaps"],)
        ],
    }
    documents = policy_documents("named", NAMED, matchConstraints=selected)
    (config / "named.yaml").write_text(yaml.safe_dump_all(documents))
    state = tmp_path / "state.db"

    def audit(*arguments: object, status: int = 1) -> dict[str, Any]:
        given = ("--config", config, "--kubeconfig", cluster.kubeconfig(), "--state", state, "--json")
        done = run_command("audit", *given, "--requests-per-second", 1000, *arguments)
        assert done.returncode == status, (done.stdout, done.stderr)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    report = audit("--reports", "--jsonl", tmp_path / "findings.jsonl")
    assert (report["complete"], report["denied"], report["refusedAtRestart"]) == (True, 2, 1)
    lines = [json.loads(line) for line in (tmp_path / "findings.jsonl").read_text().splitlines()]
    assert sorted((one["part"], one["kind"], one["name"]) for one in lines) == [
        ("object", "ConfigMap", "old"),
        ("object", "Pod", "alone"),
        ("restart", "Deployment", "web"),
    ]
    path = f"{GROUP}/namespaces/{namespace}/reports/admission-gateway-audit"
    stored = cluster.api.get(path).document
    assert (stored["summary"]["fail"], stored["summary"]["pass"]) == (3, 1)

    again = audit("--reports")
    assert (again["evaluated"], again["denied"]) == (0, 2)
    assert (
        cluster.api.get(path).document["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
    )

    # One is mended, and what only the API server writes of another one changes.
    assert cluster.api.patch(f"{core}/configmaps/old", {"metadata": {"labels": {"team": "b"}}}).status == 200
    status = {"status": {"message": "a"}}
    assert cluster.api.patch(f"{core}/pods/alone/status", status).status == 200
    mended = audit("--reports")
    assert (mended["evaluated"], mended["denied"]) == (1, 1)
    assert cluster.api.get(path).document["summary"]["fail"] == 2

    (config / "named.yaml").write_text(yaml.safe_dump_all(policy_documents("named", "true")))
    audit("--reports", status=0)
    assert cluster.api.get(path).status == 404


def test_requests_for_a_deprecated_version_are_told_before_an_upgrade(
    cluster: Cluster, tmp_path: Path
) -> None:
    assert cluster.api.get("/api/v1/componentstatuses").status == 200
    (tmp_path / "named.yaml").write_text(yaml.safe_dump_all(policy_documents("named", "true")))
    given = ("--config", tmp_path, "--kubeconfig", cluster.kubeconfig(), "--kinds", "configmaps", "--json")
    done = run_command("audit", *given, "--kubernetes", "1.38")
    found = json.loads(done.stdout)["forecast"]["findings"]
    told = {one["where"]: one["message"] for one in found if one["rule"] == "forecast-live-use"}
    assert "no version removes it yet" in told['requests for "componentstatuses" of "v1"'], found
