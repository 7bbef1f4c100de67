"""The benchmark as a command, with real servers and very short windows."""

from __future__ import annotations

import http.client
import os
import re
import signal
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import orjson
import pytest

from loadtest import bench
from loadtest.bench import main, parse
from loadtest.http_client import client_tls
from loadtest.reviews import POD
from loadtest.servers import run_servers
from loadtest.targets import Found
from tests.kit import PATIENCE_S
from tests.loadtest.test_results import a_window
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from loadtest.servers import Server

pytestmark = pytest.mark.slow

TINY = ("--rounds", "1", "--window", "0.2", "--warmup", "0.1", "--connections", "4")


def test_closed_loop_open_loop_handshakes_and_background_load_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "found.md"
    cases = ("stream-1", "floor-fresh", "rate-50", "pods", "pods-beside-large")
    main(["--only", *cases, *TINY, "--output", str(output)])  # its status depends on the machine
    captured = capsys.readouterr()
    assert "loadtest.bench:" not in captured.err
    text = output.read_text()
    assert "; 4 connections instead of 64" in text
    assert re.search(r": 1 MiB in flight [1-9]\d*% of the time", text)
    for title in ("1 validating policy, stream", "floor, full handshake", "50 % of it, open loop"):
        assert f"| {title} " in text
        assert f"| {title} " in captured.out


def test_a_wrong_answer_ends_the_benchmark_without_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, output = parse(["--only", "floor", *TINY, "--output", str(tmp_path / "found.md")])
    [group] = plan.groups
    wrong = replace(group, reference=replace(group.reference, path="/nowhere"))
    monkeypatch.setattr(bench, "parse", lambda _: (replace(plan, groups=(wrong,)), output))
    assert main() == 1
    assert "times HTTP/1.1 404 Not Found" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(("gateway_us", "status"), [(17.0, 0), (17.1, 1)])
def test_the_exit_status_says_whether_a_target_failed(
    gateway_us: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = (a_window("floor", 10.0), a_window("stream-1", gateway_us))
    monkeypatch.setattr(bench, "run", lambda _: Found([windows]))
    output = tmp_path / "found.md"
    assert main(["--only", "stream-1", "--output", str(output)]) == status
    assert ("FAIL" in output.read_text()) == bool(status)


def test_the_grpc_aio_gateway_denies_without_an_answer_of_a_worker(tmp_path: Path) -> None:
    """A control that did not wait for its policies would be too fast."""
    review = POD.read_bytes()
    with run_servers(POD, ["baseline"], tmp_path) as running:
        server = running.servers["baseline"]
        assert is_allowed(server, "/validate/policies-16", review)
        os.kill(server.workers[-1], signal.SIGTERM)
        eventually(lambda: not is_allowed(server, "/validate/policies-16", review))
        assert is_allowed(server, "/validate/policies-4", review)


def is_allowed(server: Server, path: str, review: bytes) -> bool:
    host = urlsplit(server.address).netloc
    with closing(http.client.HTTPSConnection(host, context=client_tls(), timeout=PATIENCE_S)) as connection:
        connection.request("POST", path, review, {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200
        found = orjson.loads(response.read())["response"]
    assert found["uid"] == orjson.loads(review)["request"]["uid"]
    return bool(found["allowed"])
