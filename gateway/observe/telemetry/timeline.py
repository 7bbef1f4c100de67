"""Calls, denials and failures of the last fifteen minutes by half minutes: differences of the counters.

The half minutes are those of the monotonic clock, which all processes of a machine share: those of several
processes can be added.
"""

from __future__ import annotations

from operator import add, sub
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.observe.telemetry.series import Numbers, NumbersKey

BUCKET_S: Final = 30.0
BUCKETS: Final = 30
"""That are kept, with the present one."""


class Point(NamedTuple):
    """What was counted in a half minute, of a webhook or of the reviews of a phase."""

    calls: int = 0
    denied: int = 0
    failed_closed: int = 0
    failed_open: int = 0


_NOTHING: Final = Point()


class Timeline:
    """The half minutes of one process. It keeps only what was called in each of them."""

    def __init__(self, now: float) -> None:
        """Begin *now*, in monotonic seconds, when nothing is counted yet."""
        self._at = now
        self._before: dict[NumbersKey, Point] = {}
        self._buckets: dict[int, dict[NumbersKey, Point]] = {}

    def take(self, numbers: Mapping[NumbersKey, Numbers], now: float) -> dict[NumbersKey, dict[int, Point]]:
        """Take the counters *numbers* as they are *now*, and return each webhook's half minutes by number.

        The number of a half minute is the monotonic time at its beginning in ``BUCKET_S``. What was counted
        since the last time belongs to the half minute in the middle between.
        """
        bucket = self._buckets.setdefault(int((self._at + now) / 2 / BUCKET_S), {})
        points = {
            key: Point(sum(one.buckets), one.denied, one.failed_closed, one.failed_open)
            for key, one in numbers.items()
        }
        for key, point in points.items():
            before = self._before.get(key, _NOTHING)
            if point != before:
                since = map(sub, point, before)
                bucket[key] = Point(*map(add, bucket.get(key, _NOTHING), since))
        self._before = points
        self._at = now
        for number in [one for one in self._buckets if one <= int(now / BUCKET_S) - BUCKETS]:
            del self._buckets[number]
        found: dict[NumbersKey, dict[int, Point]] = {}
        for number, points in self._buckets.items():
            for key, point in points.items():
                found.setdefault(key, {})[number] = point
        return found
