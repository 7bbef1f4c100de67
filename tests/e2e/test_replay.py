"""The audit log and the objects of an API server, replayed through a configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import yaml

from tests.e2e.objects import config_map
from tests.kit import run_command
from tests.replay.kit import configure
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.faults.kit import StartWorker

DENIES = {"deny": {"code": 403, "message": "no"}, "when": "bad"}


def test_creations_of_an_audit_log_and_the_objects_that_they_made_are_denied_alike(
    cluster: Cluster, namespace: str, tmp_path: Path, start_worker: StartWorker
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for name, labels in (("good", {}), ("worse", {"bad": "x"})):
        assert cluster.api.create(path, config_map(name, labels, key="value")).status == 201
    rules = [
        {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    ]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    config = configure(
        tmp_path / "new", start_worker().target, "validate", DENIES, rules=rules, namespaceSelector=selector
    )
    cluster.audit_events(lambda event: event.get("objectRef", {}).get("name") == "worse")
    eventually(lambda: b'"worse"' in cluster.audit_log.read_bytes())
    for source in (("--audit-log", cluster.audit_log), ("--cluster-objects",)):
        done = run_command(
            "replay", *source, "--config", config, "--kubeconfig", cluster.kubeconfig(), "--json"
        )
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        # The log also has what other tests made, and were denied.
        (group,) = [one for one in report["differences"] if one["namespace"] == namespace]
        assert (group["difference"], group["namespace"], group["kind"], group["count"]) == (
            *("newlyDenied", namespace, "ConfigMap"),
            1,
        )
        assert group["examples"][0]["name"] == "worse"
        assert report["equal"] >= 1
        file = tmp_path / f"exceptions{source[0]}.yaml"
        options = ("--write-exceptions", file, "--exceptions-max-percent", "100")
        command = ("replay", *source, "--kubeconfig", cluster.kubeconfig(), "--config", config)
        done = run_command(*command, *options)
        assert done.returncode == 0, done.stderr
        (exception,) = (one for one in yaml.safe_load_all(file.read_text()) if one is not None)
        assert exception["metadata"]["namespace"] == namespace
        found = json.loads(run_command(*command, file, "--json").stdout)
        assert (found["newlyDenied"], found["replayed"]) == (0, report["replayed"])
