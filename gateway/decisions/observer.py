"""The observer of reviews behind all records of decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gateway.decisions.record import is_noteworthy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.core.answer import Answer
    from gateway.core.webhook import Phase


class DecisionSink(Protocol):
    """Records some decisions: the decision log, and what the pages show."""

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

    def review_answered(self, answer: Answer, seconds: float) -> None:
        """Pass *answer* on, which was given after *seconds*."""
        noteworthy = is_noteworthy(answer)
        for sink in self._sinks:
            sink.offer(answer, seconds, self._digest, is_noteworthy=noteworthy)

    def review_cancelled(self, phase: Phase) -> None:
        """A cancelled review has no decision."""
