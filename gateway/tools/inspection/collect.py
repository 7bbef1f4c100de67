"""Reads the objects that an inspection needs from a cluster, and notes the rights that are missing.

Minimal rights: ``list`` of mutatingwebhookconfigurations and validatingwebhookconfigurations. With ``get`` of
services and namespaces, and ``list`` of endpointslices, more is checked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gateway.base.errors import ClusterError
from gateway.server.kubernetes.access import connect
from gateway.server.kubernetes.apply import count_ready
from gateway.server.kubernetes.ca_bundles import read_once
from gateway.server.kubernetes.version import VERSION, minor_of
from gateway.server.kubernetes.webhook_configurations import list_webhook_configurations
from gateway.tools.inspection.model import ClusterState, gateway_entries
from gateway.tools.inspection.namespaces import excluded

if TYPE_CHECKING:
    from collections.abc import Collection

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.pure.core.webhook import CaBundleSource
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.inspection.model import ServiceKey

    Json = dict[str, Any]

_FORBIDDEN, _NOT_FOUND = 403, 404


async def collect(cluster: KubernetesSettings, name: str | None) -> ClusterState:
    """Return the objects related to the gateway's registrations in *cluster*, or to those called *name*.

    Raises:
        ClusterError: the cluster cannot be reached, or the right to read registrations is missing.
    """
    api = await asyncio.to_thread(connect, cluster)
    try:
        seen = ClusterState(await list_webhook_configurations(api))
        seen.minor = minor_of(await _get(api, VERSION, f"get {VERSION}", seen))
        entries = gateway_entries(seen.configurations, name)
        services = {one.service[:2] for one in entries if one.service is not None}
        for key in sorted(services):
            await _read_service(api, key, seen)
        for namespace in excluded(entries):
            unread = len(seen.unread)
            found = await _get(api, f"/api/v1/namespaces/{quote(namespace, safe='')}", "get namespaces", seen)
            if len(seen.unread) == unread:
                labels = ((found or {}).get("metadata") or {}).get("labels") or {}
                seen.labels[namespace] = {key: str(value) for key, value in labels.items()}
    finally:
        await api.close()
    return seen


async def collect_ca_bundles(
    cluster: KubernetesSettings, sources: Collection[CaBundleSource], seen: ClusterState
) -> None:
    """Read what *sources* name into *seen*.

    Raises:
        ClusterError: the cluster cannot be reached.
    """
    api = await asyncio.to_thread(connect, cluster)
    try:
        async for source, found in read_once(api, sources):
            if not isinstance(found, ClusterError):
                seen.ca_bundles[source] = found
            elif found.status != _FORBIDDEN:
                raise found
            else:
                seen.unread.append(f"the right to get {source} is missing")
    finally:
        await api.close()


async def _read_service(api: ApiClient, key: ServiceKey, seen: ClusterState) -> None:
    namespace, name = (quote(part, safe="") for part in key)
    unread = len(seen.unread)
    path = f"/api/v1/namespaces/{namespace}/services/{name}"
    found = await _get(api, path, f"get services in namespace {key[0]}", seen)
    if len(seen.unread) == unread:
        seen.services[key] = found
    try:
        seen.ready[key] = await count_ready(api, key)
    except ClusterError as error:
        if error.status == _NOT_FOUND:
            seen.ready[key] = 0
            return
        if error.status != _FORBIDDEN:
            raise
        right = f"list endpointslices of discovery.k8s.io in namespace {key[0]}"
        seen.unread.append(f"the right to {right} is missing")


async def _get(
    api: ApiClient, path: str, right: str, seen: ClusterState, params: dict[str, str] | None = None
) -> Json | None:
    """Return the object at *path*; None if there is none, or if *right* is missing, which is noted."""
    try:
        return await api.get(path, params)
    except ClusterError as error:
        if error.status == _FORBIDDEN:
            seen.unread.append(f"the right to {right} is missing")
        elif error.status != _NOT_FOUND:
            raise
        return None
