"""Published figures: sections of reports, copied into pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loadtest.publish import newest, published, section

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


def test_a_section_ends_at_the_next_heading() -> None:
    expected = {
        "Memory": "- a machine",
        "One; connections: 1": "| a |",
        "One; connections: 16": "| b |",
    }
    assert {heading: section(REPORT, heading) for heading in expected} == expected


@pytest.mark.parametrize("heading", ["Figures", "One"])
def test_an_empty_or_missing_section_is_an_error(heading: str) -> None:
    with pytest.raises(LookupError, match=heading):
        section(REPORT, heading)


def test_a_missing_report_is_an_error() -> None:
    page = "<!-- report: loadtest/results/2000-01-01.md, Targets -->\n\n| a |\n\n<!-- end -->"
    with pytest.raises(LookupError, match=r"loadtest/results/2000-01-01\.md"):
        published(page, lambda report: report)


def test_the_newest_report_of_a_kind_is_taken(tmp_path: Path) -> None:
    for name in ("2026-01-02.md", "2026-02-01.md", "2026-03-01-peers.md", "2026-03-02-quick.md"):
        (tmp_path / name).touch()
    assert newest(tmp_path / "2026-01-01.md").name == "2026-02-01.md"
    assert newest(tmp_path / "2026-01-01-peers.md").name == "2026-03-01-peers.md"
    assert newest(tmp_path / "2026-01-01-soak.md").name == "2026-01-01-soak.md"
