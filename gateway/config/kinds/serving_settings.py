"""``tls``, ``authentication`` and ``pages`` of a GatewayConfiguration: how clients reach the gateway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.base.text import shown
from gateway.config.kinds.declare import (
    Boolean,
    Declared,
    File,
    Group,
    Read,
    Text,
    Texts,
    declare,
    optional,
    required,
)
from gateway.config.kinds.files import read_basic_auth_file, read_ca_file, read_key_pair, read_token_file
from gateway.config.kinds.names import configuration_name, dns_1123_label, dns_1123_subdomain
from gateway.config.kinds.webhook_token_settings import WebhookTokenSettings

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.yaml.fields import Fields


def _service(text: str) -> str | None:
    namespace, slash, name = text.partition("/")
    if not slash:
        return f"found {shown(text)}, expected NAMESPACE/NAME"
    return dns_1123_label(namespace) or dns_1123_label(name)


@dataclass(frozen=True, slots=True)
class SelfManagedTls(Declared):
    """A certificate that the gateway issues and renews itself, in a Secret of the cluster."""

    namespace: str
    """The namespace of the Service and the Secret."""
    service: str = required(
        Text("`NAMESPACE/NAME`"), "The gateway's Service. The certificate is for `NAME.NAMESPACE.svc`"
    )
    secret: str = declare(
        Text(check=dns_1123_subdomain),
        "The Secret, in the namespace of the Service",
        default="admission-gateway-tls",
    )
    registration: str = declare(
        Text(check=configuration_name),
        "Name of the registered objects whose `caBundle` the gateway keeps up to date",
        default="admission-gateway",
    )

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Return the two parts of the Service."""
        namespace, _, service = source.required_string("service", _service).partition("/")
        return {"namespace": namespace, "service": service}

    @property
    def dns_names(self) -> tuple[str, ...]:
        """Names in the certificate. API servers use the first."""
        return tuple(f"{self.service}.{self.namespace}{suffix}" for suffix in (".svc", ""))

    @property
    def secret_key(self) -> tuple[str, str]:
        """Namespace and name of the Secret."""
        return self.namespace, self.secret


@dataclass(frozen=True, slots=True)
class ServerTls(Declared):
    """The serving certificate, and the client certificates that are accepted."""

    cert_file: Path | None = declare(
        File(words="path of a PEM file"),
        "Serving certificate with its chain. Needed to serve, here or by `--tls-cert`",
        default=None,
    )
    key_file: Path | None = declare(File(words="path of a PEM file"), "Its key", default=None)
    client_ca_file: Path | None = declare(
        File(read_ca_file, "path of a PEM file"),
        "Roots of client certificates. Absent: no client certificate is requested",
        default=None,
        name="clientCAFile",
    )
    client_names: tuple[str, ...] = declare(
        Texts(check=lambda text: None if text else "is empty, expected a name"),
        "Allowed common names or DNS names of client certificates. Absent: all that the CA signed. Needs "
        "`clientCAFile`",
        default=(),
    )
    self_managed: SelfManagedTls | None = optional(
        Group(SelfManagedTls),
        "The gateway [issues its certificate itself](install.md#certificates), and keeps it in a Secret; "
        "needs `kubernetes`, and excludes `certFile` and `keyFile`. A change takes effect at the next "
        "start",
    )

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Return the certificate and its key."""
        # A running gateway waits for a new certificate: it logs an error, and ``check`` fails.
        return read_key_pair(source, warns=False)._asdict()

    def check(self, source: Fields) -> None:
        """Report settings that exclude or require each other."""
        if self.self_managed is not None and (self.cert_file or self.key_file):
            source.problem("selfManaged", "is not allowed together with certFile and keyFile")
        if self.client_names and not source.has("clientCAFile"):
            message = "requires clientCAFile: without it no client certificate is requested"
            source.problem("clientNames", message)


@dataclass(frozen=True, slots=True)
class Authentication(Declared):
    """Files with credentials of clients. Without its file, a way of authentication is off."""

    token_file: Path | None = declare(
        File(read_token_file),
        "Bearer tokens, one a line. Blank lines and lines that begin with `#` are skipped",
        default=None,
    )
    basic_auth_file: Path | None = declare(
        File(read_basic_auth_file), "`USER:PASSWORD`, one a line", default=None
    )
    webhook_tokens: WebhookTokenSettings | None = optional(
        Group(WebhookTokenSettings),
        "Tokens by which API servers authenticate, see [callers](security.md#tokens-of-api-servers)",
    )
    """Never for pages."""


def _read_actors(source: Fields, name: str) -> Path:
    path = source.folder / source.required_string(name)
    return read_basic_auth_file(source, name) or path


@dataclass(frozen=True, slots=True)
class PageActionSettings(Declared):
    """What pages may change."""

    basic_auth_file: Path = required(
        Read("path", _read_actors),
        "`USER:PASSWORD`, one a line, of those who may pause, resume, skip and roll back rollout plans there",
    )


@dataclass(frozen=True, slots=True)
class PageSettings(Declared):
    """The pages of the admin port."""

    is_enabled: bool = declare(Boolean(), "", default=True, name="enabled")
    token_file: Path | None = declare(
        File(read_token_file), "Bearer tokens of readers, as in `authentication.tokenFile`", default=None
    )
    basic_auth_file: Path | None = declare(
        File(read_basic_auth_file), "`USER:PASSWORD` of readers, one a line", default=None
    )
    actions: PageActionSettings | None = optional(
        Group(PageActionSettings),
        "Who may [change rollout plans](pages.md#change-rollout-plans-by-page) there. Absent: nobody",
    )

    @property
    def authentication(self) -> Authentication:
        """Credentials of readers. Without any, the pages are served over loopback only."""
        return Authentication(self.token_file, self.basic_auth_file)
