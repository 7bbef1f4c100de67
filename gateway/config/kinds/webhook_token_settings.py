"""``authentication.webhookTokens``: which tokens of API servers are accepted, and whose keys verify them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.text import shown
from gateway.config.kinds.client_config import CONFIGURATION_KINDS, url_problems
from gateway.config.kinds.declare import (
    Choice,
    Declared,
    File,
    Groups,
    Read,
    Text,
    declare,
    optional,
    required,
)
from gateway.config.kinds.files import read_ca_file, read_json_web_keys
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.config.kinds.validation import excluded

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.yaml.fields import Fields

DEFAULT_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
MAX_ITEMS: Final = 20
JWKS_FROM: Final = ("Cluster", "Issuer")


def _audience(text: str) -> str | None:
    if problems := url_problems(text):
        return problems[0]
    return f"found {shown(text)}, expected it without a slash at the end" if text.endswith("/") else None


def _read_audiences(source: Fields, name: str) -> tuple[str, ...]:
    audiences = source.strings(name, _audience)
    if len(audiences) > MAX_ITEMS:
        source.problem(name, f"found {len(audiences)}, expected at most {MAX_ITEMS}")
    if not audiences:
        source.problem(name, "is required, expected the URL at which API servers call the gateway")
    return audiences


@dataclass(frozen=True, slots=True)
class BoundRegistration(Declared):
    """A webhook configuration that tokens may be bound to."""

    kind: str = required(Choice(CONFIGURATION_KINDS), "")
    name: str = required(Text(check=dns_1123_subdomain), "")
    """Also those of kube-apiserver's files, which end in .static.k8s.io."""
    uid: str | None = optional(Text(), "Absent: also after the object was created again")


@dataclass(frozen=True, slots=True)
class WebhookTokenSettings(Declared):
    """The tokens that are accepted."""

    RULES = (excluded("jwksFile", "jwksFrom", "is not allowed together with jwksFrom"),)
    audiences: tuple[str, ...] = required(
        Read(f"list of URLs, at most {MAX_ITEMS}", _read_audiences, "array"),
        "Where API servers call the gateway, without the path: `https://NAME.NAMESPACE.svc:PORT`, always "
        "with the port, or the `--url` of `manifests`. The claim `aud` has to be one of these with the "
        "path of the request",
    )
    issuer: str = declare(
        Text(), "The claim `iss`: `--service-account-issuer` of kube-apiserver", default=DEFAULT_ISSUER
    )
    jwks_from: str = declare(
        Choice(JWKS_FROM),
        "Who has the public keys: the API server of `kubernetes`, or the issuer by OpenID Connect Discovery",
        default="Cluster",
    )
    jwks_file: Path | None = declare(
        File(read_json_web_keys),
        "The public keys in a file, a JSON Web Key Set. Not together with `jwksFrom`",
        default=None,
    )
    issuer_ca_file: Path | None = declare(
        File(read_ca_file, "path of a PEM file"),
        "Roots of the issuer's certificate. Absent: those of the system. Only with `jwksFrom: Issuer`",
        default=None,
        name="issuerCAFile",
    )
    registrations: tuple[BoundRegistration, ...] = declare(
        Groups(BoundRegistration, MAX_ITEMS),
        "The webhook configurations that a token may be bound to. Absent: any",
        default=(),
    )

    @property
    def needs_cluster(self) -> bool:
        """Whether the keys are read from the cluster's API server."""
        return self.jwks_file is None and self.jwks_from == "Cluster"

    def check(self, source: Fields) -> None:
        """Report settings that require each other."""
        if source.has("issuerCAFile") and self.jwks_from != "Issuer":
            source.problem("issuerCAFile", "is for jwksFrom: Issuer alone")
        if self.jwks_from == "Issuer":
            for message in url_problems(self.issuer):
                source.problem("issuer", message)
