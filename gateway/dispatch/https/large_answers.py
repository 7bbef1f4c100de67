"""How many large answers of one server are read, unpacked and judged at a time.

A server may be asked a thousand questions at once, and each answer may have 8 MiB. A call whose answer is
large takes one of a few places, or waits for one. Its connection is not read meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LARGE: Final = 4
"""Large answers of one server at a time, some 100 MiB with what is unpacked and copied of them."""
LARGE_BYTES: Final = 64 * 1024
"""Of an answer that was not read to its end: with more it is large."""


class LargeAnswerSlots:
    """The places of one server."""

    def __init__(self) -> None:
        self._holders: set[LargeAnswerSlot] = set()
        self._waiting: dict[LargeAnswerSlot, Callable[[], None]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no call has a place or waits for one."""
        return not self._holders and not self._waiting

    def take(self, room: LargeAnswerSlot, granted: Callable[[], None]) -> bool:
        """Return whether *room* has a place; *granted* is called once it has, if it has none now."""
        if room not in self._holders:
            if len(self._holders) >= MAX_LARGE:
                self._waiting[room] = granted
                return False
            self._holders.add(room)
        return True

    def leave(self, room: LargeAnswerSlot) -> None:
        """Give the place of *room* to the one that has waited for the longest."""
        self._waiting.pop(room, None)
        if room in self._holders:
            self._holders.remove(room)
            if self._waiting:
                following = next(iter(self._waiting))
                granted = self._waiting.pop(following)
                self._holders.add(following)
                granted()


class LargeAnswerSlot:
    """The place of one call, if it needs one. Leave the context to give it up."""

    def __init__(self, rooms: LargeAnswerSlots) -> None:
        self._rooms = rooms

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def take(self, granted: Callable[[], None]) -> bool:
        """Return whether there is a place; *granted* is called once there is, if there is none now."""
        return self._rooms.take(self, granted)

    async def enter(self) -> None:
        """Return once there is a place."""
        entered = asyncio.get_running_loop().create_future()

        def granted() -> None:
            if not entered.done():  # it may have been cancelled
                entered.set_result(None)

        if not self.take(granted):
            await entered

    def leave(self) -> None:
        """Give the place up, or wait for none any more."""
        self._rooms.leave(self)
