"""The report: a table for each group, the targets, warnings, and the machine."""

from __future__ import annotations

import os
import platform
import re
import ssl
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtest.cases import FLOOR, GROUPS
from loadtest.results import middle, ratio, windows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.cases import Group
    from loadtest.results import Figure, Round
    from loadtest.targets import Found, Result

EXPLANATION: Final = """\
CPU is user and system time per answered review: *gateway* of the gateway, the floor or another control;
*worker* of all workers together. Latency is measured by the client; load generator, gateway and workers share
one machine. In a closed loop latency follows from the number of connections; in an open loop it counts from
the moment at which the review was due. All figures are medians over the rounds. *times* is the gateway's CPU
in multiples of the first row's in the same round."""

HEADINGS: Final = (
    *("case", "reviews/s", "gateway CPU, us", "times", "worker CPU, us", "gateway busy"),
    *("median ms", "p99 ms"),
)
TARGET_HEADINGS: Final = ("target", "figure", "wanted", "found", "verdict")


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int]) -> str:
    """Return an aligned Markdown table; the columns in *left* are aligned to the left, the others right."""
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
    """Return the table of the measured cases of *group*."""
    rows = []
    for case in (group.reference, *group.cases):
        if not any(windows_of(case.name, round_) for round_ in rounds):
            continue

        def found(figure: Figure, name: str = case.name) -> float:
            return middle(name, rounds, figure)

        rows.append(
            (
                case.title,
                f"{found('reviews_per_s'):,.0f}",
                f"{found('gateway_us'):.1f}",
                f"{ratio(case.name, group.reference.name, rounds):.2f}",
                f"{found('worker_us'):.1f}",
                f"{found('busy'):.0%}",
                f"{found('p50_ms'):.2f}",
                f"{found('p99_ms'):.2f}",
            )
        )
    return markdown_table(HEADINGS, rows, left=(0,))


def targets_table(results: Sequence[Result]) -> str:
    """Return the table of targets."""
    rows = [
        (
            result.target.number,
            result.target.text,
            result.target.wanted,
            "" if result.found is None else f"{result.found:.2f}",
            f"{result.verdict}: {result.remark}" if result.remark else result.verdict,
        )
        for result in results
    ]
    return markdown_table(TARGET_HEADINGS, rows, left=(0, 1, 2, 4))


def drift(rounds: Sequence[Round]) -> str:
    """Return how the floor's CPU changed during the run, in one line; empty without a floor."""
    floors = [window.gateway_us for round_ in rounds for window in windows_of(FLOOR.name, round_)]
    if not floors:
        return ""
    return (
        f"floor, {len(floors)} times: {floors[0]:.1f} us first, {floors[-1]:.1f} us last, "
        f"{min(floors):.1f} to {max(floors):.1f} us in all"
    )


def remarks(found: Found) -> list[str]:
    """Return drift, missing cases and warnings, a line each."""
    lines = [drift(found.rounds)]
    lines += [f"{case} was not measured: {reason}" for case, reason in found.missing.items()]
    windows = [window for round_ in found.rounds for window in round_]
    for case in dict.fromkeys(window.case for window in windows):
        all_ = [window for window in windows if window.case == case]
        warned = [window.warnings[0] for window in all_ if window.warnings]
        if warned:
            lines.append(f"{case}, {len(warned)} of {len(all_)} windows: {warned[-1]}")
    return [line for line in lines if line]


def figures(found: Found) -> list[str]:
    """Return heading and table of each measured group, and the notes."""
    tables = [
        f"### {group.title}\n\n{group_table(group, found.rounds)}"
        for group in GROUPS
        if group.reference.name in found.measured
    ]
    return [*tables, *found.notes]


def markdown(found: Found, results: Sequence[Result], how: str, where: Sequence[str]) -> str:
    """Return the whole report.

    Args:
        found: All results.
        results: The verdicts on the targets.
        how: What was run.
        where: Machine, versions and date, a line each.
    """
    parts = [
        "# Benchmark",
        "\n".join(f"- {line}" for line in (how, *where, *remarks(found))),
        *(("## Targets", targets_table(results)) if results else ()),
        "## Figures",
        EXPLANATION,
        *figures(found),
    ]
    return "\n\n".join(parts) + "\n"


def machine() -> str:
    """Return CPU model, usable cores and memory in one line; not the name of the machine."""
    cpu = _first(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo")) or platform.machine()
    kib = _first(r"^MemTotal:\s*(\d+) kB$", Path("/proc/meminfo"))
    memory = f"{int(kib) / 2**20:.0f} GiB" if kib else "unknown memory"
    return f"{cpu}, {cores()} cores, {memory}"


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def versions() -> str:
    """Return the versions of Python and of the libraries that handle a review, in one line."""
    names = ("grpcio", "protobuf", "orjson", "httptools", "uvloop")
    packages = ", ".join(f"{name} {version(name)}" for name in names)
    return f"Python {platform.python_version()}, {packages}, {ssl.OPENSSL_VERSION}"


def _first(pattern: str, path: Path) -> str:
    try:
        found = re.search(pattern, path.read_text(), re.MULTILINE)
    except OSError:
        return ""
    return found[1].strip() if found else ""
