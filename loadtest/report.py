"""From rounds to the report: a table for each group, the acceptance lines, the pictures, where it ran.

The machine is told without its name.
"""

from __future__ import annotations

import os
import platform
import re
import ssl
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtest.cases import FLOOR, GROUPS, RATES
from loadtest.chart import Series, line_chart
from loadtest.configuration import COUNTS
from loadtest.windows import middle, ratio, windows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loadtest.cases import Group
    from loadtest.lines import Found, Result
    from loadtest.windows import Figure, Round

EXPLANATION: Final = """\
CPU is of the process, user and system, per review answered; the worker's is that of all workers. Latency is
what the client sees, with generator, gateway and workers on one machine: in a closed loop it follows from the
number of connections, in an open loop it counts from the moment at which the review was due. All are medians
over the rounds; *times* is the gateway's CPU in multiples of the first row's in the same round."""

HEADINGS: Final = (
    *("case", "reviews/s", "gateway CPU, us", "times", "worker CPU, us", "gateway busy"),
    *("median ms", "p99 ms"),
)
LINE_HEADINGS: Final = ("target", "acceptance line", "wanted", "found", "verdict")

COST_PICTURE: Final = "cpu-per-review.svg"
LATENCY_PICTURE: Final = "latency-by-rate.svg"


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int]) -> str:
    """Return a Markdown table with aligned columns; those in *left* to the left, the others right."""
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]
    rule = ["-" * width if column in left else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return "\n".join(
        "| "
        + " | ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in (headings, rule, *rows)
    )


def group_table(group: Group, rounds: Sequence[Round]) -> str:
    """Return the table of the cases of *group* that were measured."""
    cases = [
        case
        for case in (group.reference, *group.cases)
        if any(windows_of(case.name, round_) for round_ in rounds)
    ]
    rows = []
    for case in cases:

        def found(figure: Figure, name: str = case.name) -> float:
            return middle(name, rounds, figure)

        rows.append(
            (
                case.title,
                f"{found('reviews_per_s'):,.0f}",
                f"{found('front_us'):.1f}",
                f"{ratio(case.name, group.reference.name, rounds):.2f}",
                f"{found('worker_us'):.1f}",
                f"{found('busy'):.0%}",
                f"{found('p50_ms'):.2f}",
                f"{found('p99_ms'):.2f}",
            )
        )
    return markdown_table(HEADINGS, rows, left=(0,))


def lines_table(results: Sequence[Result]) -> str:
    """Return the table of acceptance lines."""
    rows = [
        (
            result.line.target,
            result.line.text,
            result.line.wanted,
            "" if result.found is None else f"{result.found:.2f}",
            f"{result.verdict}: {result.remark}" if result.remark else result.verdict,
        )
        for result in results
    ]
    return markdown_table(LINE_HEADINGS, rows, left=(0, 1, 2, 4))


def drift(rounds: Sequence[Round]) -> str:
    """Return in one line how the floor moved while everything else was measured; empty without a floor."""
    floors = [window.front_us for round_ in rounds for window in windows_of(FLOOR.name, round_)]
    if not floors:
        return ""
    return (
        f"floor, {len(floors)} times: {floors[0]:.1f} us first, {floors[-1]:.1f} us last, "
        f"{min(floors):.1f} to {max(floors):.1f} us in all"
    )


def remarks(found: Found) -> list[str]:
    """Return what is to be known beside the figures: drift, what is missing, doubts."""
    remarks = [drift(found.rounds)]
    remarks += [f"{case} was not measured: {reason}" for case, reason in found.missing.items()]
    windows = [window for round_ in found.rounds for window in round_]
    for case in dict.fromkeys(window.case for window in windows):
        mine = [window for window in windows if window.case == case]
        doubted = [window.doubts[0] for window in mine if window.doubts]
        if doubted:
            remarks.append(f"{case}, {len(doubted)} of {len(mine)} windows: {doubted[-1]}")
    return [remark for remark in remarks if remark]


def cost_picture(rounds: Sequence[Round]) -> str | None:
    """Return the SVG of CPU per review against the number of policies; None where too little was measured."""
    titles = {"stream": "stream", "unary": "unary calls", "baseline": "plain grpc.aio"}
    series = []
    for kind, title in titles.items():
        points = _points(rounds, [(count, f"{kind}-{count}") for count in COUNTS], "front_us")
        if points:
            series.append(Series(title, points))
    floors = _points(rounds, [(0, FLOOR.name), (max(COUNTS), FLOOR.name)], "front_us")
    if not series or not floors:
        return None
    return line_chart(
        "CPU of the gateway for a review",
        "policies",
        "microseconds",
        [*series, Series("floor", floors)],
        log_y=True,
    )


def latency_picture(rounds: Sequence[Round]) -> str | None:
    """Return the SVG of latency against rate; None where no rates were measured."""
    places = [(name, name) for name in (f"rate-{percent}" for percent in RATES)]
    rates = {name: middle(name, rounds, "reviews_per_s") for name, _ in places if _is_measured(name, rounds)}
    if not rates:
        return None
    series = [
        Series(title, _points(rounds, [(rate, name) for name, rate in rates.items()], figure))
        for title, figure in _LATENCIES.items()
    ]
    return line_chart(
        "Latency of 4 policies, constant rate", "reviews a second", "milliseconds", series, log_y=True
    )


_LATENCIES: Final[Mapping[str, Figure]] = {"p99": "p99_ms", "median": "p50_ms"}


def _points(
    rounds: Sequence[Round], places: Sequence[tuple[float, str]], figure: Figure
) -> tuple[tuple[float, float], ...]:
    return tuple(
        (place, middle(case, rounds, figure)) for place, case in places if _is_measured(case, rounds)
    )


def _is_measured(case: str, rounds: Sequence[Round]) -> bool:
    return any(windows_of(case, round_) for round_ in rounds)


PICTURES: Final[Mapping[str, Callable[[Sequence[Round]], str | None]]] = {
    COST_PICTURE: cost_picture,
    LATENCY_PICTURE: latency_picture,
}


def markdown(
    found: Found, results: Sequence[Result], how: str, where: Sequence[str], pictures: Sequence[str]
) -> str:
    """Return the whole file.

    Args:
        found: What was measured.
        results: The acceptance lines.
        how: What was run.
        where: The machine and versions, a line each.
        pictures: Names of files beside it.
    """
    parts = [
        "# Benchmark",
        "\n".join(f"- {line}" for line in (how, *where, *remarks(found))),
        "## Acceptance lines",
        lines_table(results),
        "## Figures",
        EXPLANATION,
        *figures(found),
        *(f"![{name.removesuffix('.svg').replace('-', ' ')}]({name})" for name in pictures),
    ]
    return "\n\n".join(parts) + "\n"


def figures(found: Found) -> list[str]:
    """Return heading and table of each group that was measured, and what else there is."""
    tables = [
        f"### {group.title}\n\n{group_table(group, found.rounds)}"
        for group in GROUPS
        if group.reference.name in found.measured
    ]
    return [*tables, *found.notes]


def machine() -> str:
    """Return CPU model, usable cores and memory in one line."""
    cpu = _first(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo")) or platform.machine()
    kib = _first(r"^MemTotal:\s*(\d+) kB$", Path("/proc/meminfo"))
    memory = f"{int(kib) / 2**20:.0f} GiB" if kib else "unknown memory"
    return f"{cpu}, {cores()} cores, {memory}"


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def versions() -> str:
    """Return the versions of what a review passes through, in one line."""
    names = ("grpcio", "protobuf", "orjson", "httptools", "uvloop")
    packages = ", ".join(f"{name} {version(name)}" for name in names)
    return f"Python {platform.python_version()}, {packages}, {ssl.OPENSSL_VERSION}"


def _first(pattern: str, path: Path) -> str:
    try:
        found = re.search(pattern, path.read_text(), re.MULTILINE)
    except OSError:
        return ""
    return found[1].strip() if found else ""
