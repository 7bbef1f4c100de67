"""Room for the requests of policies that go on while others run: in tasks and threads.

A parsed request takes ten to thirty times the memory of its JSON, so the JSON of those that are evaluated at
a time is bounded. A call for which there is no room waits: it refers to the payload of its batch, its timeout
and its cancellation go on, and connections take turns.

Source: protos/README.md, section Bounds of a worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_EVALUATED_BYTES: Final = 32 * 1024 * 1024
"""JSON of requests that are evaluated at a time: 5,000 Pods of 6 KB. One request is always evaluated."""


class Room:
    """Counts what is evaluated, and begins what waits."""

    def __init__(self) -> None:
        self.used_bytes = 0
        self._waiting: dict[object, dict[object, tuple[int, Callable[[], None]]]] = {}
        """By owner and call: the bytes, and the function that begins it. The next owner is first."""

    def __repr__(self) -> str:
        return f"<Room used_bytes={self.used_bytes} waiting={sum(map(len, self._waiting.values()))}>"

    def enter(self, owner: object, call: object, size: int, begin: Callable[[], None]) -> None:
        """Call *begin* as soon as there is room for *size* bytes, which may be now; ``leave`` follows it."""
        if not self._waiting and self._has_room(size):
            self.used_bytes += size
            begin()
        else:
            self._waiting.setdefault(owner, {})[call] = (size, begin)

    def withdraw(self, owner: object, call: object) -> None:
        """Forget *call* if it waits."""
        waiting = self._waiting.get(owner)
        if waiting is not None and waiting.pop(call, None) is not None:
            if not waiting:
                del self._waiting[owner]
            self._begin_next()

    def leave(self, size: int) -> None:
        """Give back *size* bytes, and begin what has room now."""
        self.used_bytes -= size
        self._begin_next()

    def _has_room(self, size: int) -> bool:
        return not self.used_bytes or self.used_bytes + size <= MAX_EVALUATED_BYTES

    def _begin_next(self) -> None:
        while self._waiting:
            owner, waiting = next(iter(self._waiting.items()))
            call, (size, begin) = next(iter(waiting.items()))
            if not self._has_room(size):
                return
            del waiting[call], self._waiting[owner]
            if waiting:
                self._waiting[owner] = waiting
            self.used_bytes += size
            begin()
