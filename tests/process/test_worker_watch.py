"""Policies that workers do not serve, and pools without a reachable worker, are told."""

from __future__ import annotations

import json
import re
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from admission_gateway_worker.samples import server
from tests.kit import ROOT, Process, call_command, pool_document, run_command, webhook_document
from tests.waiting import eventually, in_thread
from tests.worker.server import scripted_worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import ExitStack
    from pathlib import Path

    from tests.in_process import InProcessGateway, Stage
    from tests.kit import GatewayProcess, StartGateway
    from tests.worker.server import StartWorker

MISMATCHES = "admission_gateway_webhook_policy_mismatches"
MISSPELT = {"clientConfig": {"worker": {"pool": "pool", "policy": "require-label"}}}
MUTATING = {"clientConfig": {"worker": {"pool": "pool", "policy": "default-resources"}}}


@pytest.fixture
def samples(processes: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A worker with the sample policies."""
    target = f"unix:{tmp_path_factory.mktemp('w')}/s"
    worker = Process(sys.executable, "-m", "admission_gateway_worker.samples", "--listen", target)
    processes.callback(worker.stop)
    worker.expect("serving")
    return target


def configure(folder: Path, target: str, *scripts: dict[str, Any], **fields: Any) -> Path:
    (folder / "c.yaml").write_text(
        pool_document("pool", target) + webhook_document("validate", "v", "pool", *scripts, **fields)
    )
    return folder


@asynccontextmanager
async def served_samples() -> AsyncIterator[str]:
    (target,) = await server.start("127.0.0.1:0")
    try:
        yield target
    finally:
        await server.stop(0)


def test_policies_that_the_worker_does_not_serve_are_told(tmp_path: Path, stage: Stage) -> None:
    samples = stage.enter(served_samples())
    configure(tmp_path, samples, {"webhook": MISSPELT}, {"webhook": MUTATING})
    is_told(stage.start_gateway(tmp_path), tmp_path, samples, stage.eventually)


@pytest.mark.process
def test_policies_that_the_worker_does_not_serve_are_told_by_several_processes(
    tmp_path: Path, samples: str, start_gateway: StartGateway
) -> None:
    configure(tmp_path, samples, {"webhook": MISSPELT}, {"webhook": MUTATING})
    is_told(start_gateway(tmp_path, "--processes", "2"), tmp_path, samples, eventually)


def is_told(
    gateway: InProcessGateway | GatewayProcess,
    tmp_path: Path,
    samples: str,
    eventually: Callable[[Callable[[], bool]], object],
) -> None:
    gateway.expect(
        'WARNING policy mismatch: webhook v/h0.v.test: policy "require-label" of pool pool: '
        f'not served by (ipv4:)?{samples}, so that calls fail closed; did you mean "require-labels"'
    )
    gateway.expect('webhook v/h1.v.test: policy "default-resources" of pool pool: mutating at ')
    eventually(lambda: gateway.metric(MISMATCHES, name="h0.v.test", reason="not_served") == 1)
    eventually(lambda: gateway.metric(MISMATCHES, name="h1.v.test", reason="other_kind") == 1)
    status, text = gateway.admin("/readyz?verbose")
    first, *warnings = text.splitlines()
    assert (status, first, len(warnings)) == (200, "ok", 2)
    assert all(line.startswith("warning: webhook v/h") for line in warnings)
    configure(
        tmp_path,
        samples,
        {"webhook": {"clientConfig": {"worker": {"pool": "pool", "policy": "deny-latest-tag"}}}},
    )
    gateway.expect("policy mismatch over: h0.v.test, h1.v.test")
    eventually(lambda: gateway.admin("/readyz?verbose") == (200, "ok\n"))


@pytest.mark.process
def test_check_looks_the_policies_up_at_their_workers(tmp_path: Path, samples: str) -> None:
    configure(tmp_path, samples, {"webhook": MISSPELT}, {"webhook": MUTATING})
    done = run_command("check", "--config", tmp_path, "--workers", "--json")
    # Each is told once.
    assert (done.returncode, "mismatch" in done.stderr) == (1, False)
    error, warning = json.loads(done.stdout)
    assert (error["severity"], warning["severity"]) == ("error", "warning")
    assert error["place"] == 'webhook v/h0.v.test: policy "require-label" of pool pool'
    assert "is validating" in warning["message"]
    assert run_command("check", "--config", ROOT / "gateway" / "dev.yaml", "--workers").returncode == 0


def test_a_candidate_that_no_worker_serves_is_told_and_is_no_error(tmp_path: Path, stage: Stage) -> None:
    samples = stage.enter(served_samples())
    served = {"worker": {"pool": "pool", "policy": "require-labels"}}
    hook = {"clientConfig": served, "rollout": {"candidate": MISSPELT}}
    configure(tmp_path, samples, {"webhook": hook})
    gateway = stage.start_gateway(tmp_path)
    message = gateway.expect(
        f'policy "require-label" of pool pool: not served by (ipv4:)?{samples}, '
        "so that calls of the candidate fail"
    )[0]
    stage.eventually(lambda: message in gateway.admin("/readyz?verbose")[1])
    assert f"{MISMATCHES}{{" not in gateway.admin("/metrics")[1]


def test_check_tells_a_candidate_that_no_worker_serves_as_a_warning(tmp_path: Path) -> None:
    with in_thread(served_samples()) as samples:
        served = {"worker": {"pool": "pool", "policy": "require-labels"}}
        hook = {"clientConfig": served, "rollout": {"candidate": MISSPELT}}
        configure(tmp_path, samples, {"webhook": hook})
        done = call_command("check", "--config", tmp_path, "--workers")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "workers: 0 errors, 1 warnings")
    assert "so that calls of the candidate fail" in done.stdout


@pytest.mark.process
def test_check_names_a_pool_without_a_reachable_worker(tmp_path: Path, start_worker: StartWorker) -> None:
    configure(tmp_path, "unix:/nowhere", {})
    done = run_command("check", "--config", tmp_path, "--workers")
    assert (done.returncode, "unreachable" in done.stderr) == (1, False)
    assert re.search(
        r"error: worker pool pool: no worker is reachable \(.+\); webhooks that fail closed: h0.v.test; ",
        done.stdout,
    )
    # A worker without ListPolicies cannot be checked, which is no fault.
    configure(tmp_path, start_worker().target, {})
    done = run_command("check", "--config", tmp_path, "--workers")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "workers: 0 errors, 0 warnings")


@pytest.mark.process
def test_what_only_the_policy_itself_refuses_is_told(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    declared = tmp_path / "policies.json"
    worker = start_worker(None, "--declare", str(declared))
    client = {"worker": {"pool": "pool", "policy": "{}", "parameters": {"pattern": "("}}}
    (tmp_path / "config").mkdir()
    configure(tmp_path / "config", worker.target, {"webhook": {"clientConfig": client}})

    def declare(**policy: object) -> None:
        declared.write_text(json.dumps({"{}": {"schema": {"type": "object"}, **policy}}))

    declare(problem='the parameters of policy "{}" cannot be used: missing ), unterminated subpattern')
    done = run_command("check", "--config", tmp_path / "config", "--workers")
    problem = f"cannot be used: missing ), unterminated subpattern (according to {worker.target})"
    assert (done.returncode, done.stdout.count("error: ")) == (1, 1)
    assert problem in done.stdout
    # A candidate decides no request.
    configure(
        tmp_path / "config", worker.target, {"webhook": {"rollout": {"candidate": {"clientConfig": client}}}}
    )
    done = run_command("check", "--config", tmp_path / "config", "--workers")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "workers: 0 errors, 1 warnings")
    assert problem in done.stdout
    configure(tmp_path / "config", worker.target, {"webhook": {"clientConfig": client}})
    gateway = start_gateway(tmp_path / "config")
    gateway.expect(re.escape(problem))
    eventually(lambda: problem in gateway.admin("/readyz?verbose")[1])
    # A worker without the method judges nothing, which is said.
    declare()
    done = run_command("check", "--config", tmp_path / "config", "--workers")
    assert done.returncode == 0
    assert "CheckParameters: UNIMPLEMENTED" in done.stdout
    assert done.stdout.splitlines()[-1] == "workers: 0 errors, 1 warnings"
    declare(problem="")
    done = run_command("check", "--config", tmp_path / "config", "--workers")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "workers: 0 errors, 0 warnings")


def test_a_lost_pool_is_told_once_with_its_webhooks_and_again_when_it_is_over(
    tmp_path: Path, stage: Stage
) -> None:
    worker = stage.enter(scripted_worker("127.0.0.1:0"))
    configure(tmp_path, worker.target, {}, {"webhook": {"failurePolicy": "Ignore"}})
    gateway = stage.start_gateway(tmp_path)
    assert "worker pool unreachable" not in gateway.log
    worker.die()
    gateway.expect(
        "WARNING worker pool unreachable: pool: no worker is reachable; "
        "webhooks that fail closed: h0.v.test; webhooks that fail open: h1.v.test: UNAVAILABLE"
    )
    assert gateway.admin("/readyz?verbose")[1].startswith(
        "ok\nwarning: worker pool pool: no worker is reachable"
    )
    stage.enter(scripted_worker(worker.target))
    gateway.expect(r"INFO worker pool reachable again: pool, after \d+ s; its webhooks are called")
    assert gateway.log.count("worker pool unreachable") == 1


def test_a_pool_that_is_unreachable_from_the_start_is_told(tmp_path: Path, stage: Stage) -> None:
    gateway = stage.start_gateway(configure(tmp_path, "unix:/nowhere", {}))
    gateway.expect(
        "worker pool unreachable: pool: no worker is reachable; webhooks that fail closed: h0.v.test: "
    )
