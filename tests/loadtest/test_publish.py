"""Published figures: sections of the newest reports, and what is made of their tables."""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from loadtest.cases import CASES
from loadtest.figures import BEHIND, CHARTS, COSTS, ENGINES, FIGURES, NOTHING, ONE, TEN
from loadtest.peers.__main__ import CELLS, TITLES
from loadtest.publish import PAGES, published
from loadtest.report import markdown
from loadtest.result_files import BENCH, COMMANDS, RESULTS, NoReport, Reports, todays
from loadtest.servers import ROOT
from loadtest.targets import MIN_CORES_FOR_TWO, SDK, TARGETS, Found, judge
from loadtest.worker_cost import TITLE
from tests.e2e.bench_setups import CASES as BEFORE_API_SERVER
from tests.loadtest.test_results import a_window

if TYPE_CHECKING:
    from pathlib import Path

REPORT = """\
# Benchmark

- a machine

## Figures

### One; connections: 1

| a |

### Two, 16 connections

| case | reviews/s | p99 ms | p99 ms |
| ---- | --------: | -----: | -----: |
| b    |     1,234 |  +1.50 |        |
"""


def reports(folder: Path, **texts: str) -> Reports:
    """The reports in *folder*, to which *texts* are written; ``_`` in a name stands for ``-``."""
    for name, text in texts.items():
        (folder / f"{name.removeprefix('on_').replace('_', '-')}.md").write_text(text)
    return Reports(folder)


def test_a_section_ends_at_the_next_heading(tmp_path: Path) -> None:
    found = reports(tmp_path, on_2026_01_01=REPORT)
    expected = {"Benchmark": "- a machine", "One; connections: 1": "| a |"}
    assert {heading: found.section(BENCH, heading) for heading in expected} == expected


@pytest.mark.parametrize("heading", ["Figures", "One"])
def test_an_empty_or_missing_section_is_an_error(heading: str, tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=heading):
        reports(tmp_path, on_2026_01_01=REPORT).section(BENCH, heading)


def test_the_newest_report_of_a_kind_is_taken(tmp_path: Path) -> None:
    names = ("2026-01-02", "2026-02-01", "2026-03-01-peers", "2026-03-02-quick", "2026-03-03-peers-quick")
    for name in names:
        (tmp_path / f"{name}.md").touch()
    (tmp_path / "notes.md").touch()
    found = Reports(tmp_path)
    assert [found.newest(kind).stem for kind in (BENCH, "peers")] == ["2026-02-01", "2026-03-01-peers"]
    with pytest.raises(NoReport, match="make soak"):
        found.newest("soak")


def test_selected_cases_have_what_the_newest_report_lacks(tmp_path: Path) -> None:
    found = reports(
        tmp_path,
        on_2026_01_01="# Benchmark\n\n## Old\n\nold\n",
        on_2026_01_02="# Benchmark\n\n## One\n\nof all\n",
        on_2026_01_03_documents="# Benchmark\n\n## One\n\nof some\n\n## Two\n\nonly of some\n",
        on_2026_01_04_soak="# Soak\n\n## Old\n\nof the soak\n",
    )
    assert found.section(BENCH, "One") == "of all"
    assert found.section(BENCH, "Two") == "only of some"
    with pytest.raises(LookupError, match="Old"):
        found.section(BENCH, "Old")


def test_a_table_is_read_by_row_and_column(tmp_path: Path) -> None:
    table = reports(tmp_path, on_2026_01_01=REPORT).table(BENCH, "Two")
    assert table.titles == ["b"]
    assert (table.cell("b", "reviews/s"), table.number("b", "reviews/s")) == ("1,234", 1234.0)
    assert table.number("b", "p99 ms") == 1.5
    for title, column in (("a", "reviews/s"), ("b", "median ms")):
        with pytest.raises(LookupError, match=r"Two: no (row|column) '(a|median ms)', only "):
            table.cell(title, column)
    with pytest.raises(LookupError, match="expected a number, found 'b'"):
        table.number("b", "case")


def test_a_table_without_rows_is_an_error(tmp_path: Path) -> None:
    empty = "# Benchmark\n\n## Two\n\n| case |\n| ---- |\n"
    with pytest.raises(LookupError, match="no table with rows"):
        reports(tmp_path, on_2026_01_01=empty).table(BENCH, "Two")


def test_a_block_is_replaced_and_what_surrounds_it_stays(tmp_path: Path) -> None:
    page = "before\n<!-- report: bench, One; connections: 1 -->\nold\n<!-- end -->\nafter\n"
    found = published(page, reports(tmp_path, on_2026_01_01=REPORT))
    assert found == page.replace("old", "\n| a |\n")
    assert published(found, Reports(tmp_path)) == found


def test_a_kind_that_was_never_measured_is_named_with_its_command(tmp_path: Path) -> None:
    page = "<!-- report: soak, Checks -->\n<!-- end -->"
    assert "Not measured yet; `make soak` does." in published(page, Reports(tmp_path))


@pytest.mark.parametrize("block", ["report: bench", "report: unknown, One", "figures: unknown"])
def test_a_block_that_names_nothing_is_an_error(block: str, tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="expected one of"):
        published(f"<!-- {block} -->\n<!-- end -->", reports(tmp_path, on_2026_01_01=REPORT))


def test_a_report_of_today_is_found_by_its_kind() -> None:
    day = todays().stem
    assert todays() == RESULTS / f"{day}.md"
    assert todays("soak", "quick") == RESULTS / f"{day}-soak-quick.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_the_figures_of_the_newest_reports(page: Path) -> None:
    """After a new report: `python -m loadtest.publish`."""
    assert published(page.read_text(), Reports()) == page.read_text()


@pytest.mark.parametrize("name", CHARTS)
def test_charts_have_the_figures_of_the_newest_reports(name: str) -> None:
    assert CHARTS[name](Reports()) == (ROOT / name).read_text()


def test_the_next_report_of_every_program_has_what_pages_show(tmp_path: Path) -> None:
    """A changed title would else be found when the next report is published."""
    for kind in COMMANDS:
        with suppress(NoReport):
            shutil.copy(Reports().newest(kind), tmp_path)
    rounds = [tuple(a_window(case) for case in CASES)]
    notes = [f"### {TITLE}\n\na table"]
    found = Found(rounds, {SDK: 1.0}, cores=MIN_CORES_FOR_TWO, notes=notes)
    where = ["Some processor, 4 cores, 8 GiB", "2999-01-02 03:04 UTC"]
    (tmp_path / "2999-01-02.md").write_text(markdown(found, judge(TARGETS, found), "how", where))
    pages = [published(page.read_text(), Reports(tmp_path)) for page in PAGES]
    assert all("2999-01-02" in page for page in pages[1:3])
    assert all(called in pages[1] for _, _, called in COSTS)
    peers = {f"{TITLES[which]}; connections: {number}" for which, number in CELLS}
    assert set(ENGINES.values()) <= peers
    named = re.findall(r"<!-- report: peers, ([^\n]+) -->", PAGES[2].read_text())
    assert set(named) <= peers
    assert {NOTHING, ONE, TEN, BEHIND} <= {case.title for case in BEFORE_API_SERVER}


def test_every_figure_is_on_a_page() -> None:
    shown = {name for page in PAGES for name in re.findall(r"<!-- figures: (\S+) -->", page.read_text())}
    assert shown == set(FIGURES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_table_of_a_page_is_empty(page: Path) -> None:
    lines = [*page.read_text().splitlines(), ""]
    rules = [number for number, line in enumerate(lines) if re.fullmatch(r"\|[-:| ]+\|", line)]
    assert rules
    assert [lines[number - 1] for number in rules if not lines[number + 1].startswith("|")] == []


def test_missed_targets_are_counted_and_shown(tmp_path: Path) -> None:
    targets = "## Targets\n\n| figure | verdict |\n| --- | --- |\n| a | pass |\n| b | FAIL: busy |\n"
    found = reports(tmp_path, on_2026_01_01="# Benchmark\n\n" + targets, on_2026_01_02_peers=targets)
    assert "Of 4 " in FIGURES["verdicts"](found)
    assert "2 are met and 2 are missed; 0 cannot" in FIGURES["verdicts"](found)
    shown = FIGURES["targets"](found)
    assert [shown.count(each) for each in ("FAIL", "`make bench`", "`make peers-bench`", "e2e")] == [
        2,
        1,
        1,
        0,
    ]
