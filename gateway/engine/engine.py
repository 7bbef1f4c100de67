"""The engine: what a configuration and its cluster become, and the reviews by it.

    prepare -> activate -> review, review, ...

``prepare`` does everything that can fail and changes nothing that is in force. ``activate`` replaces the
configuration in force in one step. A review keeps the configuration that it began with.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gateway.base.errors import ConfigError
from gateway.base.together import together
from gateway.config.merge.digest import digest
from gateway.engine.acceptance import RejectedError, blame, judge, to_judge
from gateway.engine.admit import Admission, call_apart
from gateway.engine.cluster_source import NO_CLUSTER
from gateway.engine.dry_run import DryRuns
from gateway.engine.paths import Paths
from gateway.engine.policy_check import PolicyCheck
from gateway.engine.shadow_calls import ShadowCalls
from gateway.engine.snapshot import OTHER_WORKERS_WITHIN_S, OWN_WORKERS_WITHIN_S, Pools, Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gateway.base.errors import Problem
    from gateway.config.kinds.worker_pool import WorkerPool
    from gateway.config.merge.custom_resource import Key
    from gateway.config.merge.merged import Merged
    from gateway.config.merge.model import Config
    from gateway.engine.acceptance import Judged
    from gateway.engine.admit import ReviewObserver
    from gateway.engine.cluster_source import ClusterSource
    from gateway.engine.dispatch.pool import Pool
    from gateway.engine.siblings import Siblings
    from gateway.engine.snapshot import Snapshot, StagedPools
    from gateway.engine.stages import Stages
    from gateway.observe.decisions.record import DecisionRecord
    from gateway.observe.telemetry.metrics import Metrics
    from gateway.pure.core.answer import Review


class Workers(Protocol):
    """The workers that the caller of an engine starts itself."""

    def stage(self, pools: Mapping[str, WorkerPool]) -> None:
        """Start the workers of *pools* that do not run, in addition to those in force."""

    def activate(self) -> None:
        """End the workers that only the configuration before had, once no review can call them."""

    def abandon(self) -> None:
        """End the workers that were only staged."""


class _NoWorkers:
    """No workers: all are started by others."""

    def stage(self, pools: Mapping[str, WorkerPool]) -> None:
        pass

    def activate(self) -> None:
        pass

    def abandon(self) -> None:
        pass


@dataclass(frozen=True, slots=True, eq=False)
class _Next:
    """A configuration that differs from the one in force."""

    pools: StagedPools
    admission: Admission
    """The reviews by it."""
    dry_run: DryRuns


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A configuration that can come into force."""

    merged: Merged
    """The files with the custom resources of the cluster."""
    cluster: ClusterSource
    next: _Next | None
    """None if it is equal to the configuration in force."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A configuration that has come into force, for those that have to know."""

    before: Config | None
    """The configuration before. None if this is the first."""
    merged: Merged
    snapshot: Snapshot
    pools: Mapping[str, Pool]
    activated_at: float
    """In seconds since 1970."""
    is_new: bool
    """Whether the configuration differs from the one before, or files that it names were read again."""

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.merged.config


class Engine:
    """The configuration in force, and the next one. Make it on a running event loop."""

    review: Review
    """Reviews by the configuration in force. There is none before the first :meth:`activate`. A new
    configuration brings a new one: an older one that a caller keeps reviews by the older configuration."""
    dry_run: DryRuns
    """Likewise for commands and pages: ``await dry_run(body)``."""

    def __init__(
        self,
        metrics: Metrics,
        targets: Callable[[WorkerPool], Sequence[str]],
        workers: Workers | None = None,
        *,
        require_webhooks: Callable[[Config, Config | None], None] = lambda config, in_force: None,
        siblings: Siblings | None = None,
        own_within_s: float = OWN_WORKERS_WITHIN_S,
        others_within_s: float = OTHER_WORKERS_WITHIN_S,
        surroundings: Surroundings | None = None,
    ) -> None:
        """Make an engine without a configuration.

        *targets* returns the addresses of the workers of a pool, and *workers* starts those that have a
        command. *require_webhooks* raises a ConfigError for a configuration without webhooks. *siblings* are
        the other processes of the gateway. A new configuration waits *own_within_s* seconds for workers with
        a command, and *others_within_s* for the others. *surroundings* are those of the process by default.
        """
        self.config: Config | None = None
        """The configuration in force, with the custom resources of the cluster. None before the first."""
        self.activated_at = 0.0
        """When it came into force, in seconds since 1970."""
        self.is_rejected = False
        """Whether workers rejected a part of the last prepared configuration. They may accept it later."""
        self._metrics = metrics
        self._workers = workers or _NoWorkers()
        self._require_webhooks = require_webhooks
        self._siblings = siblings
        self._own_within_s = own_within_s
        self.others_within_s = others_within_s
        """How long the next configuration waits for workers that others start."""
        surroundings = surroundings or Surroundings()
        self._compute = surroundings.compute
        self._now = surroundings.now
        self._pools = Pools(metrics, targets, surroundings)
        self._admission: Admission | None = None

    @property
    def stages(self) -> Stages:
        """The stages of rollout plans, for the reviews by all configurations."""
        return self._pools.stages

    @property
    def snapshot(self) -> Snapshot | None:
        """The configuration in force as reviews read it. None before the first."""
        return None if self._admission is None else self._admission.snapshot

    # -- the next configuration -----------------------------------------------------------------------

    async def prepare(
        self, files: Config, cluster: ClusterSource = NO_CLUSTER, *, rereads_files: bool = True
    ) -> Prepared:
        """Return *files*, with the custom resources of *cluster*, ready to come into force.

        Its workers have been reached by then, or have had the time for that, and accept it. Without
        *rereads_files* the files that a configuration names are not read again, and one that is equal to the
        configuration in force needs nothing. One configuration is prepared at a time, and then either
        activated or abandoned.

        Raises:
            ConfigError: the configuration cannot be used, or workers reject a part of it that is in files.
            ClusterError: the custom resources of *cluster* cannot be read.
        """
        self.is_rejected = False
        rejected: dict[Key, tuple[Problem, ...]] = {}
        try:
            while True:
                merged = await cluster.merge(files, rejected)
                self._require_webhooks(merged.config, self.config)
                if not rereads_files and merged.config == self.config:
                    return Prepared(merged, cluster, None)
                try:
                    following = await self._stage(merged.config, cluster, rereads_files=rereads_files)
                    return Prepared(merged, cluster, following)
                except RejectedError as error:
                    self.is_rejected = True
                    self._refuse(error, files, merged, rejected)
        except BaseException:
            cluster.abandon()
            raise

    async def _stage(self, config: Config, cluster: ClusterSource, *, rereads_files: bool) -> _Next:
        """Return the pools and the snapshot of *config* when its workers are ready, or could have been.

        Raises:
            RejectedError: workers reject what is not in force.
            ConfigError: it cannot be used, or another process refuses it.
        """
        bundles = cluster.stage(config)
        pools = await self._pools.stage(config, bundles, rereads_files=rereads_files)
        try:
            self._workers.stage(config.pools)
            await together(
                pools.wait_until_ready(self._own_within_s, self.others_within_s), cluster.wait_until_synced()
            )
            # With the thousands of webhooks of a large cluster this would delay reviews.
            paths, digest_, wanted = await self._compute(
                lambda: (Paths(config), digest(config), to_judge(config, self.config))
            )
            if self.config is not None or self._has_to_judge_first(digest_):
                await self._judge(wanted, pools.by_name, digest_)
            snapshot = self._pools.snapshot(pools, paths, digest_, cluster.view)
            return _Next(pools, Admission(snapshot, self._metrics), DryRuns(snapshot))
        except BaseException:
            await self._abandon(pools)
            raise

    async def abandon(self, prepared: Prepared) -> None:
        """Close what was made for *prepared*, which does not come into force."""
        prepared.cluster.abandon()
        if prepared.next is not None:
            await self._abandon(prepared.next.pools)

    async def _abandon(self, pools: StagedPools) -> None:
        self._workers.abandon()
        await self._pools.abandon(pools)

    def _has_to_judge_first(self, digest_: str) -> bool:
        """Whether the first configuration is judged: this process starts beside others with another one."""
        return self._siblings is not None and self._siblings.have_another_than(digest_)

    async def _judge(self, wanted: Sequence[Judged], pools: Mapping[str, Pool], digest_: str) -> None:
        """Raise RejectedError or ConfigError if workers reject *wanted*, by what all processes know."""
        rejected, is_known = await judge(wanted, pools)
        if rejected:
            raise RejectedError(rejected, digest_)
        siblings = self._siblings
        if not is_known and siblings is not None and (problems := await siblings.follow(digest_)):
            raise ConfigError(list(problems))

    def _refuse(
        self,
        error: RejectedError,
        files: Config,
        merged: Merged,
        rejected: dict[Key, tuple[Problem, ...]],
    ) -> None:
        """Add to *rejected* the custom resources that *error* is about.

        Raises:
            ConfigError: it is about files.
        """
        blamed = [blame(one, files, merged) for one in error.rejected]
        of_files = {problem for problem, key in blamed if key is None or key in rejected}
        if of_files:
            if self._siblings is not None:
                self._siblings.refused(error.digest, sorted(of_files))
            raise ConfigError(sorted(of_files)) from None
        for problem, key in blamed:
            assert key is not None
            rejected[key] = (*rejected.get(key, ()), problem)

    def activate(self, prepared: Prepared) -> Change:
        """Put *prepared* in force, and return what changed. Reviews that have begun keep what they have.

        Whatever can fail was done before, so either all of it is in force, or nothing has changed.
        """
        before, following = self.config, prepared.next
        is_new = following is not None
        if following is not None:
            self._admission = following.admission
            self.review = self._admission.review
            self.config = prepared.merged.config
            self.activated_at = time.time()
            self.dry_run = following.dry_run
            self._pools.activate(following.pools)
            self._workers.activate()
        assert self._admission is not None
        snapshot = self._admission.snapshot
        return Change(before, prepared.merged, snapshot, self.pools, self.activated_at, is_new=is_new)

    def observe(self, observer: ReviewObserver) -> None:
        """Notify *observer*, instead of the metrics alone, of the reviews by the configuration in force."""
        assert self._admission is not None
        self._admission.observer = observer

    def calls_apart(
        self, log_finding: Callable[[dict[str, Any]], None], keep_refusal: Callable[[DecisionRecord], None]
    ) -> ShadowCalls:
        """Return the calls of shadows and candidates, which are made after the answers of reviews.

        *log_finding* and *keep_refusal* take findings without secrets, see ``ShadowCalls``.
        """
        return ShadowCalls(self._metrics, log_finding, keep_refusal, call_apart)

    def policy_check(self, *, logs: bool = True) -> PolicyCheck:
        """Return the check whether workers serve what the configuration in force names, to be activated.

        Without *logs* a change is not logged.
        """
        return PolicyCheck(self._metrics, self._now, self._pools.parameters, logs=logs)

    # -- the pools in force ---------------------------------------------------------------------------

    @property
    def pools(self) -> Mapping[str, Pool]:
        """The worker pools in use."""
        return self._pools.by_name

    def fingerprint(self) -> object:
        """Return a value that changes with the files that the pools read, see ``fingerprint_in_use``."""
        return self._pools.fingerprint()

    @property
    def fingerprint_in_use(self) -> object:
        """The fingerprint of these files when they were read."""
        return self._pools.fingerprint_in_use

    @property
    def deadlines(self) -> int:
        """The number of open deadlines. 0 if no call is in flight."""
        return self._pools.deadlines

    def count_endpoints(self) -> None:
        """Update the gauges of endpoints by state, and of their calls in flight."""
        self._pools.count_endpoints()

    async def close(self, grace_s: float = 0.0) -> None:
        """End all pools; calls in flight get up to *grace_s* seconds."""
        await self._pools.close(grace_s)
