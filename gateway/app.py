"""One gateway process: makes the pieces, knows them all, and swaps the configuration under them."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, disable_created_metrics, generate_latest

from gateway.admit import Admission
from gateway.errors import ConfigError
from gateway.serving.admin import AdminRoutes
from gateway.serving.connections import Connections
from gateway.serving.identity import Identity
from gateway.serving.listener import Listener
from gateway.serving.routes import Router, RouterSettings
from gateway.serving.tls import ServerCertificate
from gateway.snapshot import Pools, Watched
from gateway.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.admit import Snapshot
    from gateway.config.model import Config, WorkerPool
    from gateway.core.matching import Selection
    from gateway.options import Options
    from gateway.serving.message import HttpRequest

    Selected = tuple[Snapshot, Selection]

log = logging.getLogger(__name__)

OWN_WORKERS_WITHIN_S: Final = 10.0
OTHER_WORKERS_WITHIN_S: Final = 2.0
"""How long the start waits for workers, so that the first reviews find them: those that the gateway starts
itself, and others. It goes on without those that are missing, since failurePolicy covers them."""

SYNCED_WITHIN_S: Final = 10.0
"""How long a reload waits for the namespaces of another cluster, before it is refused."""

GC_CONTAINERS: Final = 100_000
"""New containers, less those freed, after which the youngest generation is searched for cycles."""


class Gateway:
    """A gateway on the running event loop: :meth:`start` it, and :meth:`stop` it when told to."""

    def __init__(
        self, options: Options, targets: Callable[[WorkerPool], Sequence[str]], *, reuse_port: bool = False
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.metrics = Metrics()
        self.config: Config | None = None
        """The configuration in force."""
        self._options = options
        self._reuse_port = reuse_port
        self._not_ready: str | None = "starting"
        self._admission = Admission(self.metrics)
        self._pools = Pools(self.metrics, targets)
        self._watched = Watched()
        self._reloading = asyncio.Lock()
        self._seen: object = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._router: Router[Selected] = Router(self._review, {})
        self.metrics.refused = self._router.refused
        self._connections = Connections(self._router)
        self._listener: Listener | None = None
        self._admin: Listener | None = None
        self._certificate: ServerCertificate | None = None

    @property
    def port(self) -> int:
        """The port of the HTTPS front end."""
        assert self._listener is not None
        return self._listener.port

    @property
    def admin_port(self) -> int:
        """The admin port."""
        assert self._admin is not None
        return self._admin.port

    async def start(self, config: Config, admin_address: str, on_config: Callable[[Config], None]) -> None:
        """Serve *config*, and its successors as the files change.

        *on_config* is told each configuration before it is put in force, the first one too.

        Raises:
            ConfigError: something that the configuration names cannot be used, such as an address in use.
        """
        settings = config.gateway
        routes = AdminRoutes(self._why_not_ready, self._exposition)
        self._admin = Listener(admin_address, Connections(routes))
        await self._admin.start()
        seen = self._options.fingerprint()
        await self._put_in_force(config, on_config)
        self._seen = seen, self._pools.fingerprint()
        self._listener = Listener(
            settings.listen,
            self._connections,
            self._certificate,
            reuse_port=self._reuse_port,
            checks=(lambda: self._look_for_changes(on_config),),
        )
        has_own = any(pool.command for pool in config.pools.values())
        for name in await self._pools.wait_until_ready(
            OWN_WORKERS_WITHIN_S if has_own else OTHER_WORKERS_WITHIN_S
        ):
            log.warning("worker pool %s: no worker reached yet", name)
        await self._listener.start()
        relax_garbage_collection()
        self._not_ready = None

    async def stop(self, drain_s: float) -> None:
        """Answer what is in flight, for up to *drain_s* seconds, and close everything."""
        self._not_ready = "draining"
        for task in self._tasks:
            task.cancel()
        if self._listener is not None:
            await self._listener.drain(drain_s)
        await self._pools.close(0.0)
        await self._watched.use(None)
        if self._admin is not None:
            await self._admin.close()

    async def reload(self, on_config: Callable[[Config], None]) -> bool:
        """Load the configuration again and put it in force; return whether that was possible.

        What is wrong with it is logged, and the one in force stays.
        """
        async with self._reloading:
            seen = self._options.fingerprint()
            # Also of one that is refused, so that it is not tried again every second.
            self._seen = seen, self._pools.fingerprint()
            try:
                config = await asyncio.to_thread(self._options.load)
                await self._put_in_force(config, on_config)
                self._seen = seen, self._pools.fingerprint()
            except ConfigError as error:
                self.metrics.reload_successful.set(0)
                log.error("configuration refused, the one in force stays:\n%s", error)
                return False
            log.info("configuration reloaded: %s", summary(config))
            return True

    async def _put_in_force(self, config: Config, on_config: Callable[[Config], None]) -> None:
        """Make all that can fail, then swap it in; when this raises, nothing has changed."""
        settings, old = config.gateway, self.config.gateway if self.config is not None else None
        identity = Identity(settings.authentication, settings.tls)
        certificate = self._certificate
        if certificate is None or old is None or settings.tls != old.tls:
            certificate = ServerCertificate(settings.tls)
        within_s = None if old is None else SYNCED_WITHIN_S
        namespaces = await self._watched.prepare(settings.kubernetes, within_s)
        try:
            snapshot = await self._pools.snapshot(config)
        except BaseException:
            await self._watched.discard(namespaces)
            raise
        if namespaces is not None:
            snapshot = replace(snapshot, namespaces=namespaces.by_name, look_up=namespaces.look_up)
        on_config(config)
        self._certificate = certificate
        if self._listener is not None:
            self._listener.tls = certificate
        self._connections.bounds = replace(self._connections.bounds, body_bytes=settings.max_request_bytes)
        self._router.identity = identity
        self._router.replace(
            _Served(snapshot),
            RouterSettings(settings.deadline_reserve_s, settings.max_concurrent_reviews),
        )
        for name in ("listen", "admin_listen", "processes"):
            if old is not None and getattr(settings, name) != getattr(old, name):
                log.warning("GatewayConfiguration: %s changed, which takes effect at the next start", name)
        for warning in config.warnings:
            log.warning("%s", warning)
        self.config = config
        self.metrics.reload_successful.set(1)
        self.metrics.reload_timestamp.set(time.time())
        await self._watched.use(namespaces)

    def _why_not_ready(self) -> str | None:
        namespaces = self._watched.namespaces
        return self._not_ready or (None if namespaces is None else namespaces.not_synced)

    def _review(self, request: HttpRequest, selected: Selected) -> Callable[[], None]:
        snapshot, selection = selected
        return self._admission.review(
            snapshot,
            selection,
            request.body,
            (request.deadline, request.budget_s),
            lambda body: request.respond(200, body),
            lambda error: self._router.fail(request, error),
        )

    def _look_for_changes(self, on_config: Callable[[Config], None]) -> None:
        if self._router.identity is not None:
            self._router.identity.refresh()
        seen = self._options.fingerprint(), self._pools.fingerprint()
        # Not while draining: what a reload makes would outlive the end of all that there was.
        if seen != self._seen and not self._reloading.locked() and self._not_ready != "draining":
            self._seen = seen
            task = asyncio.create_task(self._reload_quietly(on_config))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _reload_quietly(self, on_config: Callable[[Config], None]) -> None:
        await self.reload(on_config)

    async def _exposition(self) -> tuple[bytes, str]:
        metrics = self.metrics
        metrics.reviews_in_flight.set(self._router.in_flight)
        if self._certificate is not None:
            metrics.certificate_expiry.set(self._certificate.not_after)
        self._pools.count_endpoints()
        namespaces = self._watched.namespaces
        metrics.watch = None if namespaces is None else (namespaces.is_connected, len(namespaces.by_name))
        return await asyncio.to_thread(generate_latest, metrics.registry), CONTENT_TYPE_LATEST


class _Served:
    """The paths of a snapshot as the router looks them up: each with the snapshot that it belongs to."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __len__(self) -> int:
        return len(self._snapshot.paths)

    def get(self, path: str, /) -> Selected | None:
        selection = self._snapshot.paths.find(path)
        return None if selection is None else (self._snapshot, selection)


def relax_garbage_collection() -> None:
    """Have the cycle collector run seldom, and skip what is there already.

    Every review parses a few hundred containers that reference counting frees right after the answer. With
    Python's default of 700 the collector would walk them, and the whole configuration, several times per
    review; it took an eighth of the CPU.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_CONTAINERS, 20, 100)


def summary(config: Config) -> str:
    """Return what *config* holds, in one line for the log."""
    namespaces = len(config.namespaces) if config.gateway.kubernetes is None else "the cluster's"
    return (
        f"webhooks: {len(config.mutating)} mutating, {len(config.validating)} validating; "
        f"worker pools: {len(config.pools)}; namespaces: {namespaces}"
    )
