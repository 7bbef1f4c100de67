"""The memory that clients hold in a worker. When it is too much, the client that holds most is refused.

Counted are the bytes of messages that have come in part or wait their turn, payloads of calls in flight,
parameters, answers that the client does not take, and a fixed number for each RPC and each call in flight.
When the sum is reached, the client that holds most is found, by its address, then its connection that holds
most, then the RPCs of this connection that hold most. They are ended, so that others are served.

Source: protos/README.md, section Bounds of a worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection

MAX_HELD_BYTES: Final = 256 * 1024 * 1024
RELIEF_BYTES: Final = 4 * 1024 * 1024
"""Released below the bound at a time, so that the search for the holder is rare."""
RPC_BYTES: Final = 8 * 1024
"""Objects of an RPC, and of its handler."""
CALL_BYTES: Final = 4 * 1024
"""Objects of a call in flight: its task, timer and review."""
MAX_PARAMETERS_BYTES: Final = 64 * 1024 * 1024
"""Parameters that streams keep, which are part of the sum."""


class Holder(Protocol):
    """A connection, as a holder of memory."""

    held_bytes: int

    @property
    def client(self) -> str:
        """The address of its client without the port."""

    def release(self, wanted_bytes: int) -> None:
        """End what holds most until at least *wanted_bytes*, or all, are released."""


class Load:
    """The open RPCs of a worker, and the bytes that connections and RPCs hold."""

    def __init__(self, loop: asyncio.AbstractEventLoop, holders: Callable[[], Collection[Holder]]) -> None:
        """*holders* returns the connections."""
        self.rpcs = 0
        self.held_bytes = 0
        self._loop = loop
        self._holders = holders
        self._is_due = False

    @property
    def is_full(self) -> bool:
        """Whether the sum is exceeded."""
        return self.held_bytes > MAX_HELD_BYTES

    def hold(self, change: int) -> None:
        """Count bytes that are held from now on; negative: that are released."""
        self.held_bytes += change
        if self.is_full and not self._is_due:
            # Later, because the caller may be about to work with what would be ended.
            self._is_due = True
            self._loop.call_soon(self.relieve)

    def relieve(self) -> None:
        """If the sum is exceeded, end what holds most."""
        self._is_due = False
        if not self.is_full:
            return
        while (wanted := self.held_bytes - MAX_HELD_BYTES + RELIEF_BYTES) > 0:
            holder = heaviest(self._holders())
            if holder is None or not holder.held_bytes:
                return
            before = self.held_bytes
            holder.release(wanted)
            if self.held_bytes >= before:
                return


def heaviest(holders: Collection[Holder]) -> Holder | None:
    """Return the holder with most of the client with most; None if there is none."""
    by_client: dict[str, int] = {}
    for holder in holders:
        by_client[holder.client] = by_client.get(holder.client, 0) + holder.held_bytes
    if not by_client:
        return None
    client = max(by_client, key=by_client.__getitem__)
    return max(
        (holder for holder in holders if holder.client == client), key=lambda holder: holder.held_bytes
    )
