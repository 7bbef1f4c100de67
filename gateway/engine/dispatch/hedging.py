"""Hedging: a call that takes long is sent to a second endpoint too, and the first answer counts.

This cuts the tail latency of one slow worker. A budget bounds the extra calls, so that hedging does not slow
down a pool that is slow as a whole.

Source: J. Dean and L. A. Barroso, "The Tail at Scale", on hedged requests; gRFC A6 on throttling them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from gateway.engine.dispatch.timer_wheel import TICK_S

if TYPE_CHECKING:
    from gateway.config.kinds.worker_pool import Hedge
    from gateway.engine.dispatch.calls import CallGroup
    from gateway.engine.dispatch.timer_wheel import TimerWheel
    from gateway.observe.telemetry.metrics import PoolMetrics

SAMPLES: Final = 1000
"""Latencies from which the percentile is computed."""
SAMPLES_PER_UPDATE: Final = 100
"""New latencies after which the percentile is computed; without so many there is no hedging."""
BUDGET_CALLS: Final = 100
"""Calls whose share of the budget can be saved up."""


class Hedging:
    """The hedging of one pool."""

    def __init__(self, settings: Hedge, timers: TimerWheel, metrics: PoolMetrics) -> None:
        self._timers = timers
        self._metrics = metrics
        self._after_s = settings.after_s
        self._percentile = settings.percentile
        self._is_adaptive = settings.after_s is None
        self._earned_per_call = settings.budget_percent / 100
        self._budget = self._max_budget = max(1.0, settings.budget_percent * BUDGET_CALLS / 100)
        """Hedges that are allowed now, and that can be saved up."""
        self._latencies_s: deque[float] = deque(maxlen=SAMPLES)
        self._new_samples = 0

    def submitted(self, group: CallGroup) -> None:
        """Set the hedge timer of a group that was just submitted, and earn its share of the budget."""
        self._budget = min(self._max_budget, self._budget + self._earned_per_call * group.open_count)
        after_s = self._after_s
        if after_s is not None:
            at = group.started_at + after_s + TICK_S  # the timer wheel fires up to a tick early
            if at < group.expires_at:
                group.hedge_timer = timer = _HedgeTimer(self, group, at)
                self._timers.add(timer)

    def answered(self, group: CallGroup) -> None:
        """Record the latency of a call that was just answered."""
        if not self._is_adaptive:
            return
        self._latencies_s.append(self._timers.now() - group.first_started_at)
        self._new_samples += 1
        if self._new_samples >= SAMPLES_PER_UPDATE:
            self._new_samples = 0
            ranked = sorted(self._latencies_s)
            self._after_s = ranked[min(len(ranked) - 1, int(len(ranked) * self._percentile / 100))]

    def hedge(self, group: CallGroup) -> None:
        """Hedge *group* if the budget allows. A group of many calls may overdraw it; later calls repay it."""
        if self._budget >= 1.0:
            number = group.observer.hedge(group)
            self._budget -= number
            self._metrics.hedges += number

    def cancel(self, timer: _HedgeTimer) -> None:
        """Stop *timer*."""
        self._timers.remove(timer)


class _HedgeTimer:
    """The time at which a group is hedged."""

    __slots__ = ("_group", "_hedging", "expires_at")

    def __init__(self, hedging: Hedging, group: CallGroup, at: float) -> None:
        self._hedging = hedging
        self._group = group
        self.expires_at = at

    def expire(self) -> None:
        self._group.hedge_timer = None
        self._hedging.hedge(self._group)

    def cancel(self) -> None:
        self._group.hedge_timer = None
        self._hedging.cancel(self)
