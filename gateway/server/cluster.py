"""The cluster of a configuration: followed by watches for the gateway, or read once for a command.

Both are sources of the engine (``gateway.engine.cluster_source``) and stage the same for a configuration.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from gateway.config.merge.merged import Merged
from gateway.config.merge.model import ca_bundle_sources, kinds_read, merged_versions
from gateway.config.yaml.documents import NO_KINDS
from gateway.engine.cluster_source import ClusterView
from gateway.engine.moved import MovedPolicies
from gateway.server.kubernetes.ca_bundles import ClusterCaBundles
from gateway.server.kubernetes.custom_resources import ClusterCustomResources, read_once
from gateway.server.kubernetes.namespaces import ClusterNamespaces
from gateway.server.kubernetes.params import ClusterParams
from gateway.server.kubernetes.placement import PolicyPlacement
from gateway.server.kubernetes.schemas import ClusterSchemas
from gateway.server.kubernetes.version import ClusterVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.merge.merged import Rejections
    from gateway.config.merge.model import Config
    from gateway.config.yaml.documents import FollowedKinds
    from gateway.engine.credentials.ca_bundle import CaBundle
    from gateway.pure.core.webhook import CaBundleSource

FOLLOWED_WITHIN_S: Final = 2.0
"""How long a configuration of the gateway waits for the parameters of its policies before it comes into
force."""
READ_WITHIN_S: Final = 10.0
"""The same for a command."""


class _Cluster:
    """What both sources have. Make it on a running event loop."""

    _within_s: float

    def __init__(self, settings: KubernetesSettings) -> None:
        self.settings = settings
        self.namespaces = ClusterNamespaces(settings)
        self.ca_bundles = ClusterCaBundles(settings)
        self.params = ClusterParams(settings)
        self.schemas = ClusterSchemas(settings)

    def stage(self, config: Config) -> Mapping[CaBundleSource, CaBundle]:
        """Follow the parameters, schemas and bundles of *config* too, and return the bundles."""
        self.params.stage(kinds_read(config), config.gateway.policies.plural_names)
        self.schemas.stage(merged_versions(config))
        return self.ca_bundles.stage(ca_bundle_sources(config))

    async def wait_until_synced(self) -> None:
        """Wait a while until parameters and schemas of policies have been read."""
        await self.params.wait_until_synced(self._within_s)
        await self.schemas.wait_until_synced(self._within_s)

    def abandon(self) -> None:
        """Follow only what is in force."""
        for part in (self.ca_bundles, self.params, self.schemas):
            part.abandon()

    async def close(self) -> None:
        """End the watches and look-ups."""
        for part in (self.namespaces, self.ca_bundles, self.params, self.schemas):
            await part.close()


class LiveCluster(_Cluster):
    """A cluster that is followed, from :meth:`start` to :meth:`close`. Compared by identity."""

    _within_s = FOLLOWED_WITHIN_S

    def __init__(
        self, settings: KubernetesSettings, changed: Callable[[], None], engines: FollowedKinds = NO_KINDS
    ) -> None:
        """*changed* is called after each change of custom resources, those of other *engines* among them."""
        super().__init__(settings)
        self.engines = engines
        self.resources = (
            ClusterCustomResources(settings, changed, engines=engines) if settings.custom_resources else None
        )
        self.version = ClusterVersion(settings)
        moved = MovedPolicies(time.monotonic)
        note = (lambda policies: None) if self.resources is None else self.resources.note_moved
        self.placement = PolicyPlacement(settings, moved, lambda: self.version.minor, evaluated_there=note)
        namespaces, params = self.namespaces, self.params
        self.view = ClusterView(
            namespaces.by_name,
            namespaces.look_up,
            namespaces.authorize,
            params,
            params.look_up,
            self.schemas,
            moved,
        )

    async def start(self) -> None:
        """Begin to follow namespaces and custom resources; this does not wait for the API server.

        Raises:
            ClusterError: the kubeconfig or the service account cannot be used.
        """
        await self.namespaces.start()
        if self.resources is not None:
            await self.resources.start()

    async def merge(self, files: Config, rejected: Rejections) -> Merged:
        """Return *files* together with the custom resources as they are now."""
        return Merged(files) if self.resources is None else await self.resources.merge(files, rejected)

    def activate(self, merged: Merged) -> None:
        """Follow only what *merged* needs, which is in force now, and report on its custom resources."""
        config = merged.config
        self.ca_bundles.activate(ca_bundle_sources(config))
        self.params.activate(kinds_read(config))
        self.schemas.activate(merged_versions(config))
        # After the others, which reviews need.
        self.version.activate(config)
        self.placement.activate(config)
        if self.resources is not None:
            self.resources.activate(merged)

    @property
    def not_synced(self) -> str | None:
        """Which part has not been read yet, and why, or None if all has been read."""
        why = None if self.resources is None else self.resources.not_synced
        return why or self.namespaces.not_synced

    @property
    def is_connected(self) -> bool:
        """Whether the watches of namespaces, custom resources and parameters are connected."""
        resources = self.resources
        return (
            self.namespaces.is_connected
            and (resources is None or resources.is_connected)
            and self.params.is_connected
        )

    async def close(self) -> None:
        """End the watches."""
        await self.placement.close()
        if self.resources is not None:
            await self.resources.close()
        await super().close()
        await self.version.close()


class ClusterOnce(_Cluster):
    """A cluster of which a command reads what it needs, until :meth:`close`."""

    _within_s = READ_WITHIN_S

    def __init__(self, settings: KubernetesSettings) -> None:
        super().__init__(settings)
        params = self.params
        self.view = ClusterView({}, None, self.namespaces.authorize, params, params.look_up, self.schemas)

    async def merge(self, files: Config, rejected: Rejections) -> Merged:
        """Return *files* together with the custom resources, whose problems are logged.

        Raises:
            ClusterError: they cannot be read.
        """
        del rejected
        settings = self.settings
        return Merged(await read_once(settings, files) if settings.custom_resources else files)
