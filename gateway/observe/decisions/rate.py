"""A bound on how often something happens."""

from __future__ import annotations


class TokenBucket:
    """Allows so many events per second, and after a pause as many at once as fit in the bucket."""

    __slots__ = ("_at", "_capacity", "_per_second", "_tokens")

    def __init__(self, per_second: float, capacity: float) -> None:
        self._per_second = per_second
        self._capacity = capacity
        self._tokens = capacity
        self._at = 0.0

    @property
    def next_at(self) -> float:
        """When the next event is allowed, unless it leaves a reserve: seconds on the monotonic clock."""
        return self._at + max(0.0, 1 - self._tokens) / self._per_second

    def take(self, now: float, reserve: float = 0.0, cost: float = 1.0) -> bool:
        """Return whether an event is allowed at *now*, in seconds on the monotonic clock, and count it.

        *reserve* is the part of the capacity, from 0 to 1, that this event leaves to others, as far as that
        leaves it anything. The event counts as *cost* events.
        """
        self._tokens = min(self._capacity, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        if self._tokens < min(cost + self._capacity * reserve, self._capacity):
            return False
        self._tokens -= cost
        return True
