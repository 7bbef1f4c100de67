"""Memory over many reviews: samples, what growth is, and the lines that judge it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from loadtest.chart import Series, line_chart
from loadtest.lines import Line
from loadtest.report import markdown_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_MIB: Final = 120.0
MAX_GROWTH: Final = 0.02
"""Over the last half of the reviews, as a share of what there was before it."""
LEAST: Final = 4
"""Samples without which nothing is said."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Resident memory at one moment, in MiB."""

    reviews: int
    """Answered so far."""
    gateway_mib: float
    worker_mib: float


def resident_mib(pid: int) -> float:
    """Return the resident memory of process *pid*.

    Raises:
        OSError: there is no such process.

    Source: proc(5), VmRSS of /proc/PID/status.
    """
    return _status_mib(pid, "VmRSS")


def peak_mib(pid: int) -> float:
    """Return the most resident memory that process *pid* had so far.

    Where many connections come and go the allocator gives memory back and takes it again, some percent at a
    time; what grows without end shows in the peak all the same.

    Raises:
        OSError: there is no such process.

    Source: proc(5), VmHWM of /proc/PID/status.
    """
    return _status_mib(pid, "VmHWM")


def _status_mib(pid: int, field: str) -> float:
    found = re.search(rf"^{field}:\s*(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def growth(samples: Sequence[Sample]) -> float:
    """Return by which share the gateway grew over the last half of the reviews.

    By the median of the slopes between all pairs of samples (Theil and Sen), so that a single one, taken
    while memory was in use for a moment, decides nothing.

    Raises:
        ValueError: there are fewer than ``LEAST`` samples.
    """
    if len(samples) < LEAST:
        raise ValueError(f"{len(samples)} samples, expected at least {LEAST}")
    half = [sample for sample in samples if sample.reviews >= samples[-1].reviews / 2]
    slope = median(
        (later.gateway_mib - earlier.gateway_mib) / (later.reviews - earlier.reviews)
        for earlier, later in combinations(half, 2)
    )
    return slope * (half[-1].reviews - half[0].reviews) / half[0].gateway_mib


def lines(max_mib: float = MAX_MIB) -> list[Line]:
    """Return the lines by which memory is judged: its height, at most *max_mib*, and its growth."""
    return [
        Line(
            "8",
            "memory of the gateway process, MiB",
            *(("mib",), lambda found: found.numbers["mib"], "at most", max_mib),
        ),
        Line(
            "8",
            "its growth over the last half, percent",
            *(("growth",), lambda found: found.numbers["growth"] * 100, "below", MAX_GROWTH * 100),
        ),
    ]


def numbers(samples: Sequence[Sample]) -> Mapping[str, float]:
    """Return what the lines are judged by; nothing where there are too few samples."""
    if len(samples) < LEAST:
        return {}
    return {"mib": max(sample.gateway_mib for sample in samples), "growth": growth(samples)}


def table(samples: Sequence[Sample]) -> str:
    """Return the Markdown table of *samples*."""
    rows = [
        (f"{sample.reviews:,}", f"{sample.gateway_mib:.1f}", f"{sample.worker_mib:.1f}") for sample in samples
    ]
    return markdown_table(("reviews", "gateway MiB", "worker MiB"), rows, left=())


def picture(samples: Sequence[Sample]) -> str:
    """Return the SVG of memory against reviews."""
    return line_chart(
        "Resident memory",
        "reviews",
        "MiB",
        [
            Series("gateway", tuple((sample.reviews, sample.gateway_mib) for sample in samples)),
            Series("worker", tuple((sample.reviews, sample.worker_mib) for sample in samples)),
        ],
    )
