"""Limits of unsolicited input: verdicts that a worker sends for no call in flight."""

from __future__ import annotations

from typing import Final

MAX_WITHDRAWN: Final = 16_384
"""Withdrawn calls whose late verdicts are expected."""
MAX_UNSOLICITED: Final = 1000
"""Unsolicited items in one period. A period lasts half a minute while the worker sends anything."""


class Flood(Exception):
    """The worker exceeded ``MAX_UNSOLICITED``."""

    def __init__(self, text: str, *, is_misconduct: bool) -> None:
        super().__init__(text)
        self.is_misconduct = is_misconduct
        """Whether the worker itself is at fault, not one of its policies."""


class UnsolicitedLimiter:
    """Counts the verdicts of one stream that belong to no call in flight."""

    __slots__ = ("_count", "_withdrawn")

    def __init__(self) -> None:
        self._withdrawn: dict[int, None] = {}
        """Ids of withdrawn calls that the worker has received and may still answer, the oldest first."""
        self._count = 0

    def withdrawn(self, call_id: int) -> None:
        """Expect one late verdict for the call with *call_id*, which was withdrawn."""
        self._withdrawn[call_id] = None
        if len(self._withdrawn) > MAX_WITHDRAWN:
            del self._withdrawn[next(iter(self._withdrawn))]

    def is_late(self, call_id: int) -> bool:
        """Whether a verdict answers a withdrawn call; True once for each."""
        if call_id not in self._withdrawn:
            return False
        del self._withdrawn[call_id]
        return True

    def count(self, kind: str, *, is_misconduct: bool = False) -> None:
        """Count one unsolicited item.

        Raises:
            Flood: there were too many in this period; the text names their *kind*, a plural.
        """
        self._count += 1
        if self._count > MAX_UNSOLICITED:
            raise Flood(f"the worker sent more than {MAX_UNSOLICITED} {kind}", is_misconduct=is_misconduct)

    def begin_period(self) -> None:
        """Count from 0 again; the caller does this periodically."""
        self._count = 0
