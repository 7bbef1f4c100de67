"""A preview as Markdown, for one comment on a pull request, or for the summary of a job.

Names and messages are untrusted texts. Each stands in a code span or a block of code that is longer than any
run of backticks in it, where code hosts know neither mentions nor links, references, images or HTML.

Source: CommonMark 0.31, sections 4.5 (fenced code blocks) and 6.1 (code spans); GitHub takes comments of at
most 65,536 characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.text import printable
from gateway.base.report_lines import number_of
from gateway.tools.preview.text import VERBS

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.tools.preview.forecast import Forecast, Placed
    from gateway.tools.preview.manifests import Unreadable
    from gateway.tools.preview.model import Level, Previewed, Reviewed
    from gateway.tools.preview.report import Listed, Totals

MARKER: Final = "<!-- admission-gateway:preview -->"
"""The first line, by which a comment is found again."""
MAX_BYTES: Final = 60_000
_MAX_CHARS: Final = 500
_MAX_CHANGES_BYTES: Final = 4000
"""Of one object."""
_LEVELS: Final[dict[Level, str]] = {"error": "Errors", "warning": "Warnings", "note": "Notes"}
_TICKS: Final = re.compile("`+")


class _Lines:
    """Parts of the text, as many as there is room for."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.left_out = 0
        self._room = MAX_BYTES

    def add(self, part: str) -> None:
        """Add *part*, or count it."""
        size = len(part.encode()) + 1
        if self.left_out or size > self._room:
            self.left_out += 1
        else:
            self._room -= size
            self.parts.append(part)


class MarkdownOutput:
    """A file with one comment."""

    def __init__(self, file: Path, forecast: Forecast | None = None) -> None:
        self._file = file
        self._forecast = _Lines()
        self._summary = ""
        self._refused_by = ""
        self._findings: dict[Level, _Lines] = {level: _Lines() for level in _LEVELS}
        self._changes = _Lines()
        if forecast is not None:
            self._summary = forecast.summary()
            if forecast.errors:
                self._refused_by = f", and Kubernetes 1.{forecast.kubernetes} has errors"
            for one in forecast.findings:
                self._forecast.add(_forecast(one))
            self._forecast.left_out += forecast.left_out

    def add(self, found: Previewed, listed: list[Listed]) -> None:
        """Take an object of the input with its findings."""
        for one in listed:
            self._findings[one.finding.level].add(_finding(one))
        for reviewed in found.objects:
            if reviewed.changes:
                self._changes.add(_changes(reviewed))

    def add_unreadable(self, found: Unreadable) -> None:
        """Take what is no object."""
        self._findings["error"].add(f"- {code(str(found.place))}: {code(found.message)}")

    def end(self, totals: Totals) -> None:
        """Write the file."""
        names = {0: "allowed", 1: "denied" if totals.results["denied"] else "not stable", 3: "undecided"}
        result = names.get(totals.status, "not all could be read")
        counts = ", ".join(f"{totals.results[one]:,} {one}" for one in ("allowed", "denied", "undecided"))
        of_input = f"{number_of(totals.objects, 'object')} in {number_of(totals.files, 'file')}"
        created = f", and {totals.created:,} that controllers create" if totals.created else ""
        head = [
            MARKER,
            f"### Admission preview: {result}{self._refused_by}",
            "",
            f"{of_input}{created}: {counts}.",
            "",
        ]
        if totals.stopped:
            head += [f"The preview could not be completed: {code(totals.stopped)}", ""]
        text = "\n".join(head)
        room = MAX_BYTES - len(text.encode())
        for lines, title, name in (
            *((self._findings[level], title, "finding") for level, title in _LEVELS.items()),
            (self._forecast, self._summary, "finding"),
            (self._changes, "Changes by webhooks", "object"),
        ):
            section, room = _section(lines, title, name, room)
            text += section
        self._file.write_text(text, encoding="utf-8", errors="replace")


def _section(lines: _Lines, title: str, name: str, room: int) -> tuple[str, int]:
    """Return the part of the text with *title* that fits in *room* bytes, and the room that is left."""
    if not lines.parts and not lines.left_out:
        return "", room
    kept: list[str] = []
    # For the title, and the line about those that are left out.
    room -= len(title) + 100
    for part in lines.parts:
        size = len(part.encode(errors="replace")) + 1
        if size > room:
            break
        room -= size
        kept.append(part)
    left_out = lines.left_out + len(lines.parts) - len(kept)
    more = [f"\n{number_of(left_out, f'more {name}')}: see the output of the job."] if left_out else []
    return "\n".join(["", f"#### {title}", "", *kept, *more, ""]), room


def _finding(listed: Listed) -> str:
    one, reviewed = listed.finding, listed.about
    owner = f" from {code(str(reviewed.created_from))}" if reviewed.created_from is not None else ""
    about = f"{code(str(reviewed.name))}{owner}"
    mode = f" in the mode {one.mode}" if one.mode != "Enforce" else ""
    by = f"{VERBS[one.kind]} by {code(one.webhook or one.rule)}{mode}"
    lines = [f"- {code(str(one.place))}: {about} {by}  ", *map(code, one.message.split("\n")[:10])]
    if one.path and one.path not in one.message:
        lines.append(f"field {code(one.path)}")
    return "\n  ".join(lines)


def _forecast(placed: Placed) -> str:
    finding, place = placed
    before = f"{code(str(place))}: " if place is not None else ""
    return f"- {before}{finding.level}: {code(finding.where)}  \n  {code(finding.message)}"


def _changes(reviewed: Reviewed) -> str:
    lines: list[str] = []
    room = _MAX_CHANGES_BYTES
    for number, line in enumerate(reviewed.changes):
        room -= len(line.encode(errors="replace")) + 1
        if room < 0:
            lines.append(f"… {len(reviewed.changes) - number} more lines")
            break
        lines.append(line)
    text = "\n".join(lines)
    fence = "`" * max(3, _longest(text) + 1)
    by = ", ".join(map(code, reviewed.changed_by[:20]))
    block = _indented(f"{fence}diff\n{text}\n{fence}")
    return f"- {code(str(reviewed.name))} by {by}\n\n{block}\n"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def code(text: str) -> str:
    """Return *text*, which is foreign, in one line as a code span."""
    shown = printable(text, _MAX_CHARS).strip() or "(empty)"
    ticks = "`" * (_longest(shown) + 1)
    space = " " if len(ticks) > 1 else ""
    return f"{ticks}{space}{shown}{space}{ticks}"


def _longest(text: str) -> int:
    """Return the length of the longest run of backticks in *text*."""
    return max(map(len, _TICKS.findall(text)), default=0)
