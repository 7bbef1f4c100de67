"""A gateway that gets SIGTERM under load, at any moment, loses no review that it can still answer."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from tests.faults.kit import own_port
from tests.faults.rotating import (
    Client,
    command_pool,
    events,
    named,
    sdk_worker,
    settings_document,
    write_whole,
)
from tests.kit import REVIEWS, WORKER, Process, pool_document, webhook_document
from tests.load import Load
from tests.process.kit import children_of, lines, runs
from tests.waiting import eventually

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable
    from contextlib import ExitStack
    from pathlib import Path

    from tests.faults.kit import StartWorker
    from tests.kit import GatewayProcess, StartGateway

pytestmark = pytest.mark.process

POD = "pod-create-validate"
FAKE = " ".join(WORKER)


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary files of the processes that the test starts."""
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize("count", ["1", "2"])
def test_a_drain_answers_reviews_in_flight_and_refuses_new_ones(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, count: str
) -> None:
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", start_worker().target)
        + webhook_document("validate", "v", "pool", {"delay_ms": 600, "warnings": ["done"]})
    )
    gateway = start_gateway(tmp_path, "--processes", count)
    late = [gateway.connect() for _ in range(4)]
    body = (REVIEWS / f"{POD}.json").read_bytes()
    with Load(gateway, "/validate", POD, connections=8) as load:
        eventually(lambda: gateway.metric("admission_gateway_reviews_in_flight") == 8)
        for connection in late:
            # Idle connections would be closed during the drain.
            connection.putrequest("POST", "/validate")
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body[:-1])
        gateway.signal(signal.SIGTERM)
        eventually(lambda: gateway.admin("/readyz")[0] == 503)
        # The parent of several processes is unready before they get the signal.
        gateway.expect("(?s)" + ".*".join(["stopping"] * (int(count) + (count != "1"))))
        for connection in late:
            connection.send(body[-1:])
            refusal = connection.getresponse()
            assert (refusal.status, refusal.getheader("Retry-After")) == (503, "1")
            assert refusal.getheader("Connection") == "close"
            assert "error" in json.loads(refusal.read())
            connection.close()
    assert gateway.wait() == 0, gateway.log
    tally = load.tally
    assert (tally.lost, tally.failed, tally.denied) == (0, 0, 0), tally
    assert tally.answered >= 8
    assert "Traceback" not in gateway.log


def test_reviews_that_outlast_drain_seconds_are_aborted(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    gate = tmp_path / "gate"
    (tmp_path / "c.yaml").write_text(
        settings_document(drainSeconds=12)
        + pool_document("pool", start_worker().target)
        + webhook_document("validate", "hangs", "pool", {"hang": True}, timeoutSeconds=30)
        + webhook_document("validate", "ends", "pool", {"until": str(gate)}, timeoutSeconds=30)
    )
    gateway = start_gateway(tmp_path)
    with (
        Load(gateway, "/validate/hangs?timeout=30s", POD, connections=4, count=4) as hanging,
        Load(gateway, "/validate/ends?timeout=30s", POD, connections=4, count=4) as ending,
    ):
        eventually(lambda: gateway.metric("admission_gateway_reviews_in_flight") == 8)
        gateway.signal(signal.SIGTERM)
        gateway.expect("stopping")
        gate.touch()
    assert gateway.wait() == 0, gateway.log
    assert (ending.tally.allowed, ending.tally.lost) == (4, 0), ending.tally
    assert (hanging.tally.answered, hanging.tally.lost) == (0, 4), hanging.tally
    assert "Traceback" not in gateway.log


@pytest.mark.parametrize("count", ["1", "2"])
def test_workers_started_by_a_command_stop_last(
    tmp_path: Path, start_gateway: StartGateway, count: str
) -> None:
    """Webhooks with side effects are called in order: the second call begins after the signal."""
    log = tmp_path / "log"
    webhooks = webhook_document("mutate", "m", "own", {}, {}, sideEffects="NoneOnDryRun")
    config = tmp_path / "config"
    config.mkdir()
    (config / "c.yaml").write_text(command_pool("own", *sdk_worker(tmp_path, log)) + named(webhooks, "slow"))
    gateway = start_gateway(config, "--processes", count)
    with Load(gateway, "/mutate", "pod-create-mutate", connections=8) as load:
        load.wait_for(4)
        gateway.signal(signal.SIGTERM)
        eventually(lambda: gateway.admin("/readyz")[0] == 503)
    assert gateway.wait() == 0, gateway.log
    tally = load.tally
    assert (tally.lost, tally.failed, tally.failed_open) == (0, 0, 0), tally
    happened = events(log)
    assert len(happened["answered"]) == 2 * tally.allowed
    assert max(happened["answered"]) < min(happened["stopping"])
    assert len(happened["ended"]) == 1


STUBBORN = f'trap "" TERM; echo $$ >> "$0"; {FAKE} "$@" & echo $! >> "$0"; wait; exec sleep 1000'
"""A worker in a shell, which both ignore SIGTERM; their process ids go to a file."""


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("count", ["1", "2"])
def test_a_second_signal_ends_everything_at_once(
    tmp_path: Path, temporary: Path, processes: ExitStack, start_gateway: StartGateway, count: str
) -> None:
    pids = tmp_path / "pids"
    processes.callback(lambda: kill(map(int, lines(pids))))
    config = tmp_path / "config"
    config.mkdir()
    (config / "c.yaml").write_text(
        settings_document(drainSeconds=300)
        + command_pool("own", "sh", "-c", STUBBORN, str(pids))
        + webhook_document("validate", "v", "own", {"hang": True}, timeoutSeconds=30)
    )
    gateway = start_gateway(config, "--processes", count)
    with Load(gateway, "/validate", POD, connections=4, count=4) as load:
        eventually(lambda: gateway.metric("admission_gateway_reviews_in_flight") == 4)
        eventually(lambda: len(lines(pids)) == 2)
        started = [*children_of(gateway.child.pid), *map(int, lines(pids))]
        assert len(set(started)) == (2 if count == "1" else 4)
        gateway.signal(signal.SIGTERM)
        gateway.expect("stopping")
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 1
    assert load.tally.lost == 4
    eventually(lambda: not any(runs(pid) for pid in started))
    assert list(temporary.iterdir()) == []


ONCE = f'[ -e "$0" ] && exit 1; touch "$0"; exec {FAKE} "$@"'
"""A worker that starts only once."""


def test_a_signal_while_a_worker_is_down_shuts_down_cleanly(
    tmp_path: Path, start_gateway: StartGateway
) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "c.yaml").write_text(
        command_pool("own", "sh", "-c", ONCE, str(tmp_path / "started"))
        + webhook_document("validate", "v", "own", {})
        + webhook_document("validate", "i", "own", {}, failurePolicy="Ignore")
    )
    gateway = start_gateway(config)
    with (
        Load(gateway, "/validate/v", POD, connections=4, rate=100) as failing,
        Load(gateway, "/validate/i", POD, connections=4, rate=100) as ignoring,
    ):
        failing.wait_until(lambda tally: tally.allowed >= 20)
        os.kill(children_of(gateway.child.pid)[0], signal.SIGKILL)
        failing.wait_until(lambda tally: tally.failed >= 20)
        ignoring.wait_until(lambda tally: tally.failed_open >= 20)
        gateway.signal(signal.SIGTERM)
        gateway.expect("stopping")
    assert gateway.wait() == 0, gateway.log
    assert failing.tally.lost == ignoring.tally.lost == 0, failing.tally
    assert ignoring.tally.failed == ignoring.tally.denied == 0, ignoring.tally
    assert "Traceback" not in gateway.log


NEVER_UP = 'echo $$ >> "$0"; exec sleep 1000'


def test_a_signal_during_the_start_leaves_no_worker_behind(
    tmp_path: Path, processes: ExitStack, certificate: tuple[Path, Path]
) -> None:
    config = tmp_path / "config"
    config.mkdir()
    pids = tmp_path / "pids"
    (config / "c.yaml").write_text(
        command_pool("own", "sh", "-c", NEVER_UP, str(pids)) + webhook_document("validate", "v", "own", {})
    )
    gateway = Process(
        *(sys.executable, "-m", "gateway", "serve", "--config", str(config)),
        *("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"),
        *("--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1])),
    )
    processes.callback(gateway.stop)
    eventually(lambda: lines(pids))
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.log
    assert "serving on" not in gateway.log
    assert not any(runs(int(pid)) for pid in lines(pids))


def test_a_signal_during_a_reload_shuts_down_cleanly(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The reload waits for a worker that never starts."""
    config = tmp_path / "config"
    config.mkdir()
    pids = tmp_path / "pids"
    old = pool_document("pool", start_worker().target) + webhook_document(
        "validate", "v", "pool", {"delay_ms": 200}
    )
    (config / "c.yaml").write_text(old)
    gateway = start_gateway(config)
    with Load(gateway, "/validate/v", POD, connections=8) as load:
        load.wait_for(8)
        new = command_pool("pool", "sh", "-c", NEVER_UP, str(pids))
        write_whole(config / "c.yaml", new + webhook_document("validate", "v", "pool", {}))
        gateway.signal(signal.SIGHUP)
        eventually(lambda: lines(pids))
        load.wait_for(16)
        gateway.signal(signal.SIGTERM)
        gateway.expect("stopping")
    assert gateway.wait() == 0, gateway.log
    assert (load.tally.lost, load.tally.failed) == (0, 0), load.tally
    assert not any(runs(int(pid)) for pid in lines(pids))
    assert "Traceback" not in gateway.log


class Service:
    """Gateways behind one Service: new connections go to them in turn."""

    def __init__(self, *gateways: GatewayProcess) -> None:
        self.client_context: ssl.SSLContext = gateways[0].client_context
        self.behind = list(gateways)
        self._turn = 0

    @property
    def port(self) -> int:
        self._turn += 1
        behind = tuple(self.behind)
        return behind[self._turn % len(behind)].port


def test_a_rolling_restart_of_two_gateways_loses_nothing(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A gateway that stops still gets new connections for a while, as in a cluster."""
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", start_worker().target)
        + webhook_document("validate", "v", "pool", {"delay_ms": 20})
    )
    old = [start_gateway(tmp_path, "--listen", own_port()) for _ in range(2)]
    service = Service(*old)
    with Load(service, "/validate", POD, connections=12, retry_refused=True) as load:
        for leaving in old:
            load.wait_for(50)
            leaving.signal(signal.SIGTERM)
            retried = load.tally.retried
            load.wait_until(lambda tally, retried=retried: tally.retried > retried)  # type: ignore[misc]
            service.behind.remove(leaving)
            assert leaving.wait() == 0, leaving.log
            service.behind.append(start_gateway(tmp_path, "--listen", f"127.0.0.1:{leaving.port}"))
        load.wait_for(100)
    tally = load.tally
    assert (tally.lost, tally.failed, tally.refused) == (0, 0, 0), tally
    assert tally.allowed == tally.sent


def test_a_failed_handshake_does_not_delay_the_drain(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A handshake that failed is not a review: the drain ends in time and with status 0."""
    (tmp_path / "c.yaml").write_text(
        settings_document(drainSeconds=1)
        + pool_document("pool", start_worker().target)
        + webhook_document("validate", "v", "pool", {})
    )
    gateway = start_gateway(tmp_path)
    untrusting = Client(gateway)
    with pytest.raises(AssertionError, match="certificate verify failed"), Load(untrusting, "/validate", POD):
        pass
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.log
