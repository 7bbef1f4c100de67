"""Every command of README and documentation is run: here, or in a cluster by tests/e2e/test_documentation.py.

A page needs no entry: its commands run in a folder that ``scenes.py`` prepares. What no test can run is in
``runs.py``, with the reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.docs.reader import Reader, blocks, commands, pages_with_commands
from tests.docs.runs import HERE, NOT_RUN, WITHOUT_OUTPUT, chosen, left_out
from tests.docs.scenes import set_up

if TYPE_CHECKING:
    from pathlib import Path

    from tests.docs.reader import Block

PAGES = list(pages_with_commands())
BLOCKS = [block for page in PAGES for block in page if block.language == "sh"]
LOCAL = [page for page in PAGES if chosen(page, HERE)]


@pytest.mark.parametrize("page", LOCAL, ids=lambda page: page[0].page)
def test_the_commands_of_a_page_do_what_it_says(page: list[Block], tmp_path: Path) -> None:
    with Reader(tmp_path, leaves_out=left_out) as reader:
        set_up(reader, page[0].page)
        reader.follow(page, chosen(page, HERE))


def test_whatever_is_left_out_is_on_a_page() -> None:
    """So that no reason stays after its command has gone."""
    places = [f"{block.page}: {command}" for block in BLOCKS for command in commands(block)]
    assert [words for words in NOT_RUN if not any(re.search(words, place) for place in places)] == []


def test_a_runbook_shows_what_is_seen_or_is_on_the_list() -> None:
    without = [
        page.stem
        for page in sorted((DOCS / "runbooks").glob("*.md"))
        if page.stem != "index" and not any(block.language == "text" for block in blocks(page))
    ]
    assert without == list(WITHOUT_OUTPUT)


def test_the_tests_that_reasons_name_are_there() -> None:
    reasons = " ".join([*NOT_RUN.values(), *WITHOUT_OUTPUT.values()])
    named = re.findall(r"tests/[\w/]+(?:\.py|\b)", reasons)
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_most_commands_run() -> None:
    """A new block runs here or in the cluster by itself, if no expression of ``NOT_RUN`` takes it out."""
    all_of_them = [(block, command) for block in BLOCKS for command in commands(block)]
    left = [
        command for block, command in all_of_them if "tests/" not in (left_out(block, command) or "tests/")
    ]
    assert len(left) < len(all_of_them) / 8, left
