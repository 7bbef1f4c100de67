"""One running gRPC server: ports, health, and shutdown.

Shutdown: health becomes NOT_SERVING; the listeners close; every connection and every stream gets a notice;
calls in flight finish within the grace period; then the rest (health watches, late calls) is ended.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.accept import Acceptor
from admission_gateway_worker.connection import Connections
from admission_gateway_worker.evaluation import Evaluator
from admission_gateway_worker.health import Health
from admission_gateway_worker.listen import Address, Tls, claim, listening, tls_context
from admission_gateway_worker.unary import SERVICE, PolicyWorker

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from admission_gateway_worker.counters import Counters
    from admission_gateway_worker.policy import Policy

CLOSE_S: Final = 0.5
"""Time for clients to read the last answers and close their connections, also on a busy machine."""


class Serving:
    """A server for policies, bound to the event loop in which it was started."""

    def __init__(
        self, policies: Mapping[str, Policy], *, reuse_port: bool = False, counters: Counters | None = None
    ) -> None:
        """*counters* count the calls of the policies."""
        self._evaluator = Evaluator(counters)
        self._worker = PolicyWorker(policies, self._evaluator)
        self._health = Health(SERVICE)
        self._connections = Connections({**self._worker.methods(), **self._health.methods()})
        self._listeners: list[Acceptor] = []
        self._reuse_port = reuse_port
        self._socket_files: dict[Path, int] = {}
        self.addresses: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Serving {', '.join(self.addresses)} {self._worker!r} {self._connections!r}>"

    async def start(self, addresses: Sequence[Address], tls: Tls | None) -> None:
        """Bind and serve. Afterwards ``addresses`` has the bound addresses with their ports.

        Raises:
            StartError: an address cannot be bound, or the TLS files are unusable.
        """
        try:
            context = tls_context(tls) if tls is not None else None
            self.addresses = tuple(self._listen(address, context) for address in addresses)
        except BaseException:
            await self.stop(0)
            raise

    def _listen(self, address: Address, context: ssl.SSLContext | None) -> str:
        if not self._reuse_port:
            claim(address)
        bound = listening(address, reuse_port=self._reuse_port)
        if address.path is not None:
            self._socket_files[address.path] = address.path.stat().st_ino
            context = None
        self._listeners += [Acceptor(sock, context, self._connections) for sock in bound]
        return str(address if address.path is not None else Address(address.host, bound[0].getsockname()[1]))

    async def stop(self, grace_s: float) -> int:
        """Drain for at most *grace_s* seconds, then cancel the remaining calls.

        Returns the number of threads that still run a policy, which cannot be stopped.
        """
        self._health.stop()
        # The ports are closed before the notices, so that clients do not connect to this worker again.
        for listener in self._listeners:
            listener.close()
        self._connections.drain()
        self._worker.drain()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._worker.idle.wait(), grace_s)
        # A health watch ends when its client ends it.
        await self._connections.close(CLOSE_S if self._worker.idle.is_set() else 0)
        await self._evaluator.close()
        self._remove_socket_files()
        return self._evaluator.busy_threads

    def _remove_socket_files(self) -> None:
        """Remove the socket files, unless another worker has replaced them."""
        for path, inode in self._socket_files.items():
            with suppress(FileNotFoundError):
                if path.stat().st_ino == inode:
                    path.unlink()
        self._socket_files.clear()
