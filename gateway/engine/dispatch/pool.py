"""A worker pool: resolves its targets to endpoints, and chooses the endpoint of the next call.

gRPC resolves names again only when a connection is lost. The pool does it periodically, so that new workers
behind a headless Service get calls within seconds. The first worker of a pool gets them sooner.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

from gateway.base.errors import ConfigError
from gateway.base.files import fingerprint
from gateway.engine.dispatch.dialer import Dialer
from gateway.engine.dispatch.endpoint import LONGEST_CALL_S, WorkerEndpoint
from gateway.engine.dispatch.hedging import Hedging
from gateway.engine.dispatch.outlier_detection import OutlierDetector
from gateway.engine.dispatch.targets import Addresses, DnsName, addresses_of, parse_target
from gateway.engine.dispatch.verdicts import failed_status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.config.kinds.worker_pool import WorkerPool
    from gateway.engine.dispatch.calls import Endpoint, EndpointState, Sheds
    from gateway.engine.dispatch.timer_wheel import TimerWheel
    from gateway.observe.telemetry.metrics import PoolMetrics
    from gateway.pure.core.verdict import Failed

log = logging.getLogger(__name__)

RESOLVE_EVERY_S: Final = 5.0
RESOLVE_WITHOUT_ENDPOINT_S: Final = 0.5
"""Every call of a pool without an endpoint fails, for example until its first worker is ready."""

PREFERENCE: Final[dict[EndpointState, int]] = {
    "ready": 0,
    "ejected": 1,
    "unhealthy": 1,
    "stalled": 2,
    "connecting": 2,
    "down": 3,
    "draining": 4,
}
"""If no endpoint is ready, those with the lowest number are used."""

_UNREACHABLE: Final = ("connecting", "down", "draining")


class Pool:
    """The endpoints of one WorkerPool. Create and start it on a running event loop."""

    def __init__(
        self,
        settings: WorkerPool,
        targets: Sequence[str],
        timers: TimerWheel,
        metrics: PoolMetrics,
        pick: Callable[[int], int] = random.randrange,
    ) -> None:
        self.settings = settings
        self.tls_files = tls_fingerprint(settings)
        """Fingerprint of the files when the endpoints were created."""
        self.endpoints: tuple[WorkerEndpoint, ...] = ()
        self._targets = [parse_target(target) for target in targets]
        self._timers = timers
        self._metrics = metrics
        self._pick = pick
        self._outlier_detector = OutlierDetector(timers.now, metrics)
        self._hedging = None if settings.hedge is None else Hedging(settings.hedge, timers, metrics)
        self._addresses: dict[DnsName | Addresses, dict[str, str | None]] = {}
        """The last result for each target."""
        self._unresolved = ""
        self._full = failed_status(
            "RESOURCE_EXHAUSTED",
            f"worker pool {settings.name}: {settings.max_in_flight} calls are in flight "
            "on each endpoint (maxInFlight)",
        )
        self._resolver: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Resolve the targets and create the endpoints, which connect on their own."""
        await self._resolve()
        if any(isinstance(target, DnsName) for target in self._targets):
            self._resolver = asyncio.create_task(self._keep_resolving())

    def name_of(self, address: str) -> str:
        """Return what people call *address*: the name that was looked up for it, or who started it.

        Empty for an address of the configuration.
        """
        if self.settings.command:
            return "started by the gateway"
        for target, addresses in self._addresses.items():
            host = addresses.get(address)
            if host and host not in address:
                return str(target)
        return ""

    def choose(self, sheds: Sheds = "None") -> WorkerEndpoint | Failed:
        """Return the endpoint of the next calls: the power of two choices among those that are ready.

        Failed if there is none, or if all are at the pool's ``maxInFlight`` and there is no call that *sheds*
        allows to end.
        """
        endpoints = self.endpoints
        if len(endpoints) == 1:
            chosen = endpoints[0]
        elif not endpoints:
            reason = self._unresolved or "it has no endpoints"
            return failed_status("UNAVAILABLE", f"worker pool {self.settings.name}: {reason}")
        else:
            self._outlier_detector.watch(endpoints)
            chosen = self._less_loaded(_most_preferred(endpoints))
        return chosen if chosen.calls.free else self._make_room(sheds)

    def alternative_to(self, endpoint: Endpoint, *, may_reuse: bool) -> WorkerEndpoint | None:
        """Return the best other endpoint that has room; None if there is none.

        If *endpoint* is the only one of the pool, it is returned itself where *may_reuse*.
        """
        if self.endpoints == (endpoint,):
            return self.endpoints[0] if may_reuse else None
        others = [other for other in self.endpoints if other is not endpoint and other.calls.free]
        others = [other for other in others if other.state not in ("down", "draining")]
        return self._less_loaded(_most_preferred(others)) if others else None

    @property
    def is_reachable(self) -> bool:
        """Whether any worker is connected, also one that gets no calls at present."""
        return any(endpoint.state not in _UNREACHABLE for endpoint in self.endpoints)

    @property
    def unreachable_reason(self) -> str:
        """Why no worker is connected; empty if that is not known."""
        return self._unresolved or next((one.lost_reason for one in self.endpoints if one.lost_reason), "")

    async def wait_until_ready(self, timeout_s: float) -> bool:
        """Return whether an endpoint is ready within *timeout_s* seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while not any(endpoint.state == "ready" for endpoint in self.endpoints):
            if loop.time() >= end:
                return False
            await asyncio.sleep(0.01)
        return True

    async def close(self, grace_s: float) -> None:
        """Close all endpoints; calls in flight get up to *grace_s* seconds."""
        if self._resolver is not None:
            self._resolver.cancel()
            await asyncio.gather(self._resolver, return_exceptions=True)
        self._outlier_detector.close()
        endpoints, self.endpoints = self.endpoints, ()
        await asyncio.gather(*(endpoint.close(grace_s) for endpoint in endpoints), *self._closing)

    def _make_room(self, sheds: Sheds) -> WorkerEndpoint | Failed:
        """Return an endpoint at which another call was ended; Failed if there is none."""
        if sheds != "None":
            for endpoint in _most_preferred(self.endpoints):
                if endpoint.calls.shed(self._full, sheds):
                    return endpoint
        return self._full

    def _less_loaded(self, endpoints: Sequence[WorkerEndpoint]) -> WorkerEndpoint:
        if len(endpoints) == 1:
            return endpoints[0]
        first = self._pick(len(endpoints))
        second = self._pick(len(endpoints) - 1)
        one, other = endpoints[first], endpoints[second + (second >= first)]
        chosen = one if one.calls.free >= other.calls.free else other
        if not chosen.calls.free:
            # Two of many are full; a refusal must mean that all are.
            chosen = max(endpoints, key=lambda endpoint: endpoint.calls.free)
        return chosen

    async def _keep_resolving(self) -> None:
        while True:
            await asyncio.sleep(RESOLVE_EVERY_S if self.endpoints else RESOLVE_WITHOUT_ENDPOINT_S)
            try:
                await self._resolve()
            except ConfigError as error:
                # A TLS file is being replaced: the endpoints stay, and the next attempt reads all of it.
                log.error("worker pool %s: endpoints not updated: %s", self.settings.name, error)

    async def _resolve(self) -> None:
        """Update the endpoints to the addresses of the targets.

        A name that cannot be resolved keeps its last addresses.
        """
        unresolved = []
        for target in self._targets:
            try:
                self._addresses[target] = await addresses_of(target)
            except OSError as error:
                unresolved.append(f"{target} cannot be resolved: {error.strerror or error}")
        reason = "; ".join(unresolved)
        if reason and reason != self._unresolved:
            log.warning("worker pool %s: name resolution failed: %s", self.settings.name, reason)
        self._unresolved = reason
        wanted: dict[str, str | None] = {}
        for target in self._targets:
            wanted.update(self._addresses.get(target, {}))
        kept = {endpoint.address: endpoint for endpoint in self.endpoints}
        # All dialers before the first endpoint: if TLS files cannot be read, nothing is left to close.
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
        if dialers or gone:
            log.debug(
                "worker pool endpoints changed: %s: %d added, %d removed, %d now",
                *(self.settings.name, len(dialers), len(gone), len(endpoints)),
            )
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
    """Return the ready endpoints, or the best of the others."""
    ready = [endpoint for endpoint in endpoints if endpoint.state == "ready"]
    if ready:
        return ready
    best = min(PREFERENCE[endpoint.state] for endpoint in endpoints)
    return [endpoint for endpoint in endpoints if PREFERENCE[endpoint.state] == best]


def tls_fingerprint(settings: WorkerPool) -> object:
    """Return a value that changes with the pool's TLS files, which endpoints read at their creation."""
    tls = settings.tls
    files = (tls.ca_file, tls.cert_file, tls.key_file) if tls is not None else ()
    return fingerprint([file for file in files if file is not None])
