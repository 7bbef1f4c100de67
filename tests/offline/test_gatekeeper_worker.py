"""Suites of Gatekeeper in Rego, with a worker that stands for Gatekeeper's."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import yaml

from gateway.tools.policy_tests.discovery import read_tests
from gateway.tools.policy_tests.run import run_tests
from tests.gatekeeper.documents import constraint, expansion, rego_template
from tests.gatekeeper.test_worker import PODS, engine
from tests.kit import ROOT, call_command
from tests.offline.test_gatekeeper_suites import case, one_test, pod, write

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from gateway.tools.policy_tests.results import CaseResult

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"labels": {"type": "array", "items": {"type": "string"}}}}


def rego() -> Json:
    """A template in Rego with labels as parameters."""
    made = rego_template()
    made["spec"]["crd"]["spec"]["validation"] = {"openAPIV3Schema": SCHEMA}
    return made


def deployment(**labels: str) -> Json:
    """A Deployment whose Pods have *labels*."""
    metadata = {"name": "d", "namespace": "default"}
    spec = {"template": {"metadata": {"labels": labels}, "spec": {"containers": []}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def module_command(module: str) -> list[str]:
    """The command that runs a *module* of the tests from any folder."""
    started = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_module(sys.argv.pop(1), "
    started += "run_name='__main__', alter_sys=True)"
    return [sys.executable, "-c", started, str(ROOT), module]


def configured(folder: Path, *arguments: str, command: list[str] | None = None) -> Path:
    """Write a configuration with the worker."""
    folder.mkdir()
    known = [*module_command("tests.gatekeeper.worker"), *arguments]
    pool = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "gatekeeper"},
        "spec": {"command": known if command is None else command},
    }
    (folder / "gateway.yaml").write_text(yaml.safe_dump_all([engine(), pool]))
    return folder


def run(suite: Path, config: Path) -> dict[str, CaseResult]:
    found = asyncio.run(run_tests(read_tests([suite], [config]), [], [config]))
    return {one.name: one for one in found}


def test_a_suite_in_rego_runs_in_a_copy_of_the_worker(tmp_path: Path) -> None:
    config = configured(tmp_path / "config", "--policies", "no such folder")
    taken = case("good", {"violations": 1, "message": "taken"}, inventory=["good.yaml"])
    suite = write(
        tmp_path / "suite",
        one_test(
            case("bad", {"violations": 1}, {"violations": 1, "message": "^missing label: team$"}),
            case("good", {"violations": "no"}),
            {**taken, "name": "taken"},
            case("wrong", {"violations": "no"}),
        ),
        t=rego(),
        c=constraint(parameters={"labels": ["team"]}, enforcementAction="dryrun", match=PODS),
        bad=pod("bad"),
        good=pod("good", labels={"team": "a"}),
        wrong=pod("wrong"),
    )
    found = run(suite, config)
    assert {name: one.status for name, one in found.items()} == {
        "t/bad": "passed",
        "t/good": "passed",
        "t/taken": "passed",
        "t/wrong": "failed",
    }
    assert found["t/wrong"].problems == (
        "violations: found 1, expected none",
        "  missing label: team",
    )


def test_expansion_reviews_what_is_generated(tmp_path: Path) -> None:
    suite = write(
        tmp_path / "suite",
        one_test(
            case("bad", {"violations": 1, "message": "^\\[Implied by e\\] missing label"}),
            case("good", {"violations": "no"}),
            expansion="e.yaml",
        ),
        t=rego(),
        c=constraint(parameters={"labels": ["team"]}, match=PODS),
        e=expansion("Pod", "Deployment"),
        bad=deployment(),
        good=deployment(team="a"),
    )
    found = run(suite, configured(tmp_path / "config"))
    assert [one.status for one in found.values()] == ["passed", "passed"]


def test_a_worker_that_does_not_answer_passes_no_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.tools.offline.gateway.OWN_READY_WITHIN_S", 0.0)
    config = configured(tmp_path / "config", command=[sys.executable, "-c", "raise SystemExit(1)"])
    suite = write(tmp_path / "suite", one_test(case("bare", {})), t=rego())
    (found,) = run(suite, config).values()
    assert found.problems[0].startswith("policy NeedsLabels/c of the worker: ")


def test_without_a_command_a_suite_in_rego_is_not_supported(tmp_path: Path) -> None:
    suite = write(tmp_path / "suite", one_test(case("bare", {})), t=rego())
    done = call_command("test", suite)
    assert done.returncode == 1
    assert "name its pool in policies.engines.gatekeeper" in done.stdout
