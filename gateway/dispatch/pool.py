"""A worker pool: which addresses its targets stand for, and which endpoint takes the next call.

gRPC looks names up again only when a connection is lost, so the pool does it on a timer: new workers behind
a headless Service get their share within seconds.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

from gateway.config.files import fingerprint
from gateway.dispatch.dialer import Dialer
from gateway.dispatch.endpoint import LONGEST_CALL_S, WorkerEndpoint
from gateway.dispatch.hedging import Hedging
from gateway.dispatch.outlier_detection import PREFERENCE, OutlierDetector
from gateway.dispatch.targets import Addresses, DnsName, addresses_of, parse_target
from gateway.dispatch.verdicts import failed_status
from gateway.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.config.model import WorkerPool
    from gateway.core.verdict import Failed
    from gateway.dispatch.backends import Endpoint
    from gateway.dispatch.timer_wheel import TimerWheel
    from gateway.telemetry.metrics import PoolMetrics

log = logging.getLogger(__name__)

RESOLVE_EVERY_S: Final = 5.0


class Pool:
    """The endpoints of one WorkerPool. Make and start it on a running event loop."""

    def __init__(
        self,
        settings: WorkerPool,
        targets: Sequence[str],
        deadlines: TimerWheel,
        metrics: PoolMetrics,
        pick: Callable[[int], int] = random.randrange,
    ) -> None:
        self.settings = settings
        self.tls_files = tls_fingerprint(settings)
        """Of the files as they were when the channels were made."""
        self.endpoints: tuple[WorkerEndpoint, ...] = ()
        self._targets = [parse_target(target) for target in targets]
        self._timers = deadlines
        self._metrics = metrics
        self._pick = pick
        self._outlier_detector = OutlierDetector(deadlines.now, metrics)
        self._hedging = None if settings.hedge is None else Hedging(settings.hedge, deadlines, metrics)
        self._addresses: dict[DnsName | Addresses, dict[str, str | None]] = {}
        """What each target was last found to stand for."""
        self._unresolved = ""
        self._no_room = failed_status(
            "RESOURCE_EXHAUSTED",
            f"worker pool {settings.name}: {settings.max_in_flight} calls are in flight "
            "on each endpoint (maxInFlight)",
        )
        self._resolver: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Look names up and make the endpoints; they connect on their own."""
        await self._resolve()
        if any(isinstance(target, DnsName) for target in self._targets):
            self._resolver = asyncio.create_task(self._keep_resolving())

    def choose(self, *, may_shed: bool = False) -> WorkerEndpoint | Failed:
        """Return the endpoint for the next calls: the less loaded of two that are in rotation.

        Failed when there is none, or when all are at the pool's ``maxInFlight``. Before that a call of a
        webhook with failurePolicy Ignore is ended to make room, if *may_shed*.
        """
        endpoints = self.endpoints
        if len(endpoints) == 1:
            chosen = endpoints[0]
        elif not endpoints:
            why = self._unresolved or "it has no endpoints"
            return failed_status("UNAVAILABLE", f"worker pool {self.settings.name}: {why}")
        else:
            self._outlier_detector.look_after(endpoints)
            chosen = self._less_loaded(_most_preferred(endpoints))
        return self._make_room(may_shed=may_shed) if chosen.is_full else chosen

    def another(self, endpoint: Endpoint, *, may_reuse: bool) -> WorkerEndpoint | None:
        """Return the best endpoint that has room, other than *endpoint*; None if there is none.

        If it is the only one of the pool it is itself returned where *may_reuse*.
        """
        if self.endpoints == (endpoint,):
            return self.endpoints[0] if may_reuse else None
        others = [other for other in self.endpoints if other is not endpoint and not other.is_full]
        others = [other for other in others if other.state not in ("down", "draining")]
        return self._less_loaded(_most_preferred(others)) if others else None

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
        self._outlier_detector.close()
        endpoints, self.endpoints = self.endpoints, ()
        await asyncio.gather(*(endpoint.close(grace_s) for endpoint in endpoints), *self._closing)

    def _make_room(self, *, may_shed: bool) -> WorkerEndpoint | Failed:
        """Return an endpoint at which a call was ended for another, or why there is no room."""
        if may_shed:
            for endpoint in _most_preferred(self.endpoints):
                if endpoint.shed(self._no_room):
                    return endpoint
        return self._no_room

    def _less_loaded(self, endpoints: Sequence[WorkerEndpoint]) -> WorkerEndpoint:
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
            try:
                await self._resolve()
            except ConfigError as error:
                # A TLS file that is being replaced: the endpoints stay, and the next look finds it whole.
                log.error("worker pool %s: %s", self.settings.name, error)

    async def _resolve(self) -> None:
        """Make the endpoints those that the targets stand for now.

        A name that cannot be looked up keeps the addresses it had.
        """
        unresolved = []
        for target in self._targets:
            try:
                self._addresses[target] = await addresses_of(target)
            except OSError as error:
                unresolved.append(f"{target} cannot be resolved: {error.strerror or error}")
        reason = "; ".join(unresolved)
        if reason and reason != self._unresolved:
            log.warning("worker pool %s: %s", self.settings.name, reason)
        self._unresolved = reason
        wanted: dict[str, str | None] = {}
        for target in self._targets:
            wanted.update(self._addresses.get(target, {}))
        kept = {endpoint.address: endpoint for endpoint in self.endpoints}
        # All before the first endpoint: one whose TLS files cannot be read is to leave nothing behind.
        dialers = {
            address: self._dialer(address, host) for address, host in wanted.items() if address not in kept
        }
        endpoints = [
            kept[address]
            if address in kept
            else WorkerEndpoint(dialers[address], self.settings, self._timers, self._metrics, self._hedging)
            for address in wanted
        ]
        gone = [endpoint for endpoint in self.endpoints if endpoint.address not in wanted]
        self.endpoints = tuple(endpoints)
        if len(endpoints) > 1:
            for endpoint in endpoints:
                endpoint.watch_health()
        for endpoint in gone:
            task = asyncio.create_task(endpoint.close(LONGEST_CALL_S))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _dialer(self, address: str, host: str | None) -> Dialer:
        tls = self.settings.tls
        return Dialer(address, tls, tls.server_name if tls is not None and tls.server_name else host)


def _most_preferred(endpoints: Sequence[WorkerEndpoint]) -> Sequence[WorkerEndpoint]:
    """Return those to choose from: the ones that are ready, or the best there are."""
    ready = [endpoint for endpoint in endpoints if endpoint.state == "ready"]
    if ready:
        return ready
    best = min(PREFERENCE[endpoint.state] for endpoint in endpoints)
    return [endpoint for endpoint in endpoints if PREFERENCE[endpoint.state] == best]


def tls_fingerprint(settings: WorkerPool) -> object:
    """Return what differs once a TLS file of a pool has changed: channels read them when they are made."""
    tls = settings.tls
    files = (tls.ca_file, tls.cert_file, tls.key_file) if tls is not None else ()
    return fingerprint([file for file in files if file is not None])
