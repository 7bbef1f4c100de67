"""Commands that are restarted when they end, and their descendants."""

from __future__ import annotations

import asyncio
import ctypes
import signal
from typing import TYPE_CHECKING

import pytest

from gateway.server.process.children import FIRST_BACKOFF_S, MAX_BACKOFF_S, Child
from tests.process.kit import lines, runs
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GRACE_S = 30.0
PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture(params=["init is elsewhere", "this process is the init"])
def _inheritance(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let orphans become children of this process, as in a container whose init is the gateway."""
    is_init = request.param == "this process is the init"
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(is_init))
    yield
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0)


def pids(file: Path) -> list[int]:
    return [int(line) for line in lines(file)]


@pytest.mark.usefixtures("_inheritance")
async def test_all_processes_of_a_command_get_sigterm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "pids"
    script = f"sleep 1000 & echo $! >> {file}; echo $$ >> {file}; wait"
    child = Child("x", ["sh", "-c", script])
    await until(lambda: len(pids(file)) == 2)
    await child.stop(GRACE_S)
    assert [pid for pid in pids(file) if runs(pid)] == []
    assert caplog.messages == []


async def test_stop_waits_for_all_processes_of_a_command(tmp_path: Path) -> None:
    file = tmp_path / "log"
    worker = (
        f"trap 'sleep 0.1; echo ended >> {file}; exit' TERM; echo up >> {file}; while :; do sleep 0.01; done"
    )
    child = Child("x", ["sh", "-c", 'sh -c "$0"; true', worker])
    await until(lambda: lines(file))
    await child.stop(GRACE_S)
    assert lines(file) == ["up", "ended"]


async def test_all_processes_of_a_command_are_killed_when_they_do_not_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "pids"
    deaf = f"trap '' TERM; echo $$ >> {file}; while :; do sleep 0.01; done"
    child = Child("worker x", ["sh", "-c", f'sh -c "$0" & {deaf}', deaf])
    await until(lambda: len(pids(file)) == 2)
    await child.stop(0.05)
    await until(lambda: not any(runs(pid) for pid in pids(file)))
    assert caplog.messages == ["killed after the grace period: worker x did not end within 0.05 s"]


async def test_remaining_processes_of_a_command_are_gone_before_its_restart(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    child = Child("x", ["sh", "-c", f"sleep 1000 & echo $! >> {file}; exit 1"])
    await until(lambda: len(pids(file)) == 2)
    await until(lambda: not runs(pids(file)[0]))
    await child.stop(GRACE_S)


async def test_the_first_restart_is_at_once_and_the_back_off_doubles_up_to_its_maximum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep, pauses_s = asyncio.sleep, list[float]()
    starts = tmp_path / "starts"
    started_before = list[int]()

    async def without_pause(delay_s: float) -> None:
        if delay_s >= FIRST_BACKOFF_S:
            pauses_s.append(delay_s)
            started_before.append(len(lines(starts)))
            delay_s = 0.0
        await sleep(delay_s)

    monkeypatch.setattr(asyncio, "sleep", without_pause)
    child = Child("x", ["sh", "-c", f"echo >> {starts}; exit 1"])
    await until(lambda: len(pauses_s) >= 8)
    await child.stop(GRACE_S)
    assert started_before[:3] == [2, 3, 4]
    assert pauses_s[:8] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, MAX_BACKOFF_S, MAX_BACKOFF_S]


@pytest.mark.parametrize("mode", [None, 0o644])
async def test_a_command_that_cannot_be_executed_is_one_error_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, mode: int | None
) -> None:
    program, started = tmp_path / "program", tmp_path / "started"
    if mode is not None:
        program.write_text("#!/bin/sh\n")
        program.chmod(mode)
    sleep, attempts = asyncio.sleep, list[float]()

    async def without_pause(delay_s: float) -> None:
        if delay_s >= FIRST_BACKOFF_S:
            attempts.append(delay_s)
            delay_s = 0.0
        await sleep(delay_s)

    monkeypatch.setattr(asyncio, "sleep", without_pause)
    caplog_before: list[tuple[str, str]] = []
    child = Child("worker x", [str(program)], logs_output=True, effect="the pool has no worker")
    await until(lambda: len(attempts) >= 3)
    caplog_before.extend((record.levelname, record.getMessage()) for record in caplog.records)
    program.write_text(f"#!/bin/sh\ntouch {started}\nexec sleep 1000\n")
    program.chmod(0o755)
    await until(started.exists)
    await child.stop(GRACE_S)
    cause = "No such file or directory" if mode is None else "Permission denied"
    expected = (
        f"cannot start worker x: {program}: {cause}; trying again every 10 s at most; the pool has no worker"
    )
    assert caplog_before == [("ERROR", expected)]


async def test_a_signal_goes_to_the_command_itself(tmp_path: Path) -> None:
    file = tmp_path / "log"
    # A shell may lose a signal while it starts a program. sigwait() loses none.
    script = f"""if True:
        import signal

        def log_line(word):
            with open({str(file)!r}, "a") as log:
                print(word, file=log)

        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
        log_line("up")
        while signal.sigwait([signal.SIGHUP]):
            log_line("signal")
    """
    child = Child("x", ["python", "-c", script])
    child.signal(signal.SIGHUP)  # before the command runs: lost
    await until(lambda: child.pid and lines(file))
    child.signal(signal.SIGHUP)
    await until(lambda: len(lines(file)) == 2)
    await child.stop(GRACE_S)
    child.signal(signal.SIGHUP)
    assert lines(file) == ["up", "signal"]
