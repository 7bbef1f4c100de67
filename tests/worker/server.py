"""The scripted worker on the running event loop, by the SDK's HTTP/2 server, and its command line."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from admission_gateway_worker.accept import Acceptor
from admission_gateway_worker.connection import Connections
from admission_gateway_worker.listen import Address, Tls, claim, listening, parse_address, tls_context
from tests.worker.service import Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


class ScriptedWorker(Service):
    """Serves until it is cut or closed."""

    def __init__(self, listen: str, tls: Sequence[Path] | None = None, **options: Any) -> None:
        """Listen on the address *listen*, with the files of key, certificate and CA; see ``Service``."""
        super().__init__(**options)
        address = parse_address(listen)
        claim(address)
        bound = listening(address, reuse_port=False)
        context = None
        if tls is not None:
            key, certificate, authority = tls
            context = tls_context(Tls(certificate, key, authority))
        self._loop = asyncio.get_running_loop()
        self._connections = Connections(self.methods())
        self._acceptors = [Acceptor(sock, context, self._connections) for sock in bound]
        is_unix = address.path is not None
        self.target = listen if is_unix else str(Address(address.host, bound[0].getsockname()[1]))

    def cut(self) -> None:
        """End at once, as a process that dies."""
        for acceptor in self._acceptors:
            acceptor.close()
        for connection in tuple(self._connections.open):
            connection._abort()

    def stop(self) -> None:
        """Have it cut, from another thread."""
        self._loop.call_soon_threadsafe(self.cut)

    async def close(self) -> None:
        """Refuse new connections, and end those that are open."""
        for acceptor in self._acceptors:
            acceptor.close()
        await self._connections.close(0)


StartWorker = Callable[..., ScriptedWorker]
"""Starts a worker in a thread: ``start_worker(listen=None, *flags)``."""


@contextlib.asynccontextmanager
async def scripted_worker(
    listen: str, tls: Sequence[Path] | None = None, **options: Any
) -> AsyncIterator[ScriptedWorker]:
    """Serve scripts on the running event loop; the arguments are those of ``ScriptedWorker``."""
    worker = ScriptedWorker(listen, tls, **options)
    worker.die = worker.cut
    try:
        yield worker
    finally:
        await worker.close()


def parse(flags: Sequence[str] | None = None) -> tuple[dict[str, Any], argparse.Namespace]:
    """Return the arguments of ``scripted_worker`` for a command line, by default that of this process.

    The namespace has what is not about one.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--tls", nargs=3, type=Path, metavar=("KEY", "CERT", "CLIENT_CA"))
    parser.add_argument("--no-stream", action="store_false", dest="has_stream")
    parser.add_argument("--override", type=json.loads, metavar="JSON")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--log", type=Path, metavar="FILE")
    parser.add_argument("--declare", type=Path, metavar="FILE", dest="declared")
    parser.add_argument("--health", action="store_true", dest="has_health")
    parser.add_argument("--chains", action="store_true", dest="has_chains")
    parser.add_argument("--attack", action="append", default=[], metavar="NAME")
    parser.add_argument("--seed", type=int, default=0, help="of the attack `fuzz`")
    options = vars(parser.parse_args(flags))
    return options, argparse.Namespace(attack=options.pop("attack"), seed=options.pop("seed"))
