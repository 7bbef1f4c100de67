"""The open connections of one listener, their shared state, and the sweep that enforces their time limits.

The sweep looks at every connection about once a second, so no request pays for a timer.
"""

from __future__ import annotations

import random
import time
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Protocol

from gateway.server.serving.bounds import Bounds
from gateway.server.serving.bytes_in_flight import BytesInFlight

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from gateway.server.serving.message import HttpRequest, Response, Service

READ_BUFFER_BYTES = 64 * 1024
"""Four TLS records. One buffer serves all connections of a listener: what one read brings is parsed and
copied before the loop reads from another connection."""


class Swept(Protocol):
    """A connection, as the table uses it."""

    retire_at: float
    """Monotonic seconds from which on the next answer ends the connection."""

    def check(self, now: float) -> None:
        """Enforce the time limits at *now*, in monotonic seconds."""

    def check_client(self) -> None:
        """Check the client's certificate against the client CAs and client names that are trusted now."""

    def abort(self) -> None:
        """End the connection at once."""


class ConnectionTable:
    """The open connections of one listener, with the service, the bounds and the clock they share."""

    def __init__(
        self,
        service: Service,
        bounds: Bounds | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.service = service
        self.bounds = bounds or Bounds()
        self.bytes = BytesInFlight(self.bounds.bytes_in_flight, self.bounds.body_bytes)
        self.clock = clock
        self.buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self.open: set[Swept] = set()
        self.handshaking = 0
        """Accepted, and not in ``open`` yet."""
        self.unproven: OrderedDict[Swept, tuple[asyncio.Task[None], float]] = OrderedDict()
        """Connections that have not completed a request, oldest first, each with the task of its handshake
        and the monotonic seconds at which it was accepted."""
        self.idle_closes_left = 0
        """How many idle connections this sweep may still end; above 0 only if there was no room at its
        start."""
        self.on_room: Callable[[], None] | None = None
        """Called when there may be room for a new connection."""
        self.requests = 0
        """Answered so far, on all connections."""
        self.refused: Counter[int] = Counter()
        """Requests that were answered with a status other than 200, by status."""
        self.on_refused: Callable[[HttpRequest, Response], None] | None = None
        """Called with each of them and its answer."""
        self.authorities: frozenset[bytes] = frozenset()
        """The client CAs that are trusted now, as ``gateway.server.serving.tls.authorities_of`` returns
        them."""
        self.client_checks = 0
        """How often the clients of all connections were checked again."""
        self._jitter = jitter
        self._emptied: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<ConnectionTable {len(self.open)} open, {self.requests} requests answered>"

    def lifetime_s(self) -> float:
        """Return the age at which a new connection is to be ended, in seconds."""
        return self.bounds.age_s * (1.0 + self.bounds.age_jitter * (2.0 * self._jitter() - 1.0))

    @property
    def has_room(self) -> bool:
        """Whether one more connection is allowed."""
        return len(self.open) + self.handshaking < self.bounds.connections

    @property
    def takes_more(self) -> bool:
        """Whether to accept one more connection now."""
        if len(self.unproven) >= self.bounds.unproven and self.unproven:
            _, accepted_at = next(iter(self.unproven.values()))
            if self.clock() - accepted_at < self.bounds.unproven_s:
                return False
        return self.has_room

    def sweep(self) -> None:
        """Enforce the time limits of all connections."""
        now = self.clock()
        self.idle_closes_left = (
            0 if self.has_room else self.bounds.connections // self.bounds.full_divisor + 1
        )
        for connection in tuple(self.open):
            connection.check(now)

    def check_clients(self) -> None:
        """Check the client of every connection again, after a change of the credentials that are accepted.

        It applies to all requests that are not being answered yet. The next answer ends each connection, also
        if it is not a refusal.
        """
        self.client_checks += 1
        for connection in self.open:
            connection.check_client()
            connection.retire_at = 0.0

    def abort(self) -> None:
        """End all connections at once."""
        for connection in tuple(self.open):
            connection.abort()

    def use(self, bounds: Bounds) -> None:
        """Apply *bounds* from now on."""
        self.bounds = bounds
        self.bytes.use(bounds.bytes_in_flight, bounds.body_bytes)

    def begin(self, connection: Swept, handshake: asyncio.Task[None]) -> None:
        """Note that *connection* was accepted and its *handshake* begins.

        Above the bound this ends the oldest unproven connection, so that clients that connect and never
        complete a request displace one another, and not the clients that send reviews.
        """
        self.handshaking += 1
        self.unproven[connection] = handshake, self.clock()
        if len(self.unproven) > self.bounds.unproven:
            self.end_oldest_unproven()

    def end_oldest_unproven(self) -> None:
        """End the oldest connection that has never completed a request, if there is one."""
        if self.unproven:
            connection, (handshake, _) = self.unproven.popitem(last=False)
            if connection in self.open:
                connection.abort()
            else:
                handshake.cancel()

    def fail(self, connection: Swept) -> None:
        """Remove *connection*, whose handshake has failed."""
        self.handshaking -= 1
        self.unproven.pop(connection, None)

    def add(self, connection: Swept) -> None:
        """Add *connection*, whose handshake is over."""
        self.open.add(connection)
        self.handshaking -= 1

    def note_completed_request(self, connection: Swept) -> None:
        """Note that *connection* has completed its first request."""
        self.unproven.pop(connection, None)
        if self.on_room is not None:
            self.on_room()

    def discard(self, connection: Swept) -> None:
        """Remove *connection*, which was lost."""
        self.open.discard(connection)
        self.unproven.pop(connection, None)
        if self.on_room is not None:
            self.on_room()
        if not self.open and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def emptied(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Return a future of *loop* that is done when no connection is open."""
        self._emptied = loop.create_future()
        if not self.open:
            self._emptied.set_result(None)
        return self._emptied
