"""The page for users of Kubewarden: its example, and the features that it names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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


def test_every_field_is_on_the_page() -> None:
    assert issubclass(ClusterSpec, Declared)
    names = [
        *ClusterSpec.schema()["properties"],
        *("settings", "timeoutEvalSeconds", "message", "policyServer", "backgroundAudit"),
        *("contextAwareResources", "allowInsideAdmissionControllerNamespace"),
    ]
    assert [name for name in names if f"`{name}" not in PAGE] == []
