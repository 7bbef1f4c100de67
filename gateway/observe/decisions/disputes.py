"""Looks for mutating webhooks that never come to rest in the reviews of one process: metric and log.

It looks after the answer, in steps, at a bounded number of reviews a second and never at large ones; the
others are not looked at. What does not come to rest comes again. No value of an object is kept or written.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.text import printable
from gateway.base.work_queue import WorkQueue
from gateway.observe.decisions.rate import TokenBucket
from gateway.pure.core.call import MAX_KEPT_BYTES
from gateway.pure.core.disputes import Disputes, concerns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.core.answer import Answer
    from gateway.pure.core.disputes import Dispute, Seen
    from gateway.pure.core.webhook import Phase

log = logging.getLogger(__name__)

LOOKS_PER_SECOND: Final = 20
LOOKS_AT_ONCE: Final = 100
"""A look takes half a millisecond for a Pod with a sidecar: one percent of a CPU at most."""
MAX_BYTES: Final = MAX_KEPT_BYTES
"""The largest request that is looked at. Its object is still parsed after the answer."""
MAX_WAITING: Final = 100
LOGGED_EVERY_S: Final = 3600.0
"""A line for each finding at first, and then at most so often."""


class DisputeObserver:
    """A ``ReviewObserver`` of mutating reviews. Make it on a running event loop."""

    def __init__(self) -> None:
        self._disputes = Disputes()
        self._queue = WorkQueue()
        self._rate = TokenBucket(LOOKS_PER_SECOND, LOOKS_AT_ONCE)
        self._logged_at: dict[Dispute, float] = {}

    @property
    def found(self) -> Mapping[Dispute, Seen]:
        """What was found since the start, by the time of its first review."""
        return self._disputes.found

    def review_answered(self, answer: Answer, seconds: float) -> None:
        """Look at *answer*, which was given after *seconds*, if webhooks changed the object."""
        evaluation = answer.evaluation
        if not evaluation.has_changed or not concerns(evaluation):
            return
        if len(self._queue) >= MAX_WAITING or evaluation.payload.size_bytes > MAX_BYTES:
            return
        if self._rate.take(answer.started_at + seconds):
            self._queue.begin(self._disputes.note(evaluation, time.time()), self._log, self._failed)

    def review_cancelled(self, phase: Phase) -> None:
        """A cancelled review changes nothing."""

    def _log(self, found: list[Dispute]) -> None:
        for one in found:
            seen, logged_at = self.found[one], self._logged_at.get(one)
            if logged_at is None or seen.last_at - logged_at >= LOGGED_EVERY_S:
                self._logged_at[one] = seen.last_at
                log.warning(
                    "mutating webhooks do not come to rest: %s; reviews: %d, the last of %s",
                    printable(one.line()),
                    seen.number,
                    printable(seen.example),
                )

    @staticmethod
    def _failed(error: Exception) -> None:
        log.error("internal error: a review could not be looked at", exc_info=error)
