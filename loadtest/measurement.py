"""The figures of one run of the load generator: counts, latency percentiles, CPU of processes."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
SATURATED: Final = 0.95
"""Share of a core. Above it the generator, a single thread, has no time left."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one measured window."""

    reviews: int
    """Answered correctly between the first and the last moment of the window; ``cpu_s`` is divided by it."""
    seconds: float
    latencies_ms: dict[str, float]
    """By the names of ``PERCENTILES``; empty without reviews. In an open loop: of the reviews that were due
    in the window, from the moment at which each was due to its answer."""
    cpu_s: dict[str, float]
    """By process id; the generator's own under ``load``."""
    errors: dict[str, int]
    """Each error and its count, including the warm-up."""
    answered: int = 0
    """All right answers: also in the warm-up, and after the window."""
    late_ms: dict[str, float] = field(default_factory=dict)
    """Open loop: how late the generator sent reviews for which a connection was free; as ``latencies_ms``."""
    warnings: list[str] = field(default_factory=list)
    """Reasons why the figures may describe the generator and not the target."""


class Stopwatch:
    """Wall-clock time, and CPU time of processes, between two moments."""

    def __init__(self, pids: Sequence[int]) -> None:
        """Prepare to read the CPU time of the processes *pids* and of this process.

        Raises:
            ProcessLookupError: one of them does not exist.
        """
        self._clocks = {str(pid): cpu_clock(pid) for pid in pids} | {"load": time.CLOCK_PROCESS_CPUTIME_ID}
        self.start()
        self.stop()

    def start(self) -> None:
        """Begin."""
        self._began, self._before = time.perf_counter(), self._read()

    def stop(self) -> None:
        """End."""
        after, ended = self._read(), time.perf_counter()
        self.seconds = ended - self._began
        """Wall-clock time between start and end."""
        self.cpu_s = {name: after[name] - self._before[name] for name in after}
        """CPU time by process id, and ``load``."""

    def _read(self) -> dict[str, float]:
        return {name: time.clock_gettime(clock) for name, clock in self._clocks.items()}

    def warnings(self) -> list[str]:
        """Return a warning if the generator was saturated."""
        share = self.cpu_s["load"] / self.seconds
        if share < SATURATED:
            return []
        return [
            f"the generator was saturated ({share:.0%} of a core), which lowers reviews/s and adds latency"
        ]


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of *ordered* that at least *share* of them do not exceed (nearest rank)."""
    rank = max(1, -int(-share * len(ordered) // 1))
    return ordered[rank - 1]


def percentiles_ms(seconds: Iterable[float]) -> dict[str, float]:
    """Return the ``PERCENTILES`` in milliseconds; an empty dictionary without values."""
    ordered = sorted(seconds)
    return {name: percentile(ordered, share) * 1000 for name, share in PERCENTILES.items()} if ordered else {}


def cpu_clock(pid: int) -> int:
    """Return the clock of the CPU time of process *pid*: user and system time of all its threads.

    Raises:
        ProcessLookupError: the process does not exist.

    Source: clock_getcpuclockid(3).
    """
    clock = ctypes.c_int()
    if ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)) != 0:
        raise ProcessLookupError(f"no process {pid}")
    return clock.value
