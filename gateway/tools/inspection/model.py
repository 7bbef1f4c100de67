"""The data of an inspection: findings, the state of a cluster, and its registered entries for a gateway."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from urllib.parse import urlsplit

from admission_gateway_worker.text import printable
from gateway.config.kinds.webhook_configuration import read_webhook_configuration
from gateway.config.kinds.webhook_entry import V1
from gateway.config.yaml.documents import PHASES
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.core.webhook import SideEffects
from gateway.tools.registration.gateway_entries import entries, gateway_indices, gateway_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.base.files import UnusableFileError
    from gateway.pure.core.webhook import CaBundleSource, Phase, Webhook

    Json = Mapping[str, Any]

ServiceKey = tuple[str, str]
"""Namespace and name of a Service."""

Severity = Literal["error", "info", "warning"]

REGISTER: Final = "run admission-gateway manifests --apply again"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """An error, a doubt or a fact about cluster and configuration. Errors sort first."""

    severity: Severity
    place: str
    """The object and the part of it, or the configured webhook."""
    message: str
    """The finding, and the expectation."""
    advice: str
    """What to do. Empty for nothing."""

    def __str__(self) -> str:
        advice = f"; {self.advice}" if self.advice else ""
        return f"{self.severity}: {self.place}: {self.message}{advice}"


@dataclass(frozen=True, slots=True, eq=False)
class RegisteredEntry:
    """One entry that leads to a gateway."""

    place: str
    """``KIND/NAME: webhooks[I] NAME``."""
    phase: Phase
    hook: Webhook
    """The entry as a webhook; its client and its conditions are not set."""
    conditions: tuple[tuple[str, str], ...]
    """Name and expression of each matchCondition."""
    path: str | None
    """The path at the gateway; None if the gateway has no such path."""
    shown_path: str
    service: tuple[str, str, int] | None
    """Namespace, name and port."""
    host: str
    """The name that the gateway's certificate must have."""
    ca_bundle: str
    """Base64; empty if there is none."""
    review_versions: tuple[str, ...]


@dataclass(slots=True)
class ClusterState:
    """The objects that were read from a cluster."""

    configurations: list[dict[str, Any]] = field(default_factory=list)
    """All webhook configurations."""
    services: dict[ServiceKey, Json | None] = field(default_factory=dict)
    """The Services that could be read, None for one that does not exist."""
    ready: dict[ServiceKey, int] = field(default_factory=dict)
    """The number of ready endpoints of each Service."""
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    """The labels of the namespaces that could be read, {} for one that does not exist."""
    ca_bundles: dict[CaBundleSource, bytes | UnusableFileError] = field(default_factory=dict)
    """What ``caBundleFrom`` names: the certificates, PEM, or why there are none."""
    minor: int | None = None
    """The minor version of the API server. None if it is not known."""
    unread: list[str] = field(default_factory=list)
    """A line for each missing right."""


def gateway_entries(documents: Sequence[Json], name: str | None = None) -> list[RegisteredEntry]:
    """Return the entries of *documents*, webhook configurations, that lead to a gateway.

    With *name* only those of the objects that are called so.
    """
    found = []
    for document, indices in zip(documents, gateway_indices(documents), strict=True):
        object_name = str(document["metadata"]["name"])
        if not indices or name not in (None, object_name):
            continue
        kind = str(document["kind"])
        phase = PHASES[kind]
        # Without conditions, which are not compiled here.
        bare = [
            {key: value for key, value in entry.items() if key != "matchConditions"}
            for entry in entries(document)
        ]
        # Problems are not reported: the API server has accepted the object.
        fields = Fields({**document, "webhooks": bare}, "", Problems(object_name))
        hooks = read_webhook_configuration(fields, phase, V1).webhooks
        for index in indices:
            place = f"{kind}/{printable(object_name)}: webhooks[{index}] {printable(hooks[index].name)}"
            entry = entries(document)[index]
            # An object that was created as v1beta1 may have values that v1 no longer allows.
            known = [one for one in get_args(SideEffects) if one == entry.get("sideEffects")]
            hook = replace(hooks[index], side_effects=known[0]) if known else hooks[index]
            found.append(_registered(place, phase, hook, entry))
    return found


def _registered(place: str, phase: Phase, hook: Webhook, entry: Json) -> RegisteredEntry:
    client_config = entry.get("clientConfig") or {}
    service, host, shown_path = None, "", ""
    match client_config:
        case {"service": {"namespace": str(namespace), "name": str(name)} as found}:
            service = namespace, name, int(found.get("port") or 443)
            host, shown_path = f"{name}.{namespace}.svc", str(found.get("path") or "/")
        case {"url": str(url)}:
            # The API server parses URLs by other rules. Without a path the entry leads nowhere.
            with suppress(ValueError):
                host, shown_path = urlsplit(url).hostname or "", urlsplit(url).path
    return RegisteredEntry(
        place=place,
        phase=phase,
        hook=hook,
        conditions=tuple(
            (str(one.get("name")), str(one.get("expression"))) for one in entry.get("matchConditions") or ()
        ),
        path=gateway_path(entry),
        shown_path=printable(shown_path),
        service=service,
        host=host,
        ca_bundle=str(client_config.get("caBundle") or ""),
        review_versions=tuple(map(str, entry.get("admissionReviewVersions") or ())),
    )
