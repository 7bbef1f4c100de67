"""The examples of the pages about other engines are loaded and asked as they stand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.docs.pages import DOCS
from tests.policies.documents import decided

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize(
    ("page", "spec", "message"),
    [
        (
            "kyverno.md",
            {"hostNetwork": True},
            "Policy no-host-network failed: Pods may not use the network of their node",
        ),
        ("kyverno.md", {"hostNetwork": False}, ""),
    ],
)
def test_the_first_example(page: str, spec: dict[str, object], message: str, tmp_path: Path) -> None:
    example = EXAMPLE.search((DOCS / page).read_text())
    assert example is not None
    pod = {"metadata": {"name": "a"}, "spec": spec}
    status = decided(tmp_path, list(yaml.safe_load_all(example[1])), {"object": pod}).decision.status
    assert (status.message if status else "") == message
