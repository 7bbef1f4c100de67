"""The entries of a cluster's registrations that lead to a gateway, as the gateway's own reader reads them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from urllib.parse import urlsplit

from gateway.config.documents import PHASES
from gateway.config.fields import Fields, Report
from gateway.config.webhooks import V1, read_webhook_configuration
from gateway.core.webhook import SideEffects
from gateway.registration.gateway_entries import entries, gateway_indices, gateway_path
from gateway.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.core.webhook import Phase, Webhook

    Json = Mapping[str, Any]

Place = tuple[str, str]
"""Namespace and name."""

Severity = Literal["error", "warning"]

REGISTER: Final = "run admission-gateway manifests --apply again"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing that is wrong, or doubtful, between cluster and configuration. They sort errors first."""

    severity: Severity
    place: str
    """The object, and what in it; or the configured webhook."""
    message: str
    """What was found, and what was expected."""
    advice: str
    """What to do."""

    def __str__(self) -> str:
        return f"{self.severity}: {self.place}: {self.message}; {self.advice}"


@dataclass(frozen=True, slots=True, eq=False)
class RegisteredEntry:
    """One entry that leads to a gateway."""

    place: str
    """``KIND/NAME: webhooks[I] NAME``."""
    phase: Phase
    hook: Webhook
    """What the entry says; its client and its conditions mean nothing here."""
    conditions: tuple[tuple[str, str], ...]
    """Name and expression of each matchCondition."""
    path: str | None
    """The gateway's path; None if it is none."""
    shown_path: str
    service: tuple[str, str, int] | None
    """Namespace, name and port."""
    host: str
    """The name that the gateway's certificate has to hold."""
    ca_bundle: str
    """Base64; empty where there is none."""
    review_versions: tuple[str, ...]


@dataclass(slots=True)
class ClusterState:
    """What a cluster has, as far as it may be read."""

    configurations: list[dict[str, Any]] = field(default_factory=list)
    """All webhook configurations."""
    services: dict[Place, Json | None] = field(default_factory=dict)
    """None: there is none. One that may not be read is not in it."""
    ready: dict[Place, int] = field(default_factory=dict)
    """How many endpoints of a Service are ready."""
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of namespaces, {} where there is none. One that may not be read is not in it."""
    unread: list[str] = field(default_factory=list)
    """The rights that are missing, a line each."""


def gateway_entries(documents: Sequence[Json], name: str | None = None) -> list[RegisteredEntry]:
    """Return the entries of *documents*, as the API server has them, that lead to a gateway.

    With *name* only those of the objects that are called so.
    """
    found = []
    for document, places in zip(documents, gateway_indices(documents), strict=True):
        object_name = str(document["metadata"]["name"])
        if not places or name not in (None, object_name):
            continue
        kind = str(document["kind"])
        phase = PHASES[kind]
        # Conditions are looked at as they are written, and not compiled.
        bare = [
            {key: value for key, value in entry.items() if key != "matchConditions"}
            for entry in entries(document)
        ]
        # What the reader objects to has no place here: the API server has taken the object.
        fields = Fields({**document, "webhooks": bare}, "", Report(object_name))
        hooks = read_webhook_configuration(fields, phase, V1).webhooks
        for place in places:
            label = f"{kind}/{printable(object_name)}: webhooks[{place}] {printable(hooks[place].name)}"
            entry = entries(document)[place]
            # An object that was made as v1beta1 may have what v1 no longer takes.
            known = [one for one in get_args(SideEffects) if one == entry.get("sideEffects")]
            hook = replace(hooks[place], side_effects=known[0]) if known else hooks[place]
            found.append(_registered(label, phase, hook, entry))
    return found


def _registered(place: str, phase: Phase, hook: Webhook, entry: Json) -> RegisteredEntry:
    client_config = entry.get("clientConfig") or {}
    service, host, shown_path = None, "", ""
    match client_config:
        case {"service": {"namespace": str(namespace), "name": str(name)} as found}:
            service = namespace, name, int(found.get("port") or 443)
            host, shown_path = f"{name}.{namespace}.svc", str(found.get("path") or "/")
        case {"url": str(url)}:
            # The API server reads URLs by other rules; without a path it is said to lead nowhere.
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
