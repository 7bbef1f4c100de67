"""The examples of the pages about other engines are loaded and asked as they stand."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.config.documents import load_documents
from tests.docs.pages import DOCS
from tests.kit import call_command
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


def test_the_import_prints_what_the_page_shows(tmp_path: Path) -> None:
    page = (DOCS / "kyverno.md").read_text()
    example = EXAMPLE.search(page)
    shown = re.search(r"import kyverno policies --output config\n.*?```text\n(.*?) *```", page, re.DOTALL)
    assert example is not None
    assert shown is not None
    head = "apiVersion: policies.kyverno.io/v1\nkind: GeneratingPolicy\nmetadata: {name: copy-secrets}\n"
    test = "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\n---\napiVersion: v1\nkind: Pod\n"
    (tmp_path / "policies" / "tests").mkdir(parents=True)
    (tmp_path / "policies" / "a.yaml").write_text(f"{example[1]}---\n{head}")
    (tmp_path / "policies" / "tests" / "kyverno-test.yaml").write_text(test)
    done = call_command("import", "kyverno", tmp_path / "policies", "--output", tmp_path / "config")
    assert done.returncode == 1
    assert done.stdout.replace(f"{tmp_path}/", "") == dedent(shown[1])
