"""Reads the policies of other engines, and the kinds that they name, from a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.config.yaml.documents import Document
from gateway.config.yaml.fields import Problems
from gateway.tools.importing.objects import title
from gateway.tools.importing.other_engines import GROUPS, NOT_LISTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.importing.needs import Resource

    Json = dict[str, Any]


async def list_documents(api: ApiClient, engines: Iterable[str]) -> tuple[list[Document], list[str]]:
    """Return what the cluster has of *engines*, and a message for each missing right.

    Raises:
        ClusterError: it is unreachable.
    """
    from gateway.server.kubernetes.api_groups import list_groups

    groups = [one for engine in engines for one in GROUPS[engine] if one not in NOT_LISTED]
    objects, missing = await list_groups(api, groups, NOT_LISTED)
    return [Document(Path(), Problems(f"cluster: {title(one)}"), one) for one in objects], missing


def documents_of(engine: str, settings: KubernetesSettings) -> tuple[list[Document], list[str]]:
    """Return what the cluster has of *engine*, see ``list_documents``."""
    from gateway.server.kubernetes.access import connect

    async def read() -> tuple[list[Document], list[str]]:
        api = await asyncio.to_thread(connect, settings)
        try:
            return await list_documents(api, [engine])
        finally:
            await api.close()

    return asyncio.run(read())


def kinds_of_cluster(wanted: Iterable[Resource], settings: KubernetesSettings) -> dict[Resource, str]:
    """Return the kinds that the cluster has in the versions of the *wanted* resources.

    Raises:
        ClusterError: it is unreachable.
    """
    from gateway.server.kubernetes.access import connect
    from gateway.server.kubernetes.api_groups import kinds_of_version

    async def read() -> dict[Resource, str]:
        api = await asyncio.to_thread(connect, settings)
        try:
            found = {}
            for version in sorted({version for version, _ in wanted}):
                for plural, kind in (await kinds_of_version(api, version)).items():
                    found[version, plural] = kind
            return found
        finally:
            await api.close()

    return asyncio.run(read())
