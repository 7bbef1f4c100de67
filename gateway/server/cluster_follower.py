"""The namespaces, custom resources, CA bundles and parameters of the cluster that a process follows.

The watches continue through a reload that does not change their settings. Custom resources are part of the
configuration, so a gateway starts only after it has read them: an unknown webhook would be bypassed. Single
namespaces can be looked up, so only readiness waits for all of them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from gateway.base.errors import ClusterError, ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from gateway.config.kinds.gateway_configuration import GatewaySettings
    from gateway.config.merge.merged import Merged
    from gateway.engine.credentials.ca_bundle import CaBundle
    from gateway.server.cluster import LiveCluster
    from gateway.server.kubernetes.placement import PolicyPlacement

log = logging.getLogger(__name__)

SYNCED_WITHIN_S: Final = 10.0
"""How long a reload with another cluster waits for its content. Then the reload is refused."""
SETTLE_S: Final = 0.5
"""From the first change of a custom resource to the reload, which includes all changes until then. Related
changes are applied together, and there are at most two reloads a second."""
RETRY_AFTER_S: Final = 30.0


class ClusterFollower:
    """The one cluster that a process follows, or none. Make it on a running event loop."""

    def __init__(self) -> None:
        self._current: LiveCluster | None = None
        self._starting: LiveCluster | None = None
        """The cluster that is being read at the start. A later reload does not affect readiness."""
        self._changed = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def not_synced(self) -> str | None:
        """Which part of the cluster has not been read yet, and why, or None if all has been read."""
        cluster = self._starting or self._current
        return None if cluster is None else cluster.not_synced

    @property
    def refused(self) -> int:
        """The number of custom resources that are not in force in their present form."""
        resources = None if self._current is None else self._current.resources
        return 0 if resources is None else resources.refused

    @property
    def refusals(self) -> list[str]:
        """A line for each custom resource that workers reject."""
        resources = None if self._current is None else self._current.resources
        return [] if resources is None else resources.rejected

    def retry(self) -> None:
        """Put the custom resources in force again, because the cause of a refusal may be over."""
        self._changed.set()

    @property
    def watch_state(self) -> tuple[bool, int] | None:
        """Whether the watches are connected, and the number of namespaces, or None without a cluster."""
        cluster = self._current
        return None if cluster is None else (cluster.is_connected, len(cluster.namespaces.by_name))

    @property
    def ca_bundles(self) -> Sequence[CaBundle]:
        """The root certificates that are followed."""
        return () if self._current is None else self._current.ca_bundles.bundles

    @property
    def warnings(self) -> list[str]:
        """A line for each object of the cluster that the configuration needs and that cannot be read."""
        cluster = self._current
        if cluster is None:
            return []
        found = [one.warning for one in cluster.ca_bundles.bundles]
        found += [] if cluster.resources is None else cluster.resources.warnings
        found += [*cluster.params.warnings, cluster.schemas.warning, cluster.placement.fault]
        return [warning for warning in found if warning]

    @property
    def placement(self) -> PolicyPlacement | None:
        """What moves policies to the API server. None without a cluster."""
        return None if self._current is None else self._current.placement

    async def stage(self, gateway: GatewaySettings, *, is_start: bool) -> LiveCluster | None:
        """Return the cluster of the settings *gateway*: the current one if they are the same, else a new one.

        At the start this waits for custom resources without a limit, and does not wait for namespaces. Later
        it waits for both, up to ``SYNCED_WITHIN_S``.

        Raises:
            ConfigError: the cluster cannot be used.
        """
        settings, engines = gateway.kubernetes, gateway.policies.followed_kinds
        if settings is None:
            return None
        current = self._current
        if current is not None and (current.settings, current.engines) == (settings, engines):
            return current
        # Imported late: a gateway without a cluster does not need the client.
        from gateway.server.cluster import LiveCluster

        cluster = LiveCluster(settings, self._changed.set, engines)
        self._starting = cluster if is_start else None
        try:
            await cluster.start()
            if cluster.resources is not None:
                await cluster.resources.wait_until_synced(None if is_start else SYNCED_WITHIN_S)
            if not is_start:
                await cluster.namespaces.wait_until_synced(SYNCED_WITHIN_S)
                if cluster.not_synced is not None:
                    raise ClusterError(cluster.not_synced)
        except BaseException as error:
            await cluster.close()
            if isinstance(error, ClusterError):
                raise ConfigError([Problem("GatewayConfiguration", "kubernetes", str(error))]) from error
            raise
        finally:
            self._starting = None
        return cluster

    async def abandon(self, cluster: LiveCluster | None) -> None:
        """Close *cluster*, which :meth:`stage` returned and is not needed, unless it is in force."""
        if cluster is not None and cluster is not self._current:
            await cluster.close()

    def activate(self, cluster: LiveCluster | None, merged: Merged) -> None:
        """Follow *cluster* from now on; *merged* is the configuration with its resources."""
        old, self._current = self._current, cluster
        if old is not None and old is not cluster:
            task = asyncio.create_task(old.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        if cluster is not None:
            cluster.activate(merged)

    async def close(self) -> None:
        """Follow no cluster any more."""
        old, self._current = self._current, None
        await self.abandon(old)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def follow(self, put_in_force: Callable[[], Awaitable[bool]]) -> None:
        """Call *put_in_force* soon after each change of custom resources, until cancelled.

        It returns whether it succeeded. After a failure it is called again.
        """
        while True:
            await self._changed.wait()
            await asyncio.sleep(SETTLE_S)
            self._changed.clear()
            is_done = False
            try:
                is_done = await put_in_force()
            except Exception:
                # Continue to follow: a missed change is better than no more changes.
                log.exception(
                    "internal error: cannot put custom resources in force, trying again in %g s",
                    RETRY_AFTER_S,
                )
            if not is_done:
                asyncio.get_running_loop().call_later(RETRY_AFTER_S, self._changed.set)
