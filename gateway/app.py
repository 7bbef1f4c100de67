"""One gateway process: makes the pieces, knows them all, and swaps the configuration under them."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, disable_created_metrics, generate_latest

from gateway.admit import Admission
from gateway.cluster_follower import Cluster, ClusterFollower
from gateway.config.model import summary
from gateway.errors import ConfigError
from gateway.paths import Paths
from gateway.serving.admin import ADMIN_BOUNDS, AdminRoutes
from gateway.serving.authentication import ClientAuthenticator
from gateway.serving.connection_table import Bounds, ConnectionTable
from gateway.serving.files import Changes
from gateway.serving.listener import Listener
from gateway.serving.routes import Router, RouterSettings
from gateway.serving.sockets import affordable_connections
from gateway.serving.tls import ServerCertificate
from gateway.snapshot import Pools
from gateway.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from gateway.config.model import Config, WorkerPool
    from gateway.core.matching import Selection
    from gateway.options import Options
    from gateway.serving.message import HttpRequest
    from gateway.snapshot import Prepared, Snapshot

    Selected = tuple[Snapshot, Selection]

log = logging.getLogger(__name__)

STARTING: Final = "starting"
"""Why a gateway is not ready that does not listen yet."""


class Gateway:
    """A gateway on the running event loop: :meth:`start` it, and :meth:`stop` it when told to."""

    def __init__(
        self, options: Options, targets: Callable[[WorkerPool], Sequence[str]], *, reuse_port: bool = False
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.metrics = Metrics()
        self.config: Config | None = None
        """The configuration in force, with what custom resources add."""
        self._files: Config | None = None
        """The part of it that is from files."""
        self._options = options
        self._reuse_port = reuse_port
        self._not_ready: str | None = STARTING
        self._admission = Admission(self.metrics)
        self._pools = Pools(self.metrics, targets)
        self._watched = ClusterFollower()
        self._reloading = asyncio.Lock()
        self._changes = Changes(lambda: (options.fingerprint(), self._pools.fingerprint()))
        self._tasks: set[asyncio.Task[None]] = set()
        self._router: Router[Selected] = Router(
            self._review, {}, fails_open=lambda selected: selected[1].fails_open
        )
        self._connections = ConnectionTable(
            self._router, Bounds.of(affordable_connections(Bounds().connections))
        )
        self.metrics.refused = self._connections.refused
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
        self._admin = Listener(admin_address, ConnectionTable(routes, ADMIN_BOUNDS))
        await self._admin.start()
        seen = self._options.fingerprint()
        await self._put_in_force(config, on_config)
        self._changes.accepted((seen, self._pools.made_of))
        self._listener = Listener(
            settings.listen,
            self._connections,
            self._certificate,
            reuse_port=self._reuse_port,
            checks=(lambda: self._look_for_changes(on_config),),
        )
        await self._listener.start()
        self._keep(self._watched.follow(lambda: self._recombine(on_config)))
        self._not_ready = None

    async def stop(self, drain_s: float) -> None:
        """Answer what is in flight, for up to *drain_s* seconds, and close everything."""
        self._not_ready = "draining"
        for task in self._tasks:
            task.cancel()
        if self._listener is not None:
            await self._listener.drain(drain_s)
        await self._pools.close(0.0)
        await self._watched.use(Cluster())
        if self._admin is not None:
            await self._admin.close()

    async def reload(self, on_config: Callable[[Config], None]) -> bool:
        """Load the configuration again and put it in force; return whether that was possible.

        What is wrong with it is logged, and the one in force stays.
        """
        problem, _ = await self._reload(on_config)
        if problem is not None:
            _log_refusal(problem)
        return problem is None

    async def _reload(self, on_config: Callable[[Config], None]) -> tuple[ConfigError | None, bool]:
        """Return what is wrong with the configuration, and whether that is news; None: it is in force."""
        async with self._reloading:
            state = self._options.fingerprint(), self._pools.fingerprint()
            try:
                await self._put_in_force(await asyncio.to_thread(self._options.load), on_config)
            except ConfigError as error:
                return error, self._changes.refused(state, str(error))
            self._changes.accepted((state[0], self._pools.made_of))
            return None, False

    async def _recombine(self, on_config: Callable[[Config], None]) -> bool:
        """Put in force what custom resources say now, beside the files as they were, if that is possible."""
        async with self._reloading:
            try:
                if self._files is not None:
                    await self._put_in_force(self._files, on_config)
            except ConfigError as error:
                _log_refusal(error)
                return False
            return True

    async def _put_in_force(self, files: Config, on_config: Callable[[Config], None]) -> None:
        """Make all that can fail, then swap it in; when this raises, nothing has changed."""
        settings, old = files.gateway, self.config.gateway if self.config is not None else None
        # With the same files only the cluster's part is new: what is broken in them now is not in its way.
        are_new = files is not self._files
        authenticator = (
            ClientAuthenticator(settings.authentication, settings.tls)
            if are_new
            else self._router.authenticator
        )
        certificate = self._certificate
        if certificate is None or old is None or settings.tls != old.tls:
            certificate = ServerCertificate(settings.tls)
        cluster = await self._watched.prepare(settings.kubernetes, is_start=old is None)
        try:
            combined = await cluster.combine(files)
            config = combined.config
            if not are_new and config == self.config:
                await self._watched.use(cluster, combined)
                return
            prepared = await self._pools.prepare(config, rereads_files=are_new)
            snapshot = await self._use_pools(prepared, on_config)
        except BaseException:
            await self._watched.discard(cluster)
            raise
        if (namespaces := cluster.namespaces) is not None:
            snapshot = replace(
                snapshot,
                backends=replace(
                    snapshot.backends, resolve=self._pools.resolver(namespaces.authorize).resolve
                ),
                namespaces=namespaces.by_name,
                look_up=namespaces.look_up,
            )
        earlier, self._router.authenticator = self._router.authenticator, authenticator
        if authenticator is not None and earlier is not None and not authenticator.has_same_clients(earlier):
            self._connections.judge()
        self._certificate = certificate
        if self._listener is not None:
            self._listener.tls = certificate
        bounds, most = self._connections.bounds, settings.max_bytes_in_flight
        self._connections.use(replace(bounds, body_bytes=settings.max_request_bytes, bytes_in_flight=most))
        self._router.replace(
            _Served(snapshot),
            RouterSettings(settings.deadline_reserve_s, settings.max_concurrent_reviews),
        )
        for name in ("listen", "admin_listen", "processes"):
            if old is not None and getattr(settings, name) != getattr(old, name):
                log.warning("GatewayConfiguration: %s changed, which takes effect at the next start", name)
        for warning in config.warnings:
            if are_new or self.config is None or warning not in self.config.warnings:
                log.warning("%s", warning)
        if old is not None:
            log.info("configuration reloaded: %s", summary(config))
        self.config, self._files = config, files
        self.metrics.reload_timestamp.set(time.time())
        await self._watched.use(cluster, combined)

    async def _use_pools(self, prepared: Prepared, on_config: Callable[[Config], None]) -> Snapshot:
        """Return what is *prepared* ready to serve, with workers that are there as far as they will be."""
        try:
            on_config(prepared.config)
            await prepared.wait_until_ready()
            # In a thread: of thousands of webhooks, as a cluster may have, it would keep reviews waiting.
            paths = await asyncio.to_thread(Paths, prepared.config)
        except BaseException:
            await self._pools.discard(prepared)
            raise
        return self._pools.use(prepared, paths)

    def _why_not_ready(self) -> str | None:
        why = self._watched.not_synced
        return f"{STARTING}: {why}" if why and self._not_ready == STARTING else self._not_ready or why

    def _review(self, request: HttpRequest, selected: Selected) -> Callable[[], None]:
        snapshot, selection = selected
        # Not kept beside the request that is made of it, for as long as the review waits.
        body, request.body = request.body, b""
        return self._admission.review(
            snapshot,
            selection,
            body,
            request.deadline,
            lambda body: request.respond(200, body),
            lambda error: self._router.fail(request, error),
        )

    def _look_for_changes(self, on_config: Callable[[Config], None]) -> None:
        if self._router.authenticator is not None and self._router.authenticator.refresh():
            self._connections.judge()
        # Not while draining: what a reload makes would outlive the end of all that there was.
        if self._reloading.locked() or self._not_ready == "draining" or not self._changes.are_due():
            return
        self._keep(self._reload_quietly(on_config))

    def _keep(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload_quietly(self, on_config: Callable[[Config], None]) -> None:
        problem, is_news = await self._reload(on_config)
        if problem is not None and is_news:
            _log_refusal(problem)

    @property
    def _is_current(self) -> bool:
        """Whether what files and custom resources hold is what is in force."""
        authenticator, certificate = self._router.authenticator, self._certificate
        return (
            not (self._changes.is_refused or self._watched.refused)
            and (authenticator is None or authenticator.is_current)
            and (certificate is None or certificate.is_current)
        )

    async def _exposition(self) -> tuple[bytes, str]:
        metrics = self.metrics
        metrics.reviews_in_flight.set(self._router.in_flight)
        metrics.request_bytes_in_flight.set(self._connections.bytes.total_bytes)
        metrics.reload_successful.set(self._is_current)
        if self._certificate is not None:
            metrics.certificate_expiry.set(self._certificate.not_after)
        self._pools.count_endpoints()
        metrics.watch = self._watched.seen
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


def _log_refusal(problem: ConfigError) -> None:
    for one in problem.problems:
        log.error("configuration refused, the one in force stays: %s", one)
