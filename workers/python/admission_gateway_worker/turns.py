"""The turns of connections with more work than a moment's: one in each iteration of the event loop.

Between two turns the loop reads from all sockets, so that a connection with little work waits for one turn at
most. Clients take turns, whatever the number of their connections; of one client the connection that has had
the shortest time has the next one, so that a short batch does not wait for the long ones before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


class Turner(Protocol):
    """A connection."""

    @property
    def client(self) -> str:
        """Whose connection it is."""

    @property
    def spent_s(self) -> float:
        """Time of its turns so far."""

    def take_turn(self) -> None:
        """Work for a few milliseconds."""


class Turns:
    """The connections that wait for a turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[str, dict[Turner, None]] = {}
        """By client; the client whose turn comes next is first."""
        self._is_due = False

    def add(self, connection: Turner) -> None:
        """Give *connection* a turn."""
        self._waiting.setdefault(connection.client, {})[connection] = None
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_due and self._waiting:
            self._is_due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Give one connection its turn."""
        self._is_due = False
        client = next(iter(self._waiting))
        waiting = self._waiting.pop(client)
        connection = min(waiting, key=_spent)
        del waiting[connection]
        if waiting:
            self._waiting[client] = waiting
        try:
            connection.take_turn()
        finally:
            self._schedule()


def _spent(connection: Turner) -> float:
    return connection.spent_s
