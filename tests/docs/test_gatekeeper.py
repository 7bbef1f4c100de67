"""The page for users of Gatekeeper: its example, and the features that it names."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import yaml

from gateway.config.loaders.gatekeeper import GROUPS
from tests.docs.pages import DOCS
from tests.kit import call_command
from tests.offline.test_gatekeeper_worker import deployment, module_command

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (DOCS / "gatekeeper.md").read_text()


def block(language: str) -> str:
    """The first block of *language*."""
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def test_excluded_namespaces_are_not_reviewed(tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "a.yaml").write_text(block("yaml"))
    excluded = "apiVersion: v1\nkind: Namespace\nmetadata: {name: gatekeeper-system}\n"
    (tmp_path / "namespace.yaml").write_text(excluded)
    answer = call_command("review", tmp_path / "namespace.yaml", "--config", policies)
    assert answer.stdout.startswith("allowed")


def worker_command() -> list[str]:
    """The command of Gatekeeper's worker if ``GATEKEEPER_WORKER`` names it, or of one that stands for it."""
    if built := os.environ.get("GATEKEEPER_WORKER"):
        return [built]
    return module_command("tests.gatekeeper.worker")


def test_the_example_with_a_worker_runs(tmp_path: Path) -> None:
    section = PAGE.split("## Rego, mutators and expansion: the worker")[1]
    example, answer = (
        re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[0]
        for language in ("yaml", "text")
    )
    settings, pool, *documents = yaml.safe_load_all(example)
    assert pool["spec"]["command"] == ["gatekeeper", "--policies", "policies"]
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "a.yaml").write_text(yaml.safe_dump_all(documents))
    pool["spec"]["command"] = [*worker_command(), "--policies", str(policies)]
    (tmp_path / "gateway.yaml").write_text(yaml.safe_dump_all([settings, pool]))
    config = ["--config", policies, "--config", tmp_path / "gateway.yaml"]
    checked = call_command("check", *config)
    assert checked.stdout.startswith("valid: webhooks: 1 mutating, 1 validating")
    (tmp_path / "deployment.yaml").write_text(yaml.safe_dump(deployment()))
    assert call_command("review", tmp_path / "deployment.yaml", *config).stdout == answer
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"owner": "a"}}}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump({**pod, "spec": {"containers": []}}))
    allowed = call_command("review", tmp_path / "pod.yaml", *config)
    assert allowed.stdout.startswith("allowed")
    assert "team: web" in allowed.stdout


def test_every_group_is_on_the_page() -> None:
    kinds = {
        "config.gatekeeper.sh": "Config",
        "connection.gatekeeper.sh": "Connection",
        "constraints.gatekeeper.sh": "Constraints",
        "expansion.gatekeeper.sh": "ExpansionTemplate",
        "externaldata.gatekeeper.sh": "Provider",
        "mutations.gatekeeper.sh": "AssignMetadata",
        "status.gatekeeper.sh": "status.gatekeeper.sh",
        "syncset.gatekeeper.sh": "SyncSet",
        "templates.gatekeeper.sh": "ConstraintTemplate",
    }
    assert {*kinds} == {*GROUPS}
    assert [kind for kind in kinds.values() if kind not in PAGE] == []
