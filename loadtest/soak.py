"""``python -m loadtest.soak``: whether memory stays where it is over very many reviews, and counts add up.

One gateway and a closed loop. Without ``--faults``: four policies on one worker by stream, and a million
reviews that are all answered. With it: two workers that break, and reviews of which some are late, denied or
left by their clients (``soak_faults``).

After each twentieth of the reviews the resident memory of the gateway process and of the worker is read. Exit
status 0 if the gateway ends below its limit and grew less than its limit over the last half, and, with
faults, all sums are right; 1 if not or if an answer was wrong. A run that takes longer than ``--limit`` ends
early and says how many reviews it had; its memory is not judged then, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtest.launch import BenchError
from loadtest.lines import Found, judge
from loadtest.plan import RESULTS
from loadtest.report import cores, lines_table, machine, versions
from loadtest.reviews import POD
from loadtest.servers import fleet
from loadtest.soak_faults import Plan, run
from loadtest.soak_memory import MAX_MIB, Sample, lines, numbers, picture, resident_mib, table
from loadtest.windows import Generator, Overrun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FRONT: Final = "stream"
PATH: Final = "/validate/policies-4"
REVIEWS: Final = 1_000_000
FAULTY_REVIEWS: Final = 500_000
PARTS: Final = 20
LIMIT_S: Final = 900.0
CONNECTIONS: Final = 64
CLIENTS: Final = 128
"""With faults. At 3,000 reviews a second, three in four of them wait for what never comes."""
MAX_FAULTY_MIB: Final = 160.0
"""With faults: twice the connections, many of them new, and a call in flight on most."""


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


class Report:
    """What a run finds, as it finds it, and the file that it comes to."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.samples: list[Sample] = []
        self.lines = lines(MAX_FAULTY_MIB if options.faults else MAX_MIB)
        self.numbers: dict[str, float] = {}
        self.notes: list[str] = []
        """What was done, a line each."""
        self.tables: list[str] = []
        self.log = ""
        """Of the gateway; kept if not all is well."""
        self._began = time.monotonic()

    def take(self, sample: Sample) -> None:
        """Keep *sample*, and print it."""
        self.samples.append(sample)
        print(
            f"{sample.reviews:9,} reviews: gateway {sample.gateway_mib:.1f} MiB, "
            f"worker {sample.worker_mib:.1f} MiB",
            file=sys.stderr,
            flush=True,
        )

    def write(self, output: Path, done: int) -> bool:
        """Judge *done* reviews, write file and picture, print the verdicts; return whether all is well."""
        found = {**self.numbers, **numbers(self.samples)}
        results = judge(self.lines, Found((), found, missing(done, self.options), cores()))
        took_s = time.monotonic() - self._began
        notes = [
            f"{done:,} reviews of {POD.stat().st_size:,} bytes in {took_s:.0f} s, in a closed loop",
            *self.notes,
            "memory: resident, shared pages included",
            *(machine(), versions(), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
        ]
        output.parent.mkdir(parents=True, exist_ok=True)
        drawn = output.with_name(f"{output.stem}-memory.svg")
        drawn.write_text(picture(self.samples))
        verdicts = lines_table(results)
        parts = ["# Memory", "\n".join(f"- {note}" for note in notes), verdicts, *self.tables]
        parts += [table(self.samples), f"![resident memory]({drawn.name})"]
        output.write_text("\n\n".join(parts) + "\n")
        print(verdicts, f"written to {output}", sep="\n\n")
        is_well = bool(results) and all(result.verdict == "pass" for result in results)
        if self.log and not is_well:
            log = output.with_suffix(".log")
            log.write_text(self.log)
            print(f"the gateway's log is in {log}")
        return is_well


def watch_memory(report: Report) -> int:
    """Fill *report* from reviews that are all answered, and return how many there were."""
    options = report.options
    report.notes.append(
        f"{CONNECTIONS} connections, new ones after each {1 / PARTS:.0%}; 4 policies on one worker by stream"
    )
    for sample in soak(options.count, options.limit):
        report.take(sample)
    return report.samples[-1].reviews


def add_faults(report: Report) -> int:
    """Fill *report* from a run with faults, and return how many reviews ended."""
    options = report.options
    plan = Plan(
        *(options.count, options.limit, options.clients),
        *(options.seed, options.processes, options.hedge),
    )
    ran = run(plan, report.take)
    report.lines += ran.lines(options.count)
    report.numbers.update(ran.numbers())
    processes = "1 process" if options.processes == 1 else f"{options.processes} processes"
    hedging = f", hedging after {options.hedge}" if options.hedge else ""
    report.notes += [f"{options.clients} clients, seed {options.seed}, {processes}{hedging}", ran.said()]
    report.notes.append("of the gateway the most memory that it had so far")
    report.tables.append(ran.table())
    report.log = ran.log
    return ran.tally.ended


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line, with their defaults."""
    parser = argparse.ArgumentParser("loadtest.soak", description="Watches memory over many reviews.")
    add = parser.add_argument
    add(
        "--faults", action="store_true", help="break reviews, clients and workers, and add up what is counted"
    )
    add(
        "--count",
        type=int,
        metavar="N",
        help=f"reviews, default {REVIEWS:,}, with faults {FAULTY_REVIEWS:,}",
    )
    add("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help=f"default {LIMIT_S:g}")
    add("--seed", type=int, default=0, metavar="N", help="with faults: which reviews go wrong, default 0")
    add("--clients", type=int, default=CLIENTS, metavar="N", help=f"with faults: default {CLIENTS}")
    add("--processes", type=int, default=1, metavar="N", help="with faults: of the gateway, default 1")
    add(
        "--hedge", default="", metavar="AFTER", help="with faults: ask twice after 20ms or p95, default never"
    )
    add("--output", type=Path, metavar="FILE", help="default: loadtest/results/DATE-soak[-faults].md")
    options = parser.parse_args(argv)
    if options.count is None:
        options.count = FAULTY_REVIEWS if options.faults else REVIEWS
    if options.output is None:
        kind = "soak-faults" if options.faults else "soak"
        options.output = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{kind}.md"
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    options = parse(argv)
    report = Report(options)
    try:
        done = add_faults(report) if options.faults else watch_memory(report)
    except BenchError as error:
        print(f"loadtest.soak: {error}", file=sys.stderr)
        return 1
    return 0 if report.write(options.output, done) else 1


if __name__ == "__main__":
    sys.exit(main())
