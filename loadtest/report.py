"""From measured windows to the table, the two acceptance lines and the Markdown file: arithmetic and text.

Ratios are formed within one round, in which everything was measured within seconds, and their median over the
rounds counts: a machine that gets slower or busier meanwhile moves both sides of a ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from loadtest.cases import CASES, FLOOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.cases import Case

MAX_TIMES_FLOOR: Final = 3.5
"""Gateway CPU of a review with four policies on one worker by stream, in multiples of the floor's."""
MIN_STREAM_GAIN: Final = 5.0
"""How many times less CPU that takes than by unary calls."""


@dataclass(frozen=True, slots=True)
class Window:
    """One case, measured once. CPU is in microseconds a review."""

    case: str
    reviews_per_s: float
    front_us: float
    """Of the gateway process; of the floor's process for the floor."""
    worker_us: float
    """Of all workers together."""
    busy: float
    """Share of a core that the gateway process had."""
    p50_ms: float
    p99_ms: float


Round = tuple[Window, ...]
"""Windows measured one after another, several of them of the floor."""


@dataclass(frozen=True, slots=True)
class Row:
    """The medians of a case over all rounds."""

    case: Case
    reviews_per_s: float
    front_us: float
    times_floor: float
    worker_us: float
    busy: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Criterion:
    """One acceptance line."""

    text: str
    passed: bool

    def __str__(self) -> str:
        return f"{'pass' if self.passed else 'FAIL'}: {self.text}"


def rows(rounds: Sequence[Round]) -> list[Row]:
    """Return a row for each case that was measured, in the order of ``CASES``."""
    return [_row(case, rounds) for case in CASES if any(_of(case.name, round_) for round_ in rounds)]


def _row(case: Case, rounds: Sequence[Round]) -> Row:
    windows = [window for round_ in rounds for window in _of(case.name, round_)]
    return Row(
        case,
        median(window.reviews_per_s for window in windows),
        median(window.front_us for window in windows),
        ratio(case.name, FLOOR.name, rounds),
        median(window.worker_us for window in windows),
        median(window.busy for window in windows),
        median(window.p50_ms for window in windows),
        median(window.p99_ms for window in windows),
    )


def ratio(case: str, to: str, rounds: Sequence[Round]) -> float:
    """Return the median, over the rounds that have both, of the CPU of *case* divided by that of *to*.

    Raises:
        ValueError: no round has both.
    """
    ratios = [
        fmean(window.front_us for window in _of(case, round_))
        / fmean(window.front_us for window in _of(to, round_))
        for round_ in rounds
        if _of(case, round_) and _of(to, round_)
    ]
    if not ratios:
        raise ValueError(f"{case} and {to} were never measured in one round")
    return median(ratios)


def _of(case: str, round_: Round) -> list[Window]:
    return [window for window in round_ if window.case == case]


def criteria(rounds: Sequence[Round]) -> list[Criterion]:
    """Return the acceptance lines of which both sides were measured."""
    measured = {window.case for round_ in rounds for window in round_}
    lines = []
    if {"stream-4", "floor"} <= measured:
        times = ratio("stream-4", "floor", rounds)
        text = f"4 policies on one worker by stream: {times:.2f} times the floor (at most {MAX_TIMES_FLOOR})"
        lines.append(Criterion(text, times <= MAX_TIMES_FLOOR))
    if {"stream-4", "unary-4"} <= measured:
        gain = ratio("unary-4", "stream-4", rounds)
        text = f"stream instead of unary: {gain:.2f} times less (at least {MIN_STREAM_GAIN:g})"
        lines.append(Criterion(text, gain >= MIN_STREAM_GAIN))
    return lines


def drift(rounds: Sequence[Round]) -> str:
    """Return in one line how the floor moved while everything else was measured."""
    floors = [window.front_us for round_ in rounds for window in _of(FLOOR.name, round_)]
    return (
        f"floor, {len(floors)} times: {floors[0]:.1f} us first, {floors[-1]:.1f} us last, "
        f"{min(floors):.1f} to {max(floors):.1f} us in all"
    )


EXPLANATION: Final = """\
CPU is of the process, user and system, per review answered. Latency is what the client sees in a closed loop,
with generator, gateway and workers on one machine."""

HEADINGS: Final = (
    "case",
    "reviews/s",
    "gateway CPU, us",
    "times the floor",
    "worker CPU, us",
    "gateway busy",
    "median ms",
    "p99 ms",
)


def table(found: Sequence[Row]) -> str:
    """Return *found* as a Markdown table with aligned columns."""
    lines = [
        (
            row.case.title,
            f"{row.reviews_per_s:,.0f}",
            f"{row.front_us:.1f}",
            f"{row.times_floor:.2f}",
            f"{row.worker_us:.1f}",
            f"{row.busy:.0%}",
            f"{row.p50_ms:.2f}",
            f"{row.p99_ms:.2f}",
        )
        for row in found
    ]
    widths = [max(len(line[column]) for line in (HEADINGS, *lines)) for column in range(len(HEADINGS))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(
        "| "
        + " | ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in (HEADINGS, rule, *lines)
    )


def markdown(rounds: Sequence[Round], how: str, where: Sequence[str]) -> str:
    """Return the whole file. *how* says what was run, *where* the machine and versions, a line each."""
    parts = [
        "# Benchmark",
        "\n".join(f"- {line}" for line in (how, *where)),
        table(rows(rounds)),
        EXPLANATION,
        "\n".join(f"- {line}" for line in (*criteria(rounds), drift(rounds))),
    ]
    return "\n\n".join(parts) + "\n"
