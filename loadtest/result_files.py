"""The files in ``loadtest/results``: the newest report of each kind, its sections and its tables.

A file is ``DATE.md`` of ``make bench``, or ``DATE-KIND.md``. Runs of selected cases, such as
``DATE-documents.md``, are read for the sections that the newest ``DATE.md`` lacks. Quick runs are not read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from loadtest.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

RESULTS: Final = ROOT / "loadtest" / "results"
BENCH: Final = "bench"
COMMANDS: Final[Mapping[str, str]] = {
    BENCH: "make bench",
    "peers": "make peers-bench",
    "soak": "make soak",
    "api-server": "make e2e-bench",
    "rollout": "make e2e-bench",
    "api-server-peers": "make e2e-bench",
}
"""The command that writes the reports of each kind that pages show."""
_NAME: Final = re.compile(r"\d{4}-\d\d-\d\d(?:-(?P<kind>.+))?\.md")
_BENCH_TITLE: Final = "# Benchmark\n"
_RULE: Final = re.compile(r"[-: ]+")


class NoReport(LookupError):
    """There is no report of a kind yet; the text is for a person."""


def todays(kind: str = BENCH, *suffixes: str) -> Path:
    """Return the file for a report of *kind* that is measured today."""
    parts = [f"{datetime.now(UTC):%Y-%m-%d}", *([] if kind == BENCH else [kind]), *suffixes]
    return RESULTS / f"{'-'.join(parts)}.md"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a report, in texts."""

    heading: str
    """Of its section."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def titles(self) -> list[str]:
        """The first cells of all rows."""
        return [row[0] for row in self.rows]

    def cell(self, title: str, column: str) -> str:
        """Return the cell of the first row that begins with *title*, in the first column of this name.

        Raises:
            LookupError: there is no such row or column.
        """
        if column not in self.columns:
            raise LookupError(f"{self.heading}: no column {column!r}, only {', '.join(self.columns)}")
        for row in self.rows:
            if row[0] == title:
                return row[self.columns.index(column)]
        raise LookupError(f"{self.heading}: no row {title!r}, only {', '.join(self.titles)}")

    def number(self, title: str, column: str) -> float:
        """Return the number in a cell, which may have a sign, commas and a unit.

        Raises:
            LookupError: there is no such row or column, or no number in the cell.
        """
        found = re.match(r"[+-]?[\d,]*\.?\d+", text := self.cell(title, column))
        if found is None:
            raise LookupError(f"{self.heading}: {title}, {column}: expected a number, found {text!r}")
        return float(found[0].replace(",", ""))


class Reports:
    """The reports in *folder*."""

    def __init__(self, folder: Path = RESULTS) -> None:
        self._folder = folder

    def newest(self, kind: str) -> Path:
        """Return the newest report of *kind*.

        Raises:
            NoReport: there is none.
        """
        found = [path for path, its in self._files() if its == kind]
        if not found:
            raise NoReport(f"no report of {kind} in {self._folder}: `{COMMANDS.get(kind, kind)}` writes one")
        return found[-1]

    def section(self, kind: str, heading: str) -> str:
        """Return the text below *heading*, up to the next one, of the newest report of *kind*.

        The heading in the report may have a comma and more text at its end.

        Raises:
            NoReport: there is no report of this kind.
            LookupError: the report has no such heading, or no text below it.
        """
        newest = self.newest(kind)
        selected = [] if kind != BENCH else [path for path, its in self._files() if its is None]
        for path in (newest, *reversed(selected)):
            if text := section(path.read_text(), heading):
                return text
        raise LookupError(f"{newest}: no text below the heading {heading!r}")

    def table(self, kind: str, heading: str) -> Table:
        """Return the table in a section.

        Raises:
            NoReport: there is no report of this kind.
            LookupError: the report has no such heading, or no table with rows below it.
        """
        lines = [line for line in self.section(kind, heading).splitlines() if line.startswith("|")]
        columns, *rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines] or [
            ()
        ]
        rows = [row for row in rows if not all(_RULE.fullmatch(cell) for cell in row)]
        if not rows:
            raise LookupError(f"{self.newest(kind)}: no table with rows below the heading {heading!r}")
        return Table(heading, columns, tuple(rows))

    def _files(self) -> Iterator[tuple[Path, str | None]]:
        """Yield the reports by date with their kinds; None is a run of selected cases of the benchmark."""
        for path in sorted(self._folder.glob("*.md")):
            name = _NAME.fullmatch(path.name)
            if name is None or path.stem.endswith("-quick"):
                continue
            kind = name["kind"] or BENCH
            is_selection = kind != BENCH and path.read_text().startswith(_BENCH_TITLE)
            yield path, None if is_selection else kind


def section(report: str, heading: str) -> str:
    """Return the text below *heading* in the text of a report, up to the next one; empty if it has none."""
    found = re.search(rf"^#+ {re.escape(heading)}(?:, .*)?\n((?:(?!#+ ).*\n?)*)", report, re.MULTILINE)
    return "" if found is None else found[1].strip()
