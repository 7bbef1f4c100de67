"""The scripted worker on the running event loop, by the SDK's HTTP/2 server, and its command line."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
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

    def __init__(self, listen: str, tls: Tls | None = None, **options: Any) -> None:
        """Listen on the address *listen*; *options* are those of ``Service``."""
        super().__init__(**options)
        address = parse_address(listen)
        claim(address)
        bound = listening(address, reuse_port=False)
        context = None if tls is None else tls_context(tls)
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


@contextlib.asynccontextmanager
async def scripted_worker(
    listen: str, tls: Tls | None = None, **options: Any
) -> AsyncIterator[ScriptedWorker]:
    """Serve scripts on the running event loop; *options* are those of ``Service``."""
    worker = ScriptedWorker(listen, tls, **options)
    worker.die = worker.cut
    try:
        yield worker
    finally:
        await worker.close()


def parse(flags: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the *flags* of the command line, by default those of this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--no-stream", action="store_true")
    parser.add_argument("--tls", nargs=3, type=Path, metavar=("KEY", "CERT", "CLIENT_CA"))
    parser.add_argument("--override", type=json.loads, default={}, metavar="JSON")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--log", type=Path, metavar="FILE")
    parser.add_argument("--declare", type=Path, metavar="FILE")
    parser.add_argument("--health", action="store_true")
    parser.add_argument("--chains", action="store_true")
    parser.add_argument("--attack", action="append", default=[], metavar="NAME")
    parser.add_argument("--seed", type=int, default=0, help="of the attack `fuzz`")
    return parser.parse_args(flags)


def options_of(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of ``ScriptedWorker`` for a command line."""
    tls = None
    if parsed.tls is not None:
        key, certificate, authority = parsed.tls
        tls = Tls(certificate, key, authority)
    return {
        "listen": parsed.listen,
        "tls": tls,
        "override": parsed.override,
        "every": parsed.every,
        "log": parsed.log,
        "has_chains": parsed.chains,
        "has_stream": not parsed.no_stream,
        "has_health": parsed.health,
        "declared": parsed.declare,
    }
