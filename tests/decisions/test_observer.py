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
        self.offered: list[float] = []

    def offer(self, answer: Any, seconds: float, digest: str, *, is_noteworthy: bool) -> None:
        assert is_noteworthy is (answer.decision is DENIED)
        self.offered.append(answer.started_at)


def test_ordinary_decisions_are_offered_from_the_earliest_time_of_a_sink_and_others_always() -> None:
    early, late = Sink(10.0), Sink(20.0)
    observer = DecisionObserver("digest", [late, early])
    for at, decision in ((0, PLAIN_ALLOWED), (9, PLAIN_ALLOWED), (9.5, DENIED), (10, PLAIN_ALLOWED)):
        answer: Any = SimpleNamespace(decision=decision, started_at=at)
        observer.review_answered(answer, 0.0)
    assert early.offered == late.offered == [0, 9.5, 10]
