"""The output of local workers in the gateway's log."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from gateway.process.children import Child
from gateway.process.output import LINE_BYTES, Output
from tests.process.kit import lines
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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


def test_the_output_of_a_command_is_logged_across_restarts_and_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    starts = tmp_path / "starts"

    async def main() -> None:
        child = Child("worker x", [sys.executable, "-c", STARTS_AND_STAYS, str(starts)], logs_output=True)
        await until(lambda: len(lines(starts)) == 2)
        await child.stop(30.0)

    asyncio.run(main())
    printed = [message for message in caplog.messages if not message.endswith("restarting it")]
    assert printed == [*["worker x: out", "worker x: err"] * 2, "worker x: bye"]


def test_a_full_pipe_does_not_keep_a_command_from_ending(caplog: pytest.LogCaptureFixture) -> None:
    script = "for _ in range(5000): print('x' * 99)"

    async def main() -> None:
        child = Child("worker x", [sys.executable, "-c", script], logs_output=True)
        await until(lambda: len(caplog.messages) > 5000)
        await child.stop(30.0)

    asyncio.run(main())
    assert "worker x ended with status 0, restarting it" in caplog.messages
