"""The output of local workers in the gateway's log."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.server.process.children import Child
from gateway.server.process.output import LINE_BYTES, Output
from gateway.server.process.output import log as output_log
from tests.process.kit import lines
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

LEVELS: Final = {
    **dict.fromkeys(("TRACE", "DEBUG", "INFO", "NOTICE"), "INFO"),
    **dict.fromkeys(("WARN", "WARNING"), "WARNING"),
    **dict.fromkeys(("ERR", "ERROR"), "ERROR"),
    **dict.fromkeys(("CRITICAL", "FATAL", "PANIC"), "CRITICAL"),
}


async def test_every_line_is_a_record(caplog: pytest.LogCaptureFixture) -> None:
    output = Output("worker x")
    for text in (b"one\ntw", b"o\n\n", b"\xff\n", b"y" * (LINE_BYTES + 1) + b"\n", b"last"):
        os.write(output.writing, text)
        await asyncio.sleep(0)
    output.close()
    output.close()
    long = "y" * LINE_BYTES
    assert caplog.messages == [f"worker x: {text}" for text in ("one", "two", "\\xff", long, "y", "last")]


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def record(line: bytes) -> list[tuple[str, str]]:
    """Return level and text of the records that the output *line* makes."""

    async def main() -> None:
        output = Output("worker x")
        os.write(output.writing, line)
        output.close()

    handler = _Kept()
    output_log.addHandler(handler)
    try:
        asyncio.run(main())
    finally:
        output_log.removeHandler(handler)
    return [(one.levelname, one.getMessage().removeprefix("worker x: ")) for one in handler.records]


TIMES = (
    *(
        "2026-11-24T18:12:03.653Z",
        "2026-11-24 18:12:03,653",
        "2026/11/24 18:12:03",
        "2026/11/24 18:12:03.123456",
    ),
    *("[2026-11-24T18:12:03+01:00]", "2026-11-24T18:12:03.123456789Z"),
)


@given(st.sampled_from(TIMES), st.sampled_from(sorted(LEVELS)), st.sampled_from(["{}", "{}:", "[{}]"]))
def test_a_line_of_the_log_of_a_worker_has_one_time_and_one_level(time: str, level: str, form: str) -> None:
    shown = LEVELS[level]
    assert record(f"{time} {form.format(level)} policy failed".encode()) == [(shown, "policy failed")]
    assert record(f"{time} {form.format(level.lower())} worker: a".encode()) == [(shown, "a")]
    assert record(f"{time} no level".encode()) == [("INFO", "no level")]
    text = {"time": time, "level": level.lower(), "msg": "policy failed", "policy": "p"}
    assert record(json.dumps(text).encode()) == [(shown, 'policy failed {"policy":"p"}')]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"E1124 18:12:03.653000       1 main.go:7] lost", [("ERROR", "main.go:7] lost")]),
        (b"WARNING:root:careful", [("WARNING", "root:careful")]),
        (b"Error: it is a sentence", [("INFO", "Error: it is a sentence")]),
        (b"Informed about 3 pods", [("INFO", "Informed about 3 pods")]),
        (b"2026 was a year", [("INFO", "2026 was a year")]),
        (b"{not json", [("INFO", "{not json")]),
        (b'{"level": 3, "msg": "a"}', [("INFO", '{"level": 3, "msg": "a"}')]),
        # A traceback has the level of the line before it.
        (
            b"2026-11-24T18:12:03Z ERROR worker: policy failed\n    | Traceback\nnext",
            [("ERROR", "policy failed"), ("ERROR", "    | Traceback"), ("INFO", "next")],
        ),
    ],
)
def test_other_forms_of_lines(line: bytes, expected: list[tuple[str, str]]) -> None:
    assert record(line) == expected


STARTS_AND_STAYS = """
import pathlib, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("out", flush=True)
print("err", file=sys.stderr)
starts = pathlib.Path(sys.argv[1])
with starts.open("a") as file:
    file.write("up\\n")
if starts.read_text() != "up\\n":
    signal.sigwait([signal.SIGTERM])
    sys.exit("bye")
"""
"""A program that ends at once the first time, and at SIGTERM the second time. sigwait() loses no signal."""


async def test_the_output_of_a_command_is_logged_across_restarts_and_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    starts = tmp_path / "starts"
    child = Child("worker x", [sys.executable, "-c", STARTS_AND_STAYS, str(starts)], logs_output=True)
    await until(lambda: len(lines(starts)) == 2)
    await child.stop(30.0)
    printed = [message for message in caplog.messages if not message.startswith("process ended")]
    assert printed == [*["worker x: out", "worker x: err"] * 2, "worker x: bye"]


async def test_a_full_pipe_does_not_keep_a_command_from_ending(caplog: pytest.LogCaptureFixture) -> None:
    script = "for _ in range(5000): print('x' * 99)"
    child = Child("worker x", [sys.executable, "-c", script], logs_output=True)
    await until(lambda: len(caplog.messages) > 5000)
    await child.stop(30.0)
    assert "process ended, restarting it: worker x, status 0" in caplog.messages
