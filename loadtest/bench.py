"""``python -m loadtest.bench``: CPU, throughput and latency of the gateway, compared with its floor.

For each group of cases it starts the servers and workers on free ports, measures the cases in several rounds,
and stops them. It prints the tables and writes them to a file. Exit status 0 if no target fails, 1 if one
fails or if an answer was wrong.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

from loadtest import worker_cost
from loadtest.cases import CASES, CONNECTIONS, GROUPS
from loadtest.policies.checking import problem
from loadtest.report import cores, figures, machine, markdown, remarks, targets_table, versions
from loadtest.result_files import BENCH, todays
from loadtest.results import Timing, measure
from loadtest.reviews import POD, write_reviews
from loadtest.servers import BenchError, run_servers
from loadtest.targets import SDK, TARGETS, Found, judge

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from loadtest.cases import Case, Group
    from loadtest.results import Round, Window
    from loadtest.servers import Running

FULL: Final = Timing(warmup_s=0.3, window_s=1.4)
QUICK: Final = Timing(warmup_s=0.2, window_s=0.5)
LANGUAGES: Final = "languages"
SDK_WINDOWS: Final = 6.0
"""Time for the Python worker, in windows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run."""

    groups: tuple[Group, ...]
    timing: Timing
    sdk: bool
    """Whether to measure the Python worker without a gateway."""
    languages: worker_cost.Timing | None = None
    """Timing of the workers in all languages; None to leave them out."""
    connections: int = CONNECTIONS
    """Replaces ``CONNECTIONS``, which the titles name."""

    def __str__(self) -> str:
        rounds = " or ".join(str(count) for count in sorted({group.rounds for group in self.groups}))
        changed = f"; {self.connections} connections instead of {CONNECTIONS}"
        return (
            f"Pod review of {POD.stat().st_size:,} bytes over TLS unless a case says otherwise; "
            f"rounds: {rounds}, {self.timing.window_s:g} s a case after {self.timing.warmup_s:g} s of "
            "warm-up; one gateway process, metrics on; policies that return at once"
            f"{changed if self.connections != CONNECTIONS else ''}"
        )


def select(group: Group, names: Collection[str]) -> Group | None:
    """Return *group* with the cases in *names*, always with its reference; None if none is named."""
    if group.name in names:
        return group
    cases = tuple(case for case in group.cases if case.name in names)
    return replace(group, cases=cases) if cases or group.reference.name in names else None


def adjust(group: Group, rounds: int | None, connections: int | None) -> Group:
    """Return *group* with other rounds, and other connections where a case has the usual number."""

    def changed(case: Case) -> Case:
        if connections is None or case.load.connections != CONNECTIONS:
            return case
        return replace(case, load=replace(case.load, connections=connections))

    return replace(
        group,
        reference=changed(group.reference),
        cases=tuple(changed(case) for case in group.cases),
        rounds=rounds or group.rounds,
    )


def measure_group(
    group: Group, timing: Timing, running: Running, reviews: Mapping[str, Path]
) -> Iterator[Round]:
    """Yield the rounds of *group*; progress is printed to standard error.

    Raises:
        BenchError: an answer was wrong, or policies do not act as described.
    """
    for case in group.cases:
        if case.applied and case.server not in running.missing:
            url = running.servers[case.server].address + case.path
            if why := problem(url, case.applied, POD.read_bytes()):
                raise BenchError(f"{case.name}: {why}")
    timing = replace(timing, window_s=timing.window_s * group.stretch)
    for case in group.cases:
        if case.warmup_s and case.server not in running.missing:
            measure(case, 0.0, Timing(0.0, case.warmup_s), running, reviews)
    for number in range(group.rounds):
        windows: list[Window] = []
        for case in group.order(number):
            if case.server in running.missing:
                continue
            full = [window.reviews_per_s for window in windows if window.case == group.reference.name]
            windows.append(measure(case, fmean(full) if full else 0.0, timing, running, reviews))
            found = windows[-1]
            print(
                f"{group.name} {number + 1}/{group.rounds}  {case.name:<18} {found.gateway_us:8.1f} us "
                f"{found.reviews_per_s:9,.0f}/s  p50 {found.p50_ms:.2f}  p99 {found.p99_ms:.2f} ms",
                file=sys.stderr,
                flush=True,
            )
        yield tuple(windows)


def run(plan: Plan) -> Found:
    """Return the results of *plan*.

    Raises:
        BenchError: a process did not start, or an answer was wrong.
    """
    rounds: list[Round] = []
    numbers: dict[str, float] = {}
    missing: dict[str, str] = {}
    for group in plan.groups:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loadtest-")))
            reviews = write_reviews(folder)
            running = stack.enter_context(run_servers(POD, group.servers, folder))
            missing |= {
                case.name: running.missing[case.server]
                for case in group.cases
                if case.server in running.missing
            }
            rounds += measure_group(group, plan.timing, running, reviews)
    notes = []
    if plan.sdk:
        cost = worker_cost.measure_python(SDK_WINDOWS * plan.timing.window_s)
        if cost.log:
            missing[SDK] = f"the worker logged: {cost.log}"
        else:
            numbers[SDK] = cost.times_parse
        notes.append(f"### The Python worker without a gateway\n\n{cost}")
    if plan.languages is not None:
        costs = worker_cost.measure_languages(plan.languages)
        missing |= costs.missing
        if costs.rounds:
            notes.append(f"### {worker_cost.TITLE}\n\n{worker_cost.EXPLANATION}\n\n{costs}")
    return Found(rounds, numbers, missing, cores(), notes)


def parse(argv: Sequence[str] | None) -> tuple[Plan, Path]:
    """Return the plan and the file to write."""
    groups = [group.name for group in GROUPS]
    parser = argparse.ArgumentParser(
        "loadtest.bench",
        description="Compares the gateway with its floor and its targets.",
        epilog=f"Groups: {', '.join(groups)}, {SDK}, {LANGUAGES}. Cases: {', '.join(CASES)}.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="some two minutes: one round of short windows")
    add("--rounds", type=int, metavar="N", help="default: 3 or 4, by group; quick 1")
    add(
        "--window", type=float, metavar="SECONDS", help=f"default {FULL.window_s:g}, quick {QUICK.window_s:g}"
    )
    add(
        "--warmup", type=float, metavar="SECONDS", help=f"default {FULL.warmup_s:g}, quick {QUICK.warmup_s:g}"
    )
    add("--connections", type=int, metavar="N", help=f"instead of {CONNECTIONS}")
    add(
        *("--only", "--cases"),
        nargs="+",
        choices=[*groups, SDK, LANGUAGES, *CASES],
        metavar="NAME",
        help="groups, or cases with the reference of their group",
    )
    add("--output", type=Path, metavar="FILE", help="default: loadtest/results/DATE[-NAMES].md")
    options = parser.parse_args(argv)
    names = options.only or [*groups, SDK, LANGUAGES]
    usual = QUICK if options.quick else FULL
    selected = [select(group, names) for group in GROUPS]
    rounds = options.rounds or (1 if options.quick else None)
    languages = worker_cost.QUICK if options.quick else worker_cost.Timing()
    plan = Plan(
        tuple(adjust(group, rounds, options.connections) for group in selected if group is not None),
        Timing(
            usual.warmup_s if options.warmup is None else options.warmup, options.window or usual.window_s
        ),
        sdk=SDK in names,
        languages=languages if LANGUAGES in names else None,
        connections=options.connections or CONNECTIONS,
    )
    suffixes = [*(options.only or []), *(["quick"] if options.quick else [])]
    return plan, options.output or todays(BENCH, *suffixes)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan, output = parse(argv)
    began = time.monotonic()
    try:
        found = run(plan)
    except BenchError as error:
        print(f"loadtest.bench: {error}", file=sys.stderr)
        return 1
    results = judge(TARGETS, found)
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, took {time.monotonic() - began:.0f} s"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(markdown(found, results, str(plan), [machine(), versions(), when]))
    print(*figures(found), targets_table(results), *remarks(found), f"written to {output}", sep="\n\n")
    return 1 if any(result.verdict == "FAIL" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
