"""The page about audits names all there is. Its commands run in tests/docs."""

from __future__ import annotations

import re

from gateway.tools.audit import metrics
from gateway.tools.audit.report import TITLES
from gateway.tools.audit.store import _COLUMNS
from tests.kit import ROOT

PAGE = (ROOT / "docs" / "audit.md").read_text()


def test_the_page_has_every_finding_and_every_member_of_a_line() -> None:
    for name in (*TITLES, *_COLUMNS):
        assert f"`{name}`" in PAGE, name


def test_the_page_has_every_metric() -> None:
    names = {name for name, _ in metrics._SINGLE.values()} | {"findings"}
    shown = re.findall(r"^\| (`(?:admission_gateway_audit|…)_.*?) \|", PAGE, re.MULTILINE)
    found = {name for cell in shown for name in re.findall(r"`(?:admission_gateway_audit|…)_(\w+)`", cell)}
    assert found == names
