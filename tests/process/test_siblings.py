"""All processes of a gateway serve the same configuration when workers reject another one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.base.errors import Problem
from gateway.config.merge.load import load
from gateway.engine.siblings import ANSWERED_WITHIN_S, Siblings, is_used
from tests.in_process import START_S
from tests.integration.test_rejected_configurations import REFUSED, Setup, client, is_as_before
from tests.kit import pool_document, webhook_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gateway.config.kinds.worker_pool import WorkerPool
    from gateway.config.merge.model import Config
    from tests.in_process import Stage
    from tests.kit import StartGateway
    from tests.worker.server import StartWorker

PROBLEM = Problem("a.yaml:5:3", "webhooks[0]", "found …", "a.yaml", 5, 3)


def socket_of(pool: WorkerPool) -> Sequence[str]:
    return (f"unix:/run/{pool.name}.sock",)


def config_with(folder: Path) -> Config:
    pool = pool_document("own").replace('"target": []', '"command": ["worker"]')
    (folder / "c.yaml").write_text(pool + webhook_document("validate", "v", "own", {}))
    return load([folder / "c.yaml"])


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_process_that_knows_nothing_follows_another_one(tmp_path: Path, *, is_refused: bool) -> None:
    config = config_with(tmp_path)

    async def run() -> Sequence[Problem]:
        one, other = (Siblings(tmp_path, number, socket_of) for number in range(2))
        other.in_force(config, "old")
        following = asyncio.create_task(one.follow("new"))
        await asyncio.sleep(0)
        if is_refused:
            other.refused("new", [PROBLEM])
        else:
            other.in_force(config, "new")
        return await following

    assert asyncio.run(run()) == ((PROBLEM,) if is_refused else ())


def test_nobody_waits_for_long_for_a_process_that_does_not_decide(tmp_path: Path, stage: Stage) -> None:
    one, other = (Siblings(tmp_path, number, socket_of) for number in range(2))
    one.refused("new", [PROBLEM])
    assert stage.run(one.follow("new")) == ()
    other.refused("another", [PROBLEM])
    assert stage.run(one.follow("new")) == ()
    assert stage.loop.time() == pytest.approx(START_S + 2 * ANSWERED_WITHIN_S, abs=0.2)


@given(st.lists(st.sampled_from(["", "a", "b"]), max_size=4), st.sampled_from(["a", "b"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_a_process_starts_with_what_one_of_the_others_has_in_force(
    tmp_path_factory: pytest.TempPathFactory, others: list[str], own: str
) -> None:
    folder = tmp_path_factory.mktemp("s")
    config = config_with(folder)
    for number, digest in enumerate(others):
        if digest:
            Siblings(folder, number, socket_of).in_force(config, digest)
    found = Siblings(folder, len(others), socket_of).have_another_than(own)
    assert found == (any(others) and own not in others)


def test_the_worker_of_a_process_that_runs_is_used(tmp_path: Path) -> None:
    config = config_with(tmp_path)
    other = Siblings(tmp_path, 0, socket_of)
    other.in_force(config, "a")
    worker, unknown = (tmp_path.__class__(f"/run/{name}.sock") for name in ("own", "other"))
    assert is_used(tmp_path, worker)
    assert not is_used(tmp_path, unknown)
    # A refusal changes nothing about what is in force.
    other.refused("b", [PROBLEM])
    assert is_used(tmp_path, worker)
    file = tmp_path / "decision-0.json"
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    file.write_text(json.dumps({**json.loads(file.read_text()), "pid": int(ended.stdout)}))
    assert not is_used(tmp_path, worker)
    file.write_text("{")
    assert not is_used(tmp_path, worker)


@pytest.mark.process
def test_a_process_that_starts_again_does_not_take_what_the_others_refuse(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    setup = Setup(tmp_path, lambda declared: start_worker(None, "--declare", str(declared)))
    gateway = start_gateway(setup.config, "--processes", "2")
    setup.configure(client("{}"))
    found = gateway.expect(f"{REFUSED}webhooks(?s:.*){REFUSED}webhooks")
    first, *_ = gateway.children()
    os.kill(first, signal.SIGKILL)
    gateway.expect(r"process ended, restarting it: gateway process \d, status -9", after=found.end())
    gateway.expect(r"process ended, restarting it: gateway process \d, status \d+", after=found.end())
    for _ in range(20):
        assert is_as_before(gateway)
    assert gateway.admin("/readyz")[0] == 200
    assert len(re.findall("no worker of pool .* serves", gateway.log)) >= 3
    # With a configuration that workers accept it comes back.
    setup.configure(client('{"deny": {"message": "as before"}}'))
    eventually(lambda: gateway.metric("admission_gateway_config_last_reload_successful") == 1)
