"""The form and the levels of the log, from the configuration and at run time."""

from __future__ import annotations

import json
import logging
import re
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.log_lines import MESSAGE_CHARS
from gateway.base.logs import AREAS, JsonFormatter, area_of
from tests.faults.rotating import settings_document
from tests.kit import Process, pool_document, webhook_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from tests.kit import StartGateway
    from tests.worker.server import StartWorker

LOADED_AT = "admission_gateway_config_last_reload_success_timestamp_seconds"
MAX_LINE_CHARS = 16 * 1024


def line_of(message: str, **others: Any) -> str:
    record = logging.LogRecord("gateway.engine.dispatch.pool", logging.WARNING, "", 0, "%s", (message,), None)
    vars(record).update(others)
    return JsonFormatter().format(record)


@given(st.text(st.characters()))
def test_a_json_record_is_one_printable_line_with_the_text_of_a_text_record(message: str) -> None:
    line = line_of(message)
    assert line.isprintable()
    members = json.loads(line)
    assert members.keys() == {"time", "level", "area", "message"}
    assert members["message"].isprintable()
    assert (members["level"], members["area"]) == ("warning", "workers")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", members["time"])


def test_a_json_record_is_bounded_with_its_traceback() -> None:
    def fail(depth: int) -> None:
        if depth:
            fail(depth - 1)
        raise ValueError("\x1b[2K\n" + "x" * 100_000)

    try:
        fail(20)
    except ValueError:
        line = line_of("y" * 100_000, exc_info=sys.exc_info())
    members = json.loads(line)
    assert len(members["message"]) == MESSAGE_CHARS
    assert len(line) < MAX_LINE_CHARS
    assert members["traceback"].startswith("Traceback (most recent call last):\n")
    assert members["traceback"].replace("\n", "").isprintable()


def test_every_logger_belongs_to_a_documented_area() -> None:
    for name, area in (
        ("gateway.engine.dispatch.pool", "workers"),
        ("gateway.worker_output", "workers"),
        ("gateway.server.app", "configuration"),
        ("gateway.server.serving.routes", "serving"),
        ("gateway.server.kubernetes.watch", "cluster"),
        ("gateway.server.process.serve", "process"),
        ("py.warnings", "process"),
        ("root", "process"),
    ):
        assert area_of(name) == area
        assert area in AREAS


@pytest.mark.process
@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.smoke), 2])
def test_sigusr1_logs_debug_records_of_all_processes_until_the_next(
    tmp_path: Path,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    count: int,
) -> None:
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", start_worker().target) + webhook_document("validate", "v", "pool", {})
    )
    gateway = start_gateway(tmp_path, "--processes", str(count))
    expected = count if count == 1 else count + 1
    for round_ in (1, 2):
        for text in ("debug for all areas", "as configured"):
            wanted = [f"log levels changed: {text}"] * (round_ * expected)
            gateway.signal(signal.SIGUSR1)
            gateway.expect("(?s)" + ".*".join(wanted))


@pytest.mark.process
def test_verbose_has_no_records_of_libraries(
    tmp_path: Path,
    start_worker: StartWorker,
    certificate: tuple[Path, Path],
    processes: ExitStack,
) -> None:
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", start_worker().target) + webhook_document("validate", "v", "pool", {})
    )
    gateway = Process(
        *(sys.executable, "-m", "gateway", "--verbose", "serve", "--config", str(tmp_path)),
        *("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"),
        *("--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1])),
    )
    processes.callback(gateway.stop)
    port = gateway.expect(r"serving on https://127\.0\.0\.1:(\d+)")[1]
    # The policies of the worker were read by now or are read within a second.
    gateway.expect("DEBUG policies of a worker are not known")
    with socket.create_connection(("127.0.0.1", int(port))) as client:
        client.sendall(b"no TLS")
        gateway.expect("DEBUG TLS handshake failed")
    assert not re.search("hpack|decoded|asyncio|selector", gateway.log, re.IGNORECASE)


@pytest.mark.process
def test_form_and_levels_follow_the_configuration(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    good = pool_document("pool", start_worker().target) + webhook_document("validate", "v", "pool", {})
    file = tmp_path / "c.yaml"
    file.write_text(good)
    gateway = start_gateway(tmp_path)
    before = len(gateway.log)
    file.write_text(good + settings_document(logging={"format": "json"}))
    members = json.loads(gateway.expect(".*configuration reloaded.*", after=before)[0])
    assert (members["level"], members["area"]) == ("info", "configuration")
    loaded_at = gateway.metric(LOADED_AT)
    file.write_text(good + settings_document(logging={"levels": {"configuration": "error"}}))
    eventually(lambda: gateway.metric(LOADED_AT) > loaded_at)
    file.write_text("")
    gateway.expect("ERROR configuration refused", after=before)
    assert gateway.log.count("configuration reloaded") == 1
