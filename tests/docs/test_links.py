"""Links and paths in the documentation lead somewhere. mkdocs checks the links among pages of docs/."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import DOCS, MARKDOWN, ROOT, anchors, links, without_code

if TYPE_CHECKING:
    from pathlib import Path

PATH = re.compile(r"`((?:deploy|docs|gateway|loadtest|protos|tests|workers)/[\w./-]*)`")


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", MARKDOWN, ids=named)
def test_every_link_to_a_file_or_heading_leads_to_one(page: Path) -> None:
    broken = []
    for link in links(page.read_text()):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=named)
def test_every_path_of_the_repository_that_a_page_names_is_there(page: Path) -> None:
    paths = PATH.findall(without_code(page.read_text()))
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", MARKDOWN, ids=named)
def test_every_module_that_a_page_runs_is_there(page: Path) -> None:
    ours = r"python -m ((?:admission_gateway_worker|deploy|gateway|loadtest|tests)[\w.]*)"
    modules = re.findall(ours, page.read_text())
    paths = [
        (ROOT / "workers" / "python" if module.startswith("admission") else ROOT) / module.replace(".", "/")
        for module in modules
    ]
    assert [path for path in paths if not path.is_dir() and not path.with_suffix(".py").exists()] == []


def test_pages_load_nothing_from_other_hosts() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in settings
    assert "mermaid" not in settings, "the theme loads mermaid from another host"
    for page in DOCS.glob("*.md"):
        assert not re.search(r"!\[[^\]]*\]\(https?:|<(?:script|img|link|iframe)\b", page.read_text()), page


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# Who may *call*\n", {"who-may-call"}),
        ("## check --cluster\n```\n# a comment\n```\n", {"check---cluster"}),
        ("## MutatingWebhookConfiguration, Validating…\n", {"mutatingwebhookconfiguration-validating"}),
    ],
)
def test_anchors_are_those_that_a_browser_finds(text: str, found: set[str]) -> None:
    assert anchors(text) == found
