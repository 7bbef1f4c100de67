"""``tls``, ``authentication`` and ``pages`` of a GatewayConfiguration: how clients reach the gateway."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gateway.base.text import shown
from gateway.config.kinds.files import read_basic_auth_file, read_ca_file, read_key_pair, read_token_file
from gateway.config.kinds.names import configuration_name, dns_1123_label, dns_1123_subdomain
from gateway.config.kinds.webhook_token_settings import read_webhook_tokens

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.kinds.webhook_token_settings import WebhookTokenSettings
    from gateway.config.yaml.fields import Fields


@dataclass(frozen=True, slots=True)
class SelfManagedTls:
    """A certificate that the gateway issues and renews itself, in a Secret of the cluster."""

    namespace: str
    """Of the Service and the Secret."""
    service: str
    """The Service at which API servers call the gateway; the certificate has its name."""
    secret: str
    registration: str
    """Name of the registered objects whose ``caBundle`` is kept up to date."""

    @property
    def dns_names(self) -> tuple[str, ...]:
        """Names in the certificate. API servers use the first."""
        return tuple(f"{self.service}.{self.namespace}{suffix}" for suffix in (".svc", ""))

    @property
    def secret_key(self) -> tuple[str, str]:
        """Namespace and name of the Secret."""
        return self.namespace, self.secret


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The serving certificate, and the client certificates that are accepted."""

    cert_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None
    """None: no client certificate is requested."""
    client_names: tuple[str, ...] = ()
    """Names allowed in a client's certificate (CN or DNS name); empty: any that the CA signed."""
    self_managed: SelfManagedTls | None = None
    """Where the certificate is kept if the gateway issues it itself; None: it is in the files."""


@dataclass(frozen=True, slots=True)
class Authentication:
    """Files with credentials of clients. None: this way of authentication is off."""

    token_file: Path | None = None
    """One bearer token a line; lines starting with # and blank lines are ignored."""
    basic_auth_file: Path | None = None
    """One ``user:password`` a line."""
    webhook_tokens: WebhookTokenSettings | None = None
    """Tokens of API servers; never for pages."""


@dataclass(frozen=True, slots=True)
class PageSettings:
    """The pages of the admin port."""

    is_enabled: bool = True
    authentication: Authentication = field(default_factory=Authentication)
    """Credentials of readers. Without any, the pages are served over loopback only."""


def read_server_tls(fields: Fields, folder: Path) -> ServerTls:
    """Return the ``tls`` group in *fields*, of a file in *folder*."""
    # A running gateway waits for a new one: it logs an error, and ``check`` fails.
    pair = read_key_pair(fields, folder, warns=False)
    tls = ServerTls(
        cert_file=pair.cert_file,
        key_file=pair.key_file,
        client_ca_file=read_ca_file(fields, "clientCAFile", folder),
        client_names=fields.strings(
            "clientNames", lambda text: None if text else "is empty, expected a name"
        ),
        self_managed=_read_self_managed(fields.mapping("selfManaged")),
    )
    if tls.self_managed is not None and (pair.cert_file or pair.key_file):
        fields.problem("selfManaged", "is not allowed together with certFile and keyFile")
    if tls.client_names and not fields.has("clientCAFile"):
        fields.problem("clientNames", "requires clientCAFile: without it no client certificate is requested")
    fields.finish()
    return tls


def _read_self_managed(fields: Fields | None) -> SelfManagedTls | None:
    if fields is None:
        return None
    place = fields.required_string("service", _service)
    secret = fields.string("secret", "admission-gateway-tls", dns_1123_subdomain)
    registration = fields.string("registration", "admission-gateway", configuration_name)
    fields.finish()
    namespace, _, service = place.partition("/")
    return SelfManagedTls(namespace, service, secret, registration)


def _service(text: str) -> str | None:
    namespace, slash, name = text.partition("/")
    if not slash:
        return f"found {shown(text)}, expected NAMESPACE/NAME"
    return dns_1123_label(namespace) or dns_1123_label(name)


def read_authentication(fields: Fields, folder: Path) -> Authentication:
    """Return the ``authentication`` group in *fields*, of a file in *folder*."""
    tokens = read_webhook_tokens(fields.mapping("webhookTokens"), folder)
    authentication = replace(_read_credential_files(fields, folder), webhook_tokens=tokens)
    fields.finish()
    return authentication


def read_pages(fields: Fields, folder: Path) -> PageSettings:
    """Return the ``pages`` group in *fields*, of a file in *folder*."""
    is_enabled = fields.boolean("enabled") or not fields.has("enabled")
    pages = PageSettings(is_enabled, _read_credential_files(fields, folder))
    fields.finish()
    return pages


def _read_credential_files(fields: Fields, folder: Path) -> Authentication:
    return Authentication(
        token_file=read_token_file(fields, "tokenFile", folder),
        basic_auth_file=read_basic_auth_file(fields, "basicAuthFile", folder),
    )
