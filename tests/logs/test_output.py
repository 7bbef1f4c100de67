"""Standard output of commands: it is whole, or the command fails."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios

import pytest

from tests.kit import PATIENCE_S, ROOT, call_command
from tests.waiting import eventually


@pytest.mark.parametrize("is_buffered", [True, False])
@pytest.mark.parametrize("output", ["full", "closed"])
def test_output_that_cannot_be_written_is_a_failure_of_one_line_at_most(
    output: str, *, is_buffered: bool
) -> None:
    if output == "full":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, descriptor = os.pipe()
        os.close(reading)
    with os.fdopen(descriptor, "wb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "gateway", "policies"],
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "" if is_buffered else "1"},
            timeout=PATIENCE_S,
            check=False,
        )
    expected = "admission-gateway: [Errno 28] No space left on device\n" if output == "full" else ""
    assert (done.returncode, done.stderr) == (1, expected)


@pytest.mark.parametrize("is_buffered", [True, False])
def test_output_is_whole_although_a_signal_arrives_while_it_is_written(*, is_buffered: bool) -> None:
    reading, writing = os.pipe()
    pipe_bytes = fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    command = subprocess.Popen(
        [sys.executable, "-m", "gateway", "completion", "bash"],
        stdout=writing,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "" if is_buffered else "1"},
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        eventually(lambda: struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0] == pipe_bytes)
        command.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, command.pid, os.WSTOPPED | os.WNOWAIT)
        command.send_signal(signal.SIGCONT)
        written = pipe.read()
    assert (command.wait(PATIENCE_S), written.decode()) == (0, call_command("completion", "bash").stdout)
    assert len(written) > 2 * pipe_bytes
