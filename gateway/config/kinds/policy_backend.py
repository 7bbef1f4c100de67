"""``GatewayConfiguration.policies.backends``: the servers from which expressions of policies get data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.config.kinds.client_config import (
    MAX_BUNDLE_CHARS,
    URL_SCHEMA,
    CaBundleFrom,
    read_url,
)
from gateway.config.kinds.declare import (
    Declared,
    Group,
    Integer,
    Read,
    Text,
    declare,
    optional,
    required,
)
from gateway.config.kinds.files import read_ca_bundle, read_ca_file
from gateway.config.kinds.names import LABEL, LABEL_LENGTH, dns_1123_label
from gateway.config.kinds.validation import excluded
from gateway.pure.core.webhook import BackendOfPolicies, HttpsClient

if TYPE_CHECKING:
    from gateway.config.yaml.fields import Fields


def _read_bundle(source: Fields, name: str) -> bytes:
    return read_ca_bundle(source, name) or b""


def _read_file(source: Fields, name: str) -> bytes:
    path = read_ca_file(source, name)
    return b"" if path is None or source.problems.found else path.read_bytes()


class _Url(Read[str]):
    def read_required(self, source: Fields, name: str) -> str:
        return read_url(source, name) if source.required_string(name) else ""


@dataclass(frozen=True, slots=True)
class PolicyBackend(Declared):
    """A server from which expressions of policies get data."""

    RULES = (
        excluded("caBundle", "caFile", "is not allowed together with caFile"),
        excluded("caBundleFrom", "caBundle", "is not allowed together with caBundle"),
        excluded("caBundleFrom", "caFile", "is not allowed together with caFile"),
    )
    name: str = required(
        Text(check=dns_1123_label, maxLength=LABEL_LENGTH, pattern=f"^{LABEL}$"), "Its name in messages"
    )
    url: str = required(
        _Url("`https://HOST[:PORT][/PATH]`", read_url, **URL_SCHEMA),
        "Expressions may get what is at or below it",
    )
    ca_bundle: bytes = declare(
        Read("PEM in base64", _read_bundle, maxLength=MAX_BUNDLE_CHARS, format="byte"),
        "Roots of its certificate. Absent: `caFile`, `caBundleFrom`, or the roots of the system",
        default=b"",
    )
    ca_file: bytes = declare(
        Read("path of a PEM file", _read_file, maxLength=4096),
        "Roots of its certificate, read when the configuration loads",
        default=b"",
    )
    ca_bundle_from: CaBundleFrom | None = optional(
        Group(CaBundleFrom),
        "Where the roots are followed in the cluster: exactly one of `secret`, `configMap` and "
        "`webhookConfiguration`. See [caBundleFrom](#cabundlefrom)",
    )
    timeout_seconds: int = declare(Integer(1, 30, "seconds"), "Timeout of one request", default=5)

    @property
    def client(self) -> HttpsClient:
        """The server, as it is called."""
        of_cluster = None if self.ca_bundle_from is None else self.ca_bundle_from.source
        backend = BackendOfPolicies(self.name, self.timeout_seconds)
        return HttpsClient(self.url, self.ca_bundle or self.ca_file, of_cluster, backend=backend)
