"""The recorded answers of other policy engines are whole, and belong to their cases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.recorded.other_engines.cases import recorded
from tests.recorded.other_engines.files import FILES

if TYPE_CHECKING:
    from pathlib import Path

ALL = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


@ALL
def test_each_case_has_the_answer_to_its_question(file: Path) -> None:
    """A case that changed has to be recorded again: ``python -m tests.e2e.record FILE``."""
    _, cases = FILES[file]
    found = {name: digest for name, (digest, _) in recorded(file).items()}
    assert found == {case.name: case.digest for case in cases}
    assert len(cases) == len(json.loads(file.read_text())["answers"])


@ALL
def test_each_case_says_what_it_shows(file: Path) -> None:
    for case in FILES[file][1]:
        assert case.shows.endswith("."), case.name
        assert case.question["request"]["operation"], case.name


@ALL
def test_answers_are_decisions_or_refusals(file: Path) -> None:
    for name, (_, answer) in recorded(file).items():
        assert not answer.get("refused", "").startswith("panic"), name
        decisions = answer.get("webhooks", [answer])
        assert "refused" in answer or all(isinstance(each["allowed"], bool) for each in decisions), name
