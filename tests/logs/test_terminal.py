"""Colours and tables: at a terminal, and everywhere else."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from admission_gateway_worker.policies.definition import TOPICS
from gateway.base import logs
from gateway.base.terminal import Cell, Styled, has_colours, table, table_rows, width_of
from tests.kit import PATIENCE_S, ROOT
from tests.replay.kit import policy

if TYPE_CHECKING:
    from pathlib import Path

ANSI = re.compile(r"\x1b\[[0-9;]*m")
TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
STYLES = st.sampled_from(("", "dim", "bad", "denied", "failed", "good"))
CELLS = st.tuples(TEXTS | st.integers(0, 10**9).map(str), STYLES)
TABLES = st.integers(1, 8).flatmap(
    lambda columns: st.lists(st.lists(CELLS, min_size=1, max_size=columns), min_size=1, max_size=5).map(
        lambda rows: [[("TITLE", "dim")] * columns, *rows]
    )
)
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web, image: nginx}]}\n"


def squeezed(text: str) -> str:
    """Return *text* without white space."""
    return "".join(text.split())


@given(TABLES, st.integers(20, 200))
@example([[("A", ""), ("B", "")], [("x" * 300, ""), ("y" * 300, "bad")]], 20)
@example([[("A", "")] * 8, [("1,000,000,000", "")] * 8], 20)
def test_no_line_is_longer_than_the_terminal_and_nothing_is_lost(rows: list[list[Cell]], width: int) -> None:
    lines = table_rows(rows, width)
    assert all(len(line) <= width for row in lines for line in row)
    is_by_cell = not lines[0]
    for row, made in list(zip(rows, lines, strict=True))[is_by_cell:]:
        titles = rows[0][1 : len(row)] if is_by_cell else []
        expected = squeezed("".join(Styled(*row, *titles)))
        assert sorted(squeezed("".join(made))) == sorted(expected)


@given(TABLES)
def test_without_a_terminal_a_row_is_a_line_with_every_cell(rows: list[list[Cell]]) -> None:
    lines = table(rows)
    assert len(lines) == len(rows)
    for row, line in zip(rows, lines, strict=True):
        assert squeezed("".join(Styled(cell) for cell in row)) == squeezed(line)


@given(TABLES, st.none() | st.integers(20, 200))
def test_a_painted_line_is_the_line_with_codes(rows: list[list[Cell]], width: int | None) -> None:
    for line in table(rows, width):
        assert ANSI.sub("", line.painted()) == line
        assert line.isprintable()


def test_a_table_that_is_too_wide_has_names_in_lines_of_their_own() -> None:
    rows: list[list[Cell]] = [
        [("NAME", "dim"), ("STATE", "dim"), ("COUNT", "dim"), ("WHY", "dim")],
        [("a-name-of-30-characters-abcdefg", ""), ("ready", "good"), ("12", ""), ("no", "")],
        [("b", ""), ("lost", "bad"), ("3", ""), ("the worker has ended, and starts again", "")],
    ]
    assert table(rows, 100) == [
        "NAME                              STATE   COUNT   WHY",
        "a-name-of-30-characters-abcdefg   ready      12   no",
        "b                                 lost        3   the worker has ended, and starts again",
    ]
    assert table(rows, 40) == [
        "NAME",
        "  STATE  COUNT  WHY",
        "a-name-of-30-characters-abcdefg",
        "  ready     12  no",
        "b",
        "  lost       3  the worker has ended,",
        "                and starts again",
    ]
    assert table(rows, 22) == [
        "a-name-of-30-character",
        "s-abcdefg",
        "  STATE ready",
        "  COUNT 12",
        "  WHY no",
        "b",
        "  STATE lost",
        "  COUNT 3",
        "  WHY the worker has",
        "    ended, and starts",
        "    again",
    ]


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "at_terminal", "elsewhere"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"CLICOLOR_FORCE": "1", "TERM": "dumb"}, True, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
    ],
)
def test_the_environment_decides_about_colours(
    environment: dict[str, str], at_terminal: bool, elsewhere: bool
) -> None:
    with mock.patch.dict(os.environ, {"TERM": "xterm", **environment}, clear=True):
        assert has_colours(Terminal()) == at_terminal
        assert has_colours(io.StringIO()) == elsewhere
        assert not has_colours(None) or elsewhere


def test_a_line_has_colours_at_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    line = Styled("a ", ("denied\x1b[0m", "denied"), ": b")
    for stream, expected in (
        (Terminal(), "a \x1b[31mdenied\\x1b[0m\x1b[0m: b\n"),
        (io.StringIO(), "a denied\\x1b[0m: b\n"),
    ):
        monkeypatch.setattr(sys, "stdout", stream)
        logs.print_output(line)
        assert stream.getvalue() == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, "abcdefgh"), (100, "abcdefgh"), (6, "abcd..."), (4, "abcd...")],
)
def test_a_line_is_cut(limit: int | None, expected: str) -> None:
    assert Styled("abcd", ("efgh", "bad"), limit=limit) == expected


def test_a_narrow_terminal_is_at_least_20_columns_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "3")
    assert width_of(Terminal()) == 20
    assert width_of(io.StringIO()) is None


def at_terminal(*arguments: str, folder: Path, **environment: str) -> str:
    """Return what the program writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    own = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.Popen(
        [sys.executable, "-m", "gateway", *arguments],
        cwd=folder,
        env={
            **own,
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm",
            "COLUMNS": "80",
            **environment,
        },
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    try:
        while block := os.read(ours, 65536):
            written += block
    except OSError:  # Linux says so at the end
        pass
    finally:
        os.close(ours)
        done.wait(PATIENCE_S)
    return written.decode().replace("\r\n", "\n")


@pytest.mark.process
def test_a_verdict_at_a_terminal_has_its_colour(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(policy("never", "false"))
    (tmp_path / "pod.yaml").write_text(POD)
    review = ("review", "pod.yaml", "--explain")
    text = at_terminal(*review, folder=tmp_path)
    assert "\n\x1b[31mdenied\x1b[0m (422 Invalid): " in text
    assert ": matched, \x1b[31mdenied\x1b[0m" in text
    assert "\x1b" not in at_terminal(*review, folder=tmp_path, NO_COLOR="1")


@pytest.mark.process
def test_the_ready_made_policies_fit_a_terminal(tmp_path: Path) -> None:
    lines = ANSI.sub("", at_terminal("policies", folder=tmp_path)).splitlines()
    at = lines.index("  require-labels")
    assert lines[at + 1].startswith("    validating  Objects and pod templates have the required labels")
    assert [line for line in lines if line.endswith(":")] == [f"{topic}:" for topic in TOPICS]
    assert max(map(len, lines)) <= 80
