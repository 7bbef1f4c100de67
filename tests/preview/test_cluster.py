"""Previews with the namespaces of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit import call_command
from tests.kubernetes.server import ApiServer
from tests.preview.kit import CONFIG_MAP, configure, deny, findings, of, preview

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.kit import StartWorker

pytestmark = pytest.mark.process

SELECTOR = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
MANIFESTS = "---\n".join(CONFIG_MAP.replace("name: c", f"name: c, namespace: {name}") for name in ("a", "b"))


def test_labels_of_namespaces_come_from_a_cluster(tmp_path: Path, start_worker: StartWorker) -> None:
    hook = of(deny(), "", "configmaps", **SELECTOR)
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[hook])
    with ApiServer() as server:
        server.put("a", team="a")
        server.put("b")
        arguments = ("-", "--config", config, "--kubeconfig", server.kubeconfig(tmp_path))
        report = preview(*arguments, stdin=MANIFESTS, status=1)
        assert [one["result"] for one in report["objects"]] == ["denied", "allowed"]
        server.drop("/api/v1/namespaces/b")
        report = preview(*arguments, stdin=MANIFESTS, status=1)
        assert [one["result"] for one in report["objects"]] == ["denied", "undecided"]
        assert "--namespaces" in findings(report)[1]["message"]


def test_a_cluster_that_is_gone_ends_the_preview_with_complete_output(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    hook = of({}, "", "configmaps", **SELECTOR)
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[hook])
    with ApiServer() as server:
        kubeconfig = server.kubeconfig(tmp_path)
    arguments = ("-", "--config", config, "--kubeconfig", kubeconfig, "--markdown", tmp_path / "c.md")
    report = preview(*arguments, stdin=MANIFESTS, status=3)
    assert report["stopped"]
    assert report["objects"] == []
    assert "The preview could not be completed: `" in (tmp_path / "c.md").read_text()
    done = call_command("preview", *arguments, stdin=MANIFESTS.encode())
    assert done.returncode == 3
    assert "the preview could not be completed: " in done.stdout
    assert "the preview could not be completed: " in done.stderr
