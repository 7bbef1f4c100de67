"""Sends spans to the collector in a thread, by the SDK's batches and its OTLP exporter.

Nothing of the collector reaches reviews: spans that find the queue full are dropped, an export ends after
``TIMEOUT_S``, and of an answer only the head is read. Each span is counted, as exported or as dropped.

Source: OpenTelemetry Protocol specification, "OTLP/HTTP"; OpenTelemetry SDK environment variables.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from admission_gateway_worker.text import printable
from gateway import __version__
from gateway.base.text import url_without_secrets
from gateway.observe.telemetry.otlp_session import BoundedSession, system_roots

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from gateway.config.kinds.tracing_settings import TracingSettings
    from gateway.observe.telemetry.metrics import SpanCounts, SpanOutcome

log = logging.getLogger(__name__)

MAX_QUEUED: Final = 4096
"""Spans that wait, some kilobytes each: four seconds at the usual bound on spans per second."""
MAX_BATCH: Final = 256
INTERVAL_S: Final = 1.0
TIMEOUT_S: Final = 10.0
"""The limit of an export with its retries. The SDK retries after connection errors and the statuses 429
and 502 to 504."""
CLOSE_S: Final = 2.0
"""How long the last spans may take at the end of the process."""
WARN_EVERY_S: Final = 60.0
_CUT_CHARS: Final = 300
_SWITCH_INTERVAL_S: Final = 0.0005
"""How long the event loop waits at most for the interpreter lock while spans are encoded: a tenth of Python's
default. It holds for the process."""


class Collector:
    """One collector, from the first span to :meth:`close`."""

    def __init__(
        self,
        settings: TracingSettings,
        headers: Mapping[str, str],
        counts: SpanCounts,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Send spans with *headers*, and add what becomes of them to *counts*."""
        self.resource = resource_of(settings)
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._counts = counts
        self._submitted = 0
        self._session = BoundedSession()
        self._session.headers.update(headers)
        tls = settings.tls
        exporter = OTLPSpanExporter(
            settings.endpoint,
            certificate_file=str(tls.ca_file) if tls.ca_file is not None else system_roots(),
            client_certificate_file=None if tls.cert_file is None else str(tls.cert_file),
            client_key_file=None if tls.key_file is None else str(tls.key_file),
            timeout=TIMEOUT_S,
            session=self._session,
        )
        self._log = DropLog(url_without_secrets(settings.endpoint), now)
        self._exporter = CountingExporter(exporter, self._session, counts, self._log)
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=MAX_QUEUED,
            schedule_delay_millis=INTERVAL_S * 1000,
            max_export_batch_size=MAX_BATCH,
        )

    def submit(self, spans: Sequence[ReadableSpan]) -> None:
        """Queue *spans* for the next export; all of them are dropped if there is no room."""
        if self._submitted - self._exporter.ended + len(spans) > MAX_QUEUED:
            self._counts["queue_full"] += len(spans)
            self._log.dropped("queue_full", len(spans), "the queue is full")
            return
        self._submitted += len(spans)
        for span in spans:
            self._processor.on_end(span)

    def unrecorded(self) -> None:
        """Count a review that is not recorded because of the bound on spans per second."""
        self._counts["not_recorded"] += 1
        self._log.dropped("not_recorded", 1, "reviews have more spans than maxSpansPerSecond")

    def close(self, closed: Callable[[], object]) -> None:
        """Send the last spans in a thread, for some seconds at most, and call *closed* there."""

        def end() -> None:
            timer = threading.Timer(CLOSE_S, self._exporter.abort)
            timer.daemon = True
            timer.start()
            self._processor.shutdown()  # type: ignore[no-untyped-call]
            timer.cancel()
            closed()

        # A daemon: the process must not wait for a collector that sends its answer byte by byte.
        threading.Thread(target=end, name="close-traces", daemon=True).start()


class CountingExporter(SpanExporter):
    """The SDK's exporter, with counts and one log record a minute."""

    def __init__(
        self, exporter: OTLPSpanExporter, session: BoundedSession, counts: SpanCounts, drop_log: DropLog
    ) -> None:
        self.ended = 0
        """Spans that were exported or dropped; only the thread of the exporter writes it."""
        self._exporter = exporter
        self._session = session
        self._counts = counts
        self._log = drop_log

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send *spans*, and return whether the collector took them."""
        self._session.problem = "they cannot be encoded"
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            is_success = result is SpanExportResult.SUCCESS
            self._counts["exported" if is_success else "export_failed"] += len(spans)
            self.ended += len(spans)
        if is_success:
            self._log.exported()
        else:
            self._log.dropped("export_failed", len(spans), self._session.problem)
        return result

    def shutdown(self) -> None:
        """Do nothing: :meth:`abort` ends the exporter."""

    def abort(self) -> None:
        """End the export in progress, and all later ones at once."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class DropLog:
    """Logs that spans are dropped, once a minute for each outcome, and that they are sent again."""

    def __init__(self, url: str, now: Callable[[], float]) -> None:
        self._url = url
        self._now = now
        self._lock = threading.Lock()
        self._logged_at: dict[SpanOutcome, float] = {}
        self._dropped: Counter[SpanOutcome] = Counter()
        """Since the last record."""
        self._is_failing = False

    def dropped(self, outcome: SpanOutcome, number: int, reason: str) -> None:
        """Count *number* spans, or reviews with theirs, that are dropped for *reason*."""
        with self._lock:
            self._dropped[outcome] += number
            self._is_failing = self._is_failing or outcome == "export_failed"
            now = self._now()
            if now - self._logged_at.get(outcome, -WARN_EVERY_S) < WARN_EVERY_S:
                return
            self._logged_at[outcome], dropped = now, self._dropped.pop(outcome)
        what = (
            "reviews are not recorded" if outcome == "not_recorded" else f"spans for {self._url} are dropped"
        )
        log.warning("traces: %d %s; the last: %s", dropped, what, printable(reason, _CUT_CHARS))

    def exported(self) -> None:
        """Spans were sent."""
        with self._lock:
            if not self._is_failing:
                return
            self._is_failing = False
        log.info("traces: spans are sent to %s again", self._url)


def resource_of(settings: TracingSettings) -> Resource:
    """Return the attributes of this process: defaults, those of OTEL_RESOURCE_ATTRIBUTES, and *settings*."""
    defaults: dict[str, Any] = {
        "service.name": "admission-gateway",
        "service.version": __version__,
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
    }
    return Resource.create(
        {**defaults, **OTELResourceDetector().detect().attributes, **settings.resource_attributes}
    )


# The session keeps the reason of a failure, and the counting exporter logs it.
logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
