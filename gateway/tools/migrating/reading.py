"""Reads what ``migrate`` moves: the policies of all engines, and the registered webhooks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.config.yaml.documents import Document
from gateway.config.yaml.fields import Problems
from gateway.tools.importing.objects import is_configuration, title
from gateway.tools.importing.other_engines import GROUPS, NOT_LISTED
from gateway.tools.importing.sources import below
from gateway.tools.registration.gateway_entries import entries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.importing.needs import Resource

    Json = dict[str, Any]


@dataclass(slots=True)
class Read:
    """What files or a cluster contain."""

    documents: list[Document]
    """Those that may be of an engine."""
    webhooks: list[Json]
    """The webhook configurations."""
    missing: list[str] = field(default_factory=list)
    """A message for each right that is missing."""
    replicas: dict[tuple[str, str], int] = field(default_factory=dict)
    """The replicas of Deployments that were asked for, by namespace and name."""


def from_files(paths: Sequence[Path]) -> Read:
    """Return what is in files and folders, also those below them."""
    documents, webhooks = [], []
    for one in below(paths):
        if one.content is not None and is_configuration(one.content) and not one.problems.found:
            webhooks.append(one.content)
        else:
            documents.append(one)
    return Read(documents, webhooks)


def from_cluster(settings: KubernetesSettings, engines: Iterable[str], deployments: Collection[str]) -> Read:
    """Return what a cluster has of *engines*, its webhooks, and the replicas of these *deployments*.

    Raises:
        ClusterError: it is unreachable, or denies to list webhooks.
    """
    # These imports are slow.
    from gateway.server.kubernetes.access import connect
    from gateway.server.kubernetes.api_groups import list_groups
    from gateway.server.kubernetes.webhook_configurations import list_webhook_configurations

    groups = [one for engine in engines for one in GROUPS[engine] if one not in NOT_LISTED]

    async def read() -> Read:
        api = await asyncio.to_thread(connect, settings)
        try:
            webhooks = await list_webhook_configurations(api)
            objects, missing = await list_groups(api, groups, NOT_LISTED)
            documents = [Document(Path(), Problems(f"cluster: {title(one)}"), one) for one in objects]
            return Read(documents, webhooks, missing, await _replicas(api, webhooks, deployments))
        finally:
            await api.close()

    return asyncio.run(read())


def kinds_of_cluster(wanted: Iterable[Resource], settings: KubernetesSettings) -> Mapping[Resource, str]:
    """Return the kinds of *wanted* that the cluster knows.

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


async def _replicas(
    api: ApiClient, webhooks: Iterable[Json], names: Collection[str]
) -> dict[tuple[str, str], int]:
    """Return the replicas of Deployments with these *names* beside the Services of *webhooks*."""
    from gateway.base.errors import ClusterError

    namespaces = sorted({service[0] for one in webhooks for service in services_of(one)})
    found: dict[tuple[str, str], int] = {}
    for namespace in namespaces:
        for name in names:
            try:
                deployment = await api.find(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
            except ClusterError:
                # A right that is missing: the steps then name no number.
                continue
            match deployment:
                case {"spec": {"replicas": int(replicas)}}:
                    found[namespace, name] = replicas
    return found


def services_of(document: Json) -> list[tuple[str, str, int]]:
    """Return namespace, name and port of the Services that the webhook configuration *document* names."""
    found: dict[tuple[str, str, int], None] = {}
    for entry in entries(document):
        match entry:
            case {"clientConfig": {"service": {"namespace": str(namespace), "name": str(name), **rest}}}:
                port = rest.get("port")
                found[namespace, name, port if isinstance(port, int) else 443] = None
    return [*found]
