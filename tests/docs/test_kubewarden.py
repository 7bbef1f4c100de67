"""The page for users of Kubewarden: its example, and the features that it names."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import TYPE_CHECKING

import yaml

from gateway.config.kinds.declare import Declared
from gateway.config.loaders.kubewarden_spec import ClusterSpec
from tests.docs.pages import DOCS
from tests.kit import call_command

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (DOCS / "kubewarden.md").read_text()


def example() -> str:
    """The first example."""
    found = re.search(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def test_the_example_is_valid_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(example())
    checked = call_command("check", "--config", tmp_path)
    assert checked.stdout.startswith("valid: webhooks: 0 mutating, 1 validating")


def test_the_import_prints_what_the_page_shows(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    policy = list(yaml.safe_load_all(example()))[-1]
    group = {**policy, "kind": "ClusterAdmissionPolicyGroup", "metadata": {"name": "signed-or-old"}}
    (tmp_path / "policies" / "a.yaml").write_text(yaml.safe_dump_all([policy, group]))
    done = call_command("import", "kubewarden", tmp_path / "policies", "--output", tmp_path / "config")
    assert done.returncode == 1
    shown = re.search(r" *```text\n(.*?) *```", PAGE, re.DOTALL)
    assert shown
    assert done.stdout.replace(f"{tmp_path}/", "") == dedent(shown[1])


def test_every_field_is_on_the_page() -> None:
    assert issubclass(ClusterSpec, Declared)
    names = [
        *ClusterSpec.schema()["properties"],
        *("settings", "timeoutEvalSeconds", "message", "policyServer", "backgroundAudit"),
        *("contextAwareResources", "allowInsideAdmissionControllerNamespace"),
    ]
    assert [name for name in names if f"`{name}" not in PAGE] == []
