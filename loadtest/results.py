"""The measurements of cases: one is a window, several one after another are a round, and rounds give ratios.

A ratio is formed within one round, in which everything was measured within seconds, and the median of the
rounds counts. A machine that becomes slower or busier changes both sides of a ratio.
"""

from __future__ import annotations

import operator
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from loadtest.servers import ROOT, BenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from loadtest.cases import Case, Load
    from loadtest.servers import Running

AROUND_S: Final = 1.0
"""How long a background load continues after the window of its case."""
SPARE_S: Final = 60.0
"""Time for the load generator beyond its window: to connect and to finish."""

Figure = Literal[
    "reviews_per_s", "gateway_us", "worker_us", "total_us", "busy", "p50_ms", "p99_ms", "tail", "background"
]
"""A figure of a window."""


@dataclass(frozen=True, slots=True)
class Window:
    """One case, measured once. CPU is in microseconds a review."""

    case: str
    reviews_per_s: float
    gateway_us: float
    """Of all processes of the gateway, or of the floor or another control."""
    worker_us: float
    """Of all its workers together."""
    busy: float
    """Cores that the gateway used; 1 is one whole core."""
    p50_ms: float
    p99_ms: float
    background: float = 0.0
    """Share of the time in which a review of the background load was in flight: its rate times its median
    latency."""
    warnings: tuple[str, ...] = ()
    """From the load generator, about its own figures."""

    @property
    def total_us(self) -> float:
        """CPU of gateway and workers together."""
        return self.gateway_us + self.worker_us

    @property
    def tail(self) -> float:
        """The 99th percentile in multiples of the median."""
        return self.p99_ms / self.p50_ms


Round = tuple[Window, ...]
"""Windows of one group that were measured one after another."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Length of a window and of its warm-up, in seconds."""

    warmup_s: float
    window_s: float


def measure(
    case: Case, full_rate: float, timing: Timing, running: Running, reviews: Mapping[str, Path]
) -> Window:
    """Run the load generator, a process of its own, for *case*.

    Args:
        case: What to measure.
        full_rate: Reviews a second of the group's reference; the rate of an open loop is a share of it.
        timing: How long.
        running: The processes of the group.
        reviews: The files to send, by name.

    Raises:
        BenchError: an answer was wrong, or there was none.
    """
    server = running.servers[case.server]
    url = server.address + case.path
    command = arguments(url, case.load, full_rate, timing, reviews)
    command += [f"--watch={pid}" for pid in (*server.pids, *server.workers)]
    with ExitStack() as stack:
        if case.background is not None:
            longer = Timing(0.0, timing.warmup_s + timing.window_s + AROUND_S)
            other = arguments(url, case.background, full_rate, longer, reviews)
            background = stack.enter_context(LoadProcess(f"{case.name}, background", other))
        timeout_s = timing.warmup_s + timing.window_s + SPARE_S
        found = stack.enter_context(LoadProcess(case.name, command)).result(timeout_s)
        measured = window(case.name, [str(pid) for pid in server.pids], found)
        if case.background is not None:
            measured = replace(measured, background=in_flight(background.result(timeout_s + AROUND_S)))
    return measured


def arguments(
    url: str, load: Load, full_rate: float, timing: Timing, reviews: Mapping[str, Path]
) -> list[str]:
    """Return the arguments of the load generator for *load*."""
    found = [url, str(reviews[load.review]), "--connections", str(load.connections)]
    found += ["--warmup", f"{timing.warmup_s:g}", "--window", f"{timing.window_s:g}"]
    rate = load.rate or load.share * full_rate
    if rate:
        found += ["--rate", f"{rate:.1f}"]
    if not load.is_exact:
        found += ["--inexact"]
    if load.uids > 1:
        found += ["--uids", str(load.uids)]
    if load.is_fresh:
        found += ["--fresh"]
    if load.traceparent:
        found += ["--traceparent", load.traceparent]
    return found


def window(case: str, gateway: Collection[str], found: Mapping[str, Any]) -> Window:
    """Return the figures of *case* per review.

    Args:
        case: The name of the case.
        gateway: The process ids of the gateway, the floor or another control.
        found: A ``Measurement`` as printed and parsed.
    """
    reviews, seconds, cpu_s = found["reviews"], found["seconds"], found["cpu_s"]
    gateway_s = sum(cpu_s[pid] for pid in gateway)
    workers_s = sum(used_s for name, used_s in cpu_s.items() if name not in gateway and name != "load")
    return Window(
        case,
        reviews_per_s=reviews / seconds,
        gateway_us=gateway_s / reviews * 1e6,
        worker_us=workers_s / reviews * 1e6,
        busy=gateway_s / seconds,
        p50_ms=found["latencies_ms"]["p50"],
        p99_ms=found["latencies_ms"]["p99"],
        warnings=tuple(found.get("warnings", ())),
    )


def in_flight(found: Mapping[str, Any]) -> float:
    """Return the share of the time in which one of the reviews of a measurement was in flight, at most 1."""
    share: float = found["reviews"] / found["seconds"] * found["latencies_ms"]["p50"] / 1000
    return min(1.0, share)


class LoadProcess:
    """A run of ``loadtest.load``, which ends with the ``with`` block at the latest."""

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

    def __enter__(self) -> LoadProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.communicate()

    def result(self, timeout_s: float) -> Mapping[str, Any]:
        """Return what it printed: a measurement with reviews and without errors.

        Raises:
            BenchError: it failed, took longer than *timeout_s*, or found errors or no reviews.
        """
        try:
            printed, log = self._child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{self._case}: the load generator did not end in {timeout_s:g} s") from None
        if self._child.returncode != 0:
            raise BenchError(f"{self._case}: the load generator failed: {log.strip()[-1000:]}")
        found: dict[str, Any] = orjson.loads(printed)
        return checked(self._case, found)


def checked(case: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return *found* if it has reviews and no errors.

    Raises:
        BenchError: it has not.
    """
    if found["errors"] or not found["reviews"]:
        # A broken answer may be seen in many parts.
        first = list(found["errors"].items())[:3]
        errors = "; ".join(f"{count} times {error[:200]}" for error, count in first)
        raise BenchError(f"{case}: {errors or 'no review was answered'}")
    return found


def ratio(
    case: str,
    to: str,
    rounds: Sequence[Round],
    figure: Figure = "gateway_us",
    to_figure: Figure | None = None,
) -> float:
    """Return the median, over the rounds that have both, of a figure of *case* divided by one of *to*.

    Args:
        case: The name of a case.
        to: The name of another; the mean counts where a round has several windows of it.
        rounds: The measured rounds.
        figure: Of *case*.
        to_figure: Of *to*; by default the same.

    Raises:
        ValueError: no round has both.
    """
    above, below = attrgetter(figure), attrgetter(to_figure or figure)
    return _paired(case, to, rounds, above, below, operator.truediv)


def difference(case: str, to: str, rounds: Sequence[Round], figure: Figure) -> float:
    """Return the median, over the rounds that have both, of a figure of *case* less that of *to*.

    Where a round has several windows of a case, their mean counts.

    Raises:
        ValueError: no round has both.
    """
    value = attrgetter(figure)
    return _paired(case, to, rounds, value, value, operator.sub)


def middle(case: str, rounds: Sequence[Round], figure: Figure) -> float:
    """Return the median of *figure* over all windows of *case*.

    Raises:
        ValueError: there are none.
    """
    found: list[float] = [
        attrgetter(figure)(window) for round_ in rounds for window in windows_of(case, round_)
    ]
    if not found:
        raise ValueError(f"{case} was not measured")
    return median(found)


def _paired(
    case: str,
    to: str,
    rounds: Sequence[Round],
    value: Callable[[Window], float],
    to_value: Callable[[Window], float],
    compare: Callable[[float, float], float],
) -> float:
    found = [
        compare(fmean(map(value, windows_of(case, round_))), fmean(map(to_value, windows_of(to, round_))))
        for round_ in rounds
        if windows_of(case, round_) and windows_of(to, round_)
    ]
    if not found:
        raise ValueError(f"no round has both {case} and {to}")
    return median(found)


def windows_of(case: str, round_: Round) -> list[Window]:
    """Return the windows of *case* in *round_*."""
    return [window for window in round_ if window.case == case]
