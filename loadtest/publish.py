"""``python -m loadtest.publish``: copies the tables of the newest reports into the pages that show them.

A page has blocks such as

    <!-- report: loadtest/results/2026-11-22.md, Targets -->
    …
    <!-- end -->

whose text is the section with that heading, without its sub-sections. Of each kind of report (``DATE.md``,
``DATE-soak.md``, ``DATE-peers.md``, …) the newest is taken; ``--keep`` takes those that the pages name.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Final

from loadtest.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PAGES: Final = (ROOT / "README.md", ROOT / "docs" / "performance.md")
_BLOCK: Final = re.compile(
    r"^<!-- report: (?P<file>\S+), (?P<heading>[^\n]+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")


def newest(file: Path) -> Path:
    """Return the report of the same kind as *file* whose name has the latest date."""
    kind = _DATE.sub("*", file.name)
    found = (path for path in file.parent.glob(kind) if _DATE.sub("*", path.name) == kind)
    return max(found, default=file)


def section(report: str, heading: str) -> str:
    """Return the text below *heading* of any level up to the next heading.

    A heading may have a comma and more text, such as a date, at its end.

    Raises:
        LookupError: the report has no such heading, or no text below it.
    """
    found = re.search(rf"^#+ {re.escape(heading)}(?:, .*)?\n((?:(?!#+ ).*\n?)*)", report, re.MULTILINE)
    if found is None or not found[1].strip():
        raise LookupError(f"no text below the heading {heading!r}")
    return found[1].strip()


def published(page: str, choose: Callable[[Path], Path]) -> str:
    """Return *page* with all blocks as the reports have them; *choose* returns the report for a named one.

    Raises:
        LookupError: there is no such report, or it lacks the heading. Measure it, or remove the block.
    """

    def block(match: re.Match[str]) -> str:
        report = choose(ROOT / match["file"])
        name = report.relative_to(ROOT).as_posix()
        if not report.is_file():
            raise LookupError(f"there is no report {name}")
        text = section(report.read_text(), match["heading"])
        return f"<!-- report: {name}, {match['heading']} -->\n\n{text}\n\n<!-- end -->"

    return _BLOCK.sub(block, page)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser("loadtest.publish", description="Copies tables of reports into pages.")
    parser.add_argument("--keep", action="store_true", help="of the reports that the pages name already")
    options = parser.parse_args(argv)
    for page in PAGES:
        page.write_text(published(page.read_text(), (lambda file: file) if options.keep else newest))
    return 0


if __name__ == "__main__":
    sys.exit(main())
