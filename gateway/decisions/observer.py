"""The observer of reviews behind all records of decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.decisions.record import is_noteworthy

if TYPE_CHECKING:
    from gateway.core.answer import Answer
    from gateway.core.webhook import Phase
    from gateway.decisions.log import DecisionLog
    from gateway.decisions.namespaces import NamespaceCounts
    from gateway.decisions.recent import RecentDecisions


class DecisionObserver:
    """Passes the decisions by one configuration on to what records them. A ``ReviewObserver``."""

    def __init__(
        self, digest: str, log: DecisionLog, recent: RecentDecisions, namespaces: NamespaceCounts
    ) -> None:
        """*digest* is that of the configuration."""
        self._digest = digest
        self._log = log
        self._recent = recent
        self._namespaces = namespaces

    def review_answered(self, answer: Answer, seconds: float) -> None:
        """Pass *answer* on, which was given after *seconds*."""
        noteworthy = is_noteworthy(answer)
        self._log.offer(answer, seconds, self._digest, is_noteworthy=noteworthy)
        self._recent.offer(answer, seconds, self._digest, is_noteworthy=noteworthy)
        if noteworthy:
            self._namespaces.count(answer)

    def review_cancelled(self, phase: Phase) -> None:
        """A cancelled review has no decision."""
