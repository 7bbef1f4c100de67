"""The targets: a limit for a figure, and whether it is met.

A target whose cases were not measured is left out. A target that this machine cannot judge is listed with the
reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from loadtest.cases import FRONT_RATE, SLOW_RATES
from loadtest.policies import SETS
from loadtest.results import Figure, difference, middle, ratio
from loadtest.worker_cost import MAX_TIMES_PARSE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loadtest.results import Round

Bound = Literal["at most", "at least", "below"]
Verdict = Literal["pass", "FAIL", "not judged"]

SDK: Final = "sdk"
MIN_CORES_FOR_TWO: Final = 4
"""Two processes of the gateway, a worker and the load generator wait for each other on fewer cores."""
MIN_FLOOR_BUSY: Final = 0.95
"""Share of a core that the floor must use if its throughput is the reference."""
MAX_LOGGED_US: Final = 12.0
MAX_FRONT_TIMES: Final = 170 / 39
"""A review that no webhook matches, at a low rate, in multiples of the floor at full load: at most 170 us are
wanted on a machine where the latter costs 39 us. An absolute limit would judge the machine."""


@dataclass(frozen=True, slots=True)
class Found:
    """All results of a run."""

    rounds: Sequence[Round]
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Figures that do not come from windows, by name."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Cases that could not be measured, and why."""
    cores: int = 1
    notes: Sequence[str] = ()
    """Markdown for the report."""

    @property
    def measured(self) -> set[str]:
        """Names of all cases and numbers."""
        return {window.case for round_ in self.rounds for window in round_} | set(self.numbers)


@dataclass(frozen=True, slots=True)
class Target:
    """A limit for one figure."""

    number: str
    """Several targets may have the same."""
    text: str
    needs: tuple[str, ...]
    """Cases or numbers."""
    figure: Callable[[Found], float]
    bound: Bound
    limit: float
    min_cores: int = 1
    """Judged only on a machine with as many cores."""
    objection: Callable[[Found], str] | None = None
    """Returns why the figure cannot be judged; an empty string if it can."""
    remark: Callable[[Found], str] | None = None
    """Returns a remark on the verdict."""

    @property
    def wanted(self) -> str:
        """The limit in words."""
        return f"{self.bound} {self.limit:.4g}"


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict on a target."""

    target: Target
    verdict: Verdict
    found: float | None = None
    remark: str = ""
    """Why it was not judged, or a remark on the verdict."""


def judge(targets: Sequence[Target], found: Found) -> list[Result]:
    """Return the results of the *targets* whose cases were measured or are known to be missing."""
    known = found.measured | set(found.missing)
    return [_judge(target, found) for target in targets if known.issuperset(target.needs)]


def _judge(target: Target, found: Found) -> Result:
    for name in target.needs:
        if name in found.missing:
            return Result(target, "not judged", remark=f"{name}: {found.missing[name]}")
    figure = target.figure(found)
    if found.cores < target.min_cores:
        remark = f"needs {target.min_cores} cores, found {found.cores}"
        return Result(target, "not judged", figure, remark)
    objection = target.objection(found) if target.objection else ""
    if objection:
        return Result(target, "not judged", figure, objection)
    remark = target.remark(found) if target.remark else ""
    is_met = {
        "at most": figure <= target.limit,
        "at least": figure >= target.limit,
        "below": figure < target.limit,
    }[target.bound]
    return Result(target, "pass" if is_met else "FAIL", figure, remark)


def times(
    number: str,
    text: str,
    case: str,
    to: str,
    bound: Bound,
    limit: float,
    figure: Figure = "gateway_us",
    to_figure: Figure | None = None,
    min_cores: int = 1,
) -> Target:
    """Return the target for *figure* of *case* as a multiple of that of *to*."""

    def times(found: Found) -> float:
        return ratio(case, to, found.rounds, figure, to_figure)

    return Target(number, text, (case, to), times, bound, limit, min_cores)


def _tail(number: str, text: str, case: str, limit: float) -> Target:
    """Return the target for the 99th percentile of *case* as a multiple of its median."""
    return Target(number, text, (case,), lambda found: middle(case, found.rounds, "tail"), "at most", limit)


def _added(text: str, case: str, to: str, figure: Figure, limit: float) -> Target:
    """Return the target for what *case* adds to *figure* of *to*."""
    return Target(
        "10", text, (case, to), lambda found: difference(case, to, found.rounds, figure), "at most", limit
    )


def _at_rate(rate: int) -> list[Target]:
    """Return the targets of four policies at *rate* reviews a second, beside the floor at that rate."""
    case, floor, where = f"four-at-{rate}", f"floor-at-{rate}", f"4 policies, {rate:,}/s"
    return [
        _added(f"{where}: median added to the floor, ms", case, floor, "p50_ms", 0.4),
        _added(f"{where}: p99 added to the floor, ms", case, floor, "p99_ms", 1.0),
    ]


def _one_more(language: str, title: str, limit_us: float) -> Target:
    """Return the target for one policy more: the slope between four and ten."""
    few, many = f"v4-{language}", f"v10-{language}"
    more = len(SETS["v10"]) - len(SETS["v4"])
    return Target(
        "11",
        f"one policy more, {title} worker: CPU of gateway and worker, us",
        (few, many),
        lambda found: difference(many, few, found.rounds, "total_us") / more,
        "at most",
        limit_us,
    )


def _front_us(found: Found) -> str:
    return f"{middle('unmatched', found.rounds, 'gateway_us'):.0f} us"


def _floor_was_idle(found: Found) -> str:
    busy = middle("floor", found.rounds, "busy")
    if busy >= MIN_FLOOR_BUSY:
        return ""
    return f"the floor used {busy:.0%} of a core: something else limited its throughput"


def _floor_tail(found: Found) -> str:
    if "floor-rate-50" not in found.measured:
        return ""
    return f"the floor, at half of its own: {middle('floor-rate-50', found.rounds, 'tail'):.1f}"


def _background(found: Found) -> str:
    return f"1 MiB in flight {middle('pods-beside-large', found.rounds, 'background'):.0%} of the time"


_LANGUAGE_LIMITS: Final[Sequence[tuple[str, Bound, float]]] = (
    ("Go", "at most", 0.8),
    ("Rust", "below", 1.0),
    ("Java", "at most", 1.0),
)
TARGETS: Final = (
    times("1", "1 policy: CPU, times the floor", "stream-1", "floor", "at most", 1.7),
    times("1", "4 policies on one worker: CPU, times the floor", "stream-4", "floor", "at most", 2.0),
    times("1", "16 policies on four workers: CPU, times the floor", "stream-16", "floor", "at most", 3.2),
    times(
        "1",
        "M4, Python worker: CPU, times the floor",
        *("m4-python", "floor-real", "at most", 6.0),
    ),
    times(
        "1",
        "gateway and worker with 4 policies: CPU, times one Go policy of agnhost",
        *("stream-4", "agnhost", "below", 1.0, "total_us", "gateway_us"),
    ),
    times(
        "2",
        "4 policies: reviews/s, times the plain grpc.aio gateway",
        *("stream-4", "baseline-4", "at least", 9.0, "reviews_per_s"),
    ),
    replace(
        times(
            "2",
            "4 policies: reviews/s, of the floor's (10,000 of 30,000)",
            *("stream-4", "floor", "at least", 1 / 3, "reviews_per_s"),
        ),
        objection=_floor_was_idle,
    ),
    times(
        "3",
        "one connection, 4 policies: median, times that of 1",
        *("alone-4", "alone-1", "at most", 1.3, "p50_ms"),
    ),
    _tail("3", "one connection, 4 policies: p99, times the median", "alone-4", 4.0),
    times(
        "4",
        "8 mutating policies of 5 ms: median, times one of them",
        *("sleeps-8", "sleeps-1", "at most", 1.5, "p50_ms"),
    ),
    times(
        "4",
        "the third changes the object: median, times one",
        *("third-changes", "sleeps-1", "at most", 3.0, "p50_ms"),
    ),
    replace(
        _tail("5", "open loop at half of the highest rate: p99, times the median", "rate-50", 3.0),
        remark=_floor_tail,
    ),
    times(
        "6",
        "a full handshake per review, 4 policies: CPU, times the floor",
        *("stream-4-fresh", "floor-fresh", "at most", 1.2),
    ),
    times("7", "1 MiB, 4 policies: CPU, times the floor", "stream-4-large", "floor-large", "at most", 2.5),
    Target(
        "7",
        "6 KB beside updates of 6 MiB: p99, ms",
        *(("pods-beside-updates",), lambda found: middle("pods-beside-updates", found.rounds, "p99_ms")),
        *("at most", 50.0),
    ),
    replace(
        times(
            "7",
            "6 KB beside 1 MiB: p99, times that of 6 KB alone",
            *("pods-beside-large", "pods", "at most", 3.0, "p99_ms"),
        ),
        remark=_background,
    ),
    times(
        "8",
        "two processes: reviews/s, times one process",
        *("two-processes", "one-process", "at least", 1.7, "reviews_per_s"),
        min_cores=MIN_CORES_FOR_TWO,
    ),
    times(
        "9",
        "4 of 1,000 webhooks match: CPU, times 4 configured",
        *("match-by-rules", "match-4", "at most", 1.15),
    ),
    times(
        "9",
        "4 of 1,000 match, by their labels alone: CPU, times 4 configured",
        *("match-by-labels", "labels-4", "at most", 1.3),
    ),
    times(
        "12",
        "decision log of denials: reviews/s, of those without a decision log",
        *("logs-denied", "logs-none", "at least", 0.98, "reviews_per_s"),
    ),
    Target(
        "12",
        "decision log of all decisions: CPU added, us",
        *(
            ("logs-all", "logs-none"),
            lambda found: difference("logs-all", "logs-none", found.rounds, "gateway_us"),
        ),
        *("at most", MAX_LOGGED_US),
    ),
    *(target for rate in SLOW_RATES for target in _at_rate(rate)),
    replace(
        times(
            "10",
            f"no webhook matches, {FRONT_RATE}/s: CPU, times the floor at full load",
            *("unmatched", "front-busy", "at most", MAX_FRONT_TIMES),
        ),
        remark=_front_us,
    ),
    _one_more("python", "Python", 12.0),
    _one_more("go", "Go", 15.0),
    *(
        times(
            "11",
            f"V4, {title} worker: CPU of gateway and worker, of Python's",
            *(f"v4-{title.lower()}", "v4-python", bound, limit, "total_us"),
        )
        for title, bound, limit in _LANGUAGE_LIMITS
    ),
    times(
        "13",
        "10 policies as documents, of 3 validations: CPU, times the floor",
        *("documents-10", "floor-documents", "at most", 1.7),
    ),
    times(
        "13",
        "10 policies of Kyverno for Pods, as they are: CPU, times the floor",
        *("pod-security", "floor-documents", "at most", 2.0),
    ),
    times(
        "13",
        "10 mutating documents that each change the Pod: CPU, times the floor",
        *("documents-10-mutating", "floor-documents", "at most", 3.0),
    ),
    times(
        "13",
        "5 of 100 bindings match: CPU, times 5 bindings",
        *("bindings-100", "bindings-5", "at most", 1.1),
    ),
    Target(
        "SDK",
        "Python worker at full load, 1 policy: CPU of a review, times parsing its request",
        *((SDK,), lambda found: found.numbers[SDK], "at most", MAX_TIMES_PARSE),
    ),
)
"""In the order of the report. Memory, of target 8, is judged by ``loadtest.soak``."""
