"""Workers that answer with errors, or report NOT_SERVING."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.faults.kit import (
    REVIEW,
    SOME_PORT,
    StartGateway,
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
    wait_past,
    wait_until_called,
    wait_until_ready,
)
from tests.load import Load
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

PATH = "/validate?timeout=25s"
WEBHOOK = {"timeoutSeconds": 20}
CONNECTIONS = 8
BROKEN = override(status="INTERNAL", details="always", delay_ms=0)
CAUSE = 'failed calling webhook "h0.v.test": INTERNAL: always'


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
def test_a_worker_that_always_fails_is_ejected_until_it_is_replaced(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, transport: str
) -> None:
    broken, *good = start_worker(own_port(), *BROKEN), start_worker(SOME_PORT), start_worker(SOME_PORT)
    targets = (worker.target for worker in (broken, *good))
    configuration = one_webhook(*targets, transport=transport, webhook=WEBHOOK)
    gateway = start_gateway(configure(tmp_path, configuration))
    wait_until_ready(gateway, 3)
    with Load(gateway, PATH, REVIEW, connections=CONNECTIONS, rate=200) as load:
        load.wait_until(lambda tally: tally.failed >= 5)
        eventually(lambda: endpoints(gateway, "pool", "ejected") == 1, "the failing worker is ejected")
        wait_past(load, 0)
        before = load.tally
        wait_past(load, 300)
        after = load.tally
        # A worker that fails at once would get more than its share of calls. It only gets trial calls.
        assert after.failed - before.failed <= 30, after
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
    assert set(tally.texts) <= {CAUSE}


def test_at_most_half_of_the_workers_are_ejected(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """There are always workers for calls; failurePolicy decides after a failure."""
    broken, other, good = (
        *(start_worker(SOME_PORT, *BROKEN) for _ in range(2)),
        start_worker(SOME_PORT),
    )
    configuration = one_webhook(broken.target, other.target, good.target, webhook=WEBHOOK)
    gateway = start_gateway(configure(tmp_path, configuration))
    wait_until_ready(gateway, 3)
    with Load(gateway, PATH, REVIEW, connections=CONNECTIONS, rate=200) as load:
        eventually(lambda: endpoints(gateway, "pool", "ejected") == 1, "a failing worker is ejected")
        for _ in range(5):
            wait_past(load, 50)
            assert endpoints(gateway, "pool", "ejected") <= 1
    tally = load.tally
    assert tally.sent == tally.answered == tally.allowed + tally.failed, tally
    assert tally.allowed >= 10
    assert tally.failed >= 10
    assert tally.texts == (CAUSE,)


def test_when_all_workers_fail_all_are_still_called(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    broken = [start_worker(own_port(), *BROKEN), start_worker(own_port(), *BROKEN)]
    configuration = one_webhook(*(worker.target for worker in broken), webhook=WEBHOOK)
    gateway = start_gateway(configure(tmp_path, configuration))
    wait_until_ready(gateway, 2)
    with Load(gateway, PATH, REVIEW, connections=CONNECTIONS, rate=200) as load:
        load.wait_until(lambda tally: tally.failed >= 100)
        assert endpoints(gateway, "pool", "ejected") <= 1
        for worker in broken:
            kill(worker)
            start_worker(worker.target)
        wait_until_ready(gateway, 2)
        for worker in broken:
            wait_until_called(gateway, worker)
        wait_past(load, 0)
        failed = load.tally.failed
        load.wait_for(100)
    tally = load.tally
    assert tally.failed == failed
    assert tally.sent == tally.answered == tally.allowed + tally.failed, tally


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
def test_a_worker_that_reports_not_serving_gets_no_new_calls(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, transport: str
) -> None:
    """It reports by grpc.health.v1, and still answers its calls in flight."""
    log = tmp_path / "moody.log"
    moody = start_worker(SOME_PORT, "--health", "--log", str(log))
    other = start_worker(SOME_PORT, "--health")
    (tmp_path / "config").mkdir()
    configuration = one_webhook(moody.target, other.target, transport=transport, webhook=WEBHOOK)
    gateway = start_gateway(configure(tmp_path / "config", configuration))
    wait_until_ready(gateway, 2)
    with Load(gateway, PATH, REVIEW, connections=CONNECTIONS, rate=200) as load:
        wait_until_called(gateway, moody)
        for _ in range(2):
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


def test_workers_that_all_report_not_serving_are_still_called(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Their health may be wrong, and refusing the call would be no better than a failure."""
    workers = [start_worker(SOME_PORT, "--health"), start_worker(SOME_PORT, "--health")]
    configuration = one_webhook(*(worker.target for worker in workers), webhook=WEBHOOK)
    gateway = start_gateway(configure(tmp_path, configuration))
    wait_until_ready(gateway, 2)
    for worker in workers:
        worker.signal(signal.SIGUSR1)
    eventually(lambda: endpoints(gateway, "pool", "unhealthy") == 2, "their health is known")
    with Load(gateway, PATH, REVIEW, connections=CONNECTIONS, count=100) as load:
        load.finish()
    assert all_well(load.tally), load.tally
