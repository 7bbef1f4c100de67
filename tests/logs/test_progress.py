"""The progress of a command in the last line of a terminal."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gateway.base import progress
from gateway.base.logs import print_error
from gateway.base.progress import Progress
from tests.kit import PATIENCE_S, ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

CLEAR = "\r\x1b[2K"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_has_steps_and_is_cleared_in_the_end() -> None:
    terminal = Terminal()
    with Progress("checking \x1b[2K\n", 4, terminal, 0.0) as shown:
        shown.advance()
        eventually(lambda: "1 of 4" in terminal.getvalue())
    text = terminal.getvalue()
    assert f"{CLEAR}checking \\x1b[2K\\n [#####               ] 1 of 4, 0 s" in text
    assert text.endswith(CLEAR)


def test_other_output_takes_the_place_of_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    with Progress("working", 0, terminal, 0.0):
        eventually(lambda: progress._shown is terminal)
        print_error("a line")
        eventually(lambda: terminal.getvalue().count("working") >= 2)
    assert capsys.readouterr().err == "a line\n"
    assert terminal.getvalue().count(CLEAR) >= 3


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_nothing_is_shown_of_short_work_or_without_a_terminal(stream: io.StringIO) -> None:
    with Progress("working", 2, stream, 60.0 if stream.isatty() else 0.0) as shown:
        shown.advance()
    assert stream.getvalue() == ""


@pytest.mark.process
def test_a_command_that_waits_shows_its_progress_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "apiVersion: admission-gateway.io/v1alpha1\nkind: WorkerPool\nmetadata: {name: p}\n"
        "spec: {target: unix:/nowhere}\n"
    )
    ours, theirs = pty.openpty()
    command = "check", "--workers", "--allow-empty", "--config", str(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-m", "gateway", *command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    found = b""
    while b"looking the policies up at their workers, " not in found:
        found += os.read(ours, 4096)
    child.kill()
    child.wait(PATIENCE_S)
    os.close(ours)
