"""A coarse timer for very many deadlines of which few expire.

Each timer of asyncio costs a heap operation to set and one to cancel, and nearly every call cancels its own.
Here a deadline is an entry in the bucket of its tick, and only the first bucket has a timer of the loop.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

TICK_S: Final = 0.005
"""An item may expire up to a tick early, but never late: the review must be answered in time."""


class Expiring(Protocol):
    """An item of the wheel."""

    expires_at: float
    """Seconds on the clock of :attr:`TimerWheel.now`."""

    def expire(self) -> None:
        """Called once when the item expires, unless it was removed before."""


class TimerWheel:
    """The deadlines of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        """The clock of all deadlines, in seconds. uvloop's own clock has only milliseconds."""
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
        """Remove *item*; no effect if it has expired."""
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
        self._timer = self._loop.call_later(max(0.0, tick * TICK_S - self.now()), self._expire)

    def _expire(self) -> None:
        self._timer = None
        expired = self._buckets.pop(self._next, {})
        if self._buckets:
            self._arm(min(self._buckets))
        for item in expired:
            item.expire()
