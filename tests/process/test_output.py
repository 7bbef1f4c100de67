"""What local workers print, in the gateway's log."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import pytest

from gateway.process.children import Child
from gateway.process.output import LINE_BYTES, Output
from tests.process.kit import lines, until

if TYPE_CHECKING:
    from pathlib import Path


FORGED = "2026-01-01 00:00:00,000 ERROR \\x1b[2Kforged\\r\\n"


def test_every_line_is_a_record(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        output = Output("worker x")
        for text in (b"one\ntw", b"o\n\n", b"\xff\n", b"y" * (LINE_BYTES + 1) + b"\n", b"last"):
            os.write(output.writing, text)
            await asyncio.sleep(0)
        output.close()
        output.close()

    asyncio.run(main())
    long = "y" * LINE_BYTES
    assert caplog.messages == [f"worker x: {text}" for text in ("one", "two", "\\xff", long, "y", "last")]


@pytest.mark.slow
def test_what_a_command_prints_comes_through_its_restarts_and_its_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "log"
    wait = "while :; do sleep 0.01; done"
    script = f"echo out; echo err >&2; echo up >> {file}; test $(wc -l < {file}) -lt 2 || {wait}"

    async def main() -> None:
        command = ["sh", "-c", f"trap 'echo bye; exit' TERM; {script}"]
        child = Child("worker x", command, logs_output=True)
        await until(lambda: len(lines(file)) == 2)
        await child.stop(30.0)

    asyncio.run(main())
    printed = [message for message in caplog.messages if not message.endswith("starting it again")]
    assert sorted(printed) == sorted([*["worker x: out", "worker x: err"] * 2, "worker x: bye"])


@pytest.mark.slow
def test_more_than_a_pipe_holds_keeps_no_command_from_ending(caplog: pytest.LogCaptureFixture) -> None:
    script = "for _ in range(5000): print('x' * 99)"

    async def main() -> None:
        child = Child("worker x", [sys.executable, "-c", script], logs_output=True)
        await until(lambda: len(caplog.messages) > 5000)
        await child.stop(30.0)

    asyncio.run(main())
    assert "worker x ended with status 0; starting it again" in caplog.messages
