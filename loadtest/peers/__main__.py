"""``python -m loadtest.peers``: throughput, CPU and latency of the gateway and of its peers, in one run.

All answers are checked before anything is measured. A peer that is not built is listed with the reason. Exit
status 1 if a target fails.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.server.serving.devcert import make_development_certificate
from loadtest.bench import FULL, QUICK
from loadtest.cases import Case, Load
from loadtest.peers.clustered import CLUSTERED
from loadtest.peers.setups import ALONE, IN_WORKERS, Bed, Floor, GatewayKyverno
from loadtest.peers.targets import TARGETS
from loadtest.policies.checking import problem
from loadtest.report import cores, machine, markdown_table, remarks, targets_table, versions
from loadtest.result_files import todays
from loadtest.results import measure, middle, ratio, windows_of
from loadtest.reviews import POD, write_reviews
from loadtest.servers import BenchError, Running
from loadtest.targets import Found, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loadtest.peers.setups import Subject
    from loadtest.results import Round, Timing, Window
    from loadtest.servers import Server

CELLS: Final = (("v1", 16), ("v4", 1), ("v4", 16), ("v4", 64), ("v10", 16), ("m4", 16))
"""Sets of policies and numbers of connections, in the order of the report."""
ROUNDS: Final = 3
CLUSTERED_ROUNDS: Final = 1
"""Each takes minutes, since policies are applied through an API server; no target depends on them."""
SUBJECTS: Final[Sequence[type[Subject]]] = (*ALONE, Floor, GatewayKyverno, *IN_WORKERS, *CLUSTERED)
"""In the order of the report; the first is the reference."""
SETTLE_TIMEOUT_S: Final = 20.0
"""Time for a set of policies to take effect."""
HEADINGS: Final = ("server", "reviews/s", "of the first", "CPU, us", "of the first", "median ms", "p99 ms")
TITLES: Final = {
    "v1": "V1, one validating policy",
    "v4": "V4, four validating policies",
    "v10": "V10, ten validating policies",
    "m4": "M4, four policies that each change the Pod",
}
EXPLANATION: Final = """\
CPU is user and system time per review of all processes of the server: of gateway and worker, or of the peer.
The load generator shares the machine. All figures are medians over the rounds; *of the first* is the ratio to
the first row in the same round."""


def name_of(which: str, connections: int, subject: str) -> str:
    """Return the name of a case."""
    return f"{which}-{connections}-{subject}"


@dataclass(slots=True)
class Comparison:
    """The results."""

    missing: dict[str, str] = field(default_factory=dict)
    """Subjects that cannot be started, and cases whose answers were wrong, with the reason."""
    rounds: list[Round] = field(default_factory=list)


def settled_path(subject: Subject, which: str, address: str) -> str:
    """Return the path of the set *which* as soon as *subject* at *address* answers as its policies do.

    Raises:
        BenchError: it does not in ``SETTLE_TIMEOUT_S``.
    """
    if not subject.has_policies:
        return subject.path(which)
    give_up = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        try:
            path = subject.path(which)
            wrong = problem(address + path, which, POD.read_bytes())
        except (OSError, ValueError, BenchError) as error:
            wrong = str(error)
        if not wrong:
            return path
        if time.monotonic() > give_up:
            raise BenchError(wrong)
        time.sleep(0.2)


def measure_set(
    subject: Subject, which: str, timing: Timing, server: Server, reviews: Mapping[str, Path]
) -> Iterator[Window]:
    """Yield the windows of *subject* with the set *which*; progress is printed to standard error.

    Raises:
        BenchError: an answer was wrong.
    """
    running = Running({subject.name: server}, {})
    try:
        subject.apply(which)
        path = settled_path(subject, which, server.address)
        for connections in (number for name, number in CELLS if name == which):
            load = Load(connections, review="labelled", is_exact=subject.is_exact)
            case = Case(name_of(which, connections, subject.name), subject.title, subject.name, path, load)
            found = measure(case, 0.0, timing, running, reviews)
            print(
                f"{case.name:<18} {found.reviews_per_s:9,.0f}/s {found.total_us:8.1f} us "
                f"p50 {found.p50_ms:.2f}  p99 {found.p99_ms:.2f} ms",
                file=sys.stderr,
                flush=True,
            )
            yield found
    finally:
        subject.clear(which)


def compare(found: Comparison, subjects: Sequence[type[Subject]], rounds: int, timing: Timing) -> None:
    """Measure *subjects*. One that fails is left out from then on."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peers-")))
        reviews = write_reviews(folder)
        bed = Bed(stack, folder, *make_development_certificate(folder / "state"))
        running: list[tuple[Subject, Server]] = []
        for kind in subjects:
            why = kind.missing()
            if not why:
                subject = kind()
                try:
                    running.append((subject, subject.start(bed)))
                except (
                    BenchError,
                    AssertionError,
                ) as error:  # the latter of an API server that does not start
                    why = str(error)
            if why:
                leave_out(found, kind, kind.sets, why)
        for number in range(rounds):
            windows: list[Window] = []
            for which in TITLES:
                # Odd rounds reverse the order, so that a machine that becomes slower favours nobody.
                for subject, server in running[:: -1 if number % 2 else 1]:
                    if which not in subject.sets or name_of(which, 16, subject.name) in found.missing:
                        continue
                    try:
                        windows += measure_set(subject, which, timing, server, reviews)
                    except BenchError as error:
                        leave_out(found, type(subject), [which], str(error))
            found.rounds.append(tuple(windows))


def leave_out(found: Comparison, subject: type[Subject], sets: Sequence[str], why: str) -> None:
    """Add the cases of *subject* with *sets* to what is missing."""
    print(f"{subject.title}: {why}", file=sys.stderr, flush=True)
    found.missing |= {name_of(*cell, subject.name): why for cell in CELLS if cell[0] in sets}


def table(which: str, connections: int, rounds: Sequence[Round]) -> str:
    """Return the table of one cell; empty if nothing was measured."""
    first = name_of(which, connections, SUBJECTS[0].name)
    rows = []
    for subject in SUBJECTS:
        name = name_of(which, connections, subject.name)
        if not any(windows_of(name, round_) and windows_of(first, round_) for round_ in rounds):
            continue
        rows.append(
            (
                subject.title,
                f"{middle(name, rounds, 'reviews_per_s'):,.0f}",
                f"{ratio(name, first, rounds, 'reviews_per_s'):.2f}",
                f"{middle(name, rounds, 'total_us'):,.0f}",
                f"{ratio(name, first, rounds, 'total_us'):.2f}",
                f"{middle(name, rounds, 'p50_ms'):.2f}",
                f"{middle(name, rounds, 'p99_ms'):.2f}",
            )
        )
    return markdown_table(HEADINGS, rows, left=(0,)) if rows else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    names = [subject.name for subject in SUBJECTS]
    parser = argparse.ArgumentParser("loadtest.peers", description="Compares the gateway with its peers.")
    add = parser.add_argument
    add("--only", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    add("--rounds", type=int, default=ROUNDS, metavar="N", help=f"default {ROUNDS}")
    add("--quick", action="store_true", help="one round of short windows")
    add("--output", type=Path, metavar="FILE", help="default: loadtest/results/DATE-peers[-quick].md")
    options = parser.parse_args(argv)
    timing, rounds = (QUICK, 1) if options.quick else (FULL, options.rounds)
    began = time.monotonic()
    chosen = [subject for subject in SUBJECTS if subject.name in (options.only or names)]
    compared = Comparison()
    beside = (GatewayKyverno, *IN_WORKERS, *CLUSTERED)
    compare(compared, [subject for subject in chosen if subject not in beside], rounds, timing)
    if clustered := [subject for subject in chosen if subject in beside]:
        # The reference again, because the machine's speed changes.
        few = min(rounds, CLUSTERED_ROUNDS)
        compare(compared, [SUBJECTS[0], *clustered], few, timing)
    found = Found(compared.rounds, missing=compared.missing, cores=cores())
    results = judge(TARGETS, found)
    tables = [
        f"### {TITLES[which]}; connections: {connections}\n\n{text}"
        for which, connections in CELLS
        if (text := table(which, connections, found.rounds))
    ]
    how = [
        f"Pod review of {POD.stat().st_size:,} bytes over TLS, closed loop",
        f"rounds: {rounds}, {timing.window_s:g} s each after {timing.warmup_s:g} s of warm-up",
        *(machine(), versions()),
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, took {time.monotonic() - began:.0f} s",
        *remarks(found),
    ]
    parts = ["# The gateway and its peers", "\n".join(f"- {line}" for line in how)]
    parts += ["## Targets", targets_table(results), "## Figures", EXPLANATION, *tables]
    output = options.output or todays("peers", *(["quick"] if options.quick or options.only else []))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n\n".join(parts) + "\n")
    print(*tables, targets_table(results), *remarks(found), f"written to {output}", sep="\n\n")
    return 1 if any(result.verdict == "FAIL" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
