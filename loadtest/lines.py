"""The acceptance lines: what the figures have to be, and what becomes of them.

A line that needs what was not measured is left out. One that this machine cannot answer for is shown with the
reason and judged neither way.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from loadtest.sdk_cost import MAX_TIMES_PARSE
from loadtest.windows import Figure, middle, ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loadtest.windows import Round

Bound = Literal["at most", "at least", "below"]
Verdict = Literal["pass", "FAIL", "not judged"]

DIFFERENCES: Final = "serial-differences"
SDK: Final = "sdk"
CORES_FOR_TWO: Final = 4
"""Two processes of the gateway, the worker and the generator: with fewer cores they wait for each other."""
BUSY: Final = 0.95
"""Share of a core that the floor has to use where its rate is what is compared with."""


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that a run found."""

    rounds: Sequence[Round]
    numbers: Mapping[str, float] = field(default_factory=dict)
    """What is no window, by name."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Cases that could not be measured here, and why."""
    cores: int = 1
    notes: Sequence[str] = ()
    """Markdown that goes with the figures."""

    @property
    def measured(self) -> set[str]:
        """Names of all cases and numbers that there are."""
        return {window.case for round_ in self.rounds for window in round_} | set(self.numbers)


@dataclass(frozen=True, slots=True)
class Line:
    """One acceptance line."""

    target: str
    """Number of the target; several lines may have the same."""
    text: str
    needs: tuple[str, ...]
    """Cases or numbers."""
    figure: Callable[[Found], float]
    bound: Bound
    limit: float
    cores: int = 1
    """Judged only where there are as many."""
    objection: Callable[[Found], str] | None = None
    """Why the figure is not to be judged; empty if it is."""
    remark: Callable[[Found], str] | None = None
    """What is to be said with the verdict, whatever it is."""

    @property
    def wanted(self) -> str:
        """The limit in words."""
        return f"{self.bound} {self.limit:.4g}"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a line."""

    line: Line
    verdict: Verdict
    found: float | None = None
    remark: str = ""
    """Why it was not judged, or what goes with the verdict."""


def judge(lines: Sequence[Line], found: Found) -> list[Result]:
    """Return the results of those of *lines* of which everything was measured, or is known to be missing."""
    known = found.measured | set(found.missing)
    return [_judge(line, found) for line in lines if known.issuperset(line.needs)]


def _judge(line: Line, found: Found) -> Result:
    for name in line.needs:
        if name in found.missing:
            return Result(line, "not judged", remark=f"{name}: {found.missing[name]}")
    figure = line.figure(found)
    if found.cores < line.cores:
        return Result(line, "not judged", figure, f"needs {line.cores} cores, found {found.cores}")
    objection = line.objection(found) if line.objection else ""
    if objection:
        return Result(line, "not judged", figure, objection)
    remark = line.remark(found) if line.remark else ""
    passed = {"at most": figure <= line.limit, "at least": figure >= line.limit, "below": figure < line.limit}
    return Result(line, "pass" if passed[line.bound] else "FAIL", figure, remark)


def _times(
    target: str,
    text: str,
    case: str,
    to: str,
    bound: Bound,
    limit: float,
    figure: Figure = "front_us",
    to_figure: Figure | None = None,
    cores: int = 1,
) -> Line:
    """Return the line for *figure* of *case* as a multiple of that of *to*."""

    def times(found: Found) -> float:
        return ratio(case, to, found.rounds, figure, to_figure)

    return Line(target, text, (case, to), times, bound, limit, cores)


def _tail(target: str, text: str, case: str, limit: float) -> Line:
    """Return the line for the 99th percentile of *case* as a multiple of its median."""
    return Line(target, text, (case,), lambda found: middle(case, found.rounds, "tail"), "at most", limit)


def _floor_was_idle(found: Found) -> str:
    """Return what to say where something else than its core limited the floor."""
    busy = middle("floor", found.rounds, "busy")
    return "" if busy >= BUSY else f"the floor used {busy:.0%} of a core, so something else limited it"


def _large_in_flight(found: Found) -> str:
    return f"1 MiB in flight {middle('pods-beside-large', found.rounds, 'beside'):.0%} of the time"


def _number(found: Found, name: str) -> float:
    return found.numbers[name]


LINES: Final = (
    _times("1", "1 policy: CPU, times the floor", "stream-1", "floor", "at most", 2.0),
    _times("1", "4 policies on one worker: CPU, times the floor", "stream-4", "floor", "at most", 2.5),
    _times("1", "16 policies on four workers: CPU, times the floor", "stream-16", "floor", "at most", 6.0),
    _times(
        "1",
        "gateway and worker with 4 policies: CPU, times one Go policy of agnhost",
        *("stream-4", "agnhost", "below", 1.0, "total_us", "front_us"),
    ),
    _times(
        "2",
        "4 policies: reviews/s, times the plain grpc.aio gateway",
        *("stream-4", "baseline-4", "at least", 8.0, "reviews_per_s"),
    ),
    replace(
        _times(
            "2",
            "4 policies: reviews/s, of the floor's (10,000 of 30,000)",
            *("stream-4", "floor", "at least", 1 / 3, "reviews_per_s"),
        ),
        objection=_floor_was_idle,
    ),
    _times(
        "3",
        "one connection, 4 policies: median, times that of 1",
        *("alone-4", "alone-1", "at most", 1.3, "p50_ms"),
    ),
    _tail("3", "one connection, 4 policies: p99, times the median", "alone-4", 4.0),
    _times(
        "4",
        "8 mutating policies of 5 ms: median, times one of them",
        *("sleeps-8", "sleeps-1", "at most", 1.5, "p50_ms"),
    ),
    _times(
        "4",
        "the third changes the object: median, times one",
        *("third-changes", "sleeps-1", "at most", 3.0, "p50_ms"),
    ),
    Line(
        "4",
        "answers that differ from the serial run",
        *((DIFFERENCES,), partial(_number, name=DIFFERENCES), "at most", 0.0),
    ),
    _tail("5", "open loop at half of the highest rate: p99, times the median", "rate-50", 5.0),
    _times(
        "6",
        "a full handshake per review, 4 policies: CPU, times the floor",
        *("stream-4-fresh", "floor-fresh", "at most", 1.2),
    ),
    _times("7", "1 MiB, 4 policies: CPU, times the floor", "stream-4-large", "floor-large", "at most", 2.5),
    replace(
        _times(
            "7",
            "6 KB beside 1 MiB: p99, times that of 6 KB alone",
            *("pods-beside-large", "pods", "at most", 3.0, "p99_ms"),
        ),
        remark=_large_in_flight,
    ),
    _times(
        "8",
        "two processes: reviews/s, times one process",
        *("two-processes", "one-process", "at least", 1.7, "reviews_per_s"),
        cores=CORES_FOR_TWO,
    ),
    _times(
        "9",
        "4 of 1,000 webhooks match: CPU, times 4 configured",
        "match-by-rules",
        "match-4",
        "at most",
        1.15,
    ),
    Line(
        "SDK",
        "Python worker at full load, 1 policy: CPU of a review, times parsing its request",
        *((SDK,), partial(_number, name=SDK), "at most", MAX_TIMES_PARSE),
    ),
)
"""In the order of the report. Memory, of target 8, is ``loadtest.soak``."""
