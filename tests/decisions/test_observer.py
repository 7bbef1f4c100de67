"""The observer offers an ordinary decision only where one may be recorded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gateway.pure.core.decision import PLAIN_ALLOWED, Decision, Status
from gateway.server.review_records import DecisionObserver

DENIED = Decision(Status(403, "Forbidden", "no"))


class Sink:
    def __init__(self, ordinary_at: float) -> None:
        self.ordinary_at = ordinary_at
        self.later_by = 0.0
        self.offered: list[float] = []

    def offer(self, answer: Any, seconds: float, digest: str, *, is_noteworthy: bool) -> None:
        assert is_noteworthy is (answer.decision is DENIED)
        self.offered.append(answer.started_at)
        self.ordinary_at += self.later_by


def test_a_sink_is_offered_ordinary_decisions_from_its_time_on_and_others_always() -> None:
    early, late = Sink(10.0), Sink(20.0)
    observer = DecisionObserver("digest", [late, early])
    times = (0, PLAIN_ALLOWED), (9, PLAIN_ALLOWED), (9.5, DENIED), (10, PLAIN_ALLOWED), (20, PLAIN_ALLOWED)
    for at, decision in times:
        answer: Any = SimpleNamespace(decision=decision, started_at=at)
        observer.review_answered(answer, 0.0)
    assert (early.offered, late.offered) == ([9.5, 10, 20], [9.5, 20])


def test_the_time_of_a_sink_counts_as_it_is_after_an_offer() -> None:
    sink = Sink(0.0)
    sink.later_by = 10.0
    observer = DecisionObserver("digest", [sink])
    for at in (1, 9, 10, 19, 25):
        answer: Any = SimpleNamespace(decision=PLAIN_ALLOWED, started_at=at)
        observer.review_answered(answer, 0.0)
    assert sink.offered == [1, 10, 25]
