"""The decision log as OTLP logs, by OpenTelemetry's SDK. Imported only where that is configured.

The environment variables of the exporter apply, such as ``OTEL_EXPORTER_OTLP_HEADERS``.

Source: OpenTelemetry specification, logs/data-model.md and protocol/exporter.md.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import orjson
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from admission_gateway_worker.text import printable
from gateway import __version__
from gateway.base.text import url_without_secrets
from gateway.observe.telemetry.otlp_session import BoundedSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.observe.decisions.line import Document

_SEVERITIES: Final = {
    "Allowed": SeverityNumber.INFO,
    "Denied": SeverityNumber.INFO,
    "FailedClosed": SeverityNumber.ERROR,
}
"""All other outcomes are warnings."""
_SCOPE: Final = InstrumentationScope("admission-gateway", __version__)


class OtlpSink:
    """Sends records to a collector."""

    def __init__(self, endpoint: str) -> None:
        self.name = url_without_secrets(endpoint)
        self._session = BoundedSession()
        self._exporter = OTLPLogExporter(endpoint, session=self._session)
        self._resource = Resource.create({SERVICE_NAME: "admission-gateway", SERVICE_VERSION: __version__})

    def write(self, items: Sequence[Document]) -> None:
        """Send documents.

        Raises:
            RuntimeError: the collector did not take them.
        """
        records = [ReadableLogRecord(_record(item), self._resource, _SCOPE) for item in items]
        if self._exporter.export(records) is not LogRecordExportResult.SUCCESS:
            raise RuntimeError(f"the collector did not take them: {printable(self._session.problem)}")

    def close(self) -> None:
        """Close the connections."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


def _record(document: Document) -> LogRecord:
    """Return *document* as a log record: the message as its body, all other members as attributes."""
    attributes: dict[str, Any] = {
        name: value for name, value in document.items() if name not in ("time", "message", "webhooks")
    }
    if "webhooks" in document:
        attributes["webhooks"] = orjson.dumps(document["webhooks"]).decode()
    at = int(datetime.fromisoformat(document["time"]).timestamp() * 1000) * 1_000_000
    severity = _SEVERITIES.get(document["outcome"], SeverityNumber.WARN)
    record = LogRecord(
        timestamp=at,
        observed_timestamp=at,
        severity_text=severity.name,
        severity_number=severity,
        body=document["message"] or document["outcome"],
        attributes=attributes,
    )
    if document.get("traceId"):
        record.trace_id = int(document["traceId"], 16)
    return record
