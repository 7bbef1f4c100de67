"""Which reviews are recorded: a share of all, and some of every combination, however rare it is.

A combination is the kind and operation of a request, a webhook, and its outcome. The first reviews of each in
an hour are recorded. Of all reviews a share is recorded by a hash of the uid, so all processes choose alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from gateway.observe.decisions.record import record_of_webhook
from gateway.pure.core.verdict import Allowed

if TYPE_CHECKING:
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.matching import Invocation

PERIOD_S: Final = 3600.0
MAX_COMBINATIONS: Final = 16_384
"""Clients can make up kinds. Once there are so many combinations, further ones do not count as rare."""
_HASHES: Final = 2**32


class Sampling:
    """Chooses reviews. For one event loop."""

    def __init__(self, percent: float, per_combination: int) -> None:
        self._below = int(percent / 100 * _HASHES)
        self._per_combination = per_combination
        self._counts: dict[tuple[object, ...], int] = {}
        self._full: set[Invocation] = set()
        """Invocations of which enough allowed reviews are recorded: kind, operation and webhook in one."""
        self._until = 0.0

    def in_sample(self, uid: str) -> bool:
        """Whether the review with *uid* belongs to the share of all."""
        return crc32(uid.encode(errors="surrogatepass")) < self._below

    def is_rare(self, evaluation: Evaluation, now: float) -> bool:
        """Whether a combination of the finished *evaluation* is rare at *now* (monotonic seconds)."""
        if now >= self._until:
            self._until = now + PERIOD_S
            self._counts.clear()
            self._full.clear()
        if not self._per_combination:
            return False
        outcomes, full = evaluation.outcomes, self._full
        if not outcomes and not evaluation.exemptions:
            return self._count(evaluation.request.kind, evaluation.request.operation)
        is_rare = False
        for exemption in evaluation.exemptions:
            is_rare = self._count(*_combination(evaluation, exemption.invocation, "Exempted")) or is_rare
        for outcome in outcomes:
            invocation = outcome.invocation
            is_allowed = type(outcome.verdict) is Allowed
            if is_allowed and invocation in full:
                continue
            named = "Allowed" if is_allowed else record_of_webhook(outcome, 0.0).outcome
            if self._count(*_combination(evaluation, invocation, named)):
                is_rare = True
            elif is_allowed and len(full) < MAX_COMBINATIONS:
                full.add(invocation)
        return is_rare

    def _count(self, *combination: object) -> bool:
        """Count one more of *combination*; return whether it is rare."""
        count = self._counts.get(combination, 0)
        if count >= self._per_combination or (not count and len(self._counts) >= MAX_COMBINATIONS):
            return False
        self._counts[combination] = count + 1
        return True


def _combination(evaluation: Evaluation, invocation: Invocation, outcome: str) -> tuple[object, ...]:
    request, webhook = evaluation.request, invocation.webhook
    return request.kind, request.operation, webhook.phase, webhook.configuration, webhook.name, outcome
