"""The turns of connections with more work than a moment's: one in each iteration of the event loop.

Between two turns the loop reads from all sockets, so that a connection with little work waits for one turn at
most. Clients take turns, whatever the number of their connections; of one client the connection that has had
the shortest time has the next one, so that a short batch does not wait for the long ones before it.

Before it waits for turns, a connection works on what it has received for a moment, ``AT_ONCE_S``. One of them
in each iteration may take longer, since a batch that is worked on in two pieces costs a third more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio

AT_ONCE_S: Final = 0.001
"""Time of a connection when it has received something: enough for one review. It ends with the step that
exceeds this. 200 connections that receive much at the same time take a fifth of a second."""
FIRST_S: Final = 0.005
"""Time of the first connection in an iteration that needs more: enough for a batch of usual length."""


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
        self._has_first = False
        """Whether a connection took more than ``AT_ONCE_S`` in this iteration."""

    @property
    def at_once_s(self) -> float:
        """Time for which a connection may work on what it has received."""
        return AT_ONCE_S if self._has_first else FIRST_S

    def took(self, seconds: float) -> None:
        """A connection worked for so long on what it has received."""
        if seconds > AT_ONCE_S and not self._has_first:
            self._has_first = True
            self._loop.call_soon(self._next_iteration)

    def add(self, connection: Turner) -> None:
        """Give *connection* a turn."""
        self._waiting.setdefault(connection.client, {})[connection] = None
        self._schedule()

    def _next_iteration(self) -> None:
        self._has_first = False

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
