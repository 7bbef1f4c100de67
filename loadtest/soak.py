"""``python -m loadtest.soak``: whether memory stays where it is, over a million reviews.

One gateway, four policies on one worker by stream, a closed loop. After each twentieth of the reviews the
resident memory of the gateway process and of the worker is read. Exit status 0 if the gateway ends below its
limit and grew less than its limit over the last half, 1 if not or if an answer was wrong. A run that takes
longer than ``--limit`` ends early and says how many reviews it had; nothing is judged then, and the exit
status is 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from loadtest.chart import Series, line_chart
from loadtest.launch import BenchError
from loadtest.lines import Found, Line, judge
from loadtest.plan import RESULTS
from loadtest.report import cores, lines_table, machine, markdown_table, versions
from loadtest.reviews import POD
from loadtest.servers import fleet
from loadtest.windows import Generator, Overrun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FRONT: Final = "stream"
PATH: Final = "/validate/policies-4"
REVIEWS: Final = 1_000_000
PARTS: Final = 20
LIMIT_S: Final = 900.0
CONNECTIONS: Final = 64
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
    found = re.search(r"^VmRSS:\s*(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
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


LINES: Final = (
    Line(
        "8",
        "memory of the gateway process, MiB",
        *(("mib",), lambda found: found.numbers["mib"], "at most", MAX_MIB),
    ),
    Line(
        "8",
        "its growth over the last half, percent",
        *(("growth",), lambda found: found.numbers["growth"] * 100, "below", MAX_GROWTH * 100),
    ),
)


def numbers(samples: Sequence[Sample]) -> Mapping[str, float]:
    """Return what the lines are judged by; nothing where there are too few samples."""
    if len(samples) < LEAST:
        return {}
    return {"mib": max(sample.gateway_mib for sample in samples), "growth": growth(samples)}


def missing(done: int, options: argparse.Namespace) -> Mapping[str, str]:
    """Return why nothing is judged after *done* reviews; nothing where there were as many as wanted."""
    if done >= options.count:
        return {}
    reason = f"{done:,} of {options.count:,} reviews within {options.limit:g} s"
    return {"mib": reason, "growth": reason}


def soak(reviews: int, limit_s: float) -> Iterator[Sample]:
    """Yield a sample before the first review and after each part, until *reviews* or *limit_s* are reached.

    Raises:
        BenchError: something did not start, or answered wrongly.
    """
    give_up = time.monotonic() + limit_s
    with (
        tempfile.TemporaryDirectory(prefix="loadtest-") as folder,
        fleet(POD, [FRONT], Path(folder)) as running,
    ):
        front, worker = running.fronts[FRONT], running.workers[0]
        done = 0
        yield Sample(done, resident_mib(front.pid), resident_mib(worker.pid))
        while done < reviews and time.monotonic() < give_up:
            part = min(-(-reviews // PARTS), reviews - done)
            load = ["--connections", str(CONNECTIONS), "--warmup", "0", "--count", str(part)]
            left_s = give_up - time.monotonic()
            with Generator("soak", [front.address + PATH, str(POD), *load]) as generator:
                try:
                    done += generator.result(left_s)["reviews"]
                except Overrun:
                    return
            yield Sample(done, resident_mib(front.pid), resident_mib(worker.pid))


def markdown(samples: Sequence[Sample], verdicts: str, where: Sequence[str], picture: str) -> str:
    """Return the whole file."""
    rows = [
        (f"{sample.reviews:,}", f"{sample.gateway_mib:.1f}", f"{sample.worker_mib:.1f}") for sample in samples
    ]
    parts = [
        "# Memory",
        "\n".join(f"- {line}" for line in where),
        verdicts,
        markdown_table(("reviews", "gateway MiB", "worker MiB"), rows, left=()),
        f"![resident memory]({picture})",
    ]
    return "\n\n".join(parts) + "\n"


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser("loadtest.soak", description="Watches memory over many reviews.")
    parser.add_argument(
        "--count", type=int, default=REVIEWS, metavar="N", help=f"reviews, default {REVIEWS:,}"
    )
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, metavar="SECONDS", help=f"default {LIMIT_S:g}"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: loadtest/results/DATE-soak.md")
    options = parser.parse_args(argv)
    output = options.output or RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-soak.md"
    samples: list[Sample] = []
    began = time.monotonic()
    try:
        for sample in soak(options.count, options.limit):
            samples.append(sample)
            print(
                f"{sample.reviews:9,} reviews: gateway {sample.gateway_mib:.1f} MiB, "
                f"worker {sample.worker_mib:.1f} MiB",
                file=sys.stderr,
                flush=True,
            )
    except BenchError as error:
        print(f"loadtest.soak: {error}", file=sys.stderr)
        return 1
    done, took_s = samples[-1].reviews, time.monotonic() - began
    results = judge(LINES, Found((), numbers(samples), missing(done, options), cores()))
    how = (
        f"{done:,} reviews of {POD.stat().st_size:,} bytes in {took_s:.0f} s, {CONNECTIONS} connections in a "
        f"closed loop, new ones after each {1 / PARTS:.0%}; 4 policies on one worker by stream; resident "
        "memory, shared pages included"
    )
    where = [how, machine(), versions(), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"]
    output.parent.mkdir(parents=True, exist_ok=True)
    drawn = output.with_name(f"{output.stem}-memory.svg")
    drawn.write_text(picture(samples))
    output.write_text(markdown(samples, lines_table(results), where, drawn.name))
    print(lines_table(results), f"written to {output}", sep="\n\n")
    return 0 if results and all(result.verdict == "pass" for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
