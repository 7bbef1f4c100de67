"""Runs reviews through the webhooks and workers of a configuration, without the HTTPS front end."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.engine.admit import needs_namespace
from gateway.engine.cluster_source import NO_CLUSTER
from gateway.engine.dry_run import BOTH_PHASES
from gateway.engine.engine import Engine
from gateway.engine.second_pass import changed_again
from gateway.observe.telemetry.metrics import Metrics
from gateway.pure.core.matching import Selection
from gateway.pure.core.review import decode
from gateway.server.process.local_workers import STOP_GRACE_S, LocalWorkers, targets_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from gateway.config.merge.model import Config
    from gateway.engine.dry_run import DryRun
    from gateway.engine.engine import Change
    from gateway.engine.paths import Paths
    from gateway.engine.policy_check import PolicyCheck
    from gateway.engine.second_pass import ChangedAgain
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.webhook import Phase
    from gateway.server.cluster import ClusterOnce

_READY_WITHIN_S: Final = 10.0
OWN_READY_WITHIN_S: Final = 30.0
"""For workers that a command starts: longer than a running gateway waits, because a review without them would
report their failures as if they were the policies'."""


class OfflineGateway:
    """The webhooks of one configuration with their workers; see :func:`offline_gateway`."""

    def __init__(
        self, engine: Engine, change: Change, policies: PolicyCheck, cluster: ClusterOnce | None
    ) -> None:
        snapshot = change.snapshot
        self.dry_run = engine.dry_run
        self.config: Config = change.config
        """The configuration, with the custom resources of the cluster."""
        self.policy_versions: Mapping[tuple[str, str], tuple[str, ...]] = policies.versions()
        """By pool and policy, the versions that the workers have. One without a version has an empty one."""
        self.paths: Paths = snapshot.paths
        """The webhooks that each path of the front end selects."""
        self.namespaces: Mapping[str, Namespace] = snapshot.namespaces
        """The namespaces of the configuration, by name."""
        self.digest = snapshot.digest
        """The digest of the configuration."""
        self._cluster = cluster

    @property
    def ca_problems(self) -> list[str]:
        """Lines about ``caBundleFrom`` without certificates, whose webhooks are not called."""
        bundles = () if self._cluster is None else self._cluster.ca_bundles.bundles
        return [bundle.warning for bundle in bundles if bundle.state == "missing"]

    async def review(
        self,
        body: bytes,
        phases: Sequence[Phase] = BOTH_PHASES,
        namespaces: Mapping[str, Namespace] | None = None,
        webhooks: Collection[str] = (),
        objects: FixedParams | None = None,
    ) -> DryRun:
        """Return the review *body*, an AdmissionReview as JSON, after *phases*.

        *namespaces* replaces the namespaces of the configuration and of the cluster, and *objects* what
        policies read there. Of *webhooks*, if there are any, only those with these names take part.

        Raises:
            ReviewError: *body* is not a valid review.
            ClusterError: the namespace of the request is needed, and the cluster is unreachable.
        """
        selections = [self._selection(phase, webhooks) for phase in phases]
        if namespaces is None and self._cluster is not None:
            request = decode(body)
            is_needed = any(needs_namespace(selection, request) for selection in selections)
            found = await self._cluster.namespaces.get(request.namespace) if is_needed else None
            namespaces = {} if found is None else {found.name: found}
        return await self.dry_run(body, selections, namespaces=namespaces, objects=objects)

    async def changed_again(
        self, run: DryRun, objects: FixedParams | None = None
    ) -> tuple[ChangedAgain, ...]:
        """Return who changes the results of *run*, a review with *objects*, when it is called again.

        Raises:
            ReviewError: a result nests too deeply to be sent again.
        """
        return await changed_again(self.dry_run, run, objects=objects)

    def _selection(self, phase: Phase, webhooks: Collection[str]) -> Selection:
        whole = self.paths[f"/{phase}"]
        if not webhooks:
            return whole
        named = [webhook for webhook in whole.webhooks if webhook.name in webhooks]
        return Selection(phase, named, whole.exceptions)


@asynccontextmanager
async def offline_gateway(config: Config, *, uses_cluster: bool = True) -> AsyncIterator[OfflineGateway]:
    """Start the workers that *config* has a command for, connect to the others, and end them on exit.

    Parameters are checked as by ``serve``, with the schemas of the workers that are connected at the start.

    With *uses_cluster*, namespaces, decisions of the authorizer, custom resources, CA bundles and parameters
    of policies come from the cluster that *config* names. No requests are sent to backends of policies.

    Raises:
        ConfigError: a pool's TLS files are unreadable.
        ClusterError: custom resources are needed, and the cluster is unreachable.
    """
    settings = config.gateway.kubernetes if uses_cluster else None
    if config.gateway.policies.backends:
        policies = replace(config.gateway.policies, backends=())
        config = replace(config, gateway=replace(config.gateway, policies=policies))
    cluster: ClusterOnce | None = None
    if settings is not None:
        # Imported late: it loads much, which only a configuration with a cluster needs.
        from gateway.server.cluster import ClusterOnce

        cluster = ClusterOnce(settings)
    try:
        async with local_engine(_READY_WITHIN_S) as engine:
            watch = engine.policy_check()
            try:
                change = engine.activate(await engine.prepare(config, cluster or NO_CLUSTER))
                watch.activate(change.config, change.pools)
                await watch.read_all()
                yield OfflineGateway(engine, change, watch, cluster)
            finally:
                await watch.close()
    finally:
        if cluster is not None:
            await cluster.close()


@asynccontextmanager
async def local_engine(others_within_s: float) -> AsyncIterator[Engine]:
    """Make an engine that starts the workers of its configuration, and ends them and itself on exit.

    Other workers have *others_within_s* seconds until they are reachable.
    """
    runtime = Path(tempfile.mkdtemp(prefix="admission-gateway-"))
    workers = LocalWorkers(runtime)
    engine = Engine(
        Metrics(),
        lambda pool: targets_of(pool, runtime),
        workers,
        own_within_s=OWN_READY_WITHIN_S,
        others_within_s=others_within_s,
    )
    try:
        yield engine
    finally:
        await engine.close()
        await workers.stop(STOP_GRACE_S)
        shutil.rmtree(runtime, ignore_errors=True)
