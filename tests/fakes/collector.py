"""A collector of OpenTelemetry spans: OTLP over HTTP, and over gRPC for kube-apiserver.

Its answers are scripted, so that it can refuse, hang and flood. Source: OpenTelemetry Protocol specification.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.kit import ThreadingServer, serving

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable
    from types import TracebackType

    from opentelemetry.proto.common.v1.common_pb2 import KeyValue


@dataclass(frozen=True)
class Span:
    """A span as it was received. Ids are hex digits; a root has no ``parent_id``."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    attributes: dict[str, Any]
    events: dict[str, dict[str, Any]]
    error: str | None
    """The description of the status; None if the status is no error."""
    start_ns: int
    end_ns: int
    resource: dict[str, Any]


class Collector:
    """Listens on loopback from construction to the end of the ``with`` block."""

    def __init__(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        """*tls* is of the HTTP server; None for plain HTTP. *host* is the address at which it listens."""
        self.spans: list[Span] = []
        self.requests: list[dict[str, str]] = []
        """The headers of all HTTP requests, by lower-case name."""
        self.status = 200
        self.floods = False
        """Whether answers have a body without end."""
        self.flooded_bytes = 0
        self.may_answer = threading.Event()
        """Answers wait for it; set at the start."""
        self.may_answer.set()
        handler = type("Handler", (_Handler,), {"collector": self})
        server = ThreadingServer(handler, host, tls)
        self._scheme, self._host = "http" if tls is None else "https", host
        self.port = server.server_port
        self._stack = ExitStack()
        self._stack.enter_context(serving(server))

    def __enter__(self) -> Collector:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.may_answer.set()
        self.floods = False
        self._stack.close()

    @property
    def endpoint(self) -> str:
        return f"{self._scheme}://{self._host}:{self.port}"

    def named(self, name: str) -> list[Span]:
        """Return the spans whose name begins with *name*."""
        return [span for span in list(self.spans) if span.name.startswith(name)]

    def listen_grpc(self) -> int:
        """Listen for OTLP over gRPC, too, and return the port."""

        def export(data: bytes, context: grpc.ServicerContext) -> bytes:
            self.take(data)
            return ExportTraceServiceResponse().SerializeToString()

        methods: dict[str, Any] = {"Export": grpc.unary_unary_rpc_method_handler(export)}
        service = "opentelemetry.proto.collector.trace.v1.TraceService"
        threads = self._stack.enter_context(ThreadPoolExecutor(2))
        server = grpc.server(threads, options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self._stack.callback(lambda: server.stop(0).wait())
        return port

    def take(self, data: bytes) -> None:
        """Store the spans of an ExportTraceServiceRequest."""
        for per_resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            resource = _values(per_resource.resource.attributes)
            for scope in per_resource.scope_spans:
                self.spans += [_span(span, resource) for span in scope.spans]


class _Handler(BaseHTTPRequestHandler):
    collector: Collector

    def do_POST(self) -> None:
        collector = self.collector
        collector.requests.append({name.lower(): value for name, value in self.headers.items()})
        body = self.rfile.read(int(self.headers["Content-Length"]))
        collector.may_answer.wait()
        if collector.status == 200:
            collector.take(body)
        self.send_response(collector.status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.end_headers()
        while collector.floods:
            self.wfile.write(bytes(65536))
            collector.flooded_bytes += 65536

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _span(span: SpanMessage, resource: dict[str, Any]) -> Span:
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        SpanMessage.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        _values(span.attributes),
        {event.name: _values(event.attributes) for event in span.events},
        span.status.message if span.status.code == Status.STATUS_CODE_ERROR else None,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        resource,
    )


def _values(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value") or "string_value")
        for attribute in attributes
    }
