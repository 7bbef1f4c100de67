"""Log records are one line each, with any texts in them."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.log_lines import CONTINUED, MESSAGE_CHARS, TRACEBACK_LINES, LogFormatter
from gateway.base.errors import ConfigError, Problem
from tests.kit import ROOT

FORM = "%(asctime)s %(levelname)s %(message)s"
RECORD = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ ")
ANY_TEXT = st.text(st.characters(exclude_categories=()) | st.sampled_from("\r\n\x1b\x85\u2028"))


def written(message: str, *arguments: object, error: BaseException | None = None) -> list[str]:
    """Return the lines that a handler writes for a record."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogFormatter(FORM))
    info = None if error is None else (type(error), error, error.__traceback__)
    handler.emit(logging.LogRecord("x", logging.ERROR, "f", 1, message, arguments, info))
    text = stream.getvalue()
    assert text.endswith("\n")
    return text[:-1].split("\n")


@given(ANY_TEXT, ANY_TEXT)
def test_record_is_one_printable_line(first: str, second: str) -> None:
    (line,) = written("worker %s answers: %s", first, second)
    assert RECORD.match(line)
    assert line.isprintable()


@given(ANY_TEXT, ANY_TEXT)
def test_traceback_cannot_be_taken_for_records(message: str, text: str) -> None:
    try:
        try:
            raise ValueError(text)
        except ValueError as cause:
            raise RuntimeError(text) from cause
    except RuntimeError as error:
        first, *others = written("%s", message, error=error)
    assert RECORD.match(first)
    assert others
    for line in others:
        assert line.startswith(CONTINUED)
        assert line.isprintable()
    assert any("raise ValueError(text)" in line for line in others)


def test_size_of_a_record_is_bounded() -> None:
    error = ValueError("line\n" * 1_000_000)
    first, *others = written("%s", "x" * 1_000_000, error=error)
    assert len(first) < MESSAGE_CHARS + 100
    assert len(others) == TRACEBACK_LINES + 1
    assert "ValueError" in others[0]


def test_problem_of_a_configuration_is_one_line() -> None:
    problem = Problem("a\nb.yaml", "x\r[0]", "found \x1b[2K, expected nothing")
    assert str(problem) == "a\\nb.yaml: x\\r[0]: found \\x1b[2K, expected nothing"
    assert str(ConfigError([problem, problem])).split("\n") == [str(problem)] * 2


def test_warnings_and_uncaught_errors_are_records() -> None:
    script = (
        "import logging, threading, warnings; from gateway.base import logs\n"
        "from admission_gateway_worker.log_lines import log_uncaught\n"
        f"logs.set_up(logging.INFO, {FORM!r})\n"
        "log_uncaught()\n"
        "def fail():\n    raise ValueError('c\\x1bd\\ne')\n"
        "warnings.warn('a\\nb')\n"
        "thread = threading.Thread(target=fail); thread.start(); thread.join()\n"
        "fail()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    lines = run.stderr.splitlines()
    records = [line for line in lines if RECORD.match(line)]
    assert [line.split()[1] for line in records] == ["WARNING", "CRITICAL", "CRITICAL"]
    assert all(line.startswith(CONTINUED) for line in lines if not RECORD.match(line))
    assert lines.count(f"{CONTINUED}ValueError: c\\x1bd") == 2
