"""The page about troubleshooting quotes texts that the gateway writes. Those of API servers: tests/e2e."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.docs.pages import DOCS, ROOT

PAGE: Final = (DOCS / "troubleshooting.md").read_text()
QUOTED: Final = (
    "to see why the request was refused, run: admission-gateway decisions ",
    "failed calling webhook ",
    "no answer within ",
    "has no ready endpoint; failurePolicy decides for its webhooks",
    "no worker is reachable",
    "webhooks that fail closed: ",
    "would be refused",
    "no registration of a gateway was found",
    "configuration refused, the one in force stays: ",
    "custom resource refused (",
    "of its webhooks fail by their failurePolicy, ",
    "NoWorkerPool",
    "is not a ready-made policy",
    "did you mean ",
)


@pytest.fixture(scope="module")
def sources() -> str:
    """The program as text, with texts over several lines as one."""
    files = (file.read_text() for file in sorted((ROOT / "gateway").rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(files))


@pytest.mark.parametrize("text", QUOTED)
def test_what_the_page_quotes_is_what_the_gateway_writes(sources: str, text: str) -> None:
    assert text in PAGE
    assert text in sources


def test_every_row_of_the_first_table_leads_to_a_section_that_quotes_its_text() -> None:
    table = PAGE.partition("|---|---|\n")[2].partition("\n\n")[0]
    for row in table.splitlines():
        seen, section = row.strip("| ").split(" | ")
        title = re.search(r"\[(.+)\]", section)
        assert title
        text = PAGE.partition(f"\n## {title[1]}\n")[2].partition("\n## ")[0]
        for quoted in re.findall(r"`([^`]+)`", seen):
            parts = [part.strip() for part in quoted.split("…")]
            assert all(part in text for part in parts), quoted
