"""Published figures: sections of reports, copied into pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loadtest.publish import LACKING, newest, section

if TYPE_CHECKING:
    from pathlib import Path

REPORT = """\
# Memory, today

- a machine

## Figures

### One; connections: 1

| a |

### One; connections: 16

| b |
"""


@pytest.mark.parametrize(
    ("heading", "text"),
    [
        ("Memory", "- a machine"),
        ("One; connections: 1", "| a |"),
        ("One; connections: 16", "| b |"),
        ("Figures", ""),
        ("One", LACKING),
    ],
)
def test_a_section_ends_at_the_next_heading(heading: str, text: str) -> None:
    assert section(REPORT, heading) == text


def test_the_newest_report_of_a_kind_is_taken(tmp_path: Path) -> None:
    for name in ("2026-01-02.md", "2026-02-01.md", "2026-03-01-peers.md", "2026-03-02-quick.md"):
        (tmp_path / name).touch()
    assert newest(tmp_path / "2026-01-01.md").name == "2026-02-01.md"
    assert newest(tmp_path / "2026-01-01-peers.md").name == "2026-03-01-peers.md"
    assert newest(tmp_path / "2026-01-01-soak.md").name == "2026-01-01-soak.md"
