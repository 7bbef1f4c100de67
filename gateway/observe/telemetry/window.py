"""The numbers of the last minutes, for pages: the difference of two states of the counters.

The counters are read every half minute, in a thread, because thousands of webhooks take longer than a review
may wait. No review pays for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.observe.telemetry.metrics import SECONDS
from gateway.observe.telemetry.series import Numbers
from gateway.observe.telemetry.timeline import BUCKET_S, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gateway.observe.telemetry.metrics import Metrics
    from gateway.observe.telemetry.series import NumbersKey
    from gateway.observe.telemetry.timeline import Point

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


class Recent(NamedTuple):
    """What was counted lately, and since the start."""

    seconds: float
    """The length of the window."""
    window: Mapping[NumbersKey, Numbers]
    """What was counted in the window."""
    total: Mapping[NumbersKey, Numbers]
    bucket: int
    """The number of the present half minute, see ``Timeline.take``."""
    timeline: Mapping[NumbersKey, Mapping[int, Point]]
    """The half minutes of each webhook and phase."""


class Window:
    """The recent states of the counters of one process."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        begin = clock()
        self._states: deque[tuple[float, Mapping[NumbersKey, Numbers]]] = deque([(begin, {})], maxlen=KEPT)
        self._timeline = Timeline(begin)
        self._taking = asyncio.Lock()

    async def keep(self) -> None:
        """Read the counters at the end of each half minute until cancelled."""
        while True:
            await asyncio.sleep(BUCKET_S - self._clock() % BUCKET_S)
            await self.take()

    async def take(self) -> Recent:
        """Read the counters. Those of each minute are a state, with which the oldest one goes."""
        async with self._taking:
            return await asyncio.to_thread(self._take)

    def _take(self) -> Recent:
        numbers = self._metrics.numbers()
        now = self._clock()
        begin, before = self._states[0]
        if now // EVERY_S > self._states[-1][0] // EVERY_S:
            self._states.append((now, numbers))
        nothing = Numbers()
        recent = {key: one.minus(before.get(key, nothing)) for key, one in numbers.items()}
        timeline = self._timeline.take(numbers, now)
        return Recent(now - begin, recent, numbers, int(now / BUCKET_S), timeline)
