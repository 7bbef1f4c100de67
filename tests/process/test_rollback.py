"""``rollback`` with running gateways: reviews continue, all processes change, and a restart keeps the pin."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.rotating import write_whole
from tests.kit import pool_document, run_command, webhook_document
from tests.load import Load
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import GatewayProcess, StartGateway
    from tests.worker.server import StartWorker

pytestmark = pytest.mark.process

POD = "pod-create-validate"
PINNED = "admission_gateway_config_pinned"
ERRORS = "admission_gateway_config_history_errors_total"


def configure(folder: Path, target: str, message: str) -> None:
    """Write a configuration that denies every Pod with *message*, or allows them if that is empty."""
    script: dict[str, Any] = {"deny": {"message": message}} if message else {}
    text = pool_document("pool", target) + webhook_document(
        "validate", "v", "pool", script, timeoutSeconds=20
    )
    write_whole(folder / "c.yaml", text)


def message_of(gateway: GatewayProcess) -> str:
    response = gateway.review("/validate", POD)
    return str(response.get("status", {}).get("message", ""))


def listed(state: Path) -> dict[str, Any]:
    done = run_command("rollback", "--state", state, "--list", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("number", [1, 3])
def test_a_rollback_changes_all_processes_and_no_review_fails(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, number: int
) -> None:
    config, state = tmp_path / "config", tmp_path / "state"
    config.mkdir()
    target = start_worker().target
    configure(config, target, "first")
    flags = ("--state", str(state), "--processes", str(number))
    gateway = start_gateway(config, *flags)
    assert message_of(gateway) == "h0.v.test: first"
    eventually(lambda: len(listed(state)["configurations"]) == 1)
    configure(config, target, "second")
    eventually(lambda: message_of(gateway) == "h0.v.test: second")
    eventually(lambda: len(listed(state)["configurations"]) == 2)
    first, second = (
        next(one["digest"] for one in listed(state)["configurations"] if one["inForce"] is is_in_force)
        for is_in_force in (False, True)
    )
    with Load(gateway, "/validate?timeout=25s", POD, connections=8) as load:
        load.wait_for(50)
        done = run_command("rollback", "--state", state, "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert (result["pinned"], result["processes"]) == (first, number)
        load.wait_for(200)
    tally = load.tally
    assert (tally.lost, tally.refused, tally.failed, tally.denied) == (0, 0, 0, tally.sent), tally.texts
    for _ in range(4 * number):
        assert message_of(gateway) == "h0.v.test: first"
    status, text = gateway.admin("/readyz?verbose")
    assert status == 200
    assert f"warning: configuration pinned to {first} since" in text
    assert gateway.metric(PINNED) == 1
    # Changes of files wait.
    seen = len(gateway.log)
    configure(config, target, "third")
    gateway.expect("configuration reloaded", after=seen)
    assert message_of(gateway) == "h0.v.test: first"
    # A restart keeps the pin.
    gateway.stop()
    gateway = start_gateway(config, *flags)
    assert "pinned to" in gateway.log
    assert message_of(gateway) == "h0.v.test: first"
    done = run_command("rollback", "--state", state, "--release")
    assert done.returncode == 0, done.stderr
    assert message_of(gateway) == "h0.v.test: third"
    assert gateway.metric(PINNED) == 0
    eventually(lambda: len(listed(state)["configurations"]) == 3)
    assert run_command("rollback", "--state", state, "--to", second[:10]).returncode == 0
    assert message_of(gateway) == "h0.v.test: second"


def test_what_cannot_be_put_in_force_changes_nothing(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    config, state = tmp_path / "config", tmp_path / "state"
    config.mkdir()
    target = start_worker().target
    configure(config, target, "first")
    gateway = start_gateway(config, "--state", str(state))
    configure(config, target, "second")
    eventually(lambda: len(listed(state)["configurations"]) == 2)
    old = listed(state)["configurations"][1]["digest"]
    unknown = run_command("rollback", "--state", state, "--to", old[:11] + ("0" if old[11] != "0" else "1"))
    assert unknown.returncode == 1
    assert f'did you mean "{old[:12]}"?' in unknown.stderr
    file = state / "history" / f"{old}.json.gz"
    file.write_bytes(file.read_bytes()[:-30])
    damaged = run_command("rollback", "--state", state, "--to", old)
    assert damaged.returncode == 1
    assert "incomplete" in damaged.stderr
    assert listed(state)["pinned"] is None
    assert message_of(gateway) == "h0.v.test: second"
    # Even if the pin was made by other means.
    (state / "history" / "pin.json").write_text(json.dumps({"digest": old, "since": "x\n\x1b[31m"}))
    gateway.expect("cannot be used: its file is incomplete")
    assert "\x1b" not in gateway.log
    assert message_of(gateway) == "h0.v.test: second"
    assert "incomplete" in gateway.admin("/?format=json")[1]
    # At the start the files count, and the log says so.
    gateway.stop()
    gateway = start_gateway(config, "--state", str(state))
    assert "cannot be used: its file is incomplete" in gateway.log
    assert message_of(gateway) == "h0.v.test: second"


def test_a_state_folder_that_cannot_be_written_is_counted_and_affects_no_review(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    config, state = tmp_path / "config", tmp_path / "state"
    config.mkdir()
    configure(config, start_worker().target, "first")
    state.write_text("a file")
    gateway = start_gateway(config, "--state", str(state))
    assert message_of(gateway) == "h0.v.test: first"
    eventually(lambda: gateway.metric(ERRORS) == 1)
    gateway.expect("configuration not kept for rollback")
    done = run_command("rollback", "--state", state)
    assert done.returncode == 1
    assert "has no configurations" in done.stderr
