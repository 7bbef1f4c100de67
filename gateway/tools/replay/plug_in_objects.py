"""The objects that the API server's own plug-ins read, from manifests and from a cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from gateway.base.errors import ClusterError
from gateway.config.kinds.names import dns_1123_label
from gateway.pure.workloads.known import (
    INGRESS_CLASS,
    LIMIT_RANGE,
    NAMESPACED,
    PRIORITY_CLASS,
    RUNTIME_CLASS,
    SERVICE_ACCOUNT,
    STORAGE_CLASS,
    KnownObjects,
)
from gateway.server.kubernetes.access import ClusterAccess
from gateway.tools.replay.cluster import listed_items

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings

    Json = dict[str, Any]
    GroupKind = tuple[str, str]

RESOURCES: Final = {
    LIMIT_RANGE: ("v1", "limitranges"),
    SERVICE_ACCOUNT: ("v1", "serviceaccounts"),
    PRIORITY_CLASS: ("scheduling.k8s.io/v1", "priorityclasses"),
    RUNTIME_CLASS: ("node.k8s.io/v1", "runtimeclasses"),
    STORAGE_CLASS: ("storage.k8s.io/v1", "storageclasses"),
    INGRESS_CLASS: ("networking.k8s.io/v1", "ingressclasses"),
}
_MAX_WRITTEN: Final = 20_000
_MAX_NAMESPACES: Final = 1000
"""Of a cluster, that are kept."""
NOT_READ: Final = (401, 403, 404)
"""Statuses of lists that the account may not read, or that the cluster does not have."""


def list_path(kind: GroupKind, namespace: str = "") -> str:
    """Return the path of the list of *kind*, one of ``RESOURCES``, in *namespace* or in all."""
    version, resource = RESOURCES[kind]
    prefix = "/apis" if "/" in version else "/api"
    middle = f"/namespaces/{namespace}" if namespace else ""
    return f"{prefix}/{version}{middle}/{resource}"


class PlugInObjects:
    """The objects by namespace: those of manifests before those of a cluster. Make it on a running loop."""

    def __init__(self, cluster: KubernetesSettings | None, note: Callable[[str], None]) -> None:
        """*note* is called once with each list that *cluster* refuses: of those, nothing is known."""
        self._access = None if cluster is None else ClusterAccess(cluster)
        self._note = note
        self._noted: set[str] = set()
        self._written: dict[str, KnownObjects] = {}
        self._number = 0
        self._read: dict[str, asyncio.Task[KnownObjects]] = {}

    def add(self, found: Json, namespace: str) -> None:
        """Take *found*, an object of the manifests, if plug-ins read it; *namespace* if it names none."""
        if self._number >= _MAX_WRITTEN:
            return
        metadata = found.get("metadata")
        own = metadata.get("namespace") if isinstance(metadata, dict) else None
        kind = found.get("kind")
        is_namespaced = any(kind == of for _, of in NAMESPACED)
        name = str(own or namespace) if is_namespaced else ""
        self._number += self._written.setdefault(name, KnownObjects(name)).add(found)

    async def of(self, namespace: str) -> KnownObjects:
        """Return what is known for the objects in *namespace*; empty for those in none.

        Raises:
            ClusterError: the cluster cannot be reached.
        """
        known = KnownObjects(namespace)
        for name in dict.fromkeys((namespace, "")):
            if name in self._written:
                known = known.before(self._written[name])
            if self._access is not None and (not name or dns_1123_label(name) is None):
                known = known.before(await self._of_cluster(name))
        return known

    async def close(self) -> None:
        """Release the connection."""
        for task in self._read.values():
            task.cancel()
        await asyncio.gather(*self._read.values(), return_exceptions=True)
        if self._access is not None:
            await self._access.close()

    async def _of_cluster(self, namespace: str) -> KnownObjects:
        """Return what the cluster has in *namespace*, or what it has in none."""
        if namespace not in self._read:
            while len(self._read) >= _MAX_NAMESPACES:
                # A review may still wait for it, so it is not cancelled.
                self._read.pop(next(iter(self._read)))
            self._read[namespace] = asyncio.create_task(self._listed(namespace))
        return await asyncio.shield(self._read[namespace])

    async def _listed(self, namespace: str) -> KnownObjects:
        found: dict[GroupKind, dict[str, Json]] = {}
        whole = set()
        assert self._access is not None
        async with self._access.api() as api:
            for kind, (version, resource) in RESOURCES.items():
                if (kind in NAMESPACED) != bool(namespace):
                    continue
                known = KnownObjects(namespace, found)
                try:
                    async for item, _ in listed_items(api, list_path(kind, namespace), self._note_once):
                        known.add({**item, "apiVersion": version, "kind": kind[1]})
                except ClusterError as error:
                    if error.status not in NOT_READ:
                        raise
                    self._note_once(f"{resource} of the cluster are not considered: {error}")
                    continue
                whole.add(kind)
        return KnownObjects(namespace, found, frozenset(whole))

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)
