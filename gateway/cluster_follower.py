"""The cluster that a process follows, in step with the configuration in force: namespaces, custom resources.

It outlives snapshots: with the same settings the watches go on through a reload. What custom resources say is
part of the configuration, so that a gateway does not begin without it: a webhook that it does not know of is
a door that stands open. Namespaces can be asked for one by one, and are waited for by readiness alone.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.config.custom import Combined
from gateway.errors import ClusterError, ConfigError, Problem
from gateway.snapshot import ClusterView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.config.model import Config, Kubernetes
    from gateway.kubernetes.custom_resources import CustomResources
    from gateway.kubernetes.namespaces import ClusterNamespaces

log = logging.getLogger(__name__)

SYNCED_WITHIN_S: Final = 10.0
"""How long a reload waits for what is in another cluster, before it is refused."""
SETTLE_S: Final = 0.5
"""From the first change of a custom resource to the reload, which takes all that have come by then: what
belongs together is applied together, and a storm of changes costs two reloads a second at most."""
TRY_AGAIN_AFTER_S: Final = 30.0


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """What is followed of a cluster; both None: nothing. One is equal to itself alone."""

    namespaces: ClusterNamespaces | None = None
    resources: CustomResources | None = None

    async def combine(self, files: Config) -> Combined:
        """Return the configuration that *files* and custom resources are together."""
        return Combined(files) if self.resources is None else await self.resources.combine(files)

    @property
    def view(self) -> ClusterView | None:
        """The part that reviews read; None: no cluster is followed."""
        namespaces = self.namespaces
        if namespaces is None:
            return None
        return ClusterView(namespaces.by_name, namespaces.look_up, namespaces.authorize)

    @property
    def not_synced(self) -> str | None:
        """Why something has not been read even once; None when all has been, or there is nothing."""
        why = None if self.resources is None else self.resources.not_synced
        return why or (None if self.namespaces is None else self.namespaces.not_synced)

    @property
    def is_connected(self) -> bool:
        """Whether changes arrive."""
        parts = (self.namespaces, self.resources)
        return all(part.is_connected for part in parts if part is not None)

    async def close(self) -> None:
        """Let go of the cluster."""
        for part in (self.resources, self.namespaces):
            if part is not None:
                await part.close()


class ClusterFollower:
    """The one cluster that a process follows, or none. Make it on a running event loop."""

    def __init__(self) -> None:
        self.now = Cluster()
        """What counts."""
        self._coming: Cluster | None = None
        """What is being read at the start. Later, what counts is ready whatever becomes of a reload."""
        self._changed = asyncio.Event()

    @property
    def not_synced(self) -> str | None:
        """Why what counts, or at the start what is to count, has not been read even once."""
        return (self._coming or self.now).not_synced

    @property
    def refused(self) -> int:
        """How many custom resources are not in force as they stand."""
        return 0 if self.now.resources is None else self.now.resources.refused

    @property
    def seen(self) -> tuple[bool, int] | None:
        """Whether changes arrive, and how many namespaces there are; None: no cluster is followed."""
        namespaces = self.now.namespaces
        return None if namespaces is None else (self.now.is_connected, len(namespaces.by_name))

    async def prepare(self, settings: Kubernetes | None, *, is_start: bool) -> Cluster:
        """Return what *settings* stand for: what is followed now, or another.

        At the start custom resources are waited for as long as it takes, and namespaces are not; later all
        has been read within ``SYNCED_WITHIN_S``.

        Raises:
            ConfigError: the cluster cannot be used.
        """
        if settings is None:
            return Cluster()
        if self.now.namespaces is not None and self.now.namespaces.settings == settings:
            return self.now
        # The client for it is heavy, and a gateway without a cluster is not to pay for it.
        from gateway.kubernetes.custom_resources import CustomResources
        from gateway.kubernetes.namespaces import ClusterNamespaces

        namespaces = ClusterNamespaces(settings)
        resources = CustomResources(settings, self._changed.set) if settings.custom_resources else None
        cluster = Cluster(namespaces, resources)
        self._coming = cluster if is_start else None
        try:
            await namespaces.start()
            if resources is not None:
                await resources.start()
                await resources.wait_until_synced(None if is_start else SYNCED_WITHIN_S)
            if not is_start:
                await namespaces.wait_until_synced(SYNCED_WITHIN_S)
                if cluster.not_synced is not None:
                    raise ClusterError(cluster.not_synced)
        except BaseException as error:
            await cluster.close()
            if isinstance(error, ClusterError):
                raise ConfigError([Problem("GatewayConfiguration", "kubernetes", str(error))]) from error
            raise
        finally:
            self._coming = None
        return cluster

    async def discard(self, cluster: Cluster) -> None:
        """Let go of what :meth:`prepare` returned and is not to be used."""
        if cluster is not self.now:
            await cluster.close()

    async def use(self, cluster: Cluster, combined: Combined | None = None) -> None:
        """Follow *cluster* from now on, and no other; *combined* is what its resources came to."""
        if cluster.resources is not None and combined is not None:
            cluster.resources.use(combined)
        old, self.now = self.now, cluster
        await self.discard(old)

    async def follow(self, put_in_force: Callable[[], Awaitable[bool]]) -> None:
        """Call *put_in_force* soon after custom resources have changed, until cancelled.

        It returns whether that was possible, and is called again after a while if not.
        """
        while True:
            await self._changed.wait()
            await asyncio.sleep(SETTLE_S)
            self._changed.clear()
            is_done = False
            try:
                is_done = await put_in_force()
            except Exception:
                # Changes that nobody followed any more would be worse than one that is not in force.
                log.exception("custom resources cannot be put in force: internal error")
            if not is_done:
                asyncio.get_running_loop().call_later(TRY_AGAIN_AFTER_S, self._changed.set)
