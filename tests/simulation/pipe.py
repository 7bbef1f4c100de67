"""One direction of a connection in memory: data arrives in order, later, or never."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Callable

MAX_DELAY_S: Final = 0.002
"""The longest delay in one direction."""


class Pipe:
    """One direction of a connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dice: random.Random) -> None:
        self.unread_bytes = 0
        self._loop = loop
        self._dice = dice
        self._items: deque[tuple[bytes, Callable[[], None] | None]] = deque()
        """Bytes, or the function that is called at the end."""
        self._arrived = 0
        self._last_at = 0.0
        self._is_held = self._is_cut = False
        self.take: Callable[[bytes], None] = lambda _: None
        self.after: Callable[[], None] = lambda: None
        """Called after ``take``."""

    def write(self, written: bytes) -> None:
        self.unread_bytes += len(written)
        self._add(written, None)

    def end(self, then: Callable[[], None]) -> None:
        """Call *then* when all written bytes have arrived."""
        self._add(b"", then)

    def hold(self) -> None:
        """Hold all bytes until :meth:`release`."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._hand_over()

    def cut(self) -> None:
        """Lose the bytes in transit and all bytes written later."""
        self._is_cut = True
        self._items.clear()

    def _add(self, written: bytes, then: Callable[[], None] | None) -> None:
        if self._is_cut:
            return
        self._items.append((written, then))
        delay_s = self._dice.random() * MAX_DELAY_S
        self._last_at = max(self._last_at, self._loop.time() + delay_s)
        self._loop.call_at(self._last_at, self._arrive)

    def _arrive(self) -> None:
        if not self._is_cut:
            self._arrived += 1
            self._hand_over()

    def _hand_over(self) -> None:
        while self._arrived and not self._is_held and not self._is_cut:
            self._arrived -= 1
            written, then = self._items.popleft()
            if then is not None:
                then()
                continue
            self.unread_bytes -= len(written)
            self.take(written)
            self.after()
