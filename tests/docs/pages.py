"""The documentation as text: pages, headings, links and tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_NOT_OURS = {"build", "dist", "node_modules", "target"}
MARKDOWN = [
    path
    for path in sorted(ROOT.rglob("*.md"))
    if not any(part in _NOT_OURS or part.startswith(".") for part in path.relative_to(ROOT).parts)
]
"""The documentation, and the README of each folder."""

_FENCE = re.compile(r"^([ \t]*)(```|~~~).*?^\1\2\s*?$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def without_code(text: str) -> str:
    """Return Markdown *text* without its fenced blocks."""
    return _FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings in Markdown *text*."""
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        for heading in _HEADING.findall(without_code(text))
    }


def links(text: str) -> list[str]:
    """Return the targets of the links in Markdown *text*."""
    return _LINK.findall(without_code(text))


def section(text: str, heading: str) -> str:
    """Return the text below *heading*, up to the next heading of the same level."""
    _, found, rest = text.partition(f"\n## {heading}\n")
    assert found, f"there is no section {heading!r}"
    return rest.partition("\n## ")[0]


def rows(text: str, columns: int) -> Iterator[list[str]]:
    """Yield the cells of each table row of *text* whose first cell is in code font."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if len(cells) == columns and cells[0].startswith("`"):
            yield cells


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of Markdown *text* outside of code; a name in code font is one word.

    A list item, a cell of a table and a part that ends with a colon or a semicolon are sentences, too.
    """
    plain = re.sub(r"`[^`]*`", "x", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", without_code(text)))
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|(?<!\\)\||\n#", plain):
        yield from re.split(r"(?<=[.?!:;])\s+", part.strip())
