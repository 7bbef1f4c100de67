"""The numbers of the last minutes, for pages: the difference of two states of the counters.

A state is taken every ``EVERY_S`` seconds, in a thread, because thousands of webhooks take longer than a
review may wait. No review pays for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from gateway.observe.telemetry.metrics import SECONDS
from gateway.observe.telemetry.series import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gateway.observe.telemetry.metrics import Metrics
    from gateway.observe.telemetry.series import NumbersKey

EVERY_S: Final = 60.0
KEPT: Final = 5
"""States; the window is so many times ``EVERY_S``, and up to one more."""


def percentile(buckets: Sequence[int], part: float) -> float | None:
    """Return the duration in seconds below which *part* (0 to 1) of all lie; None if there are none.

    Within a bucket they are taken as evenly distributed, as Prometheus' histogram_quantile does. Above the
    last bound it is that bound.
    """
    wanted = part * sum(buckets)
    if not wanted:
        return None
    lower = seen = 0.0
    for bound, count in zip(SECONDS, buckets, strict=False):
        if seen + count >= wanted:
            return lower + (bound - lower) * (wanted - seen) / count
        seen += count
        lower = bound
    return lower


class Window:
    """The recent states of the counters of one process."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._states: deque[tuple[float, Mapping[NumbersKey, Numbers]]] = deque([(clock(), {})], maxlen=KEPT)

    async def keep(self) -> None:
        """Take states until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.take()

    async def take(self) -> None:
        """Take a state; the oldest one goes."""
        taken_at = self._clock()
        self._states.append((taken_at, await asyncio.to_thread(self._metrics.numbers)))

    async def read(self) -> tuple[float, Mapping[NumbersKey, Numbers], Mapping[NumbersKey, Numbers]]:
        """Return the seconds of the window, what was counted in it, and all counts since the start."""
        begin, before = self._states[0]
        seconds = self._clock() - begin
        now = await asyncio.to_thread(self._metrics.numbers)
        nothing = Numbers()
        recent = {key: numbers.minus(before.get(key, nothing)) for key, numbers in now.items()}
        return seconds, recent, now
