"""``check`` judges ready-made policies without a worker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from admission_gateway_worker.policies import definitions
from gateway.config.merge.load import load
from gateway.tools.cli.policies import COMMAND, configuration
from gateway.tools.inspection.ready_made import ready_made_problems
from tests.kit import call_command

if TYPE_CHECKING:
    from pathlib import Path

DEFINITIONS = definitions()
LABELS = {"labels": {"team": "("}}


def problems(folder: Path, worker: dict[str, Any], **spec: Any) -> list[str]:
    """Return the problems of a webhook with *worker*, of a pool with *spec*."""
    pool, webhook = configuration([one for one in DEFINITIONS if one.name == "require-labels"])
    pool["spec"] = spec
    client = webhook["webhooks"][0]["clientConfig"]
    client["worker"] = {"pool": "policies", **worker}
    file = folder / "c.yaml"
    file.write_text("\n---\n".join(map(json.dumps, (pool, webhook))))
    return [f"{one.field}: {one.message}" for one in ready_made_problems(load([file]))]


def test_every_example_of_the_library_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("\n---\n".join(map(json.dumps, configuration(DEFINITIONS))))
    assert ready_made_problems(load([file])) == []


@pytest.mark.parametrize("spec", [{"command": list(COMMAND)}, {"target": "a:1", "policies": "ReadyMade"}])
@pytest.mark.parametrize(
    ("worker", "problem"),
    [
        (
            {"policy": "require-label"},
            'policy: found "require-label", which is not a ready-made policy;',
        ),
        ({"policy": "require-labels", "parameters": {"label": {}}}, "parameters.label: unknown parameter"),
        (
            {"policy": "require-labels", "parameters": LABELS},
            'parameters: the parameters of policy "require-labels" cannot be used: ',
        ),
        (
            {"policy": "require-labels"},
            "parameters: {} has less than 1 property",
        ),
    ],
)
def test_names_parameters_and_what_the_policy_refuses_are_told(
    tmp_path: Path, spec: dict[str, Any], worker: dict[str, Any], problem: str
) -> None:
    (found,) = problems(tmp_path, worker, **spec)
    assert found.startswith(f"webhooks[0].clientConfig.worker.{problem}")


@given(
    policy=st.sampled_from([*(one.name for one in DEFINITIONS), "my-own"]),
    parameters=st.dictionaries(st.text("ab"), st.integers() | st.text("ab"), max_size=3),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_nothing_is_said_about_other_pools(tmp_path: Path, policy: str, parameters: dict[str, Any]) -> None:
    worker = {"policy": policy, "parameters": parameters}
    for spec in (
        {"target": "dns:///policies.admission-gateway.svc:50051"},
        {"command": ["python", "-m", "my.policies"]},
        {"command": ["worker", "--like=admission_gateway_worker.policies"]},
    ):
        assert problems(tmp_path, worker, **spec) == []


@pytest.mark.process
@pytest.mark.smoke
def test_check_fails_with_them(tmp_path: Path) -> None:
    problems(tmp_path, {"policy": "require-labels", "parameters": LABELS}, command=list(COMMAND))
    done = call_command("check", "--config", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "webhooks[0].clientConfig.worker.parameters: the parameters of policy" in done.stderr
    assert "is not a regular expression" in done.stderr
    assert "re2.cc" not in done.stderr
