"""One running gRPC server: ports, health, and shutdown.

Shutdown: health becomes NOT_SERVING and every stream gets the drain notice; the listeners close; calls in
flight finish within the grace period; then the rest (health watches, late calls) is aborted.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from workers.answer import MAX_MESSAGE_BYTES
from workers.evaluation import Evaluator
from workers.listen import Address, StartError, Tls, claim, credentials
from workers.unary import SERVICE, PolicyWorker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from workers.policy import Policy

OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # The gateway pings every 30 s, also without calls. By default gRPC permits one ping in five minutes, and
    # closes the connection of a client that sends more.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
)

CLOSE_S: Final = 0.5
"""Time for the last answers to be written, also on a busy machine, and for the end of health watches."""


class Serving:
    """A server for policies, bound to the event loop in which it was started."""

    def __init__(self, policies: Mapping[str, Policy], *, reuse_port: bool = False) -> None:
        self._evaluator = Evaluator()
        self._worker = PolicyWorker(policies, self._evaluator)
        self._health = health.aio.HealthServicer()
        self._server = aio.server(options=(*OPTIONS, ("grpc.so_reuseport", int(reuse_port))))
        self._server.add_generic_rpc_handlers((self._worker.handlers(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._reuse_port = reuse_port
        self._socket_files: dict[Path, int] = {}
        self.addresses: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Serving {', '.join(self.addresses)} {self._worker!r}>"

    async def start(self, addresses: Sequence[Address], tls: Tls | None) -> None:
        """Bind and serve. Afterwards ``addresses`` has the bound addresses with their ports.

        Raises:
            StartError: an address cannot be bound, or the TLS files are unusable.
        """
        try:
            secret = credentials(tls) if tls is not None else None
            bound = []
            for address in addresses:
                if not self._reuse_port:
                    claim(address)
                try:
                    if secret is not None:
                        port = self._server.add_secure_port(str(address), secret)
                    else:
                        port = self._server.add_insecure_port(str(address))
                except RuntimeError as error:
                    raise StartError(f"{address}: {error}") from None
                bound.append(str(address if address.path is not None else Address(address.host, port)))
                if address.path is not None:
                    self._socket_files[address.path] = address.path.stat().st_ino
            await self._server.start()
        except BaseException:
            await self._server.stop(None)
            await self._evaluator.close()
            self._remove_socket_files()
            raise
        self.addresses = tuple(bound)
        await self._health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float) -> int:
        """Drain for at most *grace_s* seconds, then cancel the remaining calls.

        Returns the number of threads that still run a policy, which cannot be stopped.
        """
        await self._health.enter_graceful_shutdown()
        closing = asyncio.create_task(self._server.stop(grace_s))
        # The ports are closed before the drain notice, so that clients do not connect to this worker again.
        await asyncio.sleep(0)
        self._worker.drain()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._worker.idle.wait(), grace_s)
        # A health watch ends when its client ends it. An abort makes gRPC report an error to every client and
        # may overtake the last answers, so it happens only if calls remain.
        await asyncio.wait({closing}, timeout=CLOSE_S)
        await self._server.stop(None)
        await closing
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
