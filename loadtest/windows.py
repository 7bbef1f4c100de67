"""One case measured once: the load generator is run, and what it found becomes a window."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from loadtest.generator import Generator, checked

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from loadtest.cases import Case, Load
    from loadtest.servers import Fleet

AROUND_S: Final = 1.0
"""How much longer what is sent beside a case goes on, so that it is there all the time."""
BACKLOG: Final = 1_000_000
"""Reviews that may wait in an open loop: windows are short, and a rate that is too high is to be seen."""
TAIL: Final = 0.01
"""Share of the reviews above the 99th percentile."""


@dataclass(frozen=True, slots=True)
class Window:
    """One case, measured once. CPU is in microseconds a review."""

    case: str
    reviews_per_s: float
    front_us: float
    """Of the gateway, all its processes; of the floor's process for the floor."""
    worker_us: float
    """Of all workers together."""
    busy: float
    """Cores that the gateway had; 1 is a whole one."""
    p50_ms: float
    p99_ms: float
    lost: float = 0.0
    """Share of the reviews of an open loop that got no answer."""
    doubts: tuple[str, ...] = ()
    """What the generator says against its own figures."""

    @property
    def total_us(self) -> float:
        """CPU of gateway and workers together."""
        return self.front_us + self.worker_us

    @property
    def tail(self) -> float:
        """The 99th percentile in multiples of the median; infinite where as many as that got no answer."""
        return self.p99_ms / self.p50_ms if self.lost < TAIL else inf


Round = tuple[Window, ...]
"""Windows measured one after another, in a group of which the ratios count."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a window is, in seconds."""

    warmup_s: float
    window_s: float


def measure(
    case: Case, full_rate: float, timing: Timing, running: Fleet, reviews: Mapping[str, Path]
) -> Window:
    """Return what the load generator, in a process of its own, finds for *case*.

    Args:
        case: What to measure.
        full_rate: Reviews a second of the group's reference; what the rate of an open loop is a share of.
        timing: How long.
        running: What the group needs, started.
        reviews: The files to send, by name.

    Raises:
        BenchError: an answer was wrong, or none came.
    """
    front = running.fronts[case.front]
    url = front.address + case.path
    watched = [*front.pids, *(worker.pid for worker in running.workers)]
    command = arguments(url, case.load, full_rate, timing, reviews)
    command += [f"--watch={pid}" for pid in watched]
    with ExitStack() as stack:
        if case.beside is not None:
            longer = Timing(0.0, timing.warmup_s + timing.window_s + AROUND_S)
            other = arguments(url, case.beside, full_rate, longer, reviews)
            beside = stack.enter_context(Generator(f"{case.name}, beside", other))
        found = stack.enter_context(Generator(case.name, command)).result(timing.warmup_s + timing.window_s)
        if case.beside is not None:
            beside.result(longer.window_s)
    return window(case.name, [str(pid) for pid in front.pids], found)


def arguments(
    url: str, load: Load, full_rate: float, timing: Timing, reviews: Mapping[str, Path]
) -> list[str]:
    """Return the arguments of the load generator for *load*."""
    found = [url, str(reviews[load.review]), "--connections", str(load.connections)]
    found += ["--warmup", f"{timing.warmup_s:g}", "--window", f"{timing.window_s:g}"]
    rate = load.rate or load.share * full_rate
    if rate:
        found += ["--rate", f"{rate:.1f}", "--backlog", str(BACKLOG)]
    if load.handshake != "once":
        found += ["--fresh"]
    if load.handshake == "resumed":
        found += ["--resume"]
    return found


def window(case: str, front: Collection[str], found: Mapping[str, Any]) -> Window:
    """Return *found* per review.

    Args:
        case: The name of the case.
        front: The process ids of the gateway or the floor.
        found: What the load generator printed; what is not known here is passed over.

    Raises:
        BenchError: it has errors, or no review.
    """
    checked(case, found)
    reviews, seconds, cpu_s = found["reviews"], found["seconds"], found["cpu_s"]
    front_s = sum(cpu_s[pid] for pid in front)
    workers_s = sum(used_s for name, used_s in cpu_s.items() if name not in front and name != "load")
    intended = found.get("intended", 0)
    return Window(
        case,
        reviews_per_s=reviews / seconds,
        front_us=front_s / reviews * 1e6,
        worker_us=workers_s / reviews * 1e6,
        busy=front_s / seconds,
        p50_ms=found["latencies_ms"]["p50"],
        p99_ms=found["latencies_ms"]["p99"],
        lost=found.get("unanswered", 0) / intended if intended else 0.0,
        doubts=tuple(found.get("doubts", ())),
    )
