"""The mapping ``tracing`` of a GatewayConfiguration: which reviews are traced, and where spans are sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.base.text import shown, url_without_secrets
from gateway.config.kinds.files import read_ca_file, read_headers_file, read_key_pair

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gateway.config.yaml.fields import Fields

PROTOCOLS = ("http/protobuf",)
"""As OpenTelemetry names them; OTLP over gRPC is not supported."""
TRACES_PATH = "/v1/traces"
"""Of an endpoint without a path. Source: OpenTelemetry Protocol Exporter, "Endpoint URLs for OTLP/HTTP"."""
_GRPC_PORT = 4317
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
MILLION = 1_000_000
MAX_SPANS_PER_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class CollectorTls:
    """TLS to the collector. All files are PEM."""

    ca_file: Path | None = None
    """Roots that the collector's certificate must chain to; None: the system's."""
    cert_file: Path | None = None
    """The gateway's certificate, for collectors that request one."""
    key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """The mapping ``tracing``, with its defaults."""

    endpoint: str
    """URL to which spans are sent, with its path."""
    sampling_rate_per_million: int = 0
    """Of the reviews without a trace context, so many begin a trace. The others follow the flag of the API
    server, as the API server's own requests follow that of its clients."""
    max_spans_per_second: int = 1000
    """Of one process. Clients of the API server may set the sampled flag, so that spans need a bound."""
    headers_file: Path | None = None
    """Headers of the requests to the collector, one ``NAME: VALUE`` a line."""
    tls: CollectorTls = field(default_factory=CollectorTls)
    resource_attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes of the gateway itself, beside those that it finds."""


def read_tracing(fields: Fields | None, folder: Path) -> TracingSettings | None:
    """Return the settings behind *fields*, which stand in a file in *folder*; None: there are none."""
    if fields is None:
        return None
    default = TracingSettings("")
    fields.choice("protocol", PROTOCOLS, PROTOCOLS[0])
    settings = TracingSettings(
        endpoint=_with_path(fields.required_string("endpoint", _check_endpoint)),
        sampling_rate_per_million=fields.integer("samplingRatePerMillion", 0, 0, MILLION),
        max_spans_per_second=fields.integer(
            "maxSpansPerSecond", default.max_spans_per_second, 1, MAX_SPANS_PER_SECOND
        ),
        headers_file=read_headers_file(fields, "headersFile", folder),
        tls=_read_tls(fields.group("tls"), folder),
        resource_attributes=_read_attributes(fields),
    )
    _warn(fields, settings)
    fields.finish()
    return settings


def _read_tls(fields: Fields, folder: Path) -> CollectorTls:
    pair = read_key_pair(fields, folder)
    tls = CollectorTls(read_ca_file(fields, "caFile", folder), pair.cert_file, pair.key_file)
    fields.finish()
    return tls


def _read_attributes(fields: Fields) -> Mapping[str, str]:
    attributes = fields.string_map("resourceAttributes")
    if "" in attributes:
        fields.problem("resourceAttributes", "has an empty name")
    return attributes


def _warn(fields: Fields, settings: TracingSettings) -> None:
    if fields.problems.found:
        return
    url = urlsplit(settings.endpoint)
    if url.port == _GRPC_PORT:
        message = f"has port {_GRPC_PORT}, usually that of OTLP over gRPC; OTLP over HTTP has 4318"
        fields.problems.warn(fields.at("endpoint"), message)
    if url.scheme == "http":
        if settings.headers_file is not None and url.hostname not in _LOOPBACK:
            fields.problems.warn(fields.at("endpoint"), "is plain HTTP: others can read the headers")
        if settings.tls != CollectorTls():
            fields.problems.warn(fields.at("tls"), "has no effect: the endpoint is plain HTTP")


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
