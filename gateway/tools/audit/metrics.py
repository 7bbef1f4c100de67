"""The result of the last pass as metrics: a file for a collector of text files, or a port.

Source: prometheus.io "Exposition formats"; github.com/prometheus/node_exporter, "Textfile Collector".
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from gateway.tools.audit.files import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Json = dict[str, Any]

MAX_SERIES: Final = 1000
"""Series of findings. Further ones are counted as one for each finding."""
OTHERS: Final = "(others)"
_REQUEST_S: Final = 5.0
"""How long a client has for its request."""
_LABELS: Final = ("part", "finding", "webhook", "namespace")
_SINGLE: Final = {
    "listed": ("objects_read", "Objects that the last pass read"),
    "verdicts": ("verdicts", "Verdicts on objects and on next Pods of workloads"),
    "evaluated": ("evaluated", "Verdicts of the last pass that did not hold since the pass before"),
    "refusedAtRestart": ("workloads_refused_at_restart", "Workloads whose next Pod would be refused"),
    "complete": ("complete", "1 if the last pass read all objects and each has a verdict"),
    "seconds": ("duration_seconds", "How long the last pass took"),
    "began": ("last_pass_timestamp_seconds", "When the last pass began, in seconds since 1970"),
    "intervalSeconds": ("interval_seconds", "Seconds after which a continuous audit begins anew"),
}
"""By member of the report, the name of its metric without prefix, and its description. Only continuous audits
have ``intervalSeconds``."""
PREFIX: Final = "admission_gateway_audit_"


class _Collector:
    def __init__(self, report: Json) -> None:
        self._report = report

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for member, (name, help_) in _SINGLE.items():
            if member in self._report:
                yield GaugeMetricFamily(f"{PREFIX}{name}", help_, float(self._report[member]))
        findings = GaugeMetricFamily(
            f"{PREFIX}findings", "Findings of the last pass, without Pods that are alike", labels=_LABELS
        )
        counts: Counter[tuple[str, ...]] = Counter()
        for group in self._report["groups"]:
            key = tuple(group[name] for name in _LABELS)
            if key not in counts and len(counts) >= MAX_SERIES:
                key = (*key[:2], OTHERS, "")
            counts[key] += group["objects"]
        for key, number in counts.items():
            findings.add_metric(key, number)
        yield findings


def exposition(report: Json) -> bytes:
    """Return the metrics of *report*, with ``seconds`` and ``began``, as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(report))
    return generate_latest(registry)


def write(report: Json, file: Path) -> None:
    """Replace *file* by the metrics of *report*.

    Raises:
        OSError: it cannot be written.
    """
    with replaced(file) as new:
        new.write(exposition(report))


class MetricsPort:
    """What the port of a continuous audit answers."""

    def __init__(self) -> None:
        self.content = b""
        """The metrics. Empty before the first pass."""
        self.port = 0


@contextmanager
def served(host: str, port: int) -> Iterator[MetricsPort]:
    """Answer GET of ``/metrics``, and of ``/healthz`` with ``ok``, until the end.

    Raises:
        OSError: the port cannot be listened on.
    """
    shown = MetricsPort()

    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_S

        def do_GET(self) -> None:
            found = {"/metrics": shown.content, "/healthz": b"ok\n"}.get(self.path.partition("?")[0])
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", CONTENT_TYPE_LATEST)
            self.send_header("Content-Length", str(len(found or b"")))
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - its name there
            pass

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    shown.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
