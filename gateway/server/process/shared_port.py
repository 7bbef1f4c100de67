"""The port of several gateway processes: the parent has the sockets, and each process inherits all of them.

Each process has sockets of its own, which share the address (SO_REUSEPORT), so that the kernel distributes
connections. They listen from the time when their process first serves, and stay open when it ends, since the
parent and the other processes have them too. A connection that arrives at them then waits until another
process accepts it, or the next one (``gateway.server.serving.listener``): none is refused, also if all are
killed.

The parent accepts nothing, except while no process can start: it closes the connections that arrive then, so
that API servers do not wait in vain.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from itertools import chain
from typing import TYPE_CHECKING

from gateway.server.process.liveness import START_S
from gateway.server.serving.listener import SharedSockets
from gateway.server.serving.sockets import FRONT_END, hold_port, share_port

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)


class SharedPort:
    """The sockets of all processes, which their parent keeps. Make it on a running event loop."""

    def __init__(self, address: str, processes: int) -> None:
        """Reserve *address*, HOST:PORT, with sockets for each process.

        Raises:
            ConfigError: the address cannot be listened on, or another program listens there.
        """
        self._loop = asyncio.get_running_loop()
        self._sockets: list[list[socket.socket]] = []
        self._refusing: set[socket.socket] = set()
        self._served_at = self._loop.time()
        self._held = hold_port(address, FRONT_END)
        host, self.port = address.rpartition(":")[0], self._held[0].getsockname()[1]
        self.address = f"{host}:{self.port}"
        """The address with its port; the kernel has chosen it if *address* has port 0."""
        try:
            for _ in range(processes):
                self._sockets.append(share_port(self.address, FRONT_END))
        except BaseException:
            self.close()
            raise

    @property
    def descriptors(self) -> list[int]:
        """The descriptors of all sockets, which each process is to inherit."""
        return [sock.fileno() for sock in chain.from_iterable(self._sockets)]

    def arguments(self) -> str:
        """Return the descriptors by process, as ``inherited`` reads them."""
        return "/".join(",".join(str(sock.fileno()) for sock in of_process) for of_process in self._sockets)

    def note(self, *, is_served: bool, has_failed: bool) -> None:
        """Note whether a process serves, and whether all have failed to. Call it several times a second."""
        now = self._loop.time()
        if is_served:
            self._served_at = now
            self._accept_again()
        elif has_failed or now - self._served_at >= START_S:
            self._refuse()

    def close(self) -> None:
        """Close the sockets of the parent: the port is closed when the processes have closed theirs."""
        self._accept_again()
        for sock in (*self._held, *chain.from_iterable(self._sockets)):
            sock.close()
        self._held, self._sockets = [], []

    def _refuse(self) -> None:
        # Those of a process that never served do not listen.
        listening = {
            sock
            for sock in chain.from_iterable(self._sockets)
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        }
        if listening and not self._refusing:
            log.error("connections to %s are closed until a process serves", self.address)
        for sock in listening - self._refusing:
            self._loop.add_reader(sock, _close_next, sock)
        self._refusing = listening

    def _accept_again(self) -> None:
        for sock in self._refusing:
            self._loop.remove_reader(sock)
        self._refusing = set()


def _close_next(sock: socket.socket) -> None:
    """Accept a connection at *sock*, and close it."""
    # It may have been accepted by a process that serves again, or be closed by its client.
    with contextlib.suppress(OSError):
        sock.accept()[0].close()


def inherited(arguments: str, number: int) -> SharedSockets:
    """Return the sockets that process *number* has inherited, by the *arguments* of its parent."""
    found: list[Sequence[socket.socket]] = []
    for of_process in arguments.split("/"):
        sockets = [socket.socket(fileno=int(text)) for text in of_process.split(",")]
        for sock in sockets:
            sock.set_inheritable(False)
            sock.setblocking(False)  # noqa: FBT003 - the standard library's only way
        found.append(sockets)
    own = found.pop(number)
    return SharedSockets(own, list(chain.from_iterable(found)))
