"""A coarse timer for very many deadlines of which nearly none are reached.

asyncio's own timers cost a heap operation each to set and to cancel, and a call has one that is nearly
always cancelled. Here a deadline is an entry in the bucket of its tick; only the first bucket has a timer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

TICK_S: Final = 0.005
"""How much earlier than asked a deadline may strike. Never later: an answer must leave before it."""


class Expiring(Protocol):
    """What has a deadline."""

    expires_at: float
    """Seconds on the clock of :attr:`TimerWheel.now`."""

    def expire(self) -> None:
        """Called once when the deadline strikes, unless it was removed before."""


class TimerWheel:
    """The deadlines of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        """The clock of all deadlines, in seconds. Not the loop's own, which uvloop keeps to milliseconds."""
        self._loop = loop
        self._buckets: dict[int, dict[Expiring, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, item: Expiring) -> None:
        """Have ``item.expire()`` called at its deadline, or up to a tick before."""
        tick = int(item.expires_at / TICK_S)
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            if self._timer is None or tick < self._next:
                self._arm(tick)
        bucket[item] = None

    def remove(self, item: Expiring) -> None:
        """Forget *item*'s deadline; nothing happens if it struck already."""
        tick = int(item.expires_at / TICK_S)
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.pop(item, None)
            if not bucket and tick != self._next:
                del self._buckets[tick]

    def _arm(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = tick
        self._timer = self._loop.call_later(max(0.0, tick * TICK_S - self.now()), self._strike)

    def _strike(self) -> None:
        self._timer = None
        struck = self._buckets.pop(self._next, {})
        if self._buckets:
            self._arm(min(self._buckets))
        for item in struck:
            item.expire()
