"""Accepts the connections of a listening socket. A TLS handshake counts as a connection of its client."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket
    import ssl

    from admission_gateway_worker.connection import Connections
    from admission_gateway_worker.http2.messages import StatusCode

log = logging.getLogger(__name__)

BACKLOG: Final = 1024
HANDSHAKE_TIMEOUT_S: Final = 10.0
ACCEPTS_AT_ONCE: Final = 64
"""So that a burst of new connections does not delay calls on open ones."""
RESUME_AFTER_S: Final = 0.05
"""Time without new connections when there was no file descriptor for one: others end then."""
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Handshake:
    """A connection whose TLS handshake has not ended."""

    is_idle = True

    def __init__(self, client: str, now: float) -> None:
        """*client* is the address without its port."""
        self.client = client
        self.last_received_at = now
        self.is_ending = False
        self.task: asyncio.Task[None] | None = None

    def close(self, code: StatusCode, text: str) -> None:
        """End the connection, without a word: there is no HTTP/2 yet."""
        self.is_ending = True
        if self.task is not None:
            self.task.cancel()


class Acceptor:
    """Accepts the connections of one socket until ``close``."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext | None, connections: Connections) -> None:
        """Begin to listen on *sock*, which is bound; *context* is None without TLS."""
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._context = context
        self._connections = connections
        sock.setblocking(False)  # noqa: FBT003 - the standard library's only way
        sock.listen(BACKLOG)
        self._resume()

    def __repr__(self) -> str:
        return f"<Acceptor {self._sock!r}>"

    def close(self) -> None:
        """Close the socket. Accepted connections go on."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._sock.close()

    def _resume(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    # This client has disconnected already.
                    continue
                log.warning("a connection has to wait: %s", error.strerror)
                self._connections.lower_limit()
                self._loop.remove_reader(self._sock)
                self._loop.call_later(RESUME_AFTER_S, self._resume)
                return
            sock.setblocking(False)  # noqa: FBT003 - as above
            self._begin(sock, str(peer[0]) if isinstance(peer, tuple) else "")

    def _begin(self, sock: socket.socket, client: str) -> None:
        connections, handshake = self._connections, Handshake(client, self._loop.time())
        connections.make_room()
        connection = connections.accept()
        connections.handshakes[connection] = handshake
        is_tls, has_begun = self._context is not None, False

        async def serve() -> None:
            nonlocal has_begun
            has_begun = True
            try:
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    sock,
                    ssl=self._context,
                    ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S if is_tls else None,
                )
            except OSError as error:
                # An ssl.SSLError, a timeout, or a lost connection.
                log.debug("TLS handshake failed: %s", error)

        def end(_: object) -> None:
            connections.handshakes.pop(connection, None)
            if not has_begun:
                sock.close()

        handshake.task = self._loop.create_task(serve())
        handshake.task.add_done_callback(end)
