"""The loaded configuration: immutable, made by ``gateway.config.merge.read``, and replaced as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gateway.base.errors import Problem
from gateway.base.text import shown
from gateway.config.kinds.gateway_configuration import GatewaySettings
from gateway.config.kinds.policy_exception import NAMESPACED
from gateway.pure.core.webhook import HttpsClient, PolicyRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.config.kinds.worker_pool import WorkerPool
    from gateway.config.merge.custom_resource import CustomResource
    from gateway.config.yaml.documents import Document
    from gateway.pure.cel.paths import Paths
    from gateway.pure.core.exemptions import PolicyException
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.policy import KindKey
    from gateway.pure.core.webhook import CaBundleSource, Webhook

SOON_S: Final = 7 * 86_400.0
"""How long before its end an exception is named by ``check``."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """That a configuration is a kept one, see ``gateway.server.history``."""

    digest: str
    since: str
    """RFC 3339."""
    resources: tuple[CustomResource, ...]
    """The custom resources that were in force. Those of the cluster are not used."""


@dataclass(frozen=True, slots=True)
class Config:
    """The complete configuration, validated as a whole."""

    mutating: tuple[Webhook, ...] = ()
    """In the order in which they apply: configurations by name in byte order, then as written."""
    validating: tuple[Webhook, ...] = ()
    """Likewise."""
    pools: Mapping[str, WorkerPool] = field(default_factory=dict)
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    exceptions: tuple[PolicyException, ...] = ()
    """By id."""
    configurations: frozenset[tuple[str, str]] = frozenset()
    """(phase, name) of every configuration object, also of those without a webhook."""
    policies: frozenset[tuple[str, str]] = frozenset()
    """(kind, name) of every policy and binding in files."""
    loaded: frozenset[tuple[str, str]] = field(default=frozenset(), repr=False)
    """``KIND.GROUP`` and id of every document of another engine in files."""
    warnings: tuple[Problem, ...] = ()
    """About values that are accepted, but probably a mistake."""
    pinned: Pinned | None = field(default=None, repr=False)
    """None if it is the configuration of the files."""
    source: bytes = field(default=b"", repr=False, compare=False)
    """JSON of the documents in files: a list of objects with ``file`` and ``content``, or empty."""
    objects: tuple[dict[str, Any], ...] = field(default=(), repr=False, compare=False)
    """The objects of files that policies read."""
    object_kinds: frozenset[KindKey] = field(default=frozenset(), repr=False, compare=False)
    """The kinds of objects that policies read, wherever these are."""
    documents: Mapping[str, Document] = field(default_factory=dict, repr=False, compare=False)
    """The documents of files, by ``Problems.where`` and by kind and name."""
    named_files: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The paths that the documents name, and how they write them. Others are from the command line."""

    @property
    def webhooks(self) -> tuple[Webhook, ...]:
        """All of them."""
        return self.mutating + self.validating


def located(problem: Problem, documents: Mapping[str, Document]) -> Problem:
    """Return *problem* with its place in the file, if it names one of *documents*."""
    document = documents.get(problem.where)
    if document is None or not problem.where:
        return problem
    path = problem.field
    if document.path and not path.startswith(document.path):
        path = f"{document.path}.{path}"
    return document.problems.problem(path, problem.message)


def ca_bundle_sources(config: Config) -> frozenset[CaBundleSource]:
    """Return what the webhooks and backends of *config* name in ``caBundleFrom``."""
    webhooks = config.webhooks
    clients = [client for webhook in webhooks for client in webhook.clients]
    clients += config.gateway.policies.backend_clients
    return frozenset(
        client.ca_from for client in clients if isinstance(client, HttpsClient) and client.ca_from is not None
    )


def has_policies(config: Config) -> bool:
    """Whether *config* has any admission policy."""
    return any(isinstance(webhook.client, PolicyRef) for webhook in config.webhooks)


def kinds_read(config: Config) -> dict[KindKey, Paths]:
    """Return the kinds that the policies of *config* read from the cluster, and which parts of them."""
    read: dict[KindKey, list[Paths]] = {}
    for webhook in config.webhooks:
        if isinstance(webhook.client, PolicyRef):
            for kind, paths in webhook.client.reads:
                read.setdefault(kind, []).append(paths)
    if not read:
        return {}
    from gateway.pure.cel.paths import joined

    return {kind: joined(paths) for kind, paths in read.items()}


def merged_versions(config: Config) -> frozenset[tuple[str, str]]:
    """Return groups and versions of the objects that the policies of *config* merge by their schemas."""
    clients = (webhook.client for webhook in config.mutating)
    return frozenset(
        version for client in clients if isinstance(client, PolicyRef) for version in client.merged_versions
    )


def summary(config: Config) -> str:
    """Return one line about *config* for the log."""
    namespaces = len(config.namespaces) if config.gateway.kubernetes is None else "the cluster's"
    return (
        f"webhooks: {len(config.mutating)} mutating, {len(config.validating)} validating; "
        f"worker pools: {len(config.pools)}; namespaces: {namespaces}"
    )


def ending(config: Config, now: float) -> Iterator[Problem]:
    """Yield a problem for each exception of *config* that has expired at *now*, or will within ``SOON_S``.

    *now* is in seconds since 1970.
    """
    for exception in config.exceptions:
        if exception.expires_at is not None and now >= exception.expires_at - SOON_S:
            verb = "expired" if exception.has_expired(now) else "expires soon,"
            message = f"{verb} at {exception.expires}; owner: {exception.owner}"
            yield Problem(f"{NAMESPACED} {shown(exception.id)}", "spec.expires", message)
