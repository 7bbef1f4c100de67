"""Workers that drain and are replaced under load."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import pytest

from tests.faults.kit import (
    REVIEW,
    SOME_PORT,
    StartGateway,
    all_well,
    configure,
    one_webhook,
    own_port,
    wait_past,
    wait_until_called,
    wait_until_ready,
)
from tests.kit import Process
from tests.load import Load

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

pytestmark = pytest.mark.process

CONNECTIONS = 16
TIMEOUT_S = 20


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

    worker = {"pool": "pool", "policy": "deny-privileged"}
    webhook = {"clientConfig": {"worker": worker}, "timeoutSeconds": TIMEOUT_S}
    workers = [start(own_port()), start(own_port())]

    def configuration() -> str:
        return one_webhook(*(worker.target for worker in workers), webhook=webhook)

    gateway = start_gateway(configure(tmp_path, configuration()))
    wait_until_ready(gateway, 2)
    with Load(gateway, "/validate?timeout=25s", REVIEW, connections=CONNECTIONS, rate=400) as load:
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
