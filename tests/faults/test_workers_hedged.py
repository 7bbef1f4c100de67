"""Hedging: a slow call is also sent to another worker, within a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.kit import (
    REVIEW,
    SOME_PORT,
    StartGateway,
    StartWorker,
    all_well,
    calls_by_review,
    configure,
    one_webhook,
    override,
    wait_until_ready,
    with_side_effects,
)
from tests.load import Load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import GatewayProcess

pytestmark = pytest.mark.process

SLOW_MS = 3_600_000
"""Beyond every deadline: a review that waits for it fails."""
TIMEOUT_S = 20
AFTER = "100ms"


def hedged(gateway: GatewayProcess) -> float:
    return gateway.metric("admission_gateway_worker_hedges_total", pool="pool")


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
def test_a_hedge_answers_instead_of_a_slow_worker(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, transport: str
) -> None:
    logs = tmp_path / "slow.log", tmp_path / "fast.log"
    slow = start_worker(SOME_PORT, *override(delay_ms=SLOW_MS), "--every", "5", "--log", str(logs[0]))
    fast = start_worker(SOME_PORT, "--log", str(logs[1]))
    (tmp_path / "config").mkdir()
    configuration = one_webhook(
        *(slow.target, fast.target),
        transport=transport,
        hedge={"after": AFTER, "budgetPercent": 50},
        webhook={"timeoutSeconds": TIMEOUT_S},
    )
    gateway = start_gateway(configure(tmp_path / "config", configuration))
    wait_until_ready(gateway, 2)
    with Load(gateway, "/validate?timeout=25s", REVIEW, connections=8, rate=150, count=300) as load:
        load.finish()
    tally, times = load.tally, calls_by_review(*logs)
    assert all_well(tally), tally
    assert len(times) == 300
    assert 10 <= sum(times.values()) - 300 <= hedged(gateway) <= 150 + 50
    assert max(times.values()) == 2


def test_hedges_of_a_slow_pool_stay_within_the_budget(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    logs = tmp_path / "one.log", tmp_path / "other.log"
    workers = [start_worker(SOME_PORT, *override(delay_ms=200), "--log", str(log)) for log in logs]
    (tmp_path / "config").mkdir()
    configuration = one_webhook(
        *(worker.target for worker in workers), hedge={"after": "20ms", "budgetPercent": 5}
    )
    gateway = start_gateway(configure(tmp_path / "config", configuration))
    wait_until_ready(gateway, 2)
    with Load(gateway, "/validate?timeout=15s", REVIEW, connections=80, count=400) as load:
        load.finish()
    assert all_well(load.tally), load.tally
    extra = sum(calls_by_review(*logs).values()) - 400
    # Five of a hundred, and the tokens before the first call: the share of a hundred.
    assert 5 <= extra <= 0.05 * 400 + 5
    assert extra <= hedged(gateway) <= 0.05 * 400 + 5


@pytest.mark.parametrize("side_effects", ["Some", "NoneOnDryRun"])
def test_webhooks_with_side_effects_are_not_hedged(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, side_effects: str
) -> None:
    logs = tmp_path / "slow.log", tmp_path / "fast.log"
    slow = start_worker(SOME_PORT, *override(delay_ms=300), "--log", str(logs[0]))
    fast = start_worker(SOME_PORT, "--log", str(logs[1]))
    (tmp_path / "config").mkdir()
    configuration = one_webhook(
        *(slow.target, fast.target),
        hedge={"after": "20ms", "budgetPercent": 100},
        webhook={"sideEffects": side_effects, "failurePolicy": "Fail"},
    )
    gateway = start_gateway(configure(tmp_path / "config", with_side_effects(configuration)))
    wait_until_ready(gateway, 2)
    with Load(gateway, "/validate?timeout=15s", REVIEW, connections=16, count=100) as load:
        load.finish()
    assert all_well(load.tally), load.tally
    times = calls_by_review(*logs)
    assert len(times) == 100
    assert set(times.values()) == {1}
    assert calls_by_review(logs[0]), "nothing was slow"
    assert hedged(gateway) == 0
