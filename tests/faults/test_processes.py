"""Processes of a gateway and its workers that are killed."""

from __future__ import annotations

import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.faults.rotating import command_pool, open_connections, write_whole
from tests.kit import PATIENCE_S, WORKER, pool_document, run_command, webhook_document
from tests.load import Load
from tests.process.kit import children_of, lines, runs, state_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from http.client import HTTPSConnection
    from pathlib import Path

    from tests.faults.kit import StartWorker
    from tests.kit import GatewayProcess, StartGateway

pytestmark = pytest.mark.process

POD = "pod-create-validate"
REVIEWS_DONE = "admission_gateway_review_duration_seconds_count"


class Watch:
    """Polls the admin port, as probes and Prometheus do, and stores the answers."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.unready: list[str] = []
        self.failed: list[str] = []
        self.counts: list[float] = []
        """The count of finished reviews in each scrape."""
        self._gateway = gateway
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            status, text = self._gateway.admin("/readyz")
            if status != 200:
                self.unready.append(text)
            status, text = self._gateway.admin("/metrics")
            if status == 200:
                found = (line for line in text.splitlines() if line.startswith(f"{REVIEWS_DONE}{{"))
                self.counts.append(sum(float(line.rpartition(" ")[2]) for line in found))
            else:
                self.failed.append(text)


def test_a_killed_process_loses_only_the_reviews_on_its_connections(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", start_worker().target)
        + webhook_document("validate", "v", "pool", {"delay_ms": 5})
    )
    gateway = start_gateway(tmp_path, "--processes", "2")
    with Watch(gateway) as watch, Load(gateway, "/validate", POD, connections=16) as load:
        load.wait_for(100)
        before = children_of(gateway.child.pid)
        killed = max(before, key=lambda pid: open_connections(pid, gateway.port))
        connections = open_connections(killed, gateway.port)
        seen = len(watch.counts)
        eventually(lambda: len(watch.counts) > seen + 1)
        os.kill(killed, signal.SIGKILL)
        load.wait_for(100)
        eventually(lambda: set(children_of(gateway.child.pid)) - set(before))
        (successor,) = set(children_of(gateway.child.pid)) - set(before)
        fresh: list[HTTPSConnection] = []

        def is_back() -> bool:
            """Whether the kernel gives connections to the new process."""
            fresh.append(gateway.connect())
            return open_connections(successor, gateway.port) > 0

        eventually(is_back)
        for connection in fresh:
            connection.close()
        load.wait_for(100)
        seen = len(watch.counts)
        eventually(lambda: len(watch.counts) > seen + 1)
    tally = load.tally
    assert 0 < connections <= 16
    assert tally.lost <= connections, tally
    assert (tally.failed, tally.refused, tally.denied) == (0, 0, 0), tally
    assert gateway.log.count("restarting it") == 1
    assert (watch.unready, watch.failed) == ([], [])
    assert watch.counts == sorted(watch.counts), "a counter has fallen"
    assert watch.counts[-1] <= tally.answered + tally.lost


def test_a_process_that_hangs_is_replaced(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The kernel gives it connections, which the other process answers meanwhile."""
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", start_worker().target) + webhook_document("validate", "v", "pool", {})
    )
    gateway = start_gateway(tmp_path, "--processes", "2")
    before = children_of(gateway.child.pid)
    os.kill(before[0], signal.SIGSTOP)
    eventually(lambda: state_of(before[0]) == "T")
    for _ in range(20):
        assert gateway.review("/validate", POD)["allowed"]
    gateway.expect(
        rf"process hangs, replacing it: gateway process 0, pid {before[0]}, in state T, could have run for 1"
    )
    eventually(lambda: len(set(children_of(gateway.child.pid)) - set(before)) == 1)
    eventually(lambda: gateway.admin("/readyz")[0] == 200)
    assert not runs(before[0])
    assert runs(before[1])
    for _ in range(20):
        assert gateway.review("/validate", POD)["allowed"]


def kill_all_processes(gateway: GatewayProcess) -> None:
    """Kill all processes of *gateway*, and wait until they have ended."""
    eventually(lambda: len(children_of(gateway.child.pid)) == 2)
    killed = children_of(gateway.child.pid)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not any(map(runs, killed)))


def test_connections_wait_until_killed_processes_are_restarted(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """None is refused. There are enough for the sockets of each process."""
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", start_worker().target) + webhook_document("validate", "v", "pool", {})
    )
    gateway = start_gateway(tmp_path, "--processes", "2")
    kill_all_processes(gateway)
    with ThreadPoolExecutor(20) as clients:
        answers = list(clients.map(lambda _: gateway.review("/validate", POD), range(20)))
    assert all(answer["allowed"] for answer in answers)
    eventually(lambda: gateway.admin("/readyz")[0] == 200)
    assert gateway.log.count("restarting it") == 2


def test_processes_that_cannot_start_again_let_no_connection_wait(
    tmp_path: Path, start_gateway: StartGateway
) -> None:
    """The API server gets an error at once, and failurePolicy decides. A valid configuration ends this."""
    (tmp_path / "c.yaml").write_text("")
    gateway = start_gateway(tmp_path, "--processes", "2", "--allow-empty")
    write_whole(tmp_path / "c.yaml", "kind: Unknown")
    kill_all_processes(gateway)
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_S) as client:
        gateway.expect("connections to 127.0.0.1:[0-9]+ are closed until a process serves")
        assert client.recv(1) == b""
    write_whole(tmp_path / "c.yaml", "")
    eventually(lambda: gateway.admin("/readyz")[0] == 200)
    gateway.connect().close()


def test_a_gateway_without_processes_that_serve_closes_its_port_when_it_stops(
    tmp_path: Path, start_gateway: StartGateway
) -> None:
    (tmp_path / "c.yaml").write_text("")
    gateway = start_gateway(tmp_path, "--processes", "2", "--allow-empty")
    kill_all_processes(gateway)
    with socket.create_connection(("127.0.0.1", gateway.port)):
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0, gateway.log
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", gateway.port))


@pytest.mark.parametrize("count", ["1", "2"])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_second_gateway_at_the_same_address_does_not_start(
    tmp_path: Path, start_gateway: StartGateway, count: str, host: str
) -> None:
    (tmp_path / "c.yaml").write_text("")
    gateway = start_gateway(tmp_path, "--processes", "2", "--allow-empty")
    address = f"{host}:{gateway.port}"
    second = run_command(
        *("serve", "--config", tmp_path, "--dev", "--listen", address, "--admin-listen", "127.0.0.1:0"),
        *("--processes", count, "--allow-empty"),
    )
    assert second.returncode == 1
    assert f"cannot listen on {address} (HTTPS front end): Address already in use" in second.stderr


def test_a_worker_that_exits_at_once_does_not_affect_other_pools(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The active configuration is served while the new worker is restarted again and again."""
    starts = tmp_path / "starts"
    config = tmp_path / "config"
    config.mkdir()
    served = pool_document("pool", start_worker().target) + webhook_document("validate", "v", "pool", {})
    (config / "c.yaml").write_text(served)
    gateway = start_gateway(config)
    with Load(gateway, "/validate/v", POD, connections=4, rate=100) as load:
        broken = command_pool("own", "sh", "-c", 'echo >> "$0"; exit 1', str(starts))
        write_whole(config / "c.yaml", served + broken + webhook_document("validate", "w", "own", {}))
        gateway.signal(signal.SIGHUP)
        eventually(lambda: len(lines(starts)) >= 3)
        load.wait_for(10)
    assert (load.tally.lost, load.tally.failed) == (0, 0), load.tally


def test_the_failure_policy_decides_until_a_killed_worker_is_back(
    tmp_path: Path, start_gateway: StartGateway
) -> None:
    (tmp_path / "c.yaml").write_text(
        command_pool("own", *WORKER)
        + webhook_document("validate", "fail", "own", {"delay_ms": 5})
        + webhook_document("validate", "ignore", "own", {"delay_ms": 5}, failurePolicy="Ignore")
    )
    gateway = start_gateway(tmp_path)
    (killed,) = children_of(gateway.child.pid)
    with (
        Load(gateway, "/validate/fail", POD, connections=8, rate=400) as failing,
        Load(gateway, "/validate/ignore", POD, connections=8, rate=400) as ignoring,
    ):
        failing.wait_for(50)
        ignoring.wait_for(50)
        assert failing.tally.failed == ignoring.tally.failed_open == 0
        os.kill(killed, signal.SIGKILL)
        failing.wait_until(lambda tally: tally.failed > 0)
        ignoring.wait_until(lambda tally: tally.failed_open > 0)
        eventually(lambda: gateway.metric("admission_gateway_worker_endpoints", state="ready") == 1)
        failed, failed_open = failing.tally.failed, ignoring.tally.failed_open
        failing.wait_for(100)
        ignoring.wait_for(100)
    # At most the reviews in flight when the worker was back.
    assert failing.tally.failed <= failed + 8, failing.tally
    assert ignoring.tally.failed_open <= failed_open + 8, ignoring.tally
    for tally in (failing.tally, ignoring.tally):
        assert (tally.lost, tally.refused, tally.denied) == (0, 0, 0), tally
    assert ignoring.tally.failed == 0
    assert all('failed calling webhook "h0.fail.test": ' in text for text in failing.tally.texts)


@pytest.mark.parametrize("count", ["1", "2"])
def test_nothing_outlives_a_killed_gateway(tmp_path: Path, start_gateway: StartGateway, count: str) -> None:
    (tmp_path / "c.yaml").write_text(
        command_pool("own", *WORKER) + webhook_document("validate", "v", "own", {"delay_ms": 50})
    )
    gateway = start_gateway(tmp_path, "--processes", count)
    started = children_of(gateway.child.pid)
    assert [runs(pid) for pid in started] == [True] * (1 if count == "1" else 3)
    with Load(gateway, "/validate", POD, connections=8) as load:
        load.wait_for(50)
        gateway.signal(signal.SIGKILL)
    eventually(lambda: not any(runs(pid) for pid in started))
