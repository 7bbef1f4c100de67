"""The connections of a worker: each joins the event loop and HTTP/2.

What a connection receives is processed at once, for a short time. If more remains, it waits for turns, see
``turns``; nothing is read from its socket while received bytes are not processed. Bounds against hostile
clients, besides those of ``http2`` and ``load``: ``MAX_CONNECTIONS``; a connection that does not read
its output, sends no SETTINGS or answers no ping is ended.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.http2.frames import Violation
from admission_gateway_worker.http2.messages import StatusCode
from admission_gateway_worker.http2.server import Http2Server
from admission_gateway_worker.load import MAX_HELD_BYTES, Load
from admission_gateway_worker.rpc import Rpc
from admission_gateway_worker.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission_gateway_worker.accept import Handshake
    from admission_gateway_worker.http2.server import ServerStream
    from admission_gateway_worker.rpc import Methods

MAX_CONNECTIONS: Final = 1024
"""Handshakes included."""
LEAST_CONNECTIONS: Final = 128
"""No worker keeps fewer, and so many are ended at a time when file descriptors run out."""
SLICE_S: Final = 0.005
"""Time of a turn, which ends with the step that exceeds this."""
WRITE_BUFFER_BYTES: Final = 256 * 1024
"""Unsent bytes above which data waits in its stream."""
MAX_UNSENT_BYTES: Final = 4 * 1024 * 1024
"""Unsent bytes above which the connection is ended: acknowledgements that the client requests and does not
read."""
MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Answers that wait for the client's windows, above which the connection is ended: eight of the longest."""
PERIOD_S: Final = 15.0
"""Interval at which all connections are checked."""
SETTLE_TIMEOUT_S: Final = 15.0
"""Time for the client's SETTINGS; at most a period longer."""
PING_AFTER_S: Final = 60.0
"""Time without input after which a connection is pinged: twice the time after which a gateway pings."""
PING_TIMEOUT_S: Final = 30.0
CLOSE_TIMEOUT_S: Final = 0.2
"""Time for the last output of a connection to be sent."""


class Connections:
    """All connections of a worker."""

    def __init__(self, methods: Methods) -> None:
        self.methods = methods
        self.open: dict[Connection, None] = {}
        """The oldest first."""
        self.handshakes: dict[Connection, Handshake] = {}
        """Accepted connections that are not open yet."""
        self.is_draining = False
        self.limit = MAX_CONNECTIONS
        self._loop = asyncio.get_running_loop()
        self.load = Load(self._loop, self.open.keys)
        self.turns = Turns(self._loop)
        self._timer = self._loop.call_later(PERIOD_S, self._check)

    def __repr__(self) -> str:
        return f"<Connections open={len(self.open)} rpcs={self.load.rpcs}>"

    def accept(self) -> Connection:
        """Return the protocol of a new connection."""
        return Connection(self)

    def lower_limit(self) -> None:
        """Keep fewer connections from now on, because there is no file descriptor for one more."""
        self.limit = max(LEAST_CONNECTIONS, len(self.open) + len(self.handshakes) - LEAST_CONNECTIONS)
        for _ in range(LEAST_CONNECTIONS):
            self.make_room()

    def make_room(self) -> None:
        """End a connection if there are too many: of the client with most the longest silent.

        A connection without RPCs is ended first, which may be in its handshake.
        """
        if len(self.open) + len(self.handshakes) < self.limit:
            return
        clients: dict[str, list[Connection | Handshake]] = {}
        held: list[Connection | Handshake] = [*self.open, *self.handshakes.values()]
        for connection in held:
            if not connection.is_ending:
                clients.setdefault(connection.client, []).append(connection)
        if sum(map(len, clients.values())) < self.limit:
            return
        connections = max(clients.values(), key=len)
        idle = [connection for connection in connections if connection.is_idle]
        min(idle or connections, key=lambda connection: connection.last_received_at).close(
            StatusCode.RESOURCE_EXHAUSTED, "too many connections are open, most of this client"
        )

    def drain(self) -> None:
        """Announce the shutdown on all open and later connections."""
        self.is_draining = True
        for connection in self.open:
            connection.drain()

    async def close(self, timeout_s: float) -> None:
        """Wait *timeout_s* seconds until the clients have closed all connections; end those that remain."""
        self._timer.cancel()
        deadline = self._loop.time() + timeout_s
        while self.open and self._loop.time() < deadline:
            await asyncio.wait(
                [connection.closed for connection in self.open], timeout=deadline - self._loop.time()
            )
        remaining: list[Connection | Handshake] = [*self.open, *self.handshakes.values()]
        for connection in remaining:
            connection.close(StatusCode.UNAVAILABLE, "the worker shuts down")
        if self.open:
            await asyncio.wait([connection.closed for connection in self.open])

    def _check(self) -> None:
        self._timer = self._loop.call_later(PERIOD_S, self._check)
        now = self._loop.time()
        for connection in list(self.open):
            connection.check(now)


class Connection(asyncio.Protocol):
    """A connection with its RPCs."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._http2 = Http2Server(self._accept)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Rpc] = deque()
        """RPCs with a message to process."""
        self._is_waiting = False
        """Whether it waits for a turn."""
        self._is_reading = True
        self._is_working = False
        self.client = ""
        """The address of the client without its port; empty for a unix socket."""
        self.spent_s = 0.0
        """Time of the turns since it has received something."""
        self.held_bytes = 0
        """See ``load``: with those of its RPCs."""
        self._held_output = 0
        """Held by no RPC: input that waits for turns, and output that the client does not take."""
        self.last_received_at = self._loop.time()
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_idle(self) -> bool:
        """Whether there are no RPCs."""
        return not self._http2.streams

    @property
    def is_ending(self) -> bool:
        """Whether the connection is about to end."""
        return self._http2.is_over

    # -- called by the transport ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is established, TLS included."""
        self._transport = transport  # type: ignore[assignment] # uvloop's class derives from none of asyncio's
        assert self._transport is not None
        connections = self._connections
        connections.handshakes.pop(self, None)
        connections.make_room()
        connections.open[self] = None
        peer = self._transport.get_extra_info("peername")
        self.client = str(peer[0]) if isinstance(peer, tuple) else ""
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if connections.is_draining:
            self._http2.announce_shutdown()
        self.write()

    def data_received(self, data: bytes) -> None:
        """Bytes were received."""
        self.last_received_at = self._loop.time()
        self._http2.receive(data)
        if self._is_waiting:
            self._read(is_wanted=False)
        else:
            turns = self._connections.turns
            turns.took(self._work(turns.at_once_s))

    def pause_writing(self) -> None:
        """The write buffer is full: the client reads too slowly."""
        self._http2.is_paused = True

    def resume_writing(self) -> None:
        """The write buffer has room again."""
        self._http2.is_paused = False
        self._continue()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._transport = None
        self._end_rpcs()
        self.hold(-self.held_bytes)
        self._connections.open.pop(self, None)
        if not self.closed.done():
            self.closed.set_result(None)

    # -- called by the server ---------------------------------------------------------------------

    def drain(self) -> None:
        """Announce the shutdown."""
        self._http2.announce_shutdown()
        self.write()

    def close(self, code: StatusCode, text: str) -> None:
        """End the open RPCs with a status, and the connection."""
        for stream in list(self._http2.streams.values()):
            if isinstance(stream.owner, Rpc):
                stream.owner.abort(code, text)
        self._http2.close()
        self.write()

    def check(self, now: float) -> None:
        """End the connection if the client is gone, see the constants."""
        self._http2.begin_period()
        silence_s = now - self.last_received_at
        if silence_s > (PING_AFTER_S + PING_TIMEOUT_S if self._http2.is_settled else SETTLE_TIMEOUT_S):
            self._abort()
        elif silence_s > PING_AFTER_S:
            self._http2.ping()
            self.write()

    def release(self, wanted_bytes: int) -> None:
        """See ``Holder``: end the RPCs that hold most, or the connection if it holds more itself."""
        owners = [stream.owner for stream in self._http2.streams.values()]
        rpcs = sorted(
            (owner for owner in owners if isinstance(owner, Rpc)),
            key=lambda rpc: rpc.held_bytes,
            reverse=True,
        )
        if not rpcs or self._held_output > rpcs[0].held_bytes:
            self._abort()
            self._end_rpcs()
            self.hold(-self._held_output)
            self._held_output = 0
            return
        text = f"requests and answers hold more than {MAX_HELD_BYTES} bytes, and this one most"
        until = self.held_bytes - wanted_bytes
        for rpc in rpcs:
            if self.held_bytes <= until:
                break
            rpc.abort(StatusCode.RESOURCE_EXHAUSTED, text)

    # -- called by RPCs ---------------------------------------------------------------------------

    def add_ready(self, rpc: Rpc) -> None:
        """Process a message of *rpc* in this slice, or in the next."""
        self._ready.append(rpc)
        if not self._is_working and not self._is_waiting:
            self._wait()

    def hold(self, change: int) -> None:
        """See ``RpcHost``."""
        self.held_bytes += change
        self._connections.load.hold(change)

    def write(self) -> None:
        """Write the output, at the end of a slice or now, and what waits for room in it."""
        http2, transport = self._http2, self._transport
        if self._is_working or transport is None:
            return
        while http2.output and not transport.is_closing():
            output, http2.output = http2.output, bytearray()
            transport.write(output)
            if transport.get_write_buffer_size() > WRITE_BUFFER_BYTES:
                # uvloop reports a full buffer only after this iteration.
                self._loop.call_soon(self._continue)
                break
            http2.pump()
        if http2.is_over:
            self._end_rpcs()
            if not transport.is_closing():
                transport.close()
                self._loop.call_later(CLOSE_TIMEOUT_S, self._abort)
        elif http2.unsent_bytes > MAX_WAITING_BYTES or (
            http2.is_paused and transport.get_write_buffer_size() > MAX_UNSENT_BYTES
        ):
            transport.abort()
        held = http2.unsent_bytes + (http2.waiting_bytes if self._is_waiting else 0)
        if http2.is_paused:
            held += transport.get_write_buffer_size()
        if held != self._held_output:
            self.hold(held - self._held_output)
            self._held_output = held

    # -- internals --------------------------------------------------------------------------------

    def _accept(self, stream: ServerStream, fields: Mapping[str, str]) -> Rpc:
        connections = self._connections
        return Rpc(stream, connections.load, self).begin(fields, connections.methods)

    def take_turn(self) -> None:
        """See ``turns``."""
        self._is_waiting = False
        took_s = self._work(SLICE_S)
        self.spent_s = self.spent_s + took_s if self._is_waiting else 0.0

    def _work(self, seconds: float) -> float:
        """Process received bytes and messages in turn for that time, write the output, return the time."""
        http2, ready = self._http2, self._ready
        if self._transport is None:
            return 0.0
        self._is_working = True
        begun = time.monotonic()
        end = begun + seconds
        while True:
            if http2.has_more:
                http2.advance()
            elif not ready:
                break
            if ready:
                ready.popleft().step()
            if (ready or http2.has_more) and time.monotonic() > end:
                self._wait()
                break
        self._is_working = False
        self._read(is_wanted=not http2.has_more)
        self.write()
        return time.monotonic() - begun

    def _wait(self) -> None:
        """Wait for a turn."""
        self._is_waiting = True
        self._connections.turns.add(self)

    def _read(self, *, is_wanted: bool) -> None:
        """Read from the socket, or not while received bytes are not processed."""
        transport = self._transport
        if is_wanted != self._is_reading and transport is not None and not transport.is_closing():
            self._is_reading = is_wanted
            if is_wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _continue(self) -> None:
        """Write what waited for room, if there is any now."""
        self._http2.pump()
        self.write()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _end_rpcs(self) -> None:
        """Cancel the RPCs that remain."""
        self._ready.clear()
        self._http2.fail(Violation(0, "the connection is lost"))
