"""Signals during the start of a gateway, and starts that fail."""

from __future__ import annotations

import signal
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from tests.faults.rotating import command_pool
from tests.kit import Process, pool_document, webhook_document
from tests.process.kit import children_of, expects, runs
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from tests.worker.server import StartWorker

    Start = Callable[..., Process]

pytestmark = pytest.mark.process

SERVING = r"serving on https://127\.0\.0\.1:(\d+), "


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary files of child processes."""
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def start(tmp_path: Path, processes: ExitStack, certificate: tuple[Path, Path], temporary: Path) -> Start:
    """Start a gateway without waiting for it: ``start(target, *flags, listen=…, before=…)``."""

    def start(target: str, *flags: str, listen: str = "127.0.0.1:0", before: tuple[str, ...] = ()) -> Process:
        pool = pool_document("pool", target) if target else command_pool("pool", "sleep", "1000")
        (tmp_path / "c.yaml").write_text(pool + webhook_document("validate", "v", "pool", {}))
        gateway = Process(
            *(sys.executable, "-m", "gateway", *before, "serve", "--config", str(tmp_path)),
            *("--listen", listen, "--admin-listen", "127.0.0.1:0"),
            *("--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1]), *flags),
        )
        processes.callback(gateway.stop)
        return gateway

    return start


NOBODY = ""
"""The target of a worker that never listens; the start waits for it for ten seconds."""


@pytest.mark.parametrize(
    ("number", "count"),
    [
        pytest.param(signal.SIGTERM, "2", marks=pytest.mark.smoke),
        (signal.SIGTERM, "1"),
        (signal.SIGINT, "1"),
        (signal.SIGINT, "2"),
    ],
)
def test_a_stop_signal_is_obeyed_during_the_start(
    start: Start, temporary: Path, number: signal.Signals, count: str
) -> None:
    gateway = start(NOBODY, "--processes", count)
    eventually(lambda: list(temporary.iterdir()))
    gateway.signal(number)
    assert gateway.wait() == 0, gateway.log
    assert "serving on" not in gateway.log
    assert "Traceback" not in gateway.log
    assert list(temporary.iterdir()) == []


def test_signals_are_handled_before_the_long_imports(
    start: Start, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default SIGHUP would end the process, and the init of a container would not get SIGTERM."""
    importing = temporary / "importing"
    # Python handles signals between byte codes, so a signal just before a sleep waits for its end.
    long = f"import time\nopen({str(importing)!r}, 'w')\nwhile True:\n    time.sleep(0.01)\n"
    (tmp_path / "uvloop.py").write_text(long)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    gateway = start(NOBODY)
    eventually(importing.exists)
    gateway.signal(signal.SIGHUP)
    gateway.signal(signal.SIGTERM)
    assert (gateway.wait(), gateway.log) == (0, "")


@pytest.mark.parametrize("count", ["1", "2"])
def test_reload_signals_during_the_start_are_harmless(
    start: Start, start_worker: StartWorker, count: str
) -> None:
    gateway = start(start_worker().target, "--processes", count)
    eventually(lambda: expects(gateway.child.pid, signal.SIGHUP))

    def serves() -> bool:
        gateway.signal(signal.SIGHUP)
        return "serving on" in gateway.log

    eventually(serves)
    gateway.expect("(?s)" + ".*".join(["configuration reloaded"] * int(count)))
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0
    assert "process ended" not in gateway.log


def test_a_failed_start_logs_only_its_cause(start: Start, start_worker: StartWorker, temporary: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for count in ("1", "2"):
            gateway = start(start_worker().target, "--processes", count, listen=address)
            assert gateway.wait() == 1
            assert gateway.log == (
                f"cannot listen on {address} (HTTPS front end): Address already in use; "
                "--listen or listen of the GatewayConfiguration changes the address\n"
            )
    assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("temporary")
def test_processes_do_not_outlive_a_killed_supervisor(start: Start, start_worker: StartWorker) -> None:
    gateway = start(start_worker().target, "--processes", "2")
    gateway.expect(SERVING)
    children = children_of(gateway.child.pid)
    assert [runs(pid) for pid in children] == [True, True]
    gateway.signal(signal.SIGKILL)
    eventually(lambda: not any(runs(pid) for pid in children))


def test_every_process_is_verbose(start: Start, start_worker: StartWorker) -> None:
    """Connections belong to the child processes, and failed handshakes are logged at DEBUG."""
    gateway = start(start_worker().target, "--processes", "2", before=("--verbose",))
    port = int(gateway.expect(SERVING)[1])
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"no TLS at all\r\n\r\n")
        gateway.expect("DEBUG TLS handshake failed")
