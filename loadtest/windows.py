"""One case measured once, a window; windows one after another, a round; and what follows from rounds.

The load generator is a process of its own, run through its command line.

Ratios are formed within one round, in which everything was measured within seconds, and their median over the
rounds counts: a machine that gets slower or busier meanwhile moves both sides of a ratio.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from loadtest.launch import ROOT, BenchError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from loadtest.cases import Case, Load
    from loadtest.servers import Fleet

AROUND_S: Final = 1.0
"""How much longer what is sent beside a case goes on, so that it is there all the time."""
BACKLOG: Final = 1_000_000
"""Reviews that may wait in an open loop: windows are short, and a rate that is too high is to be seen."""
SPARE_S: Final = 60.0
"""What a run may take beyond its window, to connect and to count."""
RESUMED: Final = 0.9
"""Share of the handshakes that have to resume a session where that is what is measured."""

Figure = Literal[
    "reviews_per_s", "front_us", "worker_us", "total_us", "busy", "p50_ms", "p99_ms", "tail", "beside"
]
"""A figure of a window."""


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
    beside: float = 0.0
    """Share of the time in which a review of those that were sent beside it was in flight: their rate times
    their median latency."""
    doubts: tuple[str, ...] = ()
    """What the generator says against its own figures."""

    @property
    def total_us(self) -> float:
        """CPU of gateway and workers together."""
        return self.front_us + self.worker_us

    @property
    def tail(self) -> float:
        """The 99th percentile in multiples of the median."""
        return self.p99_ms / self.p50_ms


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
        BenchError: an answer was wrong, none came, or sessions were not resumed that should be.
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
        within_s = timing.warmup_s + timing.window_s + SPARE_S
        found = stack.enter_context(Generator(case.name, command)).result(within_s)
        measured = window(case.name, [str(pid) for pid in front.pids], found)
        if case.beside is not None:
            measured = replace(measured, beside=in_flight(beside.result(within_s + AROUND_S)))
    if case.load.handshake == "resumed":
        must_resume(case.name, found)
    return measured


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
        found: What the load generator printed, ``checked``; what is not known here is passed over.
    """
    reviews, seconds, cpu_s = found["reviews"], found["seconds"], found["cpu_s"]
    front_s = sum(cpu_s[pid] for pid in front)
    workers_s = sum(used_s for name, used_s in cpu_s.items() if name not in front and name != "load")
    return Window(
        case,
        reviews_per_s=reviews / seconds,
        front_us=front_s / reviews * 1e6,
        worker_us=workers_s / reviews * 1e6,
        busy=front_s / seconds,
        p50_ms=found["latencies_ms"]["p50"],
        p99_ms=found["latencies_ms"]["p99"],
        doubts=tuple(found.get("doubts", ())),
    )


def in_flight(found: Mapping[str, Any]) -> float:
    """Return the share of the time in which one of the reviews of *found*, as printed, was in flight."""
    share: float = found["reviews"] / found["seconds"] * found["latencies_ms"]["p50"] / 1000
    return min(1.0, share)


def must_resume(case: str, found: Mapping[str, Any]) -> None:
    """Check that *found* is of handshakes that took up a session.

    Raises:
        BenchError: fewer than ``RESUMED`` of them did.
    """
    resumed, handshakes = found["resumed"], found["handshakes"]
    if resumed < RESUMED * handshakes:
        raise BenchError(
            f"{case}: {resumed} of {handshakes} handshakes resumed a session, expected at least {RESUMED:.0%}"
        )


class Overrun(BenchError):
    """The load generator takes longer than it was given."""


class Generator:
    """A run of the load generator: begins with this object, ends with the ``with`` block if not before."""

    def __init__(self, case: str, arguments: Sequence[str]) -> None:
        self._case = case
        self._child = subprocess.Popen(
            [sys.executable, "-m", "loadtest.load", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.communicate()

    def result(self, within_s: float) -> Mapping[str, Any]:
        """Return what it printed, a run without errors and with reviews.

        Raises:
            Overrun: it is not at its end after *within_s*.
            BenchError: it failed, or is none.
        """
        try:
            printed, said = self._child.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            raise Overrun(f"{self._case}: the load generator does not come to an end") from None
        if self._child.returncode != 0:
            raise BenchError(f"{self._case}: the load generator failed: {said.strip()[-1000:]}")
        found: dict[str, Any] = orjson.loads(printed)
        return checked(self._case, found)


def checked(case: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return *found* if it is a run without errors and with reviews.

    Raises:
        BenchError: it is not.
    """
    if found["errors"] or not found["reviews"]:
        wrong = "; ".join(f"{count} times {what}" for what, count in found["errors"].items())
        raise BenchError(f"{case}: {wrong or 'no review was answered'}")
    return found


def ratio(
    case: str, to: str, rounds: Sequence[Round], figure: Figure = "front_us", to_figure: Figure | None = None
) -> float:
    """Return the median, over the rounds that have both, of a figure of *case* divided by one of *to*.

    Args:
        case: The name of a case.
        to: The name of another; where a round has several windows of one their mean counts.
        rounds: What was measured.
        figure: Of *case*.
        to_figure: Of *to*; by default the same.

    Raises:
        ValueError: no round has both.
    """
    above, below = attrgetter(figure), attrgetter(to_figure or figure)
    ratios = [
        fmean(map(above, windows_of(case, round_))) / fmean(map(below, windows_of(to, round_)))
        for round_ in rounds
        if windows_of(case, round_) and windows_of(to, round_)
    ]
    if not ratios:
        raise ValueError(f"{case} and {to} were never measured in one round")
    return median(ratios)


def middle(case: str, rounds: Sequence[Round], figure: Figure) -> float:
    """Return the median of *figure* over all windows of *case*.

    Raises:
        ValueError: there are none.
    """
    found: list[float] = [
        attrgetter(figure)(window) for round_ in rounds for window in windows_of(case, round_)
    ]
    if not found:
        raise ValueError(f"{case} was never measured")
    return median(found)


def windows_of(case: str, round_: Round) -> list[Window]:
    """Return the windows of *case* in *round_*, as measured."""
    return [window for window in round_ if window.case == case]
