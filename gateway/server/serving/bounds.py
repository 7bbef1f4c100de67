"""The limits of a listener: how much, and how long."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one listener and its connections."""

    head_bytes: int = 16 * 1024
    """Target, header fields and trailer; also the extensions of chunks."""
    body_bytes: int = 7 * 1024 * 1024
    bytes_in_flight: int = 128 * 1024 * 1024
    """The bytes of all bodies that are held at once, see ``gateway.server.serving.bytes_in_flight``."""
    pipelined: int = 64
    """Requests of one connection that wait behind the one being answered. A parsed request takes many times
    the memory of its bytes, and no client of Kubernetes pipelines."""
    idle_s: float = 120.0
    """Between two requests. kube-apiserver closes its own idle connections after 90 s, and loses a POST
    that meets a closing one, so this has to be longer."""
    request_s: float = 30.0
    """From the first byte of a request to its last: the longest timeout of a webhook."""
    answer_s: float = 30.0
    """Without any progress in sending an answer, and for the end of a connection."""
    drain_idle_s: float = 1.0
    """While draining: a connection that was idle for this long is closed, with ``CLOSING_IDLE``. The others
    end by ``Connection: close`` on their answer."""
    drain_quiet_s: float = 1.5
    """While draining: new connections are accepted until for this long none has come and nothing was
    answered. Longer than the second after which a refused review is sent again, perhaps to this replica: load
    balancers need time until they stop using it."""
    age_s: float = 600.0
    """After this age the next answer ends the connection, so that load spreads over replicas."""
    age_jitter: float = 0.1
    """The age of each connection differs by up to this part of ``age_s``, so that they do not all end at
    once."""
    refusals: int = 16
    """In a row, after which the connection ends. A refusal costs the gateway a hundred times what it costs
    the client, and a read buffer full of such requests blocks the event loop for as long as fifty reviews."""
    write_bytes: int = 64 * 1024
    """Unsent bytes of answers, above which no further request of a connection is read."""
    handshake_s: float = 10.0
    """The time for the TLS handshake. The API server itself allows as long."""
    connections: int = 16_384
    """Open at once, including handshakes; above it new connections wait in the listen backlog."""
    unproven: int = 4096
    """Open connections that have never completed a request that their head did not have refused. Above it the
    oldest of them is ended. As many as the backlog holds, so that a burst of ordinary clients fits in."""
    unproven_s: float = 2.0
    """Such a connection is ended no earlier; until then new ones wait in the backlog. Accepting is far
    quicker than a handshake: new connections of a large burst would end the others before these can send a
    request."""
    full_idle_s: float = 1.0
    """While there is no room for another connection: as ``drain_idle_s``."""
    full_divisor: int = 32
    """While there is no room, a sweep ends one idle connection in this many. To end all of them at once would
    delay the reviews in flight, and cost API servers connections although no client needs the room."""

    @classmethod
    def of(cls, connections: int) -> Bounds:
        """Return the bounds of a listener that can have so many *connections*."""
        return cls(connections=connections, unproven=max(min(cls().unproven, connections // 4), 1))
