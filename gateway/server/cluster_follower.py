"""The namespaces, custom resources, CA bundles and parameters of the cluster that a process follows.

The watches continue through a reload that does not change their settings. Custom resources are part of the
configuration, so a gateway starts only after it has read them: an unknown webhook would be bypassed. Single
namespaces can be looked up, so only readiness waits for all of them.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.errors import ClusterError, ConfigError, Problem
from gateway.config.custom import Combined
from gateway.config.model import ca_bundle_sources, merged_versions, param_kinds
from gateway.engine.snapshot import ClusterView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from gateway.config.custom import Rejections
    from gateway.config.model import Config, KubernetesSettings
    from gateway.engine.credentials.ca_bundle import CaBundle
    from gateway.pure.core.webhook import CaBundleSource
    from gateway.server.kubernetes.ca_bundles import ClusterCaBundles
    from gateway.server.kubernetes.custom_resources import ClusterCustomResources
    from gateway.server.kubernetes.namespaces import ClusterNamespaces
    from gateway.server.kubernetes.params import ClusterParams
    from gateway.server.kubernetes.schemas import ClusterSchemas
    from gateway.server.kubernetes.version import ClusterVersion

log = logging.getLogger(__name__)

SYNCED_WITHIN_S: Final = 10.0
"""How long a reload with another cluster waits for its content. Then the reload is refused."""
PARAMS_WITHIN_S: Final = 2.0
"""How long a configuration waits for the parameters of its policies before it comes into force."""
SETTLE_S: Final = 0.5
"""From the first change of a custom resource to the reload, which includes all changes until then. Related
changes are applied together, and there are at most two reloads a second."""
RETRY_AFTER_S: Final = 30.0


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """The watches of a cluster; without a cluster all are None. Compared by identity."""

    namespaces: ClusterNamespaces | None = None
    resources: ClusterCustomResources | None = None
    ca_bundles: ClusterCaBundles | None = None
    params: ClusterParams | None = None
    schemas: ClusterSchemas | None = None
    version: ClusterVersion | None = None

    async def combine(self, files: Config, rejected: Rejections) -> Combined:
        """Return the configuration of *files* together with the custom resources.

        *rejected* has the problems of resources that workers reject as they are now.
        """
        return Combined(files) if self.resources is None else await self.resources.combine(files, rejected)

    def follow_ca_bundles(self, config: Config) -> Mapping[CaBundleSource, CaBundle]:
        """Follow the bundles of *config*, and return them; not all may have been read yet."""
        return {} if self.ca_bundles is None else self.ca_bundles.follow(ca_bundle_sources(config))

    def follow_for_policies(self, config: Config) -> None:
        """Follow the parameters of the policies of *config*, and the schemas by which they merge objects."""
        if self.params is not None:
            self.params.follow(param_kinds(config), config.gateway.policies.plural_names)
        if self.schemas is not None:
            self.schemas.follow(merged_versions(config))

    async def wait_until_policies_synced(self) -> None:
        """Wait a while until parameters and schemas of policies have been read."""
        for part in (self.params, self.schemas):
            if part is not None:
                await part.wait_until_synced(PARAMS_WITHIN_S)

    @property
    def view(self) -> ClusterView | None:
        """The part that reviews read; None: no cluster is followed."""
        namespaces, params = self.namespaces, self.params
        if namespaces is None or params is None:
            return None
        return ClusterView(namespaces.by_name, namespaces.look_up, namespaces.authorize, params, self.schemas)

    @property
    def not_synced(self) -> str | None:
        """Which part has not been read yet, and why; None: all has been read."""
        why = None if self.resources is None else self.resources.not_synced
        return why or (None if self.namespaces is None else self.namespaces.not_synced)

    @property
    def is_connected(self) -> bool:
        """Whether the watches of namespaces, custom resources and parameters are connected."""
        parts = (self.namespaces, self.resources, self.params)
        return all(part.is_connected for part in parts if part is not None)

    async def close(self) -> None:
        """End the watches."""
        of_policies = (self.params, self.schemas, self.version)
        for part in (self.resources, self.namespaces, self.ca_bundles, *of_policies):
            if part is not None:
                await part.close()


class ClusterFollower:
    """The one cluster that a process follows, or none. Make it on a running event loop."""

    def __init__(self) -> None:
        self._current = Cluster()
        self._starting: Cluster | None = None
        """The cluster that is being read at the start. A later reload does not affect readiness."""
        self._changed = asyncio.Event()

    @property
    def not_synced(self) -> str | None:
        """Which part of the cluster has not been read yet, and why; None: all has been read."""
        return (self._starting or self._current).not_synced

    @property
    def refused(self) -> int:
        """The number of custom resources that are not in force in their present form."""
        return 0 if self._current.resources is None else self._current.resources.refused

    @property
    def refusals(self) -> list[str]:
        """A line for each custom resource that workers reject."""
        return [] if self._current.resources is None else self._current.resources.rejected

    def retry(self) -> None:
        """Put the custom resources in force again, because the cause of a refusal may be over."""
        self._changed.set()

    @property
    def watch_state(self) -> tuple[bool, int] | None:
        """Whether the watches are connected, and the number of namespaces; None: no cluster is followed."""
        namespaces = self._current.namespaces
        return None if namespaces is None else (self._current.is_connected, len(namespaces.by_name))

    @property
    def ca_bundles(self) -> Sequence[CaBundle]:
        """The root certificates that are followed."""
        followed = self._current.ca_bundles
        return () if followed is None else followed.bundles

    @property
    def warnings(self) -> list[str]:
        """A line for each object of the cluster that the configuration needs and that cannot be read."""
        params, schemas, resources = self._current.params, self._current.schemas, self._current.resources
        found = [one.warning for one in self.ca_bundles]
        found += [] if resources is None else resources.warnings
        found += [] if params is None else params.warnings
        found += [] if schemas is None else [schemas.warning]
        return [warning for warning in found if warning]

    async def prepare(self, settings: KubernetesSettings | None, *, is_start: bool) -> Cluster:
        """Return the cluster of *settings*: the current one if they are the same, else a new one.

        At the start this waits for custom resources without a limit, and does not wait for namespaces. Later
        it waits for both, up to ``SYNCED_WITHIN_S``.

        Raises:
            ConfigError: the cluster cannot be used.
        """
        if settings is None:
            return Cluster()
        if self._current.namespaces is not None and self._current.namespaces.settings == settings:
            return self._current
        # Imported late: a gateway without a cluster does not need the client.
        from gateway.server.kubernetes.ca_bundles import ClusterCaBundles
        from gateway.server.kubernetes.custom_resources import ClusterCustomResources
        from gateway.server.kubernetes.namespaces import ClusterNamespaces
        from gateway.server.kubernetes.params import ClusterParams
        from gateway.server.kubernetes.schemas import ClusterSchemas
        from gateway.server.kubernetes.version import ClusterVersion

        namespaces = ClusterNamespaces(settings)
        resources = ClusterCustomResources(settings, self._changed.set) if settings.custom_resources else None
        cluster = Cluster(
            namespaces,
            resources,
            ClusterCaBundles(settings),
            ClusterParams(settings),
            ClusterSchemas(settings),
            ClusterVersion(settings),
        )
        self._starting = cluster if is_start else None
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
            self._starting = None
        return cluster

    async def discard(self, cluster: Cluster) -> None:
        """Close the result of :meth:`prepare`, which is not used."""
        if cluster is not self._current:
            await cluster.close()
        else:
            for part in (cluster.ca_bundles, cluster.params, cluster.schemas):
                if part is not None:
                    part.use()

    async def use(self, cluster: Cluster, combined: Combined | None = None) -> None:
        """Follow *cluster* from now on; *combined* is the configuration with its resources."""
        if cluster.resources is not None and combined is not None:
            cluster.resources.use(combined)
        if cluster.ca_bundles is not None and combined is not None:
            cluster.ca_bundles.use(ca_bundle_sources(combined.config))
        if cluster.params is not None and combined is not None:
            cluster.params.use(param_kinds(combined.config))
        if cluster.schemas is not None and combined is not None:
            cluster.schemas.use(merged_versions(combined.config))
        if cluster.version is not None and combined is not None:
            cluster.version.use(combined.config)
        old, self._current = self._current, cluster
        await self.discard(old)

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
