"""A worker pool: which addresses its targets stand for, and which endpoint takes the next call.

gRPC looks names up again only when a connection is lost, so the pool does it on a timer: new workers behind
a headless Service get their share within seconds.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from typing import TYPE_CHECKING, Final

from gateway.dispatch.channel import open_channel
from gateway.dispatch.endpoint import Endpoint
from gateway.dispatch.targets import DnsName, addresses_of, parse_target
from gateway.dispatch.verdicts import failed_status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.config.model import WorkerPool
    from gateway.core.verdict import Failed
    from gateway.dispatch.deadlines import Deadlines
    from gateway.telemetry.metrics import PoolMetrics

log = logging.getLogger(__name__)

RESOLVE_EVERY_S: Final = 5.0
CLOSE_GRACE_S: Final = 30.0
"""The longest a call may last: an endpoint that is no longer wanted ends its calls undisturbed."""


class Pool:
    """The endpoints of one WorkerPool. Make and start it on a running event loop."""

    def __init__(
        self,
        settings: WorkerPool,
        targets: Sequence[str],
        deadlines: Deadlines,
        metrics: PoolMetrics,
        pick: Callable[[int], int] = random.randrange,
    ) -> None:
        self.settings = settings
        self.endpoints: tuple[Endpoint, ...] = ()
        self._targets = [parse_target(target) for target in targets]
        self._deadlines = deadlines
        self._metrics = metrics
        self._pick = pick
        self._unresolved = ""
        self._resolver: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Look names up and make the endpoints; they connect on their own."""
        await self._resolve()
        if any(isinstance(target, DnsName) for target in self._targets):
            self._resolver = asyncio.create_task(self._keep_resolving())

    def choose(self) -> Endpoint | Failed:
        """Return the endpoint for the next calls: the less loaded of two that are up.

        Failed when there is none, or when all are at the pool's ``maxInFlight``.
        """
        endpoints = self.endpoints
        if len(endpoints) == 1:
            chosen = endpoints[0]
        else:
            usable = [e for e in endpoints if e.state == "ready"] or [
                e for e in endpoints if e.state != "draining"
            ]
            # Where all are on their way out, one of them is better than none.
            usable = usable or list(endpoints)
            if not usable:
                why = self._unresolved or "it has no endpoints"
                return failed_status("UNAVAILABLE", f"worker pool {self.settings.name}: {why}")
            chosen = self._less_loaded(usable)
        if chosen.is_full:
            return failed_status(
                "RESOURCE_EXHAUSTED",
                f"worker pool {self.settings.name}: {self.settings.max_in_flight} calls are in flight "
                "on each endpoint (maxInFlight)",
            )
        return chosen

    async def wait_until_ready(self, timeout_s: float) -> bool:
        """Return whether an endpoint was reached within *timeout_s* seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while not any(endpoint.state == "ready" for endpoint in self.endpoints):
            if loop.time() >= end:
                return False
            await asyncio.sleep(0.01)
        return True

    async def close(self, grace_s: float) -> None:
        """End all endpoints; calls in flight get up to *grace_s* seconds."""
        if self._resolver is not None:
            self._resolver.cancel()
            await asyncio.gather(self._resolver, return_exceptions=True)
        endpoints, self.endpoints = self.endpoints, ()
        await asyncio.gather(*(endpoint.close(grace_s) for endpoint in endpoints), *self._closing)

    def _less_loaded(self, endpoints: list[Endpoint]) -> Endpoint:
        if len(endpoints) == 1:
            return endpoints[0]
        first = self._pick(len(endpoints))
        second = self._pick(len(endpoints) - 1)
        one, other = endpoints[first], endpoints[second + (second >= first)]
        chosen = one if one.in_flight <= other.in_flight else other
        if chosen.is_full:
            # Two of many are full; a refusal has to mean that all are.
            chosen = min(endpoints, key=lambda endpoint: endpoint.in_flight)
        return chosen

    async def _keep_resolving(self) -> None:
        while True:
            await asyncio.sleep(RESOLVE_EVERY_S)
            await self._resolve()

    async def _resolve(self) -> None:
        """Make the endpoints those that the targets stand for now; on a failure they stay as they are."""
        wanted: dict[str, str | None] = {}
        unresolved = ""
        for target in self._targets:
            try:
                wanted.update(await addresses_of(target))
            except socket.gaierror as error:
                unresolved = f"{target} cannot be resolved: {error.strerror}"
        if unresolved and unresolved != self._unresolved:
            log.warning("worker pool %s: %s", self.settings.name, unresolved)
        self._unresolved = unresolved
        if unresolved and self.endpoints:
            return
        kept = {endpoint.address: endpoint for endpoint in self.endpoints if endpoint.address in wanted}
        gone = [endpoint for endpoint in self.endpoints if endpoint.address not in wanted]
        tls = self.settings.tls
        for address, host in wanted.items():
            if address not in kept:
                server_name = tls.server_name if tls is not None and tls.server_name else host
                channel = open_channel(address, tls, server_name)
                kept[address] = Endpoint(address, channel, self.settings, self._deadlines, self._metrics)
        self.endpoints = tuple(kept[address] for address in wanted)
        for endpoint in gone:
            task = asyncio.create_task(endpoint.close(CLOSE_GRACE_S))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
