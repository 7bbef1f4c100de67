"""Whether a gateway process hangs: its event loop has not run for ``HANG_S`` seconds although it could have.

The event loop of a process writes a heartbeat into a pipe. Without one, the parent counts the time in which
the process could have written it, by what the kernel says about its main thread:

- while the thread runs, or waits for a CPU or for a disk, the CPU time that it gets: a process that is merely
  slow on a busy machine needs long for ten seconds of CPU time, and writes a heartbeat meanwhile;
- while it sleeps or is stopped, all of the time: it waits for a lock, or for somebody to continue it.

A debugger stops the count. Where the kernel does not say this, all time counts, against ``UNKNOWN_S``.

Source: proc(5) (state), Documentation/scheduler/sched-stats of Linux (schedstat).
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

BEAT_S: Final = 0.5
"""Between two heartbeats, and between two looks at a process."""
HANG_S: Final = 10.0
START_S: Final = 120.0
"""Instead of ``HANG_S`` for a process that has not listened yet: it loads its configuration."""
UNKNOWN_S: Final = 60.0
_MAX_BEATS: Final = 4096


class Sample(NamedTuple):
    """What the kernel says about the main thread of a process."""

    state: str
    """One letter, see proc(5)."""
    cpu_s: float
    """CPU time so far."""
    wait_s: float
    """How long it has waited for a CPU so far."""


class Heartbeat:
    """Writes heartbeats from the running event loop, until the process ends."""

    def __init__(self, pipe: Path) -> None:
        self._descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._loop = asyncio.get_running_loop()
        self._beat()

    def _beat(self) -> None:
        # The pipe is full while the parent does not read, and broken after its end.
        with suppress(OSError):
            os.write(self._descriptor, b".")
        self._loop.call_later(BEAT_S, self._beat)


class Liveness:
    """Reads the heartbeats of one gateway process, and of those that replace it."""

    def __init__(self, pipe: Path) -> None:
        """Make *pipe*."""
        os.mkfifo(pipe, 0o600)
        # Also for writing, so that the end of a process is not the end of the pipe.
        self._descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._pid: int | None = None
        self._at = 0.0
        self._last: Sample | None = None
        self.silent_s = 0.0
        """Time without a heartbeat in which the process could have written one."""

    def hangs(self, pid: int | None, now: float, sample: Sample | None, *, has_listened: bool) -> bool:
        """Return whether process *pid* hangs at *now*, monotonic seconds.

        Call it every ``BEAT_S`` seconds. *sample* is that of the process, or None if it is not known.
        """
        elapsed_s = min(now - self._at, 2 * BEAT_S)  # the parent may have been stopped, too
        last, self._at, self._last = self._last, now, sample
        if self._has_beat() or pid is None or pid != self._pid:
            self._pid, self.silent_s = pid, 0.0
            return False
        self.silent_s += elapsed_s if sample is None or last is None else _own_s(last, sample, elapsed_s)
        limit_s = UNKNOWN_S if sample is None else HANG_S
        return self.silent_s >= (limit_s if has_listened else max(limit_s, START_S))

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._descriptor)

    def _has_beat(self) -> bool:
        try:
            return bool(os.read(self._descriptor, _MAX_BEATS))
        except BlockingIOError:
            return False


def sample_of(pid: int) -> Sample | None:
    """Return what the kernel says about the main thread of *pid*; None if it does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        cpu_ns, wait_ns, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except (OSError, ValueError, IndexError):
        return None
    return Sample(state, int(cpu_ns) / 1e9, int(wait_ns) / 1e9)


def _own_s(last: Sample, sample: Sample, elapsed_s: float) -> float:
    """Return the part of *elapsed_s* between two samples in which the process could have run."""
    match sample.state:
        case "t":  # a debugger
            return 0.0
        case "R" | "D":
            return min(elapsed_s, max(0.0, sample.cpu_s - last.cpu_s))
    return max(0.0, elapsed_s - max(0.0, sample.wait_s - last.wait_s))
