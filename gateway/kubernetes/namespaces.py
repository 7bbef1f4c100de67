"""The namespaces of a watched cluster, as the rest of the gateway sees them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.config.names import dns_1123_label
from gateway.errors import ClusterError
from gateway.kubernetes.access import ClusterAccess
from gateway.kubernetes.authorizer import Authorizer
from gateway.kubernetes.namespace_lookups import NamespaceLookups
from gateway.kubernetes.store import Store, UnreadableError, namespace_of
from gateway.kubernetes.watch import Kind, Pace, Watch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.config.model import Kubernetes
    from gateway.core.namespace import Namespace

PATH = "/api/v1/namespaces"

_NOT_FOUND = 404


class ClusterNamespaces:
    """A cluster's namespaces, followed from :meth:`start` to :meth:`close`. Make it on a running loop."""

    def __init__(self, settings: Kubernetes, pace: Pace | None = None) -> None:
        self.settings = settings
        self._access = ClusterAccess(settings)
        self._store = Store(namespace_of)
        kind = Kind(PATH, "namespaces", "NamespaceList")
        self._watch = Watch(self._access, kind, self._store, pace or Pace())
        self._look_ups = NamespaceLookups(self.get)
        self._authorizer = Authorizer(self._access)
        self._task: asyncio.Task[None] | None = None
        self.by_name: Mapping[str, Namespace] = self._store.by_name
        """As they are at any moment."""
        self.look_up = self._look_ups.look_up
        """Asks for one that is not among them."""
        self.authorize = self._authorizer.authorize
        """Gets decisions of the API server's authorizer."""

    @property
    def not_synced(self) -> str | None:
        """Why the namespaces have not been read even once; None when they have been."""
        if self._watch.synced.is_set():
            return None
        return f"namespaces not synced: {self._watch.last_error}"

    @property
    def is_connected(self) -> bool:
        """Whether changes arrive."""
        return self._watch.is_connected

    async def start(self) -> None:
        """Begin to follow the namespaces; this does not wait for the API server.

        Raises:
            ClusterError: the kubeconfig or the service account cannot be used.
        """
        async with self._access.api():
            self._task = asyncio.create_task(self._watch.run())

    async def wait_until_synced(self, timeout_s: float) -> bool:
        """Return whether all namespaces have been read within *timeout_s* seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._watch.synced.wait()
        except TimeoutError:
            return False
        return True

    async def get(self, name: str) -> Namespace | None:
        """Return the namespace *name*, asked for now; None if there is none.

        What can be no namespace's name is not asked for: as part of a path, "." would be all of them.

        Raises:
            ClusterError: the API server cannot be asked, or refuses.
        """
        if dns_1123_label(name) is not None:
            return None
        async with self._access.api() as api:
            try:
                return namespace_of(await api.get(f"{PATH}/{name}"))
            except UnreadableError as error:
                raise ClusterError(f"{api.url}: sent {error}") from None
            except ClusterError as error:
                if error.status != _NOT_FOUND:
                    raise
                return None

    async def close(self) -> None:
        """End the watch, and let questions that are out end, which takes some seconds at most."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(self._look_ups.close(), self._authorizer.close())
        await self._access.close()
