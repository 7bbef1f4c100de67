"""Real workers that are killed, stopped, failing, unhealthy, slow, flooding or replaced under load.

One test for each behaviour. All cases of it, and the numbers, are rows of ``tests/simulation/test_rows.py``.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from tests.faults.kit import (
    REVIEW,
    SOME_PORT,
    StartWorker,
    all_well,
    calls,
    calls_by_review,
    configure,
    endpoints,
    kill,
    one_webhook,
    override,
    own_port,
    retries,
    wait_past,
    wait_until_called,
    wait_until_ready,
    with_side_effects,
)
from tests.kit import Process, StartGateway, pool_document, webhook_document
from tests.load import Load
from tests.waiting import eventually

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

pytestmark = pytest.mark.process

CONNECTIONS = 16
"""The maximum of reviews and calls in flight."""
RATE = 400.0
WEBHOOK = {"timeoutSeconds": 20}
"""Far beyond what a retry takes, also on a busy machine."""
PATH = "/validate?timeout=25s"
OPEN_AFTER = 50
BROKEN = override(status="INTERNAL", details="always", delay_ms=0)


def leaving_calls_open(log: Path) -> tuple[str, ...]:
    """Return the flags of a worker that does not answer each fiftieth call, so that some are in flight."""
    return *override(hang=True), "--every", str(OPEN_AFTER), "--log", str(log)


def wait_for_open_call(log: Path) -> None:
    """Wait until the worker with this *log* has got a call that it does not answer."""
    eventually(lambda: sum(calls_by_review(log).values()) >= OPEN_AFTER, "a call is in flight")


@pytest.mark.smoke
def test_a_worker_that_is_killed_costs_no_review(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """It has unary calls, the other worker a stream."""
    log = tmp_path / "log"
    killed = start_worker(own_port(), "--no-stream", *leaving_calls_open(log))
    other = start_worker(SOME_PORT)
    gateway = start_gateway(configure(tmp_path, one_webhook(killed.target, other.target, webhook=WEBHOOK)))
    wait_until_ready(gateway, 2)
    with Load(gateway, PATH, REVIEW, connections=CONNECTIONS, rate=RATE) as load:
        wait_for_open_call(log)
        kill(killed)
        wait_past(load, 100)
        back = start_worker(killed.target, "--no-stream")
        wait_until_called(gateway, back)
        wait_until_ready(gateway, 2)
    assert all_well(load.tally), load.tally
    assert retries(gateway) >= 1, "nothing was in flight when it was killed"


def test_a_worker_that_hangs_costs_no_review(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Its connections stay open: only its silence shows that it is stopped."""
    log, gate = tmp_path / "log", tmp_path / "gate"
    waits = *override(until=str(gate)), "--every", str(OPEN_AFTER), "--log", str(log)
    stopped, other = start_worker(SOME_PORT, *waits), start_worker(SOME_PORT, "--no-stream")
    gateway = start_gateway(configure(tmp_path, one_webhook(stopped.target, other.target, webhook=WEBHOOK)))
    wait_until_ready(gateway, 2)
    with Load(gateway, PATH, REVIEW, connections=CONNECTIONS, rate=RATE) as load:
        wait_for_open_call(log)
        stopped.signal(signal.SIGSTOP)
        try:
            wait_past(load, 100)
            gate.touch()
        finally:
            stopped.signal(signal.SIGCONT)
        wait_until_called(gateway, stopped)
        wait_until_ready(gateway, 2)
    assert all_well(load.tally), load.tally
    assert retries(gateway) >= 1, "nothing was in flight when it was stopped"


def test_webhooks_with_side_effects_are_never_called_twice(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    logs = tmp_path / "one.log", tmp_path / "other.log"
    lost = start_worker(SOME_PORT, *leaving_calls_open(logs[0]))
    other = start_worker(SOME_PORT, "--log", str(logs[1]))
    webhook = {**WEBHOOK, "sideEffects": "Some", "failurePolicy": "Fail"}
    (tmp_path / "config").mkdir()
    configuration = one_webhook(lost.target, other.target, webhook=webhook)
    gateway = start_gateway(configure(tmp_path / "config", with_side_effects(configuration)))
    wait_until_ready(gateway, 2)
    with Load(gateway, PATH, REVIEW, connections=CONNECTIONS, rate=RATE) as load:
        wait_for_open_call(logs[0])
        load.wait_for(100)
        kill(lost)
        wait_past(load, 50)
    tally = load.tally
    assert tally.sent == tally.answered, tally
    assert tally.failed >= 1, "nothing was in flight when it was lost"
    times = calls_by_review(*logs)
    assert set(times.values()) == {1}
    assert tally.allowed <= len(times) <= tally.sent


def test_a_worker_that_always_fails_is_ejected_until_it_is_replaced(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    broken, *good = start_worker(own_port(), *BROKEN), start_worker(SOME_PORT), start_worker(SOME_PORT)
    configuration = one_webhook(*(worker.target for worker in (broken, *good)), webhook=WEBHOOK)
    gateway = start_gateway(configure(tmp_path, configuration))
    wait_until_ready(gateway, 3)
    with Load(gateway, PATH, REVIEW, connections=8, rate=200) as load:
        load.wait_until(lambda tally: tally.failed >= 5)
        eventually(lambda: endpoints(gateway, "pool", "ejected") == 1, "the failing worker is ejected")
        wait_past(load, 50)
        kill(broken)
        start_worker(broken.target)
        wait_until_called(gateway, broken)
        wait_until_ready(gateway, 3)
        wait_past(load, 0)
        failed = load.tally.failed
        load.wait_for(100)
    tally = load.tally
    assert tally.failed == failed
    assert tally.sent == tally.answered == tally.allowed + tally.failed, tally
    assert set(tally.texts) == {'failed calling webhook "h0.v.test": INTERNAL: always'}


def test_a_worker_that_reports_not_serving_gets_no_new_calls(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """It reports by grpc.health.v1, and still answers its calls in flight."""
    log = tmp_path / "moody.log"
    moody = start_worker(SOME_PORT, "--health", "--log", str(log))
    other = start_worker(SOME_PORT, "--health")
    (tmp_path / "config").mkdir()
    gateway = start_gateway(
        configure(tmp_path / "config", one_webhook(moody.target, other.target, webhook=WEBHOOK))
    )
    wait_until_ready(gateway, 2)
    with Load(gateway, PATH, REVIEW, connections=8, rate=200) as load:
        wait_until_called(gateway, moody)
        moody.signal(signal.SIGUSR1)
        eventually(lambda: endpoints(gateway, "pool", "unhealthy") == 1, "its health is known")
        wait_past(load, 0)
        before = sum(calls_by_review(log).values())
        wait_past(load, 50)
        assert sum(calls_by_review(log).values()) == before
        moody.signal(signal.SIGUSR1)
        wait_until_ready(gateway, 2)
        wait_until_called(gateway, moody)
    assert all_well(load.tally), load.tally
    assert calls(gateway, moody) == calls(gateway, moody, code="OK")


def test_a_hedge_answers_instead_of_a_slow_worker(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    logs = tmp_path / "slow.log", tmp_path / "fast.log"
    slow = start_worker(SOME_PORT, *override(hang=True), "--every", "5", "--log", str(logs[0]))
    fast = start_worker(SOME_PORT, "--log", str(logs[1]))
    (tmp_path / "config").mkdir()
    hedge = {"after": "100ms", "budgetPercent": 50}
    configuration = one_webhook(slow.target, fast.target, hedge=hedge, webhook=WEBHOOK)
    gateway = start_gateway(configure(tmp_path / "config", configuration))
    wait_until_ready(gateway, 2)
    with Load(gateway, PATH, REVIEW, connections=8, rate=150, count=300) as load:
        load.finish()
    tally, times = load.tally, calls_by_review(*logs)
    hedged = gateway.metric("admission_gateway_worker_hedges_total", pool="pool")
    assert all_well(tally), tally
    assert len(times) == 300
    assert 10 <= sum(times.values()) - 300 <= hedged <= 150 + 50
    assert max(times.values()) == 2


def test_a_worker_that_floods_does_not_affect_other_pools(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The gateway ends each flooded stream, and reconnects with back-off."""
    wrong, other = start_worker(SOME_PORT), start_worker(SOME_PORT)
    configuration = (
        pool_document("wrong", wrong.target)
        + pool_document("other", other.target)
        + webhook_document("validate", "fault", "wrong", {"flood": True})
        + webhook_document("validate", "report", "wrong", {"report": True})
        + webhook_document("validate", "elsewhere", "other", {"delay_ms": 20})
    )
    gateway = start_gateway(configure(tmp_path, configuration))
    for pool in ("wrong", "other"):
        wait_until_ready(gateway, 1, pool)
    with Load(gateway, "/validate/elsewhere?timeout=25s", REVIEW, connections=8, rate=100) as elsewhere:
        with Load(gateway, "/validate/fault?timeout=25s", REVIEW, connections=4, count=50) as faulty:
            faulty.finish()
        wait_past(elsewhere, 20)
    assert all_well(elsewhere.tally), elsewhere.tally
    assert faulty.tally.answered == 50, faulty.tally
    assert "Traceback" not in gateway.log

    def flooded() -> int:
        """Return how many unsolicited verdicts the worker could send."""
        answer = gateway.review("/validate/report?timeout=10s", REVIEW)
        report: dict[str, int] = json.loads(answer["status"]["message"].partition(": ")[2])
        return report.get("flooded", 0)

    seen = [flooded()]

    def is_over() -> bool:
        seen.append(flooded())
        return seen[-1] == seen[-2]

    eventually(is_over, "the flood is over")


class SampleWorker(Process):
    """``python -m admission_gateway_worker.samples``, which drains at SIGTERM."""

    def __init__(self, listen: str) -> None:
        super().__init__(sys.executable, "-m", "admission_gateway_worker.samples", "--listen", listen)
        self.target = self.expect(r"serving .*(127\.0\.0\.1:\d+)")[1]


@pytest.mark.parametrize("replacement", ["at the same address", "at another address"])
def test_a_rolling_update_of_workers_loses_no_review(
    tmp_path: Path, processes: ExitStack, start_gateway: StartGateway, replacement: str
) -> None:
    """The workers are replaced one after another."""

    def start(listen: str = SOME_PORT) -> SampleWorker:
        worker = SampleWorker(listen)
        processes.callback(worker.stop)
        return worker

    webhook = {"clientConfig": {"worker": {"pool": "pool", "policy": "deny-privileged"}}, **WEBHOOK}
    workers = [start(own_port()), start(own_port())]

    def configuration() -> str:
        return one_webhook(*(worker.target for worker in workers), webhook=webhook)

    gateway = start_gateway(configure(tmp_path, configuration()))
    wait_until_ready(gateway, 2)
    with Load(gateway, PATH, REVIEW, connections=CONNECTIONS, rate=RATE) as load:
        for number, old in enumerate(tuple(workers)):
            load.wait_for(50)
            if replacement == "at the same address":
                old.signal(signal.SIGTERM)
                assert old.wait() == 0
                load.wait_for(50)
                workers[number] = start(old.target)
            else:
                workers[number] = start()
                before = len(gateway.log)
                configure(tmp_path, configuration())
                gateway.expect("configuration reloaded", after=before)
                old.signal(signal.SIGTERM)
                assert old.wait() == 0
            wait_until_called(gateway, workers[number])
            wait_until_ready(gateway, 2)
        wait_past(load, 0)
    assert all_well(load.tally), load.tally
