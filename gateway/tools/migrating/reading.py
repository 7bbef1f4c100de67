"""Reads what ``migrate`` moves: the policies of all engines, and the registered webhooks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gateway.tools.importing.cluster import list_documents
from gateway.tools.importing.objects import is_configuration
from gateway.tools.importing.sources import below
from gateway.tools.migrating.engines import ENGINES
from gateway.tools.migrating.kyverno_exceptions import namespaces_of
from gateway.tools.registration.gateway_entries import entries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.yaml.documents import Document
    from gateway.server.kubernetes.api_client import ApiClient

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
    exception_namespaces: tuple[str, ...] | None = None
    """Where Kyverno applies exceptions. None if that is not known."""


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
    from gateway.server.kubernetes.webhook_configurations import list_webhook_configurations

    async def read() -> Read:
        api = await asyncio.to_thread(connect, settings)
        try:
            webhooks = await list_webhook_configurations(api)
            documents, missing = await list_documents(api, engines)
            found = await _deployments(api, webhooks, deployments)
            return Read(documents, webhooks, missing, _replicas(found), _exception_namespaces(found))
        finally:
            await api.close()

    return asyncio.run(read())


async def _deployments(
    api: ApiClient, webhooks: Iterable[Json], names: Collection[str]
) -> dict[tuple[str, str], Json]:
    """Return the Deployments with these *names* beside the Services of *webhooks*, by namespace and name."""
    from gateway.base.errors import ClusterError

    namespaces = sorted({service[0] for one in webhooks for service in services_of(one)})
    found: dict[tuple[str, str], Json] = {}
    for namespace in namespaces:
        for name in names:
            try:
                deployment = await api.find(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
            except ClusterError:
                # A right that is missing: the steps then name no number.
                continue
            if deployment is not None:
                found[namespace, name] = deployment
    return found


def _replicas(deployments: Mapping[tuple[str, str], Json]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for key, deployment in deployments.items():
        match deployment:
            case {"spec": {"replicas": int(replicas)}}:
                found[key] = replicas
    return found


def _exception_namespaces(deployments: Mapping[tuple[str, str], Json]) -> tuple[str, ...] | None:
    controller = ENGINES["kyverno"].controller
    found = [namespaces_of(each) for (_, name), each in deployments.items() if name == controller]
    return tuple(dict.fromkeys(one for each in found for one in each)) if found else None


def services_of(document: Json) -> list[tuple[str, str, int]]:
    """Return namespace, name and port of the Services that the webhook configuration *document* names."""
    found: dict[tuple[str, str, int], None] = {}
    for entry in entries(document):
        match entry:
            case {"clientConfig": {"service": {"namespace": str(namespace), "name": str(name), **rest}}}:
                port = rest.get("port")
                found[namespace, name, port if isinstance(port, int) else 443] = None
    return [*found]
