"""``python -m loadtest.bench``: what the gateway costs above its own front end, and whether targets are met.

Starts everything itself on free ports, a group of cases at a time: floor, gateways, workers. Measures the
cases in turn, the group's reference at the start, in the middle and at the end of each round, and prints
tables. Exit status 0 if no acceptance line fails, 1 if one does or if an answer was wrong.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

from loadtest import languages, sdk_cost
from loadtest.launch import BenchError
from loadtest.lines import DIFFERENCES, LINES, SDK, Found, judge
from loadtest.plan import parse
from loadtest.report import PICTURES, cores, figures, lines_table, machine, markdown, remarks, versions
from loadtest.reviews import POD, write_reviews
from loadtest.serial import differences
from loadtest.servers import fleet
from loadtest.windows import measure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loadtest.cases import Group
    from loadtest.lines import Result
    from loadtest.plan import Plan
    from loadtest.servers import Fleet
    from loadtest.windows import Round, Timing, Window


SDK_WINDOWS: Final = 6.0
"""How long the Python worker is measured, in windows."""


def measure_group(
    group: Group, timing: Timing, running: Fleet, reviews: Mapping[str, Path]
) -> Iterator[Round]:
    """Yield the rounds of *group*; progress goes to standard error.

    Raises:
        BenchError: something was answered wrongly.
    """
    for number in range(group.rounds):
        windows: list[Window] = []
        for case in group.order(number):
            if case.front in running.missing:
                continue
            full = [window.reviews_per_s for window in windows if window.case == group.reference.name]
            windows.append(measure(case, fmean(full) if full else 0.0, timing, running, reviews))
            found = windows[-1]
            say(
                f"{group.name} {number + 1}/{group.rounds}  {case.name:<18} {found.front_us:8.1f} us "
                f"{found.reviews_per_s:9,.0f}/s  p50 {found.p50_ms:.2f}  p99 {found.p99_ms:.2f} ms"
            )
        yield tuple(windows)


def run(plan: Plan) -> Found:
    """Return what *plan* finds.

    Raises:
        BenchError: something did not start, or answered wrongly.
    """
    rounds: list[Round] = []
    numbers: dict[str, float] = {}
    missing: dict[str, str] = {}
    for group in plan.groups:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loadtest-")))
            reviews = write_reviews(folder)
            running = stack.enter_context(fleet(POD, group.fronts, folder))
            missing |= {
                case.name: running.missing[case.front]
                for case in group.cases
                if case.front in running.missing
            }
            if {"slow", "serial"} <= running.fronts.keys():
                numbers[DIFFERENCES] = differences(running, POD.read_bytes())
            rounds += measure_group(group, plan.timing, running, reviews)
    notes = []
    if plan.sdk:
        try:
            cost = sdk_cost.measure(SDK_WINDOWS * plan.timing.window_s)
        except sdk_cost.SeemedSlow as error:
            # On a machine with other work a policy can seem slow, which is no reason to lose all the rest.
            missing[SDK] = str(error)
        else:
            numbers[SDK] = cost.times_parse
            notes.append(f"### The Python worker on its own\n\n{cost}")
    if plan.languages is not None:
        try:
            costs = languages.measure(plan.languages)
        except sdk_cost.SeemedSlow as error:
            missing[languages.GROUP] = str(error)
        else:
            missing |= costs.missing
            if costs.rounds:
                notes.append(f"### {languages.TITLE}\n\n{languages.EXPLANATION}\n\n{costs}")
    return Found(rounds, numbers, missing, cores(), notes)


def say(line: str) -> None:
    """Print *line* to standard error."""
    print(line, file=sys.stderr, flush=True)


def write(output: Path, found: Found, results: Sequence[Result], how: str, took_s: float) -> None:
    """Write the report to *output*, and the pictures beside it under names that begin alike."""
    output.parent.mkdir(parents=True, exist_ok=True)
    pictures = []
    for name, draw in PICTURES.items():
        picture = draw(found.rounds)
        if picture is not None:
            path = output.with_name(f"{output.stem}-{name}")
            path.write_text(picture)
            pictures.append(path.name)
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, took {took_s:.0f} s"
    output.write_text(markdown(found, results, how, [machine(), versions(), when], pictures))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    plan, output = parse(argv)
    began = time.monotonic()
    try:
        found = run(plan)
    except BenchError as error:
        print(f"loadtest.bench: {error}", file=sys.stderr)
        return 1
    results = judge(LINES, found)
    write(output, found, results, str(plan), time.monotonic() - began)
    print(*figures(found), lines_table(results), *remarks(found), f"written to {output}", sep="\n\n")
    return 1 if any(result.verdict == "FAIL" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
