"""What a worker says on its stream without being asked: how much is forgiven, and what tells a liar."""

from __future__ import annotations

from typing import Final

MAX_FORGOTTEN: Final = 16_384
"""Calls that were withdrawn, whose answers may still be on their way."""
MAX_UNSOLICITED: Final = 1000
"""Between two of the moments at which all is forgiven, half a minute apart while the worker says anything."""


class Flood(Exception):
    """The worker sends more that was not asked for than may be read."""

    def __init__(self, text: str, *, is_misconduct: bool) -> None:
        super().__init__(text)
        self.is_misconduct = is_misconduct
        """Whether it is the worker's fault, and not that of one of its policies."""


class UnsolicitedLimiter:
    """The verdicts, of one stream, on calls that are not in flight."""

    __slots__ = ("_count", "_withdrawn")

    def __init__(self) -> None:
        self._withdrawn: dict[int, None] = {}
        """Ids of calls that the worker was given and may still answer, the oldest first."""
        self._count = 0

    def expect(self, number: int) -> None:
        """Take note that the call with id *number* was withdrawn; its answer may be on its way."""
        self._withdrawn[number] = None
        if len(self._withdrawn) > MAX_FORGOTTEN:
            del self._withdrawn[next(iter(self._withdrawn))]

    def is_late(self, number: int) -> bool:
        """Whether a verdict on no call in flight answers one that was withdrawn, once."""
        if number not in self._withdrawn:
            return False
        del self._withdrawn[number]
        return True

    def count(self, what: str, *, is_misconduct: bool = False) -> None:
        """Count one thing that nobody asked for.

        Raises:
            Flood: there were too many; the text names *what* as it is in the plural. *is_misconduct* says
                whose fault it is.
        """
        self._count += 1
        if self._count > MAX_UNSOLICITED:
            raise Flood(f"the worker sent more than {MAX_UNSOLICITED} {what}", is_misconduct=is_misconduct)

    def reset_window(self) -> None:
        """Count anew."""
        self._count = 0
