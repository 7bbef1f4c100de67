"""A process whose event loop does not run is told apart from one that gets no CPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gateway.server.process import liveness
from gateway.server.process.liveness import BEAT_S, HANG_S, START_S, UNKNOWN_S, Liveness, Sample, sample_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    return tmp_path / "heartbeat"


@pytest.fixture
def watched(pipe: Path) -> Iterator[Liveness]:
    found = Liveness(pipe)
    yield found
    found.close()


def silence_s(
    watched: Liveness,
    sample_at: Callable[[float], Sample | None],
    *,
    has_listened: bool = True,
    step_s: float = BEAT_S,
) -> float:
    """Return the seconds after which process 1 hangs; an hour if it does not."""
    now = 100.0
    while now < 3700.0:
        if watched.hangs(1, now, sample_at(now - 100.0), has_listened=has_listened):
            break
        now += step_s
    return now - 100.0


@pytest.mark.parametrize("state", ["T", "S"])
def test_a_process_that_is_stopped_or_waits_for_a_lock_hangs(watched: Liveness, state: str) -> None:
    assert silence_s(watched, lambda _: Sample(state, 1.0, 2.0)) == pytest.approx(HANG_S)


def test_a_process_that_uses_cpu_without_a_heartbeat_hangs(watched: Liveness) -> None:
    assert silence_s(watched, lambda at: Sample("R", at, 0.0)) == pytest.approx(HANG_S)


def test_a_process_that_gets_a_tenth_of_a_cpu_has_ten_times_as_long(watched: Liveness) -> None:
    found = silence_s(watched, lambda at: Sample("R", at / 10, at * 0.9))
    assert found == pytest.approx(10 * HANG_S, rel=0.1)


def test_a_process_that_gets_no_cpu_does_not_hang(watched: Liveness) -> None:
    assert silence_s(watched, lambda at: Sample("R", 1.0, 0.0)) > 3000
    assert silence_s(watched, lambda at: Sample("S", 1.0, at)) > 3000
    assert silence_s(watched, lambda at: Sample("D", 1.0, 0.0)) > 3000


def test_a_process_in_a_debugger_does_not_hang(watched: Liveness) -> None:
    assert silence_s(watched, lambda _: Sample("t", 1.0, 0.0)) > 3000


def test_a_process_that_starts_has_longer(watched: Liveness) -> None:
    found = silence_s(watched, lambda at: Sample("R", at, 0.0), has_listened=False)
    assert found == pytest.approx(START_S)


def test_without_word_of_the_kernel_a_process_has_longer(watched: Liveness) -> None:
    assert silence_s(watched, lambda _: None) == pytest.approx(UNKNOWN_S)


def test_the_time_in_which_the_parent_did_not_run_hardly_counts(watched: Liveness) -> None:
    found = silence_s(watched, lambda _: Sample("S", 1.0, 0.0), step_s=30.0)
    assert found == pytest.approx(30 * HANG_S / (2 * BEAT_S))


def test_a_heartbeat_and_a_new_process_begin_anew(watched: Liveness, pipe: Path) -> None:
    sleeping = Sample("S", 1.0, 0.0)
    with pipe.open("wb", buffering=0) as beats:
        for at in range(1000):
            beats.write(b".")
            assert not watched.hangs(1, at * HANG_S, sleeping, has_listened=True)
    for at in range(1000):
        assert not watched.hangs(at, at * HANG_S, sleeping, has_listened=True)


PROGRAM = """
import asyncio, re, sys, threading, time
from pathlib import Path
from gateway.server.process.liveness import Heartbeat

async def main():
    Heartbeat(Path(sys.argv[1]))
    await asyncio.sleep(0.2)
    print("ready", flush=True)
    match sys.argv[2]:
        case "loop":
            while True:
                pass
        case "call":
            re.match("(a+)+$", "a" * 100 + "b")
        case "lock":
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        case "stop":
            await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel says this on Linux only")
@pytest.mark.parametrize("how", ["loop", "call", "lock", "stop"])
def test_a_real_process_that_hangs_is_seen(
    watched: Liveness, pipe: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "HANG_S", 1.0)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(pipe), how], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            if how == "stop":
                os.kill(process.pid, signal.SIGSTOP)
            now = iter(range(10_000))

            def hangs() -> bool:
                sample = sample_of(process.pid)
                assert sample is not None
                return watched.hangs(process.pid, next(now) * 0.1, sample, has_listened=True)

            eventually(hangs)
        finally:
            process.kill()
