"""The examples of the pages about other engines are loaded and asked as they stand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.config.documents import load_documents
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


@pytest.mark.parametrize(
    ("namespace", "image", "message"),
    [
        ("shop", "registry.example.com/proxy", ""),
        ("shop", "registry.example.com/other", "Policy tagged-images failed: an image has no tag"),
        ("pay", "registry.example.com/proxy", "Policy tagged-images failed: an image has no tag"),
    ],
)
def test_the_example_with_images_of_an_exception(
    namespace: str, image: str, message: str, tmp_path: Path
) -> None:
    (example,) = (one for one in EXAMPLE.findall((DOCS / "kyverno.md").read_text()) if "images: [" in one)
    pod = {
        "metadata": {"name": "a", "namespace": namespace},
        "spec": {"containers": [{"name": "a", "image": image}]},
    }
    documents = list(yaml.safe_load_all(example))
    status = decided(tmp_path, documents, {"object": pod, "namespace": namespace}).decision.status
    assert (status.message if status else "") == message


def test_the_example_with_a_worker_has_the_entries_that_the_page_names() -> None:
    page = (DOCS / "kyverno.md").read_text()
    (example,) = (one for one in EXAMPLE.findall(page) if "engines:" in one)
    config = load_documents(*yaml.safe_load_all(example))
    assert [one.name for one in config.mutating] == ["pods/owner"]
    assert [one.name for one in config.validating] == ["pods/no-host-network"]
    assert all(f"`{one.name}`" in page for one in config.webhooks)
