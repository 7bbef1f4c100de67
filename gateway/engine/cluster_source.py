"""What the engine reads from the cluster of a configuration.

There are three sources: the gateway follows a cluster by watches, a command reads it once, and a
configuration without a cluster has none. All of them stage the same list for a configuration, so that a
command decides a review as the gateway does.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from gateway.config.merge.merged import Merged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.config.merge.merged import Rejections
    from gateway.config.merge.model import Config
    from gateway.engine.credentials.ca_bundle import CaBundle
    from gateway.engine.moved import MovedPolicies
    from gateway.pure.conditions.resolver import Authorize, LookUpParam
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.policy import FollowedSchemas, Params
    from gateway.pure.core.verdict import Failed
    from gateway.pure.core.webhook import CaBundleSource

    FoundNamespace = Namespace | Failed | None
    """A namespace, None if there is none of that name, or Failed if the look-up failed."""
    NamespaceLookUp = Callable[[str, float, Callable[[FoundNamespace], None]], Callable[[], None]]
    """Looks up a namespace by name within a timeout in seconds, and returns a function that cancels this.
    The callback is called once, with the result, and never before the look-up has returned."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The part of a cluster that reviews read."""

    namespaces: Mapping[str, Namespace]
    """By name; a watch updates it."""
    look_up: NamespaceLookUp | None
    """Looks up a namespace that is not in ``namespaces``. None if there are no others."""
    authorize: Authorize
    params: Params | None = None
    """The objects from which policies take parameters. None if no cluster is followed."""
    look_up_param: LookUpParam | None = None
    """Looks up a parameter that ``params`` has not read yet."""
    schemas: FollowedSchemas | None = None
    """None if objects are merged by the schemas that come with the gateway."""
    moved: MovedPolicies | None = None
    """The policies that API servers evaluate instead of the gateway. None without a cluster."""


class ClusterSource(Protocol):
    """A cluster, as the engine uses it for the next configuration."""

    @property
    def view(self) -> ClusterView | None:
        """The part that reviews read, or None without a cluster."""

    async def merge(self, files: Config, rejected: Rejections) -> Merged:
        """Return the configuration of *files* together with the custom resources of the cluster.

        *rejected* has the problems of resources that workers reject as they are now.

        Raises:
            ClusterError: the custom resources cannot be read.
        """

    def stage(self, config: Config) -> Mapping[CaBundleSource, CaBundle]:
        """Read what *config* needs, beside what the configuration in force needs, and return its CA bundles.

        These are the bundles, and the parameters and schemas of policies; not all may have been read yet.
        """

    async def wait_until_synced(self) -> None:
        """Wait a while until the parameters and schemas of policies have been read."""

    def abandon(self) -> None:
        """Read only what the configuration in force needs: the staged one does not come into force."""


class NoCluster:
    """The source of a configuration without a cluster, and of tests."""

    view: ClusterView | None = None

    async def merge(self, files: Config, rejected: Rejections) -> Merged:
        """Return *files*: there are no custom resources."""
        del rejected
        return Merged(files)

    def stage(self, config: Config) -> Mapping[CaBundleSource, CaBundle]:
        """Return no bundles."""
        del config
        return MappingProxyType({})

    async def wait_until_synced(self) -> None:
        """Do nothing."""

    def abandon(self) -> None:
        """Do nothing."""


NO_CLUSTER: Final = NoCluster()
