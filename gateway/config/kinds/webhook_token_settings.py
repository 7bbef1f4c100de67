"""``authentication.webhookTokens``: which tokens of API servers are accepted, and whose keys verify them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.text import shown
from gateway.config.kinds.client_config import CONFIGURATION_KINDS, url_problems
from gateway.config.kinds.files import read_ca_file, read_json_web_keys
from gateway.config.kinds.names import dns_1123_subdomain

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.yaml.fields import Fields

DEFAULT_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
MAX_ITEMS: Final = 20
JWKS_FROM: Final = ("Cluster", "Issuer")


@dataclass(frozen=True, slots=True)
class BoundRegistration:
    """A webhook configuration that tokens may be bound to."""

    kind: str
    name: str
    uid: str | None = None
    """None: also after it was deleted and created again."""


@dataclass(frozen=True, slots=True)
class WebhookTokenSettings:
    """The tokens that are accepted."""

    issuer: str = DEFAULT_ISSUER
    """The claim ``iss``: ``--service-account-issuer`` of the API server."""
    audiences: tuple[str, ...] = ()
    """URLs at which API servers call the gateway, without the path; at least one."""
    jwks_file: Path | None = None
    """The issuer's public keys; None: they are read from ``jwks_from``."""
    jwks_from: str = "Cluster"
    """``Cluster`` (the API server of ``kubernetes``) or ``Issuer`` (OpenID Connect Discovery)."""
    issuer_ca_file: Path | None = None
    """Roots for the issuer's certificate; None: those of the system."""
    registrations: tuple[BoundRegistration, ...] = ()
    """Empty: any that has the audience."""

    @property
    def needs_cluster(self) -> bool:
        """Whether the keys are read from the cluster's API server."""
        return self.jwks_file is None and self.jwks_from == "Cluster"


def read_webhook_tokens(fields: Fields | None, folder: Path) -> WebhookTokenSettings | None:
    """Return the settings behind *fields*; None if there are none."""
    if fields is None:
        return None
    if fields.has("jwksFile") and fields.has("jwksFrom"):
        fields.problem("jwksFile", "is not allowed together with jwksFrom")
    jwks_from = fields.choice("jwksFrom", JWKS_FROM, "Cluster")
    if fields.has("issuerCAFile") and jwks_from != "Issuer":
        fields.problem("issuerCAFile", "is for jwksFrom: Issuer alone")
    issuer = fields.string("issuer", DEFAULT_ISSUER)
    if jwks_from == "Issuer":
        for message in url_problems(issuer):
            fields.problem("issuer", message)
    audiences = fields.strings("audiences", _audience)
    entries = fields.mappings("registrations")
    for name, found in (("audiences", audiences), ("registrations", entries)):
        if len(found) > MAX_ITEMS:
            fields.problem(name, f"found {len(found)}, expected at most {MAX_ITEMS}")
    if not audiences:
        fields.problem("audiences", "is required, expected the URL at which API servers call the gateway")
    settings = WebhookTokenSettings(
        issuer,
        audiences,
        read_json_web_keys(fields, "jwksFile", folder),
        jwks_from,
        read_ca_file(fields, "issuerCAFile", folder),
        tuple(map(_read_registration, entries)),
    )
    fields.finish()
    return settings


def _read_registration(fields: Fields) -> BoundRegistration:
    kind = fields.choice("kind", CONFIGURATION_KINDS)
    # Also the names of kube-apiserver's files, which end in .static.k8s.io.
    name = fields.required_string("name", dns_1123_subdomain)
    registration = BoundRegistration(kind, name, fields.string("uid", None))
    fields.finish()
    return registration


def _audience(text: str) -> str | None:
    if problems := url_problems(text):
        return problems[0]
    return f"found {shown(text)}, expected it without a slash at the end" if text.endswith("/") else None
