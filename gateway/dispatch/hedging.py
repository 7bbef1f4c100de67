"""Asking twice: a call that takes long is put to another endpoint too, and the first answer counts.

Cuts the tail that one slow worker makes. What it may cost is bounded by a budget, so that a pool that is slow
as a whole is not made slower by being asked everything twice.

Source: J. Dean and L. A. Barroso, "The Tail at Scale", on hedged requests; gRFC A6 on throttling them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from gateway.dispatch.timer_wheel import TICK_S

if TYPE_CHECKING:
    from gateway.config.model import Hedge
    from gateway.dispatch.calls import CallGroup
    from gateway.dispatch.timer_wheel import TimerWheel
    from gateway.telemetry.metrics import PoolMetrics

KNOWN: Final = 1000
"""Answers from which the percentile is taken."""
JUDGE_AFTER: Final = 100
"""Answers without which nothing is known, and after which the percentile is taken anew."""
BUDGET_OF: Final = 100
"""Calls whose share of the budget can be saved up."""


class Hedging:
    """The hedging of one pool."""

    def __init__(self, settings: Hedge, deadlines: TimerWheel, metrics: PoolMetrics) -> None:
        self._timers = deadlines
        self._metrics = metrics
        self._after_s = settings.after_s
        self._percentile = settings.percentile
        self._observes = settings.after_s is None
        self._earned = settings.budget_percent / 100
        self._saved = self._most = max(1.0, settings.budget_percent * BUDGET_OF / 100)
        self._seen: deque[float] = deque(maxlen=KNOWN)
        self._since_judged = 0

    def asked(self, group: CallGroup) -> None:
        """Set the alarm of calls that were just submitted, and earn their share of the budget."""
        self._saved = min(self._most, self._saved + self._earned * group.open_count)
        after_s = self._after_s
        if after_s is not None:
            at = group.started + after_s + TICK_S  # which strikes up to a tick early
            if at < group.expires_at:
                group.hedge_timer = hedge_timer = _HedgeTimer(self, group, at)
                self._timers.add(hedge_timer)

    def answered(self, group: CallGroup) -> None:
        """Learn from a call that has its answer now."""
        if not self._observes:
            return
        self._seen.append(self._timers.now() - group.first_started)
        self._since_judged += 1
        if self._since_judged >= JUDGE_AFTER:
            self._since_judged = 0
            ranked = sorted(self._seen)
            self._after_s = ranked[min(len(ranked) - 1, int(len(ranked) * self._percentile / 100))]

    def struck(self, group: CallGroup) -> None:
        """Ask twice if the budget is not used up. A review of many calls may overdraw it; it is paid back."""
        if self._saved >= 1.0:
            number = group.observer.hedge(group)
            self._saved -= number
            self._metrics.hedges += number

    def forget(self, hedge_timer: _HedgeTimer) -> None:
        """Have *alarm* not strike."""
        self._timers.remove(hedge_timer)


class _HedgeTimer:
    """When to ask twice."""

    __slots__ = ("_hedging", "_pending", "expires_at")

    def __init__(self, hedging: Hedging, group: CallGroup, at: float) -> None:
        self._hedging = hedging
        self._pending = group
        self.expires_at = at

    def expire(self) -> None:
        self._pending.hedge_timer = None
        self._hedging.struck(self._pending)

    def cancel(self) -> None:
        self._pending.hedge_timer = None
        self._hedging.forget(self)
