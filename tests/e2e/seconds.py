"""``make e2e-seconds``: what the end-to-end tests take in a landing, written to ``seconds.txt``.

    python -m tests.e2e.seconds REPORT...

Each REPORT is what ``pytest --junit-xml`` wrote. Tests that it does not have keep their seconds; those that
are no more are left out. The time of a case has that of its fixtures in it.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from xml.etree import ElementTree as ET

from tests.e2e.landing import FOLDER, SECONDS, Seconds, read_seconds

Known = dict[tuple[str, str], Seconds]
"""By file and test."""


def merged(known: Known, report: str) -> Known:
    """Return *known* with the cases in *report*, what ``pytest --junit-xml`` wrote, in the order of files.

    The longest case of a test is the one for which its fixtures were set up, whichever it was.
    """
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for case in ET.fromstring(report).iter("testcase"):
        # One that was broken off has no class.
        if "classname" in case.attrib and case.find("skipped") is None:
            file, test = case.attrib["classname"].rpartition(".")[2], case.attrib["name"].partition("[")[0]
            times[file, test].append(float(case.attrib["time"]))
    found = dict(known)
    for key, each in times.items():
        first, *others = sorted(each, reverse=True)
        found[key] = Seconds(round(first, 1), round(median(others or [first]), 1))
    return {
        (path.stem, test): found[path.stem, test]
        for path in sorted(FOLDER.glob("test_*.py"))
        for test in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
        if (path.stem, test) in found
    }


def main() -> None:
    """Merge the reports that the command line names."""
    seconds: Known = read_seconds()
    for name in sys.argv[1:]:
        seconds = merged(seconds, Path(name).read_text())
    lines = [f"{file} {test} {each.first} {each.further}\n" for (file, test), each in seconds.items()]
    SECONDS.write_text("".join(lines))


if __name__ == "__main__":
    main()
