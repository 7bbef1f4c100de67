"""Workers in different languages that are stopped and replaced under load: no review is lost."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.faults.kit import (
    REVIEW,
    all_well,
    configure,
    one_webhook,
    wait_past,
    wait_until_called,
    wait_until_ready,
)
from tests.kit import free_port
from tests.load import Load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kit import StartGateway
    from tests.languages.kit import Sample
    from tests.languages.toolchains import Language

CONNECTIONS = 16
TIMEOUT_S = 20
BETWEEN = 50
"""Answers between two steps."""


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
def test_each_worker_of_a_mixed_pool_is_replaced_and_nothing_is_lost(
    tmp_path: Path,
    present: list[Language],
    start_sample: Callable[..., Sample],
    start_gateway: StartGateway,
    transport: str,
) -> None:
    # Ports that no connection takes while there is no worker.
    workers = {language.name: start_sample(language, f"127.0.0.1:{free_port()}") for language in present}
    policy = {"clientConfig": {"worker": {"pool": "pool", "policy": "deny-privileged"}}}
    targets = [worker.target for worker in workers.values()]
    webhook = {**policy, "timeoutSeconds": TIMEOUT_S}
    gateway = start_gateway(configure(tmp_path, one_webhook(*targets, webhook=webhook, transport=transport)))
    wait_until_ready(gateway, len(workers))
    for name, old in list(workers.items()):
        # One for each, because a load is bounded in time.
        with Load(gateway, "/validate?timeout=25s", REVIEW, connections=CONNECTIONS, rate=300) as load:
            load.wait_for(BETWEEN)
            old.signal(signal.SIGTERM)
            assert old.wait() == 0, f"{name}:\n{old.log}"
            load.wait_for(BETWEEN)
            workers[name] = start_sample(old.language, old.target)
            wait_until_called(gateway, workers[name])
            wait_until_ready(gateway, len(workers))
            wait_past(load, 0)
        assert all_well(load.tally), load.tally
