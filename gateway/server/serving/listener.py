"""The sockets of the front end: accept, serve, sweep, drain.

This module accepts connections itself, without ``loop.create_server``. Each connection gets the current TLS
context, so that a new certificate or client CA takes effect without a new server (closing an asyncio server
loses the connections that it has accepted and not yet started). Above ``Bounds.connections`` new clients wait
in the backlog until there is room: an API server does not retry a refused connection.

Several processes of one address have a socket each (SO_REUSEPORT), and each process has the sockets of all. A
connection that waits at the socket of another process is accepted here if that one does not accept it: it has
ended, starts, hangs, or has no room.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import select
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.server.serving.http_connection import HttpConnection
from gateway.server.serving.sockets import close_socket, listen, open_sockets

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from gateway.server.serving.connection_table import ConnectionTable
    from gateway.server.serving.sockets import ListenerRole
    from gateway.server.serving.tls import ServerCertificate

logger = logging.getLogger(__name__)

SWEEP_S = 1.0
_ACCEPTS_AT_ONCE = 64
"""So that a burst of new connections does not delay the reviews on open ones."""
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_HELP_EVERY_S: Final = 0.05
"""Between two looks at the sockets of other processes. What waits there at both is accepted."""


class SharedSockets(NamedTuple):
    """The bound sockets of several processes of one address, as one of them has them."""

    own: Sequence[socket.socket]
    """Those that this process serves."""
    others: Sequence[socket.socket]


class Listener:
    """Serves one address on the running loop, over TLS if it has a certificate."""

    def __init__(
        self,
        address: str,
        connections: ConnectionTable,
        tls: ServerCertificate | None = None,
        *,
        shared: SharedSockets | None = None,
        checks: Sequence[Callable[[], object]] = (),
        role: ListenerRole | None = None,
    ) -> None:
        """Configure the listener; ``start`` opens the sockets.

        Args:
            address: HOST:PORT, or unix:PATH. ``[::]`` stands for all addresses of IPv6 and IPv4.
            connections: The table for the connections, with their service and bounds.
            tls: None for plain HTTP.
            shared: The sockets, if other processes serve the same address. Otherwise they are opened.
            checks: Called about once a second, to check whether files have changed.
            role: For messages.
        """
        self._address = address
        self.connections = connections
        self._tls = tls
        self._shared = shared
        self._others: Sequence[socket.socket] = ()
        self._waiting: set[int] = set()
        """The descriptors of the sockets of other processes at which a connection waited at the last look."""
        self._others_poll = select.poll()
        self._help_timer: asyncio.TimerHandle | None = None
        self._role = role
        self._checks = tuple(checks)
        self._sockets: list[socket.socket] = []
        self._accepting = self._warned = False
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepted_sockets: dict[HttpConnection, socket.socket] = {}
        """Those whose handshake has not begun."""
        self._timer: asyncio.TimerHandle | None = None
        if tls is not None:
            connections.authorities = tls.client_authorities
        self.accepted = 0
        """Connections accepted so far."""
        self.failed_handshakes = 0
        """Connections that ended in their TLS handshake."""

    def __repr__(self) -> str:
        state = "accepting" if self._accepting else "not accepting"
        counts = f"{len(self.connections.open)} open, {self.connections.handshaking} in handshake"
        return f"<Listener {self._address}, {state}, {counts}, {self.accepted} accepted>"

    @property
    def tls(self) -> ServerCertificate | None:
        """The certificate for new connections. Its client CAs apply to open connections, too."""
        return self._tls

    @tls.setter
    def tls(self, tls: ServerCertificate) -> None:
        self._tls = tls
        if self.connections.authorities != tls.client_authorities:
            self.connections.authorities = tls.client_authorities
            self.connections.check_clients()

    @property
    def port(self) -> int:
        """The port; the kernel chose it if the address has port 0."""
        port: int = self._sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Open the sockets and begin to accept.

        Raises:
            ConfigError: The address cannot be listened on.
        """
        self._loop = asyncio.get_running_loop()
        if self._shared is None:
            self._sockets = open_sockets(self._address, self._role)
        else:
            self._sockets, self._others = list(self._shared.own), self._shared.others
            listen(self._sockets)
            for sock in self._others:
                self._others_poll.register(sock, select.POLLIN)
            self._help_others()
        self.connections.on_room = self._resume_accepting
        self._resume_accepting()
        self._timer = self._loop.call_later(SWEEP_S, self.tick)

    def tick(self) -> None:
        """Sweep the connections and check for changed files; a timer calls it about once a second."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = self._loop.call_later(SWEEP_S, self.tick)
        self.connections.sweep()
        if self._tls is not None and self._tls.refresh():
            self.tls = self._tls
        for check in self._checks:
            check()
        self._warned = False
        self._resume_accepting()

    async def drain(self, drain_s: float) -> None:
        """Answer the requests in flight, and close when clients use other replicas.

        New reviews are refused with 503, also on new connections: load balancers still send connections to
        this replica for a while, and a closed port would lose their requests. An idle connection is kept for
        ``Bounds.drain_idle_s``, since a request may be on its way. The port is closed, and the backlog
        served, when there was no new connection and no answer for ``Bounds.drain_quiet_s``, or at once if
        there was none since the drain began. After *drain_s* seconds the rest is aborted. Returns when all is
        closed.
        """
        self.connections.service.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await self._until_quiet()
                for sock in (*self._sockets, *self._others):
                    # Bounded by the room: without it, steady new connections would block the event loop.
                    while self.connections.has_room and self._accept_one(sock):
                        pass
                self._close_sockets()
                await self._until_empty()
        await self.close()

    async def _until_quiet(self) -> None:
        """Return when no connection is open and, for a while, none was made."""
        before = self.accepted, self.connections.requests
        while True:
            await self._until_empty()
            seen = self.accepted, self.connections.requests
            if seen == before:
                return
            before = seen
            await asyncio.sleep(self.connections.bounds.drain_quiet_s)

    async def _until_empty(self) -> None:
        """Return when no connection is open or in its handshake."""
        while self._handshakes or self.connections.open:
            if self._handshakes:
                await asyncio.wait(self._handshakes)
            await self.connections.emptied(self._loop)

    async def close(self) -> None:
        """Abort everything; returns when all is closed."""
        self._close_sockets()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._handshakes:
            task.cancel()
        if self._handshakes:
            await asyncio.wait(self._handshakes)
        self.connections.abort()
        if self.connections.open:
            await self.connections.emptied(self._loop)

    # -- accepting --------------------------------------------------------------------------------

    def _resume_accepting(self) -> None:
        if not self._accepting and self._sockets and self.connections.takes_more:
            self._accepting = True
            for sock in self._sockets:
                self._loop.add_reader(sock, self._accept_some, sock)

    def _pause_accepting(self) -> None:
        if self._accepting:
            self._accepting = False
            for sock in self._sockets:
                self._loop.remove_reader(sock)

    def _close_sockets(self) -> None:
        self._pause_accepting()
        if self._help_timer is not None:
            self._help_timer.cancel()
            self._help_timer = None
        for sock in (*self._sockets, *self._others):
            close_socket(sock)
        self._sockets, self._others = [], ()

    def _accept_some(self, sock: socket.socket) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            if not self.connections.takes_more:
                if not self._warned:
                    logger.warning("connection limit reached, new connections wait: %r", self)
                self._warned = True
                self._pause_accepting()
                return
            if not self._accept_one(sock):
                return

    def _help_others(self) -> None:
        """Accept the connections at the sockets of other processes that do not accept them."""
        self._help_timer = self._loop.call_later(_HELP_EVERY_S, self._help_others)
        # A socket that does not listen yet has hung up, and is not readable.
        waiting = {number for number, events in self._others_poll.poll(0) if events & select.POLLIN}
        not_accepted = waiting & self._waiting
        for sock in self._others if not_accepted and self._accepting else ():
            if sock.fileno() in not_accepted:
                self._accept_some(sock)
        self._waiting = waiting

    def _accept_one(self, sock: socket.socket) -> bool:
        """Accept a connection if one is waiting; return whether to continue."""
        try:
            client, _ = sock.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if error.errno in _OUT_OF_RESOURCES:
                logger.error("cannot accept connections: %s (%r)", error.strerror, self)
                self.connections.end_oldest_unproven()
                self._pause_accepting()  # until it has ended, or the next sweep
                return False
            return True  # this client has disconnected already
        client.setblocking(False)  # noqa: FBT003 - the standard library's only way
        self.accepted += 1
        connection = HttpConnection(self.connections)
        self._accepted_sockets[connection] = client
        task = self._loop.create_task(self._serve(connection))
        self._handshakes.add(task)
        task.add_done_callback(partial(self._end_handshake, connection))
        self.connections.begin(connection, task)
        return True

    async def _serve(self, connection: HttpConnection) -> None:
        client = self._accepted_sockets.pop(connection)
        bounds = self.connections.bounds
        context = self._tls.context if self._tls is not None else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                client,
                ssl=context,
                ssl_handshake_timeout=bounds.handshake_s if context is not None else None,
                ssl_shutdown_timeout=bounds.answer_s if context is not None else None,
            )
        except OSError as error:  # ssl.SSLError, TimeoutError and lost connections are
            logger.debug("TLS handshake failed: %s", error)

    def _end_handshake(self, connection: HttpConnection, task: asyncio.Task[None]) -> None:
        # Not in the task itself, which may be cancelled before it has begun.
        self._handshakes.discard(task)
        client = self._accepted_sockets.pop(connection, None)
        if client is not None:
            client.close()
        if not connection.is_made:
            self.connections.fail(connection)
            self.failed_handshakes += 1
            connection.discard()
            self._resume_accepting()
