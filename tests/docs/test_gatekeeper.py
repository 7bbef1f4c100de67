"""The page for users of Gatekeeper: its example, and the features that it names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gateway.config.loaders.gatekeeper import GROUPS
from tests.docs.pages import DOCS
from tests.kit import call_command

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (DOCS / "gatekeeper.md").read_text()


def block(language: str) -> str:
    """The first block of *language*."""
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "a.yaml").write_text(block("yaml"))
    checked = call_command("check", "--config", policies)
    assert checked.stdout.startswith("valid: webhooks: 0 mutating, 1 validating")
    (tmp_path / "namespace.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
    answer = call_command("review", tmp_path / "namespace.yaml", "--config", policies)
    assert answer.stdout == block("text")
    excluded = "apiVersion: v1\nkind: Namespace\nmetadata: {name: gatekeeper-system}\n"
    (tmp_path / "namespace.yaml").write_text(excluded)
    answer = call_command("review", tmp_path / "namespace.yaml", "--config", policies)
    assert answer.stdout.startswith("allowed")


def test_the_import_prints_what_the_page_shows(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "a.yaml").write_text(block("yaml"))
    done = call_command("import", "gatekeeper", tmp_path / "policies", "--output", tmp_path / "config")
    assert done.returncode == 0, done.stderr
    found = re.search(
        r"import gatekeeper policies --output config\n```\n\n```text\n(.*?)```", PAGE, re.DOTALL
    )
    assert found
    assert done.stdout.replace(f"{tmp_path}/", "") == found[1]


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
