"""A network in memory under asyncio's own interfaces: hosts, names, and connections that can break.

Bytes arrive in order, after a delay. If the reader does not read, the writer's buffer fills, and asyncio's
flow control pauses the writer as on a socket.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Any, Final, Protocol

from tests.simulation.pipe import MAX_DELAY_S, Pipe

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

KERNEL_BYTES: Final = 128 * 1024
"""Unread bytes that the kernel buffers; the rest counts as the writer's buffer."""


class Host(Protocol):
    """The host at an address."""

    def accept(self, connection: Connection) -> bool:
        """Accept the *connection* and set its peer, or return False."""

    @property
    def is_cut_off(self) -> bool:
        """Whether it can neither send nor receive."""


class Peer(Protocol):
    """The far end of a connection."""

    def received(self, read: bytes) -> None:
        """Receive bytes."""

    def closed(self) -> None:
        """The near end was closed."""


class Connection(asyncio.Transport):
    """Both ends: the gateway's is the transport of its protocol, the worker's is a Peer."""

    def __init__(
        self, network: Network, protocol: asyncio.Protocol, host: Host, pipes: tuple[Pipe, Pipe]
    ) -> None:
        super().__init__()
        self.host = host
        self.peer: Peer | None = None
        self._network = network
        self._loop = network.loop
        self._protocol: asyncio.Protocol = protocol
        self._up, self._down = pipes
        self._up.take = self._to_peer
        self._up.after = self._drained
        self._down.take = self._to_protocol
        self._down.hold()
        self._high_bytes = 64 * 1024
        self._is_open = self._is_stopped = self._is_closing = self._is_paused = self._is_lost = False
        self._is_unread = False

    def open(self) -> None:
        """Open the gateway's end.

        Raises:
            ConnectionResetError: the worker's end is closed already.
        """
        if self._is_lost:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        self._is_open = True
        self._network.connections[self] = None
        self._protocol.connection_made(self)
        self._release()

    def drop(self) -> None:
        """Drop the connection before its gateway's end is open."""
        self._is_closing = self._is_lost = True
        self._up.end(self._close_peer)

    # -- the gateway's end ------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self._is_closing:
            return
        self._up.write(bytes(data))
        if not self._is_paused and self.get_write_buffer_size() > self._high_bytes:
            self._is_paused = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return max(0, self._up.unread_bytes - KERNEL_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        assert low is None
        self._high_bytes = high

    def pause_reading(self) -> None:
        self._is_unread = True
        self._down.hold()

    def resume_reading(self) -> None:
        self._is_unread = False
        self._release()

    def is_closing(self) -> bool:
        return self._is_closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._up.end(self._close_peer)
            if not self.get_write_buffer_size():
                self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self._is_closing = True
        self._up.cut()
        self._loop.call_soon(self._lose, None)
        self._loop.call_later(MAX_DELAY_S, self._close_peer)

    # -- the worker's end -------------------------------------------------------------------------

    def answer(self, written: bytes) -> None:
        """Write from the worker's end."""
        self._down.write(written)

    def hang_up(self) -> None:
        """Close the worker's end after all bytes written there."""
        self._up.cut()
        self.peer = None
        self._down.end(self._eof)

    def reset(self) -> None:
        """Reset the worker's end: bytes in transit are lost."""
        self._up.cut()
        self._down.cut()
        self.peer = None
        self._loop.call_later(
            self._network.delay_s(), self._lose, ConnectionResetError(errno.ECONNRESET, "reset")
        )

    def vanish(self) -> None:
        """Lose the worker's host without notifying the gateway's end."""
        self._up.cut()
        self._down.cut()
        self.peer = None

    def stop_reading(self) -> None:
        """Stop reading at the worker's end."""
        self._up.hold()

    def hold(self) -> None:
        """Hold all bytes in both directions until :meth:`resume`."""
        self._is_stopped = True
        self._up.hold()
        self._down.hold()

    def resume(self) -> None:
        """Deliver the held bytes."""
        self._is_stopped = False
        self._release()
        self._up.release()

    def _release(self) -> None:
        if self._is_open and not (self._is_stopped or self._is_unread):
            self._down.release()

    # -- arrivals ---------------------------------------------------------------------------------

    def _to_peer(self, written: bytes) -> None:
        if self.peer is not None:
            self.peer.received(written)

    def _close_peer(self) -> None:
        peer, self.peer = self.peer, None
        if peer is not None:
            peer.closed()

    def _to_protocol(self, written: bytes) -> None:
        if not self._is_closing:
            self._protocol.data_received(written)

    def _eof(self) -> None:
        if not self._is_closing:
            self._protocol.eof_received()
            self.close()

    def _drained(self) -> None:
        unsent_bytes = self.get_write_buffer_size()
        if self._is_paused and unsent_bytes <= self._high_bytes // 4:
            self._is_paused = False
            if not self._is_lost:
                self._protocol.resume_writing()
        if self._is_closing and not unsent_bytes and not self._is_lost:
            self._loop.call_soon(self._lose, None)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._network.connections.pop(self, None)
            if self._is_open:
                self._protocol.connection_lost(error)


class _WorkersEnd(asyncio.Transport):
    """The worker's end of a connection, for a protocol of asyncio."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._is_closing = False

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._connection.answer(bytes(data))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._connection.hang_up()

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._connection.reset()


class _ProtocolPeer:
    """A peer that is a protocol of asyncio."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol

    def received(self, read: bytes) -> None:
        self._protocol.data_received(read)

    def closed(self) -> None:
        self._protocol.connection_lost(None)


class Listener:
    """A host whose connections are protocols of asyncio, as for ``create_server``."""

    is_cut_off = False

    def __init__(self, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._make_protocol = make_protocol

    def accept(self, connection: Connection) -> bool:
        protocol = self._make_protocol()
        connection.peer = _ProtocolPeer(protocol)
        protocol.connection_made(_WorkersEnd(connection))
        return True


class Network:
    """Hosts by address, and addresses by name."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dice: random.Random) -> None:
        self.loop = loop
        self.hosts: dict[str, Host] = {}
        self.names: dict[str, list[str] | None] = {}
        """None if the look-up of the name fails at present."""
        self.connections: dict[Connection, None] = {}
        """Open at the gateway's end. A dictionary, since the order of a set differs between runs."""
        self._dice = dice

    def delay_s(self) -> float:
        """Return a random delay in one direction."""
        return self._dice.random() * MAX_DELAY_S

    async def connect(
        self, make_protocol: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        del port
        await asyncio.sleep(self.delay_s())
        found = self.hosts.get(host)
        if found is None or found.is_cut_off:
            await self.loop.create_future()  # until the caller cancels it
            raise AssertionError
        protocol = make_protocol()
        pipes = Pipe(self.loop, self._dice), Pipe(self.loop, self._dice)
        connection = Connection(self, protocol, found, pipes)
        is_accepted = found.accept(connection)
        try:
            await asyncio.sleep(self.delay_s())
        except asyncio.CancelledError:
            connection.drop()
            raise
        if not is_accepted:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        connection.open()
        return connection, protocol

    async def look_up(self, host: str) -> list[str]:
        await asyncio.sleep(self.delay_s())
        found = self.names.get(host)
        if found is None:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return found
