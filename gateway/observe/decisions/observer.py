"""The observer of reviews behind all records of decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gateway.observe.decisions.record import is_noteworthy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.answer import Answer
    from gateway.pure.core.webhook import Phase


class DecisionSink(Protocol):
    """Records some decisions: the decision log, and what the pages show."""

    @property
    def ordinary_at(self) -> float:
        """No decision that is not noteworthy is recorded before this time, in monotonic seconds."""

    def offer(self, answer: Answer, seconds: float, digest: str, *, is_noteworthy: bool) -> None:
        """Record *answer*, which was given after *seconds*, if it is one of those that are recorded.

        *digest* is that of the configuration. A decision is noteworthy if it has a denial, failure or
        fail-open.
        """


class DecisionObserver:
    """Passes the decisions by one configuration on to what records them. A ``ReviewObserver``."""

    def __init__(self, digest: str, sinks: Sequence[DecisionSink]) -> None:
        """*digest* is that of the configuration."""
        self._digest = digest
        self._sinks = sinks
        self._ordinary_at = 0.0

    def review_answered(self, answer: Answer, seconds: float) -> None:
        """Pass *answer* on, which was given after *seconds*."""
        noteworthy = is_noteworthy(answer)
        if not noteworthy and answer.started_at + seconds < self._ordinary_at:
            return
        for sink in self._sinks:
            sink.offer(answer, seconds, self._digest, is_noteworthy=noteworthy)
        self._ordinary_at = min(sink.ordinary_at for sink in self._sinks)

    def review_cancelled(self, phase: Phase) -> None:
        """A cancelled review has no decision."""
