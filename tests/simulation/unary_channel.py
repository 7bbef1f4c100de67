"""Unary calls to simulated workers: the part of grpc.aio.Channel that the gateway uses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from tests.simulation.stage import SERVICE
from tests.simulation.worker import Worker, rpc_error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import grpc

    from gateway.engine.dispatch.dialer import Dialer
    from tests.simulation.network import Network

RECONNECT_S = 0.1


class SimulatedChannel:
    """A channel to one address."""

    def __init__(self, network: Network, host: str) -> None:
        self._network = network
        self._host = host

    async def channel_ready(self) -> None:
        """Return when the worker is reachable."""
        while self._worker() is None:
            await asyncio.sleep(RECONNECT_S)

    async def close(self) -> None:
        """Close the channel, which has no open calls."""

    def unary_unary(self, method: str) -> Callable[..., Coroutine[None, None, bytes]]:
        """Return a function that makes a call of *method*."""
        assert method == f"{SERVICE}/Review"
        return self._review

    async def _review(
        self,
        request: bytes,
        *,
        timeout: float,  # noqa: ASYNC109 # as grpc's own
        metadata: object = None,
    ) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                return await self._answer(request, timeout)
        except TimeoutError:
            raise rpc_error("DEADLINE_EXCEEDED", "Deadline Exceeded") from None

    async def _answer(self, request: bytes, timeout_s: float) -> bytes:
        await asyncio.sleep(self._network.delay_s())
        while (host := self._network.hosts.get(self._host)) is not None and host.is_cut_off:
            await asyncio.sleep(RECONNECT_S)
        worker = self._worker()
        if worker is None:
            raise rpc_error("UNAVAILABLE", "failed to connect to all addresses: Connection refused")
        question, answer = worker.start_unary(request, timeout_s)
        try:
            read = await answer
            await asyncio.sleep(self._network.delay_s())
        finally:
            worker.drop_unary(question)
        return read

    def _worker(self) -> Worker | None:
        worker = cast("Worker | None", self._network.hosts.get(self._host))
        return None if worker is None or worker.is_down or worker.refuses else worker


def open_channel(dialer: Dialer) -> grpc.aio.Channel:
    """Stand in for ``Dialer.open_channel``."""
    network = cast("Network", asyncio.get_running_loop().network)  # type: ignore[attr-defined]
    _, host, _ = dialer.address.split(":")
    return cast("grpc.aio.Channel", SimulatedChannel(network, host))
