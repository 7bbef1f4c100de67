"""One gateway process: its front end, pools and cluster, and the configuration in force."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from prometheus_client import disable_created_metrics

from gateway.base import logs
from gateway.base.errors import ConfigError, Problem
from gateway.base.file_changes import FileChanges
from gateway.config.merge.change_log import log_change
from gateway.engine.cluster_source import NO_CLUSTER
from gateway.engine.engine import Engine
from gateway.engine.snapshot import Surroundings
from gateway.observe.telemetry.exposition import expose
from gateway.observe.telemetry.metrics import Metrics
from gateway.observe.telemetry.window import Window
from gateway.observe.tracing.tracing import Tracing
from gateway.server.cluster_follower import ClusterFollower
from gateway.server.history_keeper import HistoryKeeper
from gateway.server.pages.process import OneProcess
from gateway.server.pages.routes import Pages
from gateway.server.pages.state import ProcessState, Refusal
from gateway.server.reload import NOT_FOLLOWED, Followers, FromFiles, Reload, Staged
from gateway.server.review_records import ReviewRecords
from gateway.server.reviews import application
from gateway.server.rollout.follower import PlanFollower
from gateway.server.serving.admin import AdminRoutes, admin_listener
from gateway.server.serving.front_end import FrontEnd
from gateway.server.serving.page_access import PageAccess
from gateway.server.token_key_follower import TokenKeyFollower

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from gateway.config.kinds.worker_pool import WorkerPool
    from gateway.config.merge.model import Config
    from gateway.engine.engine import Change, Workers
    from gateway.engine.siblings import Siblings
    from gateway.observe.telemetry.exposition import Exposition
    from gateway.server.options import Options
    from gateway.server.serving.listener import Listener, SharedSockets

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
        workers: Workers | None = None,
        *,
        process: int | None = None,
        siblings: Siblings | None = None,
        shared: SharedSockets | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        """Make a gateway of *options*; *process* is its number if there are several of the same address.

        *siblings* are the others then, and *shared* the sockets of all. *surroundings* are those of the
        process by default.
        *targets* returns the addresses of a pool's workers, and *workers* starts those that have a command.
        """
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.metrics = Metrics("" if process is None else str(process))
        self._files: Config | None = None
        """The part of the configuration in force that is from files."""
        self._options = options
        self._shared = shared
        self._not_ready: str | None = STARTING
        self._surroundings = surroundings or Surroundings()
        self._engine = Engine(
            self.metrics,
            targets,
            workers,
            require_webhooks=options.require_webhooks,
            siblings=siblings,
            surroundings=self._surroundings,
        )
        self._records = ReviewRecords(self.metrics, self._engine, self._keep)
        self._siblings = siblings
        self._judged_revision = 0
        """That of the answers of workers when they were last asked to accept a configuration again."""
        self._follower = ClusterFollower()
        self._front_end = FrontEnd(self._surroundings.now)
        self._refusal: Refusal | None = None
        """The last configuration, if it was refused."""
        self._started_at = time.time()
        self._window = Window(self.metrics)
        self._admin_address = ""
        self.metrics.refused = self._front_end.connections.refused
        self.metrics.refused_tokens = self._front_end.refused_tokens
        self._front_end.connections.on_refused = self._records.decision_log.refused
        self._token_keys = TokenKeyFollower()
        self._admin: Listener | None = None
        self._reloading = asyncio.Lock()
        self._policy_check = self._engine.policy_check()
        self._tracing = Tracing()
        self.metrics.spans = self._tracing.counts
        self._changes = FileChanges(self._fingerprint)
        self._cluster_refusal = ""
        """Why the last change of custom resources is not in force. Empty if it is."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeper = HistoryKeeper(options.history, options.sources, process or 0)
        self.metrics.history = self._keeper if options.keeps_history else None
        records = self._records
        self._plans = PlanFollower(
            self._engine,
            self._surroundings.now,
            records.decision_log.noted,
            options.state / "rollout-plans" if options.keeps_history else None,
            process,
        )
        records.shadows.listener = self._plans.collector
        self.metrics.plans = self._plans.plans.numbers
        self._followers = Followers(
            (("access to the pages", self._activate_pages),),
            (
                ("settings of the log", lambda reload: logs.current.activate(reload.settings.logging)),
                ("reports", lambda reload: records.activate_reports(reload.settings)),
                ("the decision log", lambda reload: records.activate_log(reload.settings)),
                ("recordings", lambda reload: records.activate_recording(reload.settings)),
                ("traces", self._activate_tracing),
                ("the observer of reviews", self._activate_observer),
                ("connections of other clients", self._check_clients),
                ("the log of changes", self._log_change),
                ("the check of policies", self._activate_policy_check),
                ("rollout plans", lambda reload: self._plans.activate(reload.change.config)),
                ("metrics", self._activate_metrics),
                ("the other processes", self._tell_siblings),
                ("the history", self._keep_history),
            ),
            (
                ("the cluster", self._activate_cluster),
                ("keys of webhook tokens", self._activate_token_keys),
            ),
        )

    @property
    def config(self) -> Config | None:
        """The configuration in force, including the custom resources of the cluster."""
        return self._engine.config

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
        records = self._records
        source = OneProcess(
            *(self._state, self._window, records.recent, records.namespaces, records.shadows.findings),
            act=self._plans.plans.act,
        )
        pages = Pages(source, lambda: self._page_access, is_part=self._shared is not None)
        routes = AdminRoutes(self._why_not_ready, self._exposition, pages, self._warnings)
        self._admin = admin_listener(admin_address, routes, self._refresh_pages, self._surroundings.now)
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
        self._records.shadows.close()
        await self._engine.close()
        await self._follower.close()
        await self._plans.plans.close()
        await self._records.close_reports()
        await self._token_keys.close()
        await self._tracing.close()
        if self._admin is not None:
            await self._admin.close()
        await self._records.close()
        await self._keeper.close()

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
        """Return the problems of the configuration, or None if it is in force, and whether these are new."""
        async with self._reloading:
            state, began_at = self._fingerprint(), time.monotonic()
            error = await self._load_and_put_in_force()
            if error is not None:
                self._refusal = Refusal(time.time(), error.problems)
                self._keeper.refused(str(error))
                self._tracing.reloaded(began_at, "files", str(error))
                return error, self._changes.refused(state, str(error))
            self._refusal = None
            self._tracing.reloaded(began_at, "files")
            self._changes.accepted((state[0], *self._fingerprint_in_use))
            return None, False

    async def _load_and_put_in_force(self) -> ConfigError | None:
        """Return why the files are not in force, or None if they are."""
        try:
            await self._put_in_force(await asyncio.to_thread(self._options.load))
        except ConfigError as error:
            return error
        except Exception as error:
            log.exception("internal error: the configuration cannot be put in force")
            return ConfigError([Problem("", "", f"internal error: {type(error).__name__}")])
        return None

    def _fingerprint(self) -> tuple[object, ...]:
        """Return a value that changes with the files of the configuration, and with those that it names."""
        return self._options.fingerprint(), self._engine.fingerprint(), self._tracing.fingerprint()

    @property
    def _fingerprint_in_use(self) -> tuple[object, ...]:
        """The fingerprints of the named files when they were read."""
        return self._engine.fingerprint_in_use, self._tracing.fingerprint_in_use

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
            return not self._engine.is_rejected

    async def _put_in_force(self, files: Config) -> None:
        """Put *files*, with the custom resources of the cluster, in force.

        Raises:
            ConfigError: that is not possible; nothing has changed.
        """
        staged = await self._stage(files)
        # From here on nothing fails halfway: both have been made before.
        change = self._engine.activate(staged.prepared)
        self._activate_front_end(staged, change)
        self._files, self._cluster_refusal = files, ""
        await self._followers.notify(Reload(staged, change))

    async def _stage(self, files: Config) -> Staged:
        """Do everything for *files* that can fail, and change nothing.

        Raises:
            ConfigError: they cannot be used.
        """
        settings, from_files = files.gateway, None
        if files is not self._files:
            from_files = FromFiles(
                self._front_end.stage(settings),
                PageAccess(settings.pages, self._admin_address),
                await self._tracing.stage(settings.tracing),
            )
        cluster = await self._follower.stage(settings, is_start=self.config is None)
        try:
            prepared = await self._engine.prepare(
                files, cluster or NO_CLUSTER, rereads_files=from_files is not None
            )
        except BaseException:
            await self._follower.abandon(cluster)
            raise
        return Staged(files, from_files, cluster, prepared)

    def _activate_front_end(self, staged: Staged, change: Change) -> None:
        if change.is_new:
            from_files, paths = staged.from_files, change.snapshot.paths
            app = application(self._engine.review, paths, self._tracing, self._front_end)
            credentials = None if from_files is None else from_files.credentials
            self._front_end.activate(staged.files.gateway, credentials, app, paths)

    # -- what follows the configuration in force ------------------------------------------------------

    def _activate_pages(self, reload: Reload) -> None:
        from_files = reload.staged.from_files
        if from_files is not None:
            self._page_access = from_files.page_access

    def _activate_tracing(self, reload: Reload) -> None:
        from_files = reload.staged.from_files
        if from_files is not None:
            self._tracing.activate(from_files.tracing)

    def _activate_observer(self, reload: Reload) -> None:
        config, snapshot = reload.change.config, reload.change.snapshot
        has_plans = any(one.plan is not None for one in config.webhooks)
        observer = self._records.observer(
            snapshot,
            self._plans.collector if has_plans else None,
            has_pages=self._page_access.are_on,
            has_stages=has_plans or config.gateway.rollout_plans is not None,
        )
        self._engine.observe(observer)

    def _check_clients(self, reload: Reload) -> None:
        if reload.staged.from_files is not None:
            self._front_end.check_clients(reload.staged.from_files.credentials)

    def _log_change(self, reload: Reload) -> None:
        change = reload.change
        has_new_files = reload.staged.from_files is not None
        log_change(change.before, change.config, has_new_files=has_new_files)

    def _activate_policy_check(self, reload: Reload) -> None:
        self._policy_check.activate(reload.change.config, reload.change.pools)

    def _activate_metrics(self, reload: Reload) -> Awaitable[None]:
        metrics, settings, config = self.metrics, reload.settings, reload.change.config
        metrics.reload_timestamp.set(reload.change.activated_at)
        metrics.reviews_in_flight_limit.set(settings.max_concurrent_reviews)
        metrics.request_bytes_in_flight_limit.set(settings.max_bytes_in_flight)
        metrics.activate(reload.change.snapshot.digest, config.webhooks, config.exceptions)
        return asyncio.to_thread(metrics.begin_counters, config.webhooks)

    def _tell_siblings(self, reload: Reload) -> None:
        if self._siblings is not None:
            self._siblings.in_force(reload.change.config, reload.change.snapshot.digest)

    def _keep_history(self, reload: Reload) -> None:
        self._keeper.keep(reload.change.merged, reload.change.snapshot.digest)

    def _activate_cluster(self, reload: Reload) -> None:
        self._follower.activate(reload.staged.cluster, reload.change.merged)

    def _activate_token_keys(self, reload: Reload) -> None:
        self._token_keys.activate(reload.settings, self._front_end.tokens)

    def _check(self) -> None:
        """Check files and workers; the listener calls it about once a second."""
        if self._not_ready == DRAINING:
            # stop() would not close what a reload makes.
            return
        if not self._reloading.locked() and self._changes.is_due():
            self._keep(self._reload_changed_files())
        self._policy_check.check()
        if self._engine.is_rejected and self._policy_check.revision != self._judged_revision:
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
        return self._policy_check.warnings() + self._follower.warnings + self._plans.plans.faults

    def _warnings(self) -> list[str]:
        refused = [] if self._refusal is None else self._refusal.problems[:MAX_REFUSAL_LINES]
        lines = [f"configuration refused, the one in force stays: {one}" for one in refused]
        lines += [f"{NOT_FOLLOWED}: {name}" for name in self._followers.failed]
        return self._keeper.warnings + lines + self._follower.refusals + self._faults()

    def _refresh_pages(self) -> None:
        self._page_access.refresh()

    def _state(self) -> ProcessState | None:
        """Return the state for the pages, or None before the first configuration is in force."""
        if self.config is None or self._engine.snapshot is None:
            return None
        return ProcessState(
            config=self.config,
            snapshot=self._engine.snapshot,
            dry_run=self._engine.dry_run,
            loaded_at=self._engine.activated_at,
            started_at=self._started_at,
            refusal=self._refusal,
            refused_resources=self._follower.refused,
            not_ready=self._why_not_ready(),
            faults=self._faults(),
            in_flight=self._front_end.router.in_flight,
            placed=() if (placement := self._follower.placement) is None else placement.placed,
            exception_uses=self.metrics.exceptions.by_id,
            plans=self._plans.plans.views(),
            disputes=self.metrics.disputes,
        )

    async def _exposition(self, accept: bytes) -> Exposition:
        metrics, front_end = self.metrics, self._front_end
        is_refused = (
            self._changes.is_refused
            or self._cluster_refusal
            or self._follower.refused
            or self._followers.failed
        )
        metrics.reviews_in_flight.set(front_end.router.in_flight)
        metrics.request_bytes_in_flight.set(front_end.connections.bytes.total_bytes)
        metrics.reload_successful.set(not is_refused and front_end.is_current)
        if front_end.certificate_expiry is not None:
            metrics.certificate_expiry.set(front_end.certificate_expiry)
        self._engine.count_endpoints()
        metrics.watch = self._follower.watch_state
        metrics.ca_bundles = Counter(one.state for one in self._follower.ca_bundles)
        placement = self._follower.placement
        metrics.placement = None if placement is None else placement.counts
        metrics.placement_corrections = {} if placement is None else placement.corrections
        metrics.findings_dropped = self._records.findings_dropped
        return await asyncio.to_thread(expose, metrics.registry, accept)


def _log_refusal(problem: ConfigError) -> None:
    for one in problem.problems:
        log.error("configuration refused, the one in force stays: %s", one)
