"""The command line of the benchmark, and the plan that it stands for."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtest.cases import CASES, CONNECTIONS, GROUPS
from loadtest.languages import GROUP as LANGUAGES
from loadtest.languages import Timing as LanguageTiming
from loadtest.launch import ROOT
from loadtest.lines import SDK
from loadtest.reviews import POD
from loadtest.windows import Timing

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from loadtest.cases import Case, Group

RESULTS: Final = ROOT / "loadtest" / "results"
FULL: Final = Timing(warmup_s=0.3, window_s=1.4)
QUICK: Final = Timing(warmup_s=0.2, window_s=0.5)
QUICK_ROUNDS: Final = 1
QUICK_LANGUAGES: Final = LanguageTiming(rounds=1, window_s=0.2, warmup_s=0.2)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run."""

    groups: tuple[Group, ...]
    timing: Timing
    sdk: bool
    """Whether the Python worker is measured alone, too."""
    languages: LanguageTiming | None = None
    """How long the workers in all languages are measured beside each other; None for not at all."""
    connections: int = CONNECTIONS
    """Where the titles say ``CONNECTIONS``."""

    def __str__(self) -> str:
        rounds = " or ".join(str(count) for count in sorted({group.rounds for group in self.groups}))
        changed = f"; {self.connections} connections where {CONNECTIONS} are named"
        return (
            f"{POD.stat().st_size:,} byte Pod review over TLS where nothing else is said; rounds: {rounds}, "
            f"{self.timing.window_s:g} s a case after {self.timing.warmup_s:g} s of warm-up; one gateway "
            "process, metrics on; policies that return at once"
            f"{changed if self.connections != CONNECTIONS else ''}"
        )


def chosen(group: Group, names: Collection[str]) -> Group | None:
    """Return what of *group* is wanted by *names*, with its reference in any case; None if nothing."""
    if group.name in names:
        return group
    cases = tuple(case for case in group.cases if case.name in names)
    return replace(group, cases=cases) if cases or group.reference.name in names else None


def adjusted(group: Group, rounds: int | None, connections: int | None) -> Group:
    """Return *group* with other rounds, and with other connections where there are as many as usual."""

    def adjust(case: Case) -> Case:
        if connections is None or case.load.connections != CONNECTIONS:
            return case
        return replace(case, load=replace(case.load, connections=connections))

    return replace(
        group,
        reference=adjust(group.reference),
        cases=tuple(adjust(case) for case in group.cases),
        rounds=rounds or group.rounds,
    )


def parse(argv: Sequence[str] | None) -> tuple[Plan, Path]:
    """Return the plan and the file to write."""
    groups = [group.name for group in GROUPS]
    parser = argparse.ArgumentParser(
        "loadtest.bench",
        description="Measures the gateway against its own floor, and against its targets.",
        epilog=f"Groups: {', '.join(groups)}, {SDK}, {LANGUAGES}. Cases: {', '.join(CASES)}.",
    )
    parser.add_argument("--quick", action="store_true", help="below two minutes: one round of short windows")
    parser.add_argument("--rounds", type=int, metavar="N", help="default: 3 or 4, by group; quick 1")
    parser.add_argument(
        "--window", type=float, metavar="SECONDS", help=f"default {FULL.window_s:g}, quick {QUICK.window_s:g}"
    )
    parser.add_argument(
        "--warmup", type=float, metavar="SECONDS", help=f"default {FULL.warmup_s:g}, quick {QUICK.warmup_s:g}"
    )
    parser.add_argument("--connections", type=int, metavar="N", help=f"instead of {CONNECTIONS}")
    parser.add_argument(
        *("--only", "--cases"),
        nargs="+",
        choices=[*groups, SDK, LANGUAGES, *CASES],
        metavar="NAME",
        help="groups, or cases with the reference of their group",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: loadtest/results/DATE.md")
    options = parser.parse_args(argv)
    names = options.only or [*groups, SDK, LANGUAGES]
    usual = QUICK if options.quick else FULL
    found = [chosen(group, names) for group in GROUPS]
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else None)
    plan = Plan(
        tuple(adjusted(group, rounds, options.connections) for group in found if group is not None),
        Timing(
            usual.warmup_s if options.warmup is None else options.warmup, options.window or usual.window_s
        ),
        sdk=SDK in names,
        languages=(QUICK_LANGUAGES if options.quick else LanguageTiming()) if LANGUAGES in names else None,
        connections=options.connections or CONNECTIONS,
    )
    suffix = "-quick" if options.quick else ""
    return plan, options.output or RESULTS / f"{datetime.now(UTC):%Y-%m-%d}{suffix}.md"
