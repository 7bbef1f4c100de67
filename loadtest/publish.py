"""``python -m loadtest.publish``: writes the figures of the newest reports into the pages that show them.

A page has blocks such as

    <!-- report: bench, Targets -->
    …
    <!-- end -->

whose text is the section with that heading of the newest report of that kind, without its sub-sections, and

    <!-- figures: summary -->
    …
    <!-- end -->

whose text is made by a function of ``loadtest.figures``. The charts are written too.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Final

from loadtest.figures import CHARTS, FIGURES
from loadtest.result_files import COMMANDS, NoReport, Reports
from loadtest.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGES: Final = tuple(
    ROOT / name for name in ("README.md", "docs/performance.md", "docs/benchmarks.md", "docs/compare.md")
)
_BLOCK: Final = re.compile(
    r"^<!-- (?P<what>report|figures): (?P<name>[^,\n]+?)(?:, (?P<heading>[^\n]+))? -->\n.*?^<!-- end -->$",
    re.MULTILINE | re.DOTALL,
)


def published(page: str, reports: Reports) -> str:
    """Return *page* with all blocks as the *reports* have them.

    Of a kind that was never measured a block says so.

    Raises:
        LookupError: a report lacks what a block shows, or a block names nothing that there is.
    """

    def block(match: re.Match[str]) -> str:
        opening = match[0].partition("\n")[0]
        return f"{opening}\n\n{_text(match, reports)}\n\n<!-- end -->"

    return _BLOCK.sub(block, page)


def _text(match: re.Match[str], reports: Reports) -> str:
    name, heading = match["name"], match["heading"]
    if match["what"] == "figures":
        if name not in FIGURES or heading:
            raise LookupError(f"figures: expected one of {', '.join(FIGURES)}, found {name!r}")
        return FIGURES[name](reports)
    if name not in COMMANDS or not heading:
        raise LookupError(
            f"report: expected one of {', '.join(COMMANDS)} and a heading, found {match[0][:80]!r}"
        )
    try:
        return reports.section(name, heading)
    except NoReport:
        return f"Not measured yet; `{COMMANDS[name]}` does."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        "loadtest.publish", description="Writes the figures of the newest reports into pages."
    )
    parser.parse_args(argv)
    reports = Reports()
    try:
        texts = {page: published(page.read_text(), reports) for page in PAGES}
        texts |= {ROOT / name: draw(reports) for name, draw in CHARTS.items()}
    except LookupError as error:
        print(f"loadtest.publish: {error.args[0]}", file=sys.stderr)
        return 1
    for file, text in texts.items():
        file.write_text(text)
    for kind, command in COMMANDS.items():
        try:
            print(f"{kind}: {reports.newest(kind).relative_to(ROOT)}")
        except NoReport:
            print(f"{kind}: not measured yet; `{command}` does")
    return 0


if __name__ == "__main__":
    sys.exit(main())
