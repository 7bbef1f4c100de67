"""The soak with faults: reviews of which some are late, denied or left, while workers and streams break.

Two workers of one pool; after each of ``STEPS`` parts of the reviews one of them, in turn, has its
connections cut, is killed and started again, or is told to stop and started again. When all reviews have
ended and nothing moves any more, everything that was counted has to add up to the last one (``soak_sums``),
and gateway and workers have to have the descriptors and threads that they began with.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import orjson

from loadtest.launch import ROOT, BenchError
from loadtest.lines import Line
from loadtest.report import markdown_table
from loadtest.soak_load import Tally
from loadtest.soak_mix import KINDS
from loadtest.soak_processes import FAULTS, running
from loadtest.soak_sums import line, sums

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loadtest.soak_memory import Sample
    from loadtest.soak_processes import Held, Running
    from loadtest.soak_sums import Sum

STEPS: Final = 60
PER_SAMPLE: Final = 3
"""Steps from one sample of memory to the next."""
TARGET: Final = "faults"
SPACING_S: Final = 1.5
"""Between two faults: longer than any call waits, since one that is lost is asked again once only."""
MAX_REFUSED_PERCENT: Final = 0.1
MOST: Final = 3
"""Texts of what was wrong that are shown."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run."""

    count: int
    limit_s: float
    """No review begins after it."""
    clients: int
    seed: int = 0
    processes: int = 1
    hedge_after: str = ""
    """``p95`` or a duration; empty: no call is asked twice."""
    steps: int = STEPS


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run came to."""

    tally: Tally
    sums: Sequence[Sum]
    faults: Mapping[str, int]
    began: Mapping[str, Held]
    """By the name of a process."""
    ended: Mapping[str, Held]
    log: str
    """Of the gateway."""

    def lines(self, count: int) -> list[Line]:
        """Return the lines by which a run of *count* reviews is judged."""
        wrong = "; ".join(f"{number} times {text}" for text, number in self.tally.wrong.most_common(MOST))
        return [
            Line(
                TARGET,
                "reviews that ended, percent",
                *(("ended",), lambda found: found.numbers["ended"] * 100 / count, "at least", 100),
                remark=lambda _: f"{self.tally.ended:,} of {count:,}",
            ),
            Line(
                TARGET,
                "answers that are not as planned",
                *(("wrong",), lambda found: found.numbers["wrong"], "at most", 0),
                remark=lambda _: wrong,
            ),
            Line(
                TARGET,
                "reviews that are refused with 503, percent",
                *(("refused",), lambda found: found.numbers["refused"] * 100 / count),
                *("at most", MAX_REFUSED_PERCENT),
            ),
            *map(line, self.sums),
            *(_held_line(name, what) for name in self.began for what in ("descriptors", "threads")),
        ]

    def numbers(self) -> dict[str, float]:
        """Return what the lines are judged by."""
        tally = self.tally
        found: dict[str, float] = {
            "ended": tally.ended,
            "wrong": tally.wrong.total(),
            "refused": tally.refused.total(),
        }
        found |= {sum_.text: sum_.off for sum_ in self.sums}
        for name, began in self.began.items():
            ended = self.ended[name]
            found[f"{name} descriptors"] = ended.descriptors - began.descriptors
            found[f"{name} threads"] = ended.threads - began.threads
        return found

    def table(self) -> str:
        """Return the Markdown table of what clients saw, by kind of review."""
        tally = self.tally
        columns = (tally.sent, tally.answered, tally.left, tally.broken_off)
        rows = [
            (kind.name, ", ".join(kind.policies), *(f"{column[kind.name]:,}" for column in columns))
            for kind in KINDS
        ]
        rows.append(("all", "", *(f"{column.total():,}" for column in columns)))
        heading = ("kind", "policies", "sent whole", "answered as planned", "left", "broken off")
        return markdown_table(heading, rows, left=(0, 1))

    def said(self) -> str:
        """Return in one line what was done to clients and workers."""
        goodbyes, faults = (
            ", ".join(f"{number:,} {name}" for name, number in sorted(counts.items()))
            for counts in (self.tally.goodbyes, self.faults)
        )
        return f"{self.tally.connections:,} connections; ended by clients: {goodbyes}; workers: {faults}"


def _held_line(name: str, what: str) -> Line:
    return Line(
        TARGET,
        f"{what} of {name} at the end, beyond those at the start",
        *((f"{name} {what}",), lambda found: found.numbers[f"{name} {what}"], "at most", 0),
    )


def run(plan: Plan, on_sample: Callable[[Sample], None]) -> Ran:
    """Run *plan*; *on_sample* is called with each sample as it is taken.

    Raises:
        BenchError: something did not start, or the clients failed.
    """
    with running(plan.processes, plan.hedge_after) as all_:
        began = all_.await_rest()
        on_sample(all_.sample(0))
        faults: Counter[str] = Counter()
        tally = _load(all_, plan, faults, on_sample)
        all_.await_workers()
        ended = all_.await_quiet(began)
        found = sums(all_.scrape(), tally, all_.calls())
        return Ran(tally, found, faults, began, ended, all_.log.read_text(errors="replace"))


def _load(all_: Running, plan: Plan, faults: Counter[str], on_sample: Callable[[Sample], None]) -> Tally:
    """Have the clients send their reviews, and break something after each step; return what they saw."""
    command = [sys.executable, "-m", "loadtest.soak_load", all_.url]
    command += ["--count", str(plan.count), "--seed", str(plan.seed), "--clients", str(plan.clients)]
    command += ["--steps", str(plan.steps), "--limit", str(plan.limit_s)]
    victims = zip(cycle(FAULTS), cycle(all_.workers), strict=False)
    per_sample = PER_SAMPLE if plan.steps >= STEPS else 1
    found: dict[str, Any] = {}
    not_before = 0.0
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as clients:
        assert clients.stdout is not None
        for step, text in enumerate(clients.stdout, start=1):
            found = orjson.loads(text)
            if "ended" not in found:
                continue
            if step % per_sample == 0:
                on_sample(all_.sample(found["ended"]))
            if clients.poll() is None and time.monotonic() >= not_before:
                fault, worker = next(victims)
                worker.suffer(fault)
                faults[fault] += 1
                all_.await_workers()
                not_before = time.monotonic() + SPACING_S
    if clients.returncode or "sent" not in found:
        raise BenchError(f"the clients ended with status {clients.returncode}")
    return Tally.read(found)
