"""Argo CD's own comparison sees a difference exactly where the gateway writes an entry, and none with it."""

from __future__ import annotations

from tests.e2e.argocd import ask, recorded
from tests.preview.argocd_cases import FILE, question, with_ignored

SEEDS = range(1000, 5000)


def test_the_recorded_answers_are_those_of_argo_cd() -> None:
    assert recorded() == FILE.read_text()


def test_argo_cd_sees_a_difference_exactly_where_there_is_an_entry() -> None:
    asked = [question(seed) for seed in SEEDS]
    ignored = [with_ignored(each) for each in asked]
    answers = list(zip(SEEDS, ignored, ask(asked), ask(ignored), strict=True))
    assert not [(seed, plain) for seed, _, plain, _ in answers if "error" in plain]
    wrong = [
        (seed, each["ignoreDifferences"])
        for seed, each, plain, then in answers
        if plain["modified"] != bool(each["ignoreDifferences"]) or then["modified"]
    ]
    assert not wrong
    assert sum(plain["modified"] for _, _, plain, _ in answers) > len(SEEDS) / 4
