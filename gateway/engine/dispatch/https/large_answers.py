"""Limits how many large answers of one server are in memory at a time.

A thousand calls to a server may be in flight, and each answer may have 8 MiB. A call with a large answer
takes one of a few slots, or waits for one; its connection is not read in the meantime.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LARGE: Final = 4
"""About 100 MiB for one server, with the unpacked bytes and copies."""
LARGE_BYTES: Final = 64 * 1024
"""An answer that has more and has not ended is large."""


class LargeAnswerSlots:
    """The slots of one server."""

    def __init__(self) -> None:
        self._holders: set[LargeAnswerSlot] = set()
        self._waiting: dict[LargeAnswerSlot, Callable[[], None]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no call has a slot or waits for one."""
        return not self._holders and not self._waiting

    def try_acquire(self, slot: LargeAnswerSlot, granted: Callable[[], None]) -> bool:
        """Return whether *slot* is acquired; if not, *granted* is called once it is."""
        if slot not in self._holders:
            if len(self._holders) >= MAX_LARGE:
                self._waiting[slot] = granted
                return False
            self._holders.add(slot)
        return True

    def release(self, slot: LargeAnswerSlot) -> None:
        """Release *slot*; the call that has waited longest gets it."""
        self._waiting.pop(slot, None)
        if slot in self._holders:
            self._holders.remove(slot)
            if self._waiting:
                following = next(iter(self._waiting))
                granted = self._waiting.pop(following)
                self._holders.add(following)
                granted()


class LargeAnswerSlot:
    """The slot of one call, if it needs one. A context manager that releases it."""

    def __init__(self, slots: LargeAnswerSlots) -> None:
        self._slots = slots

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def try_acquire(self, granted: Callable[[], None]) -> bool:
        """Return whether it is acquired; if not, *granted* is called once it is."""
        return self._slots.try_acquire(self, granted)

    async def acquire(self) -> None:
        """Wait until it is acquired."""
        acquired = asyncio.get_running_loop().create_future()

        def granted() -> None:
            if not acquired.done():  # it may have been cancelled
                acquired.set_result(None)

        if not self.try_acquire(granted):
            await acquired

    def release(self) -> None:
        """Release it, or stop waiting for it."""
        self._slots.release(self)
