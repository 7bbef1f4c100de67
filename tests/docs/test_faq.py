"""The page of questions: each has a short answer and one link to the page that has the rest."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS, links

QUESTIONS = re.findall(
    r"^## ([^\n]+)\n\n(.+?)\n(?=\n## |\Z)", (DOCS / "faq.md").read_text(), re.MULTILINE | re.DOTALL
)


def test_there_are_twenty_questions() -> None:
    assert len(QUESTIONS) == 20


@pytest.mark.parametrize(("question", "answer"), QUESTIONS, ids=[each[0] for each in QUESTIONS])
def test_a_question_has_a_short_answer_and_one_link(question: str, answer: str) -> None:
    assert "?" in question
    assert len(answer.split()) < 60
    assert len(links(answer)) == 1
