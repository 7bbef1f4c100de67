"""Reads from a cluster what the computation needs, and notes the rights that are missing.

Rights: ``list`` of pods, namespaces, nodes, services and priorityclasses, and of both kinds of webhook
configurations. Nothing is written.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from gateway.base.errors import ClusterError
from gateway.server.kubernetes.access import connect
from gateway.server.kubernetes.webhook_configurations import list_all
from gateway.tools.deadlocks.subjects import ClusterObjects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings

    Json = dict[str, Any]

_PATHS: Final = {
    "pods": "/api/v1/pods",
    "namespaces": "/api/v1/namespaces",
    "nodes": "/api/v1/nodes",
    "services": "/api/v1/services",
    "priority_classes": "/apis/scheduling.k8s.io/v1/priorityclasses",
}
"""By field of ``ClusterObjects``."""
_FORBIDDEN, _NOT_FOUND = 403, 404


async def collect(cluster: KubernetesSettings, configurations: Sequence[Json]) -> ClusterObjects:
    """Return the objects of *cluster*, whose webhook configurations have been read.

    Raises:
        ClusterError: the cluster cannot be reached.
    """
    found = ClusterObjects(configurations)
    missing = []
    api = await asyncio.to_thread(connect, cluster)
    try:
        for name, path in _PATHS.items():
            plural = path.rpartition("/")[2]
            try:
                setattr(found, name, await list_all(api, path, plural))
            except ClusterError as error:
                if error.status == _FORBIDDEN:
                    missing.append(plural)
                elif error.status != _NOT_FOUND:
                    raise
    finally:
        await api.close()
    if missing:
        found.unread = f"the right to list {', '.join(missing)} of all namespaces is missing"
    return found
