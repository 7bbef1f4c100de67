"""A worker that is killed or stopped under load, beside a healthy one."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.faults.kit import (
    REVIEW,
    SOME_PORT,
    STREAMED,
    StartGateway,
    StartWorker,
    all_well,
    calls_by_review,
    configure,
    kill,
    mixed,
    one_webhook,
    override,
    own_port,
    retries,
    wait_past,
    wait_until_called,
    wait_until_ready,
    with_side_effects,
)
from tests.kit import pool_document, webhook_document
from tests.load import Load
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

CONNECTIONS = 16
"""The maximum of reviews and calls in flight."""
RATE = 400.0
TIMEOUT_S = 20
"""Of the webhook: far beyond what a retry takes, also on a busy machine."""
PATH = "/validate?timeout=25s"
WEBHOOK = {"timeoutSeconds": TIMEOUT_S}


OPEN_AFTER = 50


def leaving_calls_open(log: Path) -> tuple[str, ...]:
    """Return the flags of a worker that does not answer each fiftieth call, so that some are in flight."""
    return *override(hang=True), "--every", str(OPEN_AFTER), "--log", str(log)


def wait_for_open_call(log: Path) -> None:
    """Wait until the worker with this *log* has got a call that it does not answer."""
    eventually(lambda: sum(calls_by_review(log).values()) >= OPEN_AFTER, "a call is in flight")


@pytest.mark.smoke
@pytest.mark.parametrize("transport", STREAMED)
def test_a_worker_that_is_killed_costs_no_review(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, transport: str
) -> None:
    by, flags, others_flags = mixed(transport)
    log = tmp_path / "log"
    killed = start_worker(own_port(), *flags, *leaving_calls_open(log))
    other = start_worker(SOME_PORT, *others_flags)
    configuration = one_webhook(killed.target, other.target, transport=by, webhook=WEBHOOK)
    gateway = start_gateway(configure(tmp_path, configuration))
    wait_until_ready(gateway, 2)
    with Load(gateway, PATH, REVIEW, connections=CONNECTIONS, rate=RATE) as load:
        wait_for_open_call(log)
        kill(killed)
        wait_past(load, 100)
        back = start_worker(killed.target, *flags)
        wait_until_called(gateway, back)
        wait_until_ready(gateway, 2)
    assert all_well(load.tally), load.tally
    assert retries(gateway) >= 1, "nothing was in flight when it was killed"


@pytest.mark.parametrize("transport", STREAMED)
def test_a_worker_that_hangs_costs_no_review(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, transport: str
) -> None:
    """Its connections stay open: only its silence shows that it is stopped."""
    by, flags, others_flags = mixed(transport)
    stopped, other = start_worker(SOME_PORT, *flags), start_worker(SOME_PORT, *others_flags)
    configuration = one_webhook(stopped.target, other.target, transport=by, webhook=WEBHOOK)
    gateway = start_gateway(configure(tmp_path, configuration))
    wait_until_ready(gateway, 2)
    with Load(gateway, PATH, REVIEW, connections=CONNECTIONS, rate=RATE) as load:
        load.wait_for(100)
        stopped.signal(signal.SIGSTOP)
        try:
            wait_past(load, 100)
        finally:
            stopped.signal(signal.SIGCONT)
        wait_until_called(gateway, stopped)
        wait_until_ready(gateway, 2)
    assert all_well(load.tally), load.tally
    assert retries(gateway) >= 1, "nothing was in flight when it was stopped"


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
def test_without_workers_the_failure_policy_decides(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, transport: str
) -> None:
    workers = start_worker(own_port()), start_worker(own_port())
    configuration = (
        pool_document("pool", *(worker.target for worker in workers), transport=transport)
        + webhook_document("validate", "fail", "pool", {"delay_ms": 20}, failurePolicy="Fail", **WEBHOOK)
        + webhook_document("validate", "ignore", "pool", {"delay_ms": 20}, failurePolicy="Ignore", **WEBHOOK)
    )
    gateway = start_gateway(configure(tmp_path, configuration))
    wait_until_ready(gateway, 2)
    with (
        Load(gateway, "/validate/fail?timeout=25s", REVIEW, connections=8, rate=200) as fail,
        Load(gateway, "/validate/ignore?timeout=25s", REVIEW, connections=8, rate=200) as ignore,
    ):
        fail.wait_for(20)
        ignore.wait_for(20)
        for worker in workers:
            kill(worker)
        fail.wait_until(lambda tally: tally.failed >= 50)
        ignore.wait_until(lambda tally: tally.failed_open >= 50)
        for worker in workers:
            start_worker(worker.target)
        wait_until_ready(gateway, 2)
        wait_past(fail, 0)
        wait_past(ignore, 0)
        failed, opened = fail.tally.failed, ignore.tally.failed_open
        fail.wait_for(50)
        ignore.wait_for(50)
    assert fail.tally.failed == failed
    assert ignore.tally.failed_open == opened
    for tally in (fail.tally, ignore.tally):
        assert tally.sent == tally.answered, tally
    assert fail.tally.allowed + failed == fail.tally.sent
    assert ignore.tally.allowed == ignore.tally.sent
    for text in fail.tally.texts:
        assert text.startswith('failed calling webhook "h0.fail.test": UNAVAILABLE: '), text


@pytest.mark.parametrize(
    ("transport", "fault", "side_effects"),
    [
        ("Stream", signal.SIGKILL, "Some"),
        ("Unary", signal.SIGKILL, "NoneOnDryRun"),
        ("Stream", signal.SIGSTOP, "NoneOnDryRun"),
        ("Unary", signal.SIGSTOP, "Some"),
    ],
    ids=["Stream, killed", "Unary, killed", "Stream, stopped", "Unary, stopped"],
)
def test_webhooks_with_side_effects_are_never_called_twice(
    tmp_path: Path,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    *,
    transport: str,
    fault: signal.Signals,
    side_effects: str,
) -> None:
    logs = tmp_path / "one.log", tmp_path / "other.log"
    is_killed = fault == signal.SIGKILL
    lost = start_worker(SOME_PORT, *(leaving_calls_open(logs[0]) if is_killed else ("--log", str(logs[0]))))
    other = start_worker(SOME_PORT, "--log", str(logs[1]))
    # The calls to a worker that is stopped end at their timeout.
    timeout_s = TIMEOUT_S if is_killed else 1
    webhook = {"timeoutSeconds": timeout_s, "sideEffects": side_effects, "failurePolicy": "Fail"}
    (tmp_path / "config").mkdir()
    configuration = one_webhook(lost.target, other.target, transport=transport, webhook=webhook)
    gateway = start_gateway(configure(tmp_path / "config", with_side_effects(configuration)))
    wait_until_ready(gateway, 2)
    with Load(gateway, PATH, REVIEW, connections=CONNECTIONS, rate=RATE) as load:
        if is_killed:
            wait_for_open_call(logs[0])
        load.wait_for(100)
        lost.signal(fault)
        try:
            wait_past(load, 50)
        finally:
            lost.signal(signal.SIGCONT)
    tally = load.tally
    assert tally.sent == tally.answered, tally
    assert tally.failed >= 1, "nothing was in flight when it was lost"
    times = calls_by_review(*logs)
    assert set(times.values()) == {1}
    assert tally.allowed <= len(times) <= tally.sent
