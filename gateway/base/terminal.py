"""Colours, and tables as wide as a terminal.

A line is a :class:`Styled` text. Anywhere but at a terminal it is plain text, and a row of a table is one
line, because programs read it. At a terminal no line of a table is longer than the terminal, and nothing is
left out.
"""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, Literal, Self, TextIO

from admission_gateway_worker.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

Style = Literal["", "bold", "dim", "good", "warn", "bad", "denied", "failed", "removed", "added"]
Cell = tuple[str, Style]

_CODES: Final[dict[Style, str]] = {
    "bold": "1",
    "dim": "2",
    "good": "32",
    "warn": "33",
    "bad": "31;1",
    "denied": "31",
    "failed": "35",
    "removed": "31",
    "added": "32",
}
_NUMBER: Final = re.compile(r"[0-9,.e+]+|-|")
_MORE: Final = "..."
_MAX_CELL_CHARS: Final = 500
_READABLE: Final = 40
_LEAST_COLUMN: Final = 10
"""The narrowest columns whose text is wrapped: beside all others, and below the first."""
_NARROWEST: Final = 20
"""The width of a terminal that says it is narrower."""


class Styled(str):
    """One line of printable text, some of whose parts have a style."""

    parts: tuple[Cell, ...]

    def __new__(cls, *parts: str | Cell, limit: int | None = None) -> Self:
        """Return the line of *parts*, made printable, and cut to about *limit* characters."""
        made: list[Cell] = []
        for part in parts:
            text, style = _plain(part) if isinstance(part, str) else part
            if limit is not None and limit <= len(_MORE):
                made.append(_plain(_MORE if text else ""))
                break
            shown = printable(text, limit)
            limit = None if limit is None else limit - len(shown)
            made.append((shown, style))
        line = super().__new__(cls, "".join(text for text, _ in made))
        line.parts = tuple(made)
        return line

    def painted(self) -> str:
        """Return the line with the codes of a terminal."""
        return "".join(
            f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and text else text for text, style in self.parts
        )


def _plain(text: str) -> Cell:
    return text, ""


def has_colours(stream: TextIO | None) -> bool:
    """Whether lines that are written to *stream* have colours.

    Source: no-color.org; bixense.com/clicolors; the order is that of Python's own tools.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return os.environ.get("TERM") != "dumb" and is_terminal(stream)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person sees what is written to *stream*, which is None in a process without it."""
    return stream is not None and stream.isatty()


def width_of(stream: TextIO | None) -> int | None:
    """Return the columns of the terminal *stream*; None if it is not one."""
    return max(shutil.get_terminal_size().columns, _NARROWEST) if is_terminal(stream) else None


def table(rows: Sequence[Sequence[Cell]], width: int | None = None) -> list[Styled]:
    """Return the lines of :func:`table_rows`."""
    return [line for lines in table_rows(rows, width) for line in lines]


def table_rows(rows: Sequence[Sequence[Cell]], width: int | None = None) -> list[list[Styled]]:
    """Return the lines of each of *rows*, of which the first one has the titles. Numbers are aligned right.

    In a table that is wider than *width* the widest column is wrapped. If little would be left of it, the
    first cell of each row has a line of its own, above the others. If that is too wide as well, each cell has
    a line of its own. No line is longer than *width*, which is at least 20.
    """
    rows = [[(printable(text, _MAX_CELL_CHARS), style) for text, style in row] for row in rows]
    columns = range(max(map(len, rows)))
    widths = [max(len(row[at][0]) for row in rows if at < len(row)) for at in columns]
    is_number = [_is_number_column(rows, at) for at in columns]
    for gap in (3, 2):
        if width is None or sum(widths) + gap * (len(widths) - 1) <= width:
            return [[_line(row, widths, is_number, gap)] for row in rows]
    assert width is not None
    if fitted := _fitted(widths[1:], is_number[1:], width - widths[0] - 2, _READABLE):
        return [_wrapped_line(row, [widths[0], *fitted], is_number) for row in rows]
    indent = 2 + max(len(row[0][0]) - len(row[0][0].lstrip()) for row in rows)
    if fitted := _fitted(widths[1:], is_number[1:], width - indent, _LEAST_COLUMN):
        return [
            [
                *(Styled((text, row[0][1])) for text in _wrapped(row[0][0], width)),
                *(
                    Styled(" " * indent, *line.parts)
                    for line in _wrapped_line(row[1:], fitted, is_number[1:])
                ),
            ]
            for row in rows
        ]
    return [[], *(_record(rows[0], row, width) for row in rows[1:])]


def _fitted(widths: list[int], is_number: Sequence[bool], width: int, least: int) -> list[int]:
    """Return *widths* with the widest column of texts cut, so that all fit into *width*.

    Nothing is returned if it would be narrower than *least*.
    """
    over = sum(widths) + 2 * (len(widths) - 1) - width
    if not widths or over <= 0:
        return widths
    widest = max(range(len(widths)), key=lambda at: (not is_number[at], widths[at]))
    left = widths[widest] - over
    return [] if is_number[widest] or left < least else [*widths[:widest], left, *widths[widest + 1 :]]


def _line(row: Sequence[Cell], widths: Sequence[int], is_number: Sequence[bool], gap: int) -> Styled:
    parts: list[Cell] = []
    for at, (text, style) in enumerate(row):
        padding = " " * (widths[at] - len(text))
        before = " " * gap if at else ""
        is_last = at == len(row) - 1
        parts += [(before + padding, ""), (text, style)] if is_number[at] else [(before, ""), (text, style)]
        parts += [] if is_number[at] or is_last else [(padding, "")]
    while parts and not parts[-1][0].strip():
        parts.pop()
    return Styled(*parts)


def _wrapped_line(row: Sequence[Cell], widths: Sequence[int], is_number: Sequence[bool]) -> list[Styled]:
    """Return the lines of *row*, each cell wrapped to its column."""
    if not row:
        return []
    styles = [style for _, style in row]
    cells = [_wrapped(text, widths[at]) for at, (text, _) in enumerate(row)]
    return [
        _line(list(zip(texts, styles, strict=True)), widths, is_number, 2)
        for texts in zip_longest(*cells, fillvalue="")
    ]


def _record(titles: Sequence[Cell], row: Sequence[Cell], width: int) -> list[Styled]:
    """Return *row* with each cell in lines of its own, after its title."""
    lines = [Styled((text, row[0][1])) for text in _wrapped(row[0][0], width)]
    for (title, _), (text, style) in zip(titles[1:], row[1:], strict=False):
        first, *rest = _wrapped(f"{title} {text}", width - 4)
        known = min(len(title), len(first))
        lines.append(Styled("  ", (first[:known], "dim"), (first[known:], style)))
        lines += [Styled("    ", (line, style)) for line in rest]
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def _is_number_column(rows: Sequence[Sequence[Cell]], column: int) -> bool:
    values = [row[column][0] for row in rows[1:] if column < len(row)]
    return bool(values) and all(map(_NUMBER.fullmatch, values)) and column > 0
