"""What a run of the load generator is asked for, and what it found."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
FULL: Final = 0.95
"""Share of a core: above it the generator, which is one thread in most runs, has no time left."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to ask."""

    connections: int = 64
    """How many are open at the same time; one review at a time on each."""
    warmup_s: float = 0.5
    """Comes first and is not measured."""
    window_s: float = 3.0
    """How long to measure."""
    count: int | None = None
    """Measure this many reviews, on all connections together, instead of ``window_s``."""
    watch: Sequence[int] = ()
    """Ids of the processes whose CPU is measured."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run found in its measured window."""

    reviews: int
    """Answered correctly between the first and the last moment of the window; ``cpu_s`` divides by it."""
    seconds: float
    latencies_ms: dict[str, float]
    """By ``p50``, ``p90``, ``p99``, ``p999`` and ``max``; empty without reviews. In an open loop of the
    reviews that were due in the window, whenever they were answered, and from when they were due."""
    cpu_s: dict[str, float]
    """By process id, and the generator's own as ``load``."""
    errors: dict[str, int]
    """What went wrong and how often, in the warm-up too."""
    intended: int = 0
    """Reviews that were due in the window. This and the next three: of an open loop only."""
    answered: int = 0
    """Those of them that were answered, rightly or wrongly."""
    unanswered: int = 0
    """The others: not sent, not answered in time, or lost with their connection."""
    late_ms: dict[str, float] = field(default_factory=dict)
    """How late the generator itself sent reviews for which a connection was free; as ``latencies_ms``."""
    handshakes: int = 0
    """TLS handshakes made in the window, by connections that are made anew for each review."""
    resumed: int = 0
    """Those of them that took up an earlier session."""
    doubts: list[str] = field(default_factory=list)
    """Why the figures may say more about the generator than about the target. For a person."""


class Stopwatch:
    """Time and CPU between two moments."""

    def __init__(self, watch: Sequence[int]) -> None:
        """Prepare to read the CPU of the processes *watch* and of this one.

        Raises:
            ProcessLookupError: one of them does not exist.
        """
        self._clocks = {str(pid): cpu_clock(pid) for pid in watch} | {"load": time.CLOCK_PROCESS_CPUTIME_ID}
        self.start()
        self.stop()

    def start(self) -> None:
        """Begin."""
        self._began, self._before = time.perf_counter(), self._read()

    def stop(self) -> None:
        """End."""
        after, ended = self._read(), time.perf_counter()
        self.seconds = ended - self._began
        """How long it was."""
        self.cpu_s = {name: after[name] - self._before[name] for name in after}
        """By process id, and ``load``."""

    def _read(self) -> dict[str, float]:
        return {name: time.clock_gettime(clock) for name, clock in self._clocks.items()}

    def doubts(self) -> list[str]:
        """Return what is to be said about the generator's own CPU, if anything."""
        share = self.cpu_s["load"] / self.seconds
        if share < FULL:
            return []
        return [
            f"the generator was full ({share:.0%} of a core): it may be what limits reviews and adds latency"
        ]


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of *ordered* that at least *share* of them do not exceed (nearest rank)."""
    rank = max(1, -int(-share * len(ordered) // 1))
    return ordered[rank - 1]


def percentiles_ms(seconds: Iterable[float]) -> dict[str, float]:
    """Return the percentiles of ``SHARES`` in milliseconds; nothing for nothing."""
    ordered = sorted(seconds)
    return {name: percentile(ordered, share) * 1000 for name, share in SHARES.items()} if ordered else {}


def cpu_clock(pid: int) -> int:
    """Return the clock of the CPU time of process *pid*: all threads, user and system, ended ones included.

    Raises:
        ProcessLookupError: there is no such process.

    Source: clock_getcpuclockid(3).
    """
    clock = ctypes.c_int()
    if ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)) != 0:
        raise ProcessLookupError(f"no process {pid}")
    return clock.value
