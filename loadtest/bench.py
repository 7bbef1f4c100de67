"""``python -m loadtest.bench``: what the gateway costs above its own front end, in CPU a review.

Starts everything itself on free ports: the floor (``loadtest.floor``), a gateway for each transport, four
workers. Measures the cases in turn, the floor at the start, in the middle and at the end of each round, and
prints a table. Exit status 0 if both acceptance lines pass, 1 if not or if an answer was wrong.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from loadtest.cases import CASES, FLOOR
from loadtest.load import Measurement
from loadtest.machine import machine, versions
from loadtest.report import Window, criteria, drift, markdown, rows, table
from loadtest.servers import ROOT, BenchError, fleet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.cases import Case
    from loadtest.report import Round
    from loadtest.servers import Fleet

REVIEW: Final = ROOT / "loadtest" / "corpus" / "pod-create-6kb.json"
RESULTS: Final = ROOT / "loadtest" / "results"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run."""

    cases: tuple[Case, ...]
    rounds: int
    connections: int
    warmup_s: float
    window_s: float

    def __str__(self) -> str:
        return (
            f"{REVIEW.stat().st_size:,} byte Pod review over TLS keep-alive, {self.connections} connections, "
            f"closed loop; {self.rounds} rounds of {self.window_s:g} s a case after {self.warmup_s:g} s of "
            "warm-up, medians; one gateway process; policies that return at once"
        )

    def order(self, number: int) -> list[Case]:
        """Return the cases of round *number*, with the floor first, in the middle and last.

        Every other round is backwards, so that a machine that gets slower favours no case.
        """
        others = [case for case in self.cases if case is not FLOOR]
        if number % 2:
            others.reverse()
        half = (len(others) + 1) // 2
        return [FLOOR, *others[:half], FLOOR, *others[half:], *([FLOOR] if others[half:] else [])]


def measure(case: Case, plan: Plan, running: Fleet) -> Window:
    """Return what the load generator, in a process of its own, finds for *case*.

    Raises:
        BenchError: an answer was wrong, or none came.
    """
    front = running.fronts[case.server]
    watched = [front.pid, *(worker.pid for worker in running.workers)]
    command = [sys.executable, "-m", "loadtest.load", front.address + case.path, str(REVIEW)]
    command += ["--connections", str(plan.connections)]
    command += ["--warmup", str(plan.warmup_s), "--window", str(plan.window_s)]
    command += [f"--watch={pid}" for pid in watched]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{case.name}: the load generator failed: {done.stderr.strip()[-1000:]}")
    return window(case.name, str(front.pid), Measurement(**orjson.loads(done.stdout)))


def window(case: str, front: str, found: Measurement) -> Window:
    """Return *found* per review; *front* is the process id of the gateway or the floor.

    Raises:
        BenchError: it has errors, or no review.
    """
    if found.errors or not found.reviews:
        wrong = "; ".join(f"{count} times {what}" for what, count in found.errors.items())
        raise BenchError(f"{case}: {wrong or 'no review was answered'}")
    workers_s = sum(cpu_s for name, cpu_s in found.cpu_s.items() if name not in (front, "load"))
    return Window(
        case,
        reviews_per_s=found.reviews / found.seconds,
        front_us=found.cpu_s[front] / found.reviews * 1e6,
        worker_us=workers_s / found.reviews * 1e6,
        busy=found.cpu_s[front] / found.seconds,
        p50_ms=found.latencies_ms["p50"],
        p99_ms=found.latencies_ms["p99"],
    )


def run(plan: Plan) -> list[Round]:
    """Return the rounds of *plan*; progress goes to standard error.

    Raises:
        BenchError: something did not start, or answered wrongly.
    """
    servers = sorted({case.server for case in plan.cases})
    with (
        tempfile.TemporaryDirectory(prefix="loadtest-") as folder,
        fleet(REVIEW, servers, Path(folder)) as running,
    ):
        rounds = []
        for number in range(plan.rounds):
            found = []
            for case in plan.order(number):
                found.append(measure(case, plan, running))
                line = f"round {number + 1}/{plan.rounds} {case.name:<10} {found[-1].front_us:7.1f} us"
                print(f"{line} {found[-1].reviews_per_s:8,.0f}/s", file=sys.stderr, flush=True)
            rounds.append(tuple(found))
        return rounds


def parse(argv: Sequence[str] | None) -> tuple[Plan, Path]:
    """Return the plan and the file to write."""
    parser = argparse.ArgumentParser(
        "loadtest.bench", description="Measures the gateway against its own floor."
    )
    parser.add_argument("--quick", action="store_true", help="below 40 s: two rounds of short windows")
    parser.add_argument("--rounds", type=int, metavar="N", help="default 6, quick 2")
    parser.add_argument("--window", type=float, metavar="SECONDS", help="default 1.6, quick 0.8")
    parser.add_argument("--warmup", type=float, metavar="SECONDS", help="default 0.5, quick 0.3")
    parser.add_argument("--connections", type=int, default=64, metavar="N")
    parser.add_argument(
        "--cases", nargs="+", choices=[case.name for case in CASES], help="default: all; the floor always"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: loadtest/results/DATE.md")
    options = parser.parse_args(argv)
    rounds, window_s, warmup_s = (2, 0.8, 0.3) if options.quick else (6, 1.6, 0.5)
    names = options.cases or [case.name for case in CASES]
    plan = Plan(
        tuple(case for case in CASES if case is FLOOR or case.name in names),
        rounds=options.rounds or rounds,
        connections=options.connections,
        warmup_s=warmup_s if options.warmup is None else options.warmup,
        window_s=options.window or window_s,
    )
    suffix = "-quick" if options.quick else ""
    return plan, options.output or RESULTS / f"{datetime.now(UTC):%Y-%m-%d}{suffix}.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    plan, output = parse(argv)
    try:
        rounds = run(plan)
    except BenchError as error:
        print(f"loadtest.bench: {error}", file=sys.stderr)
        return 1
    where = [machine(), versions(), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(markdown(rounds, str(plan), where))
    lines = criteria(rounds)
    print(table(rows(rounds)), "", *lines, drift(rounds), f"written to {output}", sep="\n")
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
