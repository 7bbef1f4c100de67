"""A loaded configuration made ready to serve: its paths, the pools that are asked, the cluster watched.

Pools and the watch outlive snapshots: what has the same settings keeps its connections through a reload.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.admit import Snapshot
from gateway.core.speculation import ChangeMemory
from gateway.dispatch.deadlines import Deadlines
from gateway.dispatch.dispatcher import Workers
from gateway.dispatch.pool import Pool, tls_fingerprint
from gateway.dispatch.standing import PREFERENCE
from gateway.errors import ClusterError, ConfigError, Problem
from gateway.paths import Paths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gateway.cluster.namespaces import ClusterNamespaces
    from gateway.config.model import Config, Kubernetes, WorkerPool
    from gateway.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

OWN_WORKERS_WITHIN_S: Final = 10.0
OTHER_WORKERS_WITHIN_S: Final = 2.0
"""How long new pools are waited for before reviews are sent to them, so that the first find a worker: those
that the gateway starts itself, and others. It goes on without those that are missing, since failurePolicy
covers them."""

RETIRE_AFTER_S: Final = 31.0
"""Reviews that began with the old configuration, and may still call, have all ended by then."""


async def _retire(pool: Pool) -> None:
    await asyncio.sleep(RETIRE_AFTER_S)
    await pool.close(0.0)


def _is_current(pool: Pool, settings: WorkerPool) -> bool:
    return pool.settings == settings and pool.tls_files == tls_fingerprint(settings)


@dataclass(frozen=True, slots=True)
class Prepared:
    """The pools for a configuration that is not in force yet, by name."""

    config: Config
    kept: Mapping[str, Pool]
    made: Mapping[str, Pool]
    """New ones, which nobody has called yet."""

    async def wait_until_ready(self, others_within_s: float = OTHER_WORKERS_WITHIN_S) -> None:
        """Wait a while for the new pools to reach a worker each; what is missing then is logged."""
        reached = await asyncio.gather(
            *(
                pool.wait_until_ready(OWN_WORKERS_WITHIN_S if pool.settings.command else others_within_s)
                for pool in self.made.values()
            )
        )
        for name, is_ready in zip(self.made, reached, strict=True):
            if not is_ready:
                log.warning("worker pool %s: no worker reached yet", name)


class Pools:
    """The worker pools of a process, kept in step with the configuration in force."""

    def __init__(self, metrics: Metrics, targets: Callable[[WorkerPool], Sequence[str]]) -> None:
        self._metrics = metrics
        self._targets = targets
        self._deadlines = Deadlines(asyncio.get_running_loop())
        self._pools: dict[str, Pool] = {}
        self._retiring: dict[asyncio.Task[None], Pool] = {}

    async def prepare(self, config: Config) -> Prepared:
        """Return the pools that *config* wants, those that are new connecting; none is in use yet.

        Raises:
            ConfigError: a pool's TLS files cannot be read; the pools stay as they were.
        """
        kept = {
            name: self._pools[name]
            for name, settings in config.pools.items()
            if name in self._pools and _is_current(self._pools[name], settings)
        }
        made = {
            name: Pool(settings, self._targets(settings), self._deadlines, self._metrics.pool(name))
            for name, settings in config.pools.items()
            if name not in kept
        }
        prepared = Prepared(config, kept, made)
        try:
            await asyncio.gather(*(pool.start() for pool in made.values()))
        except BaseException:
            # Cancelled, too: a gateway can be told to stop while it starts.
            await self.discard(prepared)
            raise
        return prepared

    async def discard(self, prepared: Prepared) -> None:
        """End the new pools of *prepared*, which is not to be used."""
        await asyncio.gather(*(pool.close(0.0) for pool in prepared.made.values()))

    def use(self, prepared: Prepared) -> Snapshot:
        """Return what was prepared ready to serve. Pools not wanted any more end after ``RETIRE_AFTER_S``."""
        gone = [pool for name, pool in self._pools.items() if name not in prepared.kept]
        self._pools = {**prepared.kept, **prepared.made}
        for pool in gone:
            task = asyncio.create_task(_retire(pool))
            self._retiring[task] = pool
            task.add_done_callback(self._retiring.pop)
        config = prepared.config
        return Snapshot(
            Paths(config),
            Workers(dict(self._pools), self._deadlines.now),
            config.namespaces,
            None,
            ChangeMemory(),
            config.gateway.audit_level,
        )

    def fingerprint(self) -> object:
        """Return what differs from ``made_of`` once a TLS file of a pool has changed."""
        return tuple(tls_fingerprint(pool.settings) for pool in self._pools.values())

    @property
    def made_of(self) -> object:
        """The fingerprint that the TLS files had when the pools were made of them."""
        return tuple(pool.tls_files for pool in self._pools.values())

    async def close(self, grace_s: float) -> None:
        """End all pools; calls in flight get up to *grace_s* seconds."""
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        pools = [*self._pools.values(), *retiring.values()]
        await asyncio.gather(*(pool.close(grace_s) for pool in pools))

    def count_endpoints(self) -> None:
        """Bring the gauge of endpoints by state up to date."""
        gauge = self._metrics.worker_endpoints
        gauge.clear()
        for name, pool in self._pools.items():
            for state in PREFERENCE:
                count = sum(endpoint.state == state for endpoint in pool.endpoints)
                gauge.labels(name, state).set(count)


class Watched:
    """The cluster whose namespaces a process follows, kept in step with the configuration in force."""

    def __init__(self) -> None:
        self.namespaces: ClusterNamespaces | None = None
        """None: no cluster is watched."""

    async def prepare(self, settings: Kubernetes | None, within_s: float | None) -> ClusterNamespaces | None:
        """Return the namespaces that *settings* stand for: those that are followed now, or others.

        Others have been read whole within *within_s* seconds; None: they may still be read later.

        Raises:
            ConfigError: the cluster cannot be used.
        """
        if settings is None or (self.namespaces is not None and self.namespaces.settings == settings):
            return None if settings is None else self.namespaces
        # The client for it is heavy, and a gateway without a cluster is not to pay for it.
        from gateway.cluster.namespaces import ClusterNamespaces

        namespaces = ClusterNamespaces(settings)
        try:
            await namespaces.start()
            if within_s is not None and not await namespaces.wait_until_synced(within_s):
                raise ClusterError(namespaces.not_synced or "namespaces not synced")
        except BaseException as error:
            await namespaces.close()
            if isinstance(error, ClusterError):
                raise ConfigError([Problem("GatewayConfiguration", "kubernetes", str(error))]) from error
            raise
        return namespaces

    async def discard(self, namespaces: ClusterNamespaces | None) -> None:
        """Let go of what :meth:`prepare` returned and is not to be used."""
        if namespaces is not None and namespaces is not self.namespaces:
            await namespaces.close()

    async def use(self, namespaces: ClusterNamespaces | None) -> None:
        """Follow *namespaces* from now on, and no others."""
        old, self.namespaces = self.namespaces, namespaces
        await self.discard(old)
