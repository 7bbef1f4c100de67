"""The mapping ``tracing`` of a GatewayConfiguration: which reviews are traced, and where spans are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gateway.base.text import shown, url_without_secrets
from gateway.config.kinds.declare import Choice, Declared, File, Group, Integer, Read, declare, required
from gateway.config.kinds.files import read_ca_file, read_headers_file, read_key_pair

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gateway.config.yaml.fields import Fields

PROTOCOLS = ("http/protobuf",)
"""As OpenTelemetry names them; OTLP over gRPC is not supported."""
TRACES_PATH = "/v1/traces"
"""Path of an endpoint without one. Source: OpenTelemetry Protocol Exporter, "Endpoint URLs for OTLP/HTTP"."""
_GRPC_PORT = 4317
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
MILLION = 1_000_000
MAX_SPANS_PER_SECOND = 1_000_000


def _read_endpoint(source: Fields, name: str) -> str:
    return _with_path(source.required_string(name, _check_endpoint))


def _read_attributes(source: Fields, name: str) -> Mapping[str, str]:
    attributes = source.string_map(name)
    if "" in attributes:
        source.problem(name, "has an empty name")
    return attributes


def _check_endpoint(text: str) -> str | None:
    try:
        url = urlsplit(text)
        is_right = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        is_right = is_right and text.isascii() and text.isprintable() and " " not in text
    except ValueError:
        is_right = False
    if not is_right:
        return f"found {shown(url_without_secrets(text))}, expected a URL such as http://collector:4318"
    if "@" in url.netloc or url.query or url.fragment:
        return "has a user, a query or a fragment; expected a URL such as http://collector:4318"
    return None


def _with_path(endpoint: str) -> str:
    is_base = endpoint.partition("://")[2].removesuffix("/").count("/") == 0
    return endpoint.removesuffix("/") + TRACES_PATH if is_base else endpoint


@dataclass(frozen=True, slots=True)
class CollectorTls(Declared):
    """TLS to the collector. All files are PEM."""

    ca_file: Path | None = declare(
        File(read_ca_file),
        "PEM certificates that the collector's has to chain to. Absent: those of the system",
        default=None,
    )
    cert_file: Path | None = declare(
        File(), "The gateway's certificate, for collectors that request one", default=None
    )
    key_file: Path | None = declare(File(), "Its key, PEM", default=None)

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Return the certificate and its key."""
        return read_key_pair(source)._asdict()


@dataclass(frozen=True, slots=True)
class TracingSettings(Declared):
    """The mapping ``tracing``, with its defaults."""

    endpoint: str = required(
        Read("URL", _read_endpoint),
        "The collector of the spans, such as `http://collector:4318`; the path `/v1/traces` is added if "
        "there is none",
    )
    sampling_rate_per_million: int = declare(
        Integer(0, MILLION),
        "Of a million reviews without a `traceparent`, so many begin a trace. The others follow the flag "
        "of the API server",
        default=0,
    )
    max_spans_per_second: int = declare(
        Integer(1, MAX_SPANS_PER_SECOND, "spans per second"),
        "Of each process, from 1 to 1,000,000. Further reviews are not recorded, and counted",
        default=1000,
    )
    headers_file: Path | None = declare(
        File(read_headers_file),
        "Headers for the collector, one `NAME: VALUE` a line. Blank lines and lines with a leading `#` "
        "are skipped",
        default=None,
    )
    tls: CollectorTls = declare(
        Group(CollectorTls), "TLS to the collector, if `endpoint` is an `https` URL", default=CollectorTls()
    )
    resource_attributes: Mapping[str, str] = declare(
        Read("map of strings", _read_attributes, "object"),
        "Attributes of the gateway in its spans, such as `k8s.cluster.name`. They replace those of "
        "`OTEL_RESOURCE_ATTRIBUTES`",
        default={},
    )
    protocol: str = declare(
        Choice(PROTOCOLS), "OTLP over HTTP, the only one that is supported", default=PROTOCOLS[0]
    )

    def check(self, source: Fields) -> None:
        """Warn about settings that do not fit each other."""
        if source.problems.found:
            return
        url = urlsplit(self.endpoint)
        if url.port == _GRPC_PORT:
            message = f"has port {_GRPC_PORT}, usually that of OTLP over gRPC; OTLP over HTTP has 4318"
            source.problems.warn(source.at("endpoint"), message)
        if url.scheme == "http":
            if self.headers_file is not None and url.hostname not in _LOOPBACK:
                source.problems.warn(source.at("endpoint"), "is plain HTTP: others can read the headers")
            if self.tls != CollectorTls():
                source.problems.warn(source.at("tls"), "has no effect: the endpoint is plain HTTP")
