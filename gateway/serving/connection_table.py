"""The open connections of one listener: what they share, and the sweep that bounds their time.

One coarse sweep, about once a second, looks at every connection; no request pays for a timer.
"""

from __future__ import annotations

import random
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gateway.serving.bytes_in_flight import BytesInFlight

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from gateway.serving.message import Service

READ_BUFFER_BYTES = 64 * 1024
"""Four TLS records. One buffer serves all connections of a listener, since what was read is parsed and
copied before the loop reads from another."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much, and how long."""

    head_bytes: int = 16 * 1024
    """Target, header fields and trailer; also the extensions of chunks."""
    body_bytes: int = 7 * 1024 * 1024
    bytes_in_flight: int = 128 * 1024 * 1024
    """Of all bodies that are held at once, see ``gateway.serving.bytes_in_flight``."""
    pipelined: int = 64
    """Requests of one connection that wait behind the one being answered. What they are made of is many times
    their bytes, and clients that send ahead are rare: none of Kubernetes does."""
    idle_s: float = 120.0
    """Between two requests. kube-apiserver closes its own idle connections after 90 s, and loses a POST
    that meets a closing one, so this has to be longer."""
    request_s: float = 30.0
    """From the first byte of a request to its last: the longest timeout of a webhook."""
    answer_s: float = 30.0
    """Without any progress in sending an answer, and for the end of a connection."""
    drain_idle_s: float = 1.0
    """While draining: a connection is closed, with ``FAREWELL``, once it was idle for so long. Those in use
    are told by ``Connection: close`` on their answer."""
    drain_quiet_s: float = 1.5
    """While draining: new connections are taken until for so long none has come and nothing was answered.
    Longer than the second after which a refused review is sent again, maybe here once more: the news that
    this replica is leaving take their time to whoever chooses among replicas."""
    age_s: float = 600.0
    """After it the next answer ends the connection, so that load spreads over replicas."""
    age_jitter: float = 0.1
    """Part of ``age_s`` by which a connection's own age differs, so that they do not all end at once."""
    refusals: int = 16
    """In a row, after which the connection ends: refusing costs a hundred times what it costs to be refused,
    and a read buffer full of such requests holds up the event loop for as long as fifty reviews."""
    write_bytes: int = 64 * 1024
    """Unsent bytes of answers past which no further request of a connection is read."""
    handshake_s: float = 10.0
    """For TLS, as long as the API server itself allows."""
    connections: int = 16_384
    """Open at once, handshakes included; past it new ones wait in the listen backlog."""
    unproven: int = 4096
    """Of these, such as have never completed a request that their head did not have refused; past it the
    oldest of them is ended. As many as the backlog holds, so that a burst of honest clients fits in."""
    unproven_s: float = 2.0
    """Such a connection is ended no earlier; meanwhile new ones wait in the backlog. Accepting is far quicker
    than shaking hands: of a larger burst most would be ended by others before they could ask."""
    crowded_idle_s: float = 1.0
    """While there is no room: as ``drain_idle_s``."""
    crowded_part: int = 32
    """While there is no room, a sweep ends one of so many connections for being idle. To end all of them at
    once would hold up the reviews in flight, and take from API servers connections that nobody waits for."""

    @classmethod
    def of(cls, connections: int) -> Bounds:
        """Return the bounds of a listener that can have so many *connections*."""
        return cls(connections=connections, unproven=max(min(cls().unproven, connections // 4), 1))


class Swept(Protocol):
    """What the sweep needs of a connection."""

    retire_at: float
    """Monotonic seconds from which on the next answer ends the connection."""

    def check(self, now: float) -> None:
        """End whatever has lasted too long at *now*, in monotonic seconds."""

    def judge(self) -> None:
        """Find out anew whether the client's certificate lets it in."""

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
        """Those that have not completed a request, oldest first, each with the task of its handshake and the
        monotonic seconds at which it was accepted."""
        self.crowd = 0
        """How many idle connections the sweep may still end, where there was no room when it began."""
        self.on_room: Callable[[], None] | None = None
        """Called when there may be room for a new connection."""
        self.requests = 0
        """Answered so far, on all connections."""
        self.refused: Counter[int] = Counter()
        """Those of them that were answered with a status other than 200, by status."""
        self.authorities: frozenset[bytes] = frozenset()
        """The client CAs that are trusted now, as ``gateway.serving.tls.authorities_of`` has them."""
        self.judgements = 0
        """How often clients were judged anew."""
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
        """Whether one more connection is to be accepted now."""
        if len(self.unproven) >= self.bounds.unproven and self.unproven:
            _, accepted_at = next(iter(self.unproven.values()))
            if self.clock() - accepted_at < self.bounds.unproven_s:
                return False
        return self.has_room

    def sweep(self) -> None:
        """End what has lasted too long."""
        now = self.clock()
        self.crowd = 0 if self.has_room else self.bounds.connections // self.bounds.crowded_part + 1
        for connection in tuple(self.open):
            connection.check(now)

    def judge(self) -> None:
        """Judge the client of every connection anew, since who is let in has changed.

        It counts for all requests that are not being answered yet. The next answer ends each connection,
        whether it is a refusal or not.
        """
        self.judgements += 1
        for connection in self.open:
            connection.judge()
            connection.retire_at = 0.0

    def abort(self) -> None:
        """End all connections at once."""
        for connection in tuple(self.open):
            connection.abort()

    def use(self, bounds: Bounds) -> None:
        """Bound what comes from now on by *bounds*."""
        self.bounds = bounds
        self.bytes.use(bounds.bytes_in_flight, bounds.body_bytes)

    def begin(self, connection: Swept, handshake: asyncio.Task[None]) -> None:
        """Take note of *connection*, which was accepted and whose *handshake* begins.

        Whoever connects and asks for nothing, slowly or at all, thereby takes a place from others of the same
        kind, and none from clients that have asked for a review.
        """
        self.handshaking += 1
        self.unproven[connection] = handshake, self.clock()
        if len(self.unproven) > self.bounds.unproven:
            self.end_oldest_unproven()

    def end_oldest_unproven(self) -> None:
        """End the connection that has been open for longest without completing a request, if there is one."""
        if self.unproven:
            connection, (handshake, _) = self.unproven.popitem(last=False)
            if connection in self.open:
                connection.abort()
            else:
                handshake.cancel()

    def fail(self, connection: Swept) -> None:
        """Forget *connection*, whose handshake has failed."""
        self.handshaking -= 1
        self.unproven.pop(connection, None)

    def add(self, connection: Swept) -> None:
        """Take in *connection*, whose handshake is over."""
        self.open.add(connection)
        self.handshaking -= 1

    def prove(self, connection: Swept) -> None:
        """Take note that *connection* has completed a request."""
        self.unproven.pop(connection, None)
        if self.on_room is not None:
            self.on_room()

    def discard(self, connection: Swept) -> None:
        """Forget *connection*, which was lost."""
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
