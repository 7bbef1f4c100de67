"""The open connections of one listener: what they share, and the sweep that bounds their time.

One coarse sweep, about once a second, looks at every connection; no request pays for a timer.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

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
    """Request line and header fields; also what may come between two pieces of a chunked body."""
    body_bytes: int = 7 * 1024 * 1024
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
    write_bytes: int = 64 * 1024
    """Unsent bytes of answers past which no further request of a connection is read."""
    handshake_s: float = 10.0
    """For TLS, as long as the API server itself allows."""
    connections: int = 16_384
    """Open at once, handshakes included; past it new ones wait in the listen backlog."""


class Swept(Protocol):
    """What the sweep needs of a connection."""

    def check(self, now: float) -> None:
        """End whatever has lasted too long at *now*, in monotonic seconds."""

    def abort(self) -> None:
        """End the connection at once."""


class Connections:
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
        self.clock = clock
        self.buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self.open: set[Swept] = set()
        self.handshaking = 0
        """Accepted, and not in ``open`` yet."""
        self.on_lost: Callable[[], None] | None = None
        """Called when a connection has made room."""
        self.requests = 0
        """Answered so far, on all connections."""
        self._jitter = jitter
        self._emptied: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Connections {len(self.open)} open, {self.requests} requests answered>"

    def lifetime_s(self) -> float:
        """Return the age at which a new connection is to be ended, in seconds."""
        return self.bounds.age_s * (1.0 + self.bounds.age_jitter * (2.0 * self._jitter() - 1.0))

    @property
    def has_room(self) -> bool:
        """Whether one more connection is allowed."""
        return len(self.open) + self.handshaking < self.bounds.connections

    def sweep(self) -> None:
        """End what has lasted too long."""
        now = self.clock()
        for connection in tuple(self.open):
            connection.check(now)

    def abort(self) -> None:
        """End all connections at once."""
        for connection in tuple(self.open):
            connection.abort()

    def add(self, connection: Swept) -> None:
        """Take in *connection*, whose handshake is over."""
        self.open.add(connection)
        self.handshaking -= 1

    def discard(self, connection: Swept) -> None:
        """Forget *connection*, which was lost."""
        self.open.discard(connection)
        if self.on_lost is not None:
            self.on_lost()
        if not self.open and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def emptied(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Return a future of *loop* that is done when no connection is open."""
        self._emptied = loop.create_future()
        if not self.open:
            self._emptied.set_result(None)
        return self._emptied
