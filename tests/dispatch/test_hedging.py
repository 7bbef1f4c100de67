"""When a call is hedged, and how many calls are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gateway.config.kinds.worker_pool import Hedge
from gateway.engine.dispatch.hedging import SAMPLES_PER_UPDATE, Hedging
from gateway.engine.dispatch.timer_wheel import TICK_S


class Timers:
    """Timers that do not expire, and their clock."""

    now_s = 0.0

    def __init__(self) -> None:
        self.added: list[Any] = []
        self.add = self.added.append

    def now(self) -> float:
        return self.now_s


def hedging(timers: Timers, settings: Hedge) -> Hedging:
    return Hedging(settings, cast("Any", timers), cast("Any", SimpleNamespace(hedges=0)))


def group(calls: int = 1) -> Any:
    """A group of *calls* that begins at 0; hedged, it takes as many hedges as it has calls."""
    observer = SimpleNamespace(hedge=lambda hedged: hedged.open_count)
    return SimpleNamespace(
        open_count=calls,
        started_at=0.0,
        first_started_at=0.0,
        expires_at=1e9,
        hedge_timer=None,
        observer=observer,
    )


def test_a_call_is_hedged_after_the_percentile_of_the_latencies() -> None:
    timers = Timers()
    found = hedging(timers, Hedge(percentile=90, budget_percent=5))
    for number in range(SAMPLES_PER_UPDATE):
        found.submitted(group())
        assert not timers.added
        timers.now_s = float(number)
        found.answered(group())
    found.submitted(group())
    (timer,) = timers.added
    assert timer.expires_at == 90 + TICK_S


def test_every_call_earns_its_share_of_a_hedge() -> None:
    found = hedging(Timers(), Hedge(after_s=1.0, budget_percent=50))
    found.hedge(group(50))  # all that was saved up
    for calls, expected in ((1, 50), (1, 51), (1, 51), (3, 52)):
        found.submitted(group(calls))
        found.hedge(group())
        assert found._metrics.hedges == expected
