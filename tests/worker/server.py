"""Serves methods on addresses, by the SDK's HTTP/2 server, on the running event loop."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from admission_gateway_worker.accept import Acceptor
from admission_gateway_worker.connection import Connections
from admission_gateway_worker.listen import Address, Tls, claim, listening, parse_address, tls_context
from tests.worker.service import Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission_gateway_worker.rpc import Methods


class Server:
    """Serves until it is cut or closed."""

    def __init__(self, methods: Methods) -> None:
        self._connections = Connections(methods)
        self._acceptors: list[Acceptor] = []

    def listen(self, text: str, tls: Tls | None = None) -> str:
        """Listen on the address in *text*, and return it with the port."""
        address = parse_address(text)
        claim(address)
        bound = listening(address, reuse_port=False)
        context = None if tls is None else tls_context(tls)
        self._acceptors += [Acceptor(sock, context, self._connections) for sock in bound]
        is_unix = address.path is not None
        return text if is_unix else str(Address(address.host, bound[0].getsockname()[1]))

    def cut(self) -> None:
        """End at once, as a process that dies."""
        for acceptor in self._acceptors:
            acceptor.close()
        for connection in tuple(self._connections.open):
            connection._abort()

    async def close(self) -> None:
        """Refuse new connections, and end those that are open."""
        for acceptor in self._acceptors:
            acceptor.close()
        await self._connections.close(0)


class ScriptedWorker(Service):
    """A scripted worker on the event loop of a test."""

    target: str
    server: Server

    def die(self) -> None:
        """End at once, as a process that dies."""
        self.server.cut()


@contextlib.asynccontextmanager
async def scripted_worker(
    listen: str, tls: Tls | None = None, **options: Any
) -> AsyncIterator[ScriptedWorker]:
    """Serve scripts on the running event loop; *options* are those of ``Service``."""
    worker = ScriptedWorker(**options)
    worker.server = Server(worker.methods())
    worker.target = worker.server.listen(listen, tls)
    try:
        yield worker
    finally:
        await worker.server.close()
