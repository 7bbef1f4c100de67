"""The decision log at an OTLP collector."""

from __future__ import annotations

import asyncio
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import orjson
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from gateway.config.kinds.logging_settings import DecisionLogSettings, LoggingSettings
from gateway.observe.decisions import log as log_module
from gateway.observe.decisions.log import DecisionLog
from gateway.observe.telemetry.metrics import LogCounts
from gateway.pure.core.answer import Origin
from gateway.pure.core.trace import PassedOn
from gateway.pure.core.verdict import Denied
from tests.decisions.kit import answer
from tests.kit import PATIENCE_S, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE = "0af7651916cd43dd8448eb211c80319c"
DENIED = answer({"a.policies.test": Denied(403, message="no")})
TRACED = DENIED._replace(origin=Origin(b"/mutate", PassedOn(f"00-{TRACE}-b7ad6b7169203331-01")))


class Collector(HTTPServer):
    """A collector that answers ``status`` and keeps what it is sent."""

    def __init__(self) -> None:
        self.status = 200
        self.requests: list[ExportLogsServiceRequest] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/logs"


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(ExportLogsServiceRequest.FromString(body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setattr(log_module, "CLOSE_S", PATIENCE_S)
    server = Collector()
    with serving(server):
        yield server


def send(collector: Collector) -> LogCounts:
    counts = LogCounts()

    async def main() -> None:
        log = DecisionLog(counts)
        log.activate(LoggingSettings(decision_log=DecisionLogSettings(otlp_endpoint=collector.endpoint)))
        log.offer(TRACED, 0.25, "ab" * 32, is_noteworthy=True)
        await log.close()
        await asyncio.sleep(0)  # for what the thread has reported

    asyncio.run(main())
    return counts


def test_a_denial_is_a_log_record_of_its_trace(collector: Collector) -> None:
    counts = send(collector)
    (request,) = collector.requests
    (resource,) = request.resource_logs
    names = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert names["service.name"] == "admission-gateway"
    (record,) = resource.scope_logs[0].log_records
    assert record.body.string_value == "a.policies.test: no"
    assert record.severity_text == "INFO"
    assert record.trace_id.hex() == TRACE
    attributes = {one.key: one.value for one in record.attributes}
    assert attributes["webhook"].string_value == "a.policies.test"
    assert attributes["code"].int_value == 403
    assert attributes["milliseconds"].double_value == 250
    assert orjson.loads(attributes["webhooks"].string_value)[0]["outcome"] == "Denied"
    assert (counts.logged, counts.dropped) == (1, {})


def test_a_record_that_the_collector_refuses_is_counted(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 400
    counts = send(collector)
    assert counts.dropped["otlp"] == 1
    assert f"records are dropped: decision log: {collector.endpoint}: " in caplog.text
