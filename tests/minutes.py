"""``make minutes``: the time of `make test` by folder, written to docs/contributing.md.

    python -m tests.minutes REPORT

REPORT is what ``pytest --junit-xml`` wrote. The time of a test has that of its fixtures in it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from deploy.monitoring import table, with_tables
from tests.kit import ROOT

PAGE: Final = ROOT / "docs" / "contributing.md"
LEAST_SHARE: Final = 0.02
"""Of a folder with a row of its own; the others share one."""


def by_folder(report: str) -> dict[str, tuple[int, float]]:
    """Return the number of tests and their seconds for each folder in *report*, the slowest folder first."""
    found: dict[str, list[float]] = defaultdict(list)
    for case in ET.fromstring(report).iter("testcase"):
        found[case.attrib["classname"].split(".")[1]].append(float(case.attrib["time"]))
    sums = {folder: (len(times), sum(times)) for folder, times in found.items()}
    return dict(sorted(sums.items(), key=lambda item: -item[1][1]))


def rows(report: str) -> list[tuple[str, ...]]:
    """Return the rows of the table: folder, tests, seconds, share of the time."""
    folders = by_folder(report)
    total = sum(spent for _, spent in folders.values())
    shown = {f"`tests/{name}`": one for name, one in folders.items() if one[1] >= LEAST_SHARE * total}
    others = [one for one in folders.values() if one[1] < LEAST_SHARE * total]
    shown["others"] = sum(number for number, _ in others), sum(spent for _, spent in others)
    shown["all"] = sum(number for number, _ in folders.values()), total
    return [
        (name, f"{number:,}", f"{spent:.0f}", f"{spent / total:.0%}")
        for name, (number, spent) in shown.items()
    ]


def main() -> None:
    """Write the table from the report that the command line names."""
    report = Path(sys.argv[1]).read_text()
    head = ("folder", "tests", "seconds", "share")
    PAGE.write_text(with_tables(PAGE.read_text(), {"minutes": table(head, rows(report))}, "minutes"))


if __name__ == "__main__":
    main()
