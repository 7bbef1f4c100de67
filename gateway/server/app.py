"""One gateway process: its front end, pools and cluster, and the configuration in force."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import disable_created_metrics

from gateway.base.errors import ConfigError
from gateway.base.file_changes import FileChanges
from gateway.config.merge.model import log_change
from gateway.engine.acceptance import Acceptance
from gateway.engine.admit import Admission, Observers
from gateway.engine.cluster_source import NO_CLUSTER
from gateway.engine.policy_check import PolicyCheck
from gateway.engine.shadow_calls import ShadowCalls
from gateway.engine.snapshot import Pools
from gateway.observe.decisions.log import DecisionLog
from gateway.observe.decisions.namespaces import NamespaceCounts
from gateway.observe.decisions.observer import DecisionObserver
from gateway.observe.decisions.recent import RecentDecisions
from gateway.observe.telemetry.exposition import expose
from gateway.observe.telemetry.metrics import Metrics
from gateway.observe.telemetry.window import Window
from gateway.observe.tracing.recording import RecordedTrace
from gateway.observe.tracing.tracing import Tracing
from gateway.pure.core.answer import Origin
from gateway.pure.core.trace import passed_on, read_traceparent
from gateway.server import image_review
from gateway.server.cluster_follower import ClusterFollower
from gateway.server.history_keeper import HistoryKeeper
from gateway.server.pages.process import OneProcess
from gateway.server.pages.routes import Pages
from gateway.server.pages.state import ProcessState, Refusal
from gateway.server.serving.admin import ADMIN_BOUNDS, AdminRoutes
from gateway.server.serving.connection_table import ConnectionTable
from gateway.server.serving.front_end import FrontEnd
from gateway.server.serving.listener import Listener
from gateway.server.serving.page_access import PageAccess
from gateway.server.serving.sockets import ADMIN_PORT
from gateway.server.token_key_follower import TokenKeyFollower

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from gateway.config.kinds.gateway_configuration import GatewaySettings
    from gateway.config.kinds.worker_pool import WorkerPool
    from gateway.config.merge.model import Config
    from gateway.engine.admit import ReviewObserver
    from gateway.engine.siblings import Siblings
    from gateway.engine.snapshot import Snapshot
    from gateway.observe.decisions.observer import DecisionSink
    from gateway.observe.recording.recorder import Recorder
    from gateway.observe.telemetry.exposition import Exposition
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.deadline import Deadline
    from gateway.pure.core.matching import Selection
    from gateway.server.options import Options
    from gateway.server.reports.observer import Reporter
    from gateway.server.serving.listener import SharedSockets
    from gateway.server.serving.message import Cancel, Exchange

log = logging.getLogger(__name__)

STARTING: Final = "starting"
"""Why a gateway is not ready that does not listen yet."""
DRAINING: Final = "draining"
MAX_REFUSAL_LINES: Final = 20
"""Problems of a refused configuration in ``/readyz?verbose``. The log has all."""


class Gateway:
    """A gateway on the running event loop, from :meth:`start` to :meth:`stop`."""

    _page_access: PageAccess

    def __init__(
        self,
        options: Options,
        targets: Callable[[WorkerPool], Sequence[str]],
        on_config: Callable[[Config], None] = lambda config: None,
        *,
        process: int | None = None,
        siblings: Siblings | None = None,
        shared: SharedSockets | None = None,
    ) -> None:
        """Make a gateway of *options*; *process* is its number if there are several of the same address.

        *siblings* are the others then, and *shared* the sockets of all.
        *targets* returns the addresses of a pool's workers. *on_config* is called with each configuration
        before it comes into force.
        """
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.metrics = Metrics("" if process is None else str(process))
        self.config: Config | None = None
        """The configuration in force, including the custom resources of the cluster."""
        self._files: Config | None = None
        """The part of it that is from files."""
        self.decision_log = DecisionLog(self.metrics.decision_log)
        self.recent = RecentDecisions()
        """The recent decisions of this process."""
        self.namespaces = NamespaceCounts()
        self._options = options
        self._shared = shared
        self._not_ready: str | None = STARTING
        self._pools = Pools(self.metrics, targets)
        self._acceptance = Acceptance(self._pools, on_config, options.require_webhooks, siblings)
        self._judged_revision = 0
        """That of the answers of workers when they were last asked to accept a configuration again."""
        self._follower = ClusterFollower()
        self._front_end = FrontEnd()
        self._refusal: Refusal | None = None
        """The last configuration, if it was refused."""
        self._snapshot_in_force: Snapshot | None = None
        self._loaded_at = self._started_at = time.time()
        self._window = Window(self.metrics)
        self._admin_address = ""
        self.metrics.refused = self._front_end.connections.refused
        self.metrics.refused_tokens = self._front_end.refused_tokens
        self._front_end.connections.on_refused = self.decision_log.refused
        self._reporter: Reporter | None = None
        self._recorder: Recorder | None = None
        """None: nothing was recorded so far."""
        self._token_keys = TokenKeyFollower()
        self._admin: Listener | None = None
        self._reloading = asyncio.Lock()
        clock = asyncio.get_running_loop().time
        self._policy_check = PolicyCheck(self.metrics, clock, self._pools.parameters)
        self._shadows = ShadowCalls(self.metrics, self.decision_log.found_afterwards)
        self._tracing = Tracing()
        self.metrics.spans = self._tracing.counts
        self._changes = FileChanges(self._fingerprint)
        self._cluster_refusal = ""
        """Why the last change of custom resources is not in force; empty: it is."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeper = HistoryKeeper(options.history, options.sources, process or 0)
        self.metrics.history = self._keeper if options.keeps_history else None

    @property
    def port(self) -> int:
        """The port of the HTTPS front end."""
        return self._front_end.port

    @property
    def admin_port(self) -> int:
        """The admin port."""
        assert self._admin is not None
        return self._admin.port

    async def start(self, config: Config, admin_address: str) -> None:
        """Serve *config*, and its successors as the files and the cluster change.

        Raises:
            ConfigError: the configuration cannot be used, for example because an address is in use.
        """
        self._admin_address = admin_address
        self._page_access = PageAccess(config.gateway.pages, admin_address)
        source = OneProcess(self._state, self._window, self.recent, self.namespaces, self._shadows.findings)
        pages = Pages(source, lambda: self._page_access, is_part=self._shared is not None)
        routes = AdminRoutes(self._why_not_ready, self._exposition, pages, self._warnings)
        table = ConnectionTable(routes, ADMIN_BOUNDS)
        self._admin = Listener(admin_address, table, checks=(self._refresh_pages,), role=ADMIN_PORT)
        await self._admin.start()
        seen = self._options.fingerprint()
        await self._put_in_force(config)
        self._changes.accepted((seen, *self._fingerprint_in_use))
        await self._front_end.start(config.gateway.listen, self._check, self._shared)
        self._keep(self._follower.follow(self._reload_cluster))
        self._keep(self._window.keep())
        self._not_ready = None

    async def stop(self, drain_s: float) -> None:
        """Answer the reviews in flight, for up to *drain_s* seconds, and close everything."""
        self._not_ready = DRAINING
        for task in self._tasks:
            task.cancel()
        await self._policy_check.close()
        await self._front_end.drain(drain_s)
        self._shadows.close()
        await self._pools.close(0.0)
        await self._follower.close()
        if self._reporter is not None:
            await self._reporter.close()
        await self._token_keys.close()
        await self._tracing.close()
        if self._admin is not None:
            await self._admin.close()
        await self.decision_log.close()
        if self._recorder is not None:
            await self._recorder.close()
        await self._keeper.close()

    # -- reviews ----------------------------------------------------------------------------------

    def application(self, snapshot: Snapshot) -> Callable[[Exchange, Selection, Deadline], Cancel]:
        """Return the function that the front end calls for each review by *snapshot*."""
        review = Admission(snapshot, self._observer(snapshot)).review
        fail = self._front_end.router.fail
        api_group = self._front_end.api_group
        tracer = self._tracing.tracer
        begin_trace = passed_on if tracer is None else tracer.trace
        of_images = snapshot.paths.of_image_reviews

        def answered(exchange: Exchange, answer: Answer) -> None:
            if answer.selection is of_images:
                image_review.respond(exchange, answer)
            else:
                exchange.respond(200, answer.body)

        def app(exchange: Exchange, selection: Selection, deadline: Deadline) -> Cancel:
            request = exchange.request
            # Not kept for as long as the review waits: the parsed request is kept as well.
            body, request.body = request.body, b""
            if selection is of_images:
                body = image_review.admission_review(body)
            header = request.headers.get(b"traceparent")
            traceparent = "" if header is None else read_traceparent(header)
            origin = Origin(request.target, begin_trace(traceparent), api_group(request))
            rest = selection, body, deadline, partial(answered, exchange), partial(fail, exchange), origin
            if tracer is not None and isinstance(origin.trace, RecordedTrace):
                return tracer.review(review, request.received_at, *rest)
            return review(*rest)

        return app

    def _observer(self, snapshot: Snapshot) -> ReviewObserver:
        """Return the observer of the reviews by *snapshot*."""
        observers: list[ReviewObserver] = [self.metrics]
        sinks: list[DecisionSink] = [self.decision_log] if self.decision_log.is_on else []
        if self._page_access.are_on:
            sinks += [self.recent, self.namespaces]
        if sinks:
            observers.append(DecisionObserver(snapshot.digest, sinks))
        if self._reporter is not None:
            observers.append(self._reporter)
        recording = None if self._recorder is None else self._recorder.observer(snapshot.digest)
        observers += filter(None, (recording, self._shadows.observer(snapshot)))
        return Observers(observers) if len(observers) > 1 else self.metrics

    def _use_reporter(self, settings: GatewaySettings) -> None:
        """Write the reports of *settings* from now on."""
        old = self._reporter
        wanted = settings.reports, settings.kubernetes
        if old is not None and (old.settings, old.cluster) == wanted:
            return
        self._reporter = None
        if settings.reports is not None and settings.kubernetes is not None:
            # Imported late: a gateway without reports does not need the client of the cluster.
            from gateway.server.reports.observer import Reporter

            instance = f"{os.uname().nodename}_{os.getpid()}"
            self._reporter = Reporter(settings.reports, settings.kubernetes, instance)
        if old is not None:
            self._keep(old.close())

    def _use_recorder(self, settings: GatewaySettings) -> None:
        """Record by *settings* from now on."""
        self.metrics.is_recording = settings.record is not None
        if self._recorder is None:
            if settings.record is None:
                return
            # Imported late: it loads RE2, which a gateway without recordings may not need.
            from gateway.observe.recording.recorder import Recorder

            self._recorder = Recorder(self.metrics.recording)
        self._recorder.use(settings.record)

    # -- the configuration ------------------------------------------------------------------------

    async def reload(self) -> bool:
        """Load the configuration again and put it in force; return whether that was possible.

        The problems of a bad configuration are logged, and the one in force stays.
        """
        problem, _ = await self._reload_files()
        if problem is not None:
            _log_refusal(problem)
        return problem is None

    async def _reload_files(self) -> tuple[ConfigError | None, bool]:
        """Return the problems of the configuration, and whether these are new; None: it is in force."""
        async with self._reloading:
            state, began_at = self._fingerprint(), time.monotonic()
            try:
                await self._put_in_force(await asyncio.to_thread(self._options.load))
            except ConfigError as error:
                self._refusal = Refusal(time.time(), error.problems)
                self._keeper.refused(str(error))
                self._tracing.reloaded(began_at, "files", str(error))
                return error, self._changes.refused(state, str(error))
            self._refusal = None
            self._tracing.reloaded(began_at, "files")
            self._changes.accepted((state[0], *self._fingerprint_in_use))
            return None, False

    def _fingerprint(self) -> tuple[object, ...]:
        """Return a value that changes with the files of the configuration, and with those that it names."""
        return self._options.fingerprint(), self._pools.fingerprint(), self._tracing.fingerprint()

    @property
    def _fingerprint_in_use(self) -> tuple[object, ...]:
        """The fingerprints of the named files when they were read."""
        return self._pools.fingerprint_in_use, self._tracing.fingerprint_in_use

    async def _reload_cluster(self) -> bool:
        """Put the changed custom resources in force with the files as they were; return whether it worked."""
        async with self._reloading:
            began_at = time.monotonic()
            try:
                if self._files is not None:
                    await self._put_in_force(self._files)
                    self._tracing.reloaded(began_at, "cluster")
            except ConfigError as error:
                self._tracing.reloaded(began_at, "cluster", str(error))
                if str(error) != self._cluster_refusal:
                    _log_refusal(error)
                self._cluster_refusal = str(error)
                self._refusal = Refusal(time.time(), error.problems)
                return False
            self._refusal = None
            return not self._acceptance.is_rejected

    async def _put_in_force(self, files: Config) -> None:
        """Prepare everything that can fail, then swap it in; when this raises, nothing has changed."""
        settings = files.gateway
        # After a change in the cluster alone, the files are not read again: they may be broken by now.
        credentials = None if files is self._files else self._front_end.load(settings)
        page_access = None if credentials is None else PageAccess(settings.pages, self._admin_address)
        tracing = None if files is self._files else await self._tracing.prepare(settings.tracing)
        cluster = await self._follower.stage(settings.kubernetes, is_start=self.config is None)
        try:
            merged, snapshot = await self._acceptance.accept(
                files, self.config, cluster or NO_CLUSTER, rereads_files=credentials is not None
            )
        except BaseException:
            await self._follower.abandon(cluster)
            raise
        if page_access is not None:
            self._page_access = page_access
        if snapshot is not None:
            self._use_reporter(settings)
            self.decision_log.use(settings.logging)
            self._use_recorder(settings)
            self._snapshot_in_force = snapshot
            self._loaded_at = time.time()
            if tracing is not None:
                self._tracing.use(tracing)
            self._front_end.use(settings, credentials, self.application(snapshot), snapshot.paths)
            log_change(self.config, merged.config, has_new_files=files is not self._files)
            self._policy_check.use(merged.config, self._pools.by_name)
            self.config, self._files = merged.config, files
            self.recent.secret_names = self._shadows.secret_names = settings.logging.decision_log.secret_names
            self.metrics.reload_timestamp.set(self._loaded_at)
            self.metrics.reviews_in_flight_limit.set(settings.max_concurrent_reviews)
            self.metrics.request_bytes_in_flight_limit.set(settings.max_bytes_in_flight)
            self.metrics.use(snapshot.digest, self.config.webhooks, self.config.exceptions)
            self._keeper.keep(merged, snapshot.digest)
        self._cluster_refusal = ""
        if snapshot is not None:
            await asyncio.to_thread(self.metrics.begin_counters, merged.config.webhooks)
        await self._follower.activate(cluster, merged)
        await self._token_keys.use(settings, self._front_end.tokens)

    def _check(self) -> None:
        """Check files and workers; the listener calls it about once a second."""
        if self._not_ready == DRAINING:
            # stop() would not close what a reload makes.
            return
        if not self._reloading.locked() and self._changes.is_due():
            self._keep(self._reload_changed_files())
        self._policy_check.check()
        if self._acceptance.is_rejected and self._policy_check.revision != self._judged_revision:
            # A worker was replaced: it may accept what the others reject.
            self._judged_revision = self._policy_check.revision
            self._changes.retry()
            self._follower.retry()

    async def _reload_changed_files(self) -> None:
        problem, is_new = await self._reload_files()
        if problem is not None and is_new:
            _log_refusal(problem)

    def _keep(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the admin port ---------------------------------------------------------------------------

    def _why_not_ready(self) -> str | None:
        not_synced = self._follower.not_synced
        if not_synced and self._not_ready == STARTING:
            return f"{STARTING}: {not_synced}"
        return self._not_ready or not_synced or self._token_keys.not_read

    def _faults(self) -> list[str]:
        """Return a line for each fault that does not affect readiness."""
        return self._policy_check.warnings() + self._follower.warnings

    def _warnings(self) -> list[str]:
        refused = [] if self._refusal is None else self._refusal.problems[:MAX_REFUSAL_LINES]
        lines = [f"configuration refused, the one in force stays: {one}" for one in refused]
        return self._keeper.warnings + lines + self._follower.refusals + self._faults()

    def _refresh_pages(self) -> None:
        self._page_access.refresh()

    def _state(self) -> ProcessState | None:
        """Return the state for the pages; None: no configuration is in force yet."""
        if self.config is None or self._snapshot_in_force is None:
            return None
        return ProcessState(
            config=self.config,
            snapshot=self._snapshot_in_force,
            loaded_at=self._loaded_at,
            started_at=self._started_at,
            refusal=self._refusal,
            refused_resources=self._follower.refused,
            not_ready=self._why_not_ready(),
            faults=self._faults(),
            in_flight=self._front_end.router.in_flight,
            exception_uses=self.metrics.exceptions.by_id,
        )

    async def _exposition(self, accept: bytes) -> Exposition:
        metrics, front_end = self.metrics, self._front_end
        is_refused = self._changes.is_refused or self._cluster_refusal or self._follower.refused
        metrics.reviews_in_flight.set(front_end.router.in_flight)
        metrics.request_bytes_in_flight.set(front_end.connections.bytes.total_bytes)
        metrics.reload_successful.set(not is_refused and front_end.is_current)
        if front_end.certificate_expiry is not None:
            metrics.certificate_expiry.set(front_end.certificate_expiry)
        self._pools.count_endpoints()
        metrics.watch = self._follower.watch_state
        metrics.ca_bundles = Counter(one.state for one in self._follower.ca_bundles)
        metrics.findings_dropped = None if self._reporter is None else self._reporter.dropped
        return await asyncio.to_thread(expose, metrics.registry, accept)


def _log_refusal(problem: ConfigError) -> None:
    for one in problem.problems:
        log.error("configuration refused, the one in force stays: %s", one)
