"""Two gateways with one folder of states: they promote once, and obey the command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import pool_document, run_command, webhook_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import GatewayProcess, StartGateway
    from tests.worker.server import StartWorker

pytestmark = pytest.mark.process

POD = "pod-create-validate"
PLAN = {
    "stages": [
        {"mode": "Audit", "gates": {"maxNewlyDenied": 100, "minReviews": 4}},
        {"mode": "Warn", "gates": {"maxNewlyDenied": 0}},
        {"mode": "Enforce"},
    ]
}


def state_of(folder: Path) -> dict[str, Any]:
    done = run_command("rollout", "status", "--folder", folder, "--json")
    assert done.returncode == 0, done.stderr
    plans: list[dict[str, Any]] = json.loads(done.stdout)["plans"]
    return plans[0]["state"] if plans else {"step": -1}


def asked(folder: Path, action: str) -> str:
    done = run_command("rollout", action, "--folder", folder, "--reason", "a test")
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_warned(gateway: GatewayProcess) -> bool:
    response = gateway.review("/validate", POD)
    assert response["allowed"], response
    return bool(response.get("warnings"))


def is_refused(gateway: GatewayProcess) -> bool:
    return not gateway.review("/validate", POD)["allowed"]


def test_two_gateways_promote_once_and_a_command_changes_both(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    config, folder = tmp_path / "config", tmp_path / "plans"
    config.mkdir()
    hook = webhook_document(
        "validate", "v", "pool", {"deny": {"message": "no"}}, timeoutSeconds=20, rollout={"plan": PLAN}
    )
    settings = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "rolloutPlans": {"folder": str(folder)},
    }
    pool = pool_document("pool", start_worker().target)
    (config / "c.yaml").write_text(pool + hook + "---\n" + json.dumps(settings))
    # One of them has two processes.
    one, other = start_gateway(config, "--processes", "2"), start_gateway(config)
    eventually(lambda: state_of(folder)["step"] == 0)
    for _ in range(4):
        assert not is_warned(one)
        assert not is_warned(other)
    eventually(lambda: state_of(folder)["step"] == 1)
    eventually(lambda: is_warned(one) and is_warned(other))
    # What was refused there pauses the plan.
    eventually(lambda: state_of(folder)["phase"] == "Paused")
    actions = [decision["action"] for decision in state_of(folder)["decisions"]]
    assert actions == ["start", "promote", "pause"]
    assert "Enforce" in asked(folder, "skip")
    eventually(lambda: is_refused(one) and is_refused(other))
    assert "RolledBack" in asked(folder, "rollback")
    eventually(lambda: not is_refused(one) and not is_refused(other))
    last = state_of(folder)["decisions"][-1]
    assert (last["action"], last["why"]) == ("rollback", "a test")
    assert last["who"]
    done = run_command("rollout", "pause", "--folder", folder)
    assert done.returncode == 1
    assert "the plan is RolledBack" in done.stderr


def test_policies_come_into_force_by_the_plans_of_their_annotations(
    tmp_path: Path, start_gateway: StartGateway
) -> None:
    config, folder = tmp_path / "config", tmp_path / "plans"
    config.mkdir()
    plan = {"stages": [{"mode": "Audit"}, {"mode": "Warn", "for": "1h"}, {"mode": "Enforce"}]}
    expression = "Object{metadata: Object.metadata{labels: {'changed': 'x'}}}"
    change = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    refuse = {"validations": [{"expression": "false", "message": "no"}]}
    settings = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "rolloutPlans": {"folder": str(folder)},
    }
    documents = [
        settings,
        *policy_with_plan("Validating", plan, refuse, {"validationActions": ["Deny"]}),
        *policy_with_plan("Mutating", plan, {"mutations": [change], "reinvocationPolicy": "Never"}, {}),
    ]
    (config / "c.json").write_text("\n---\n".join(map(json.dumps, documents)))
    gateway = start_gateway(config)

    def state(name: str) -> dict[str, Any]:
        done = run_command("rollout", "status", "--folder", folder, "--json", name)
        return json.loads(done.stdout)["plans"][0]["state"] if done.returncode == 0 else {"step": -1}

    eventually(lambda: state("validating")["step"] == state("mutating")["step"] == 0)
    # In the mode Audit neither refuses, warns nor changes anything. One review is enough for these gates.
    first = gateway.review("/validate", POD)
    assert (first["allowed"], first.get("warnings")) == (True, None)
    assert "patch" not in gateway.review("/mutate", POD)
    eventually(lambda: state("validating")["step"] == state("mutating")["step"] == 1)
    eventually(lambda: is_warned(gateway))
    assert "patch" not in gateway.review("/mutate", POD)
    for name in ("MutatingAdmissionPolicyBinding/b", "validating"):
        done = run_command("rollout", "skip", "--folder", folder, name)
        assert done.returncode == 0, done.stderr
    eventually(lambda: "patch" in gateway.review("/mutate", POD))
    eventually(lambda: is_refused(gateway))
    text = run_command("rollout", "status", "--folder", folder).stdout
    assert "validating by ValidatingAdmissionPolicyBinding/b: " in text


def policy_with_plan(
    prefix: str, plan: dict[str, Any], spec: dict[str, Any], of_binding: dict[str, Any]
) -> list[dict[str, Any]]:
    """A policy for Pods, and its binding with *plan*."""
    head = {"apiVersion": "admissionregistration.k8s.io/v1"}
    kind, name = f"{prefix}AdmissionPolicy", prefix.lower()
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, **spec}
    annotations = {"admission-gateway.io/rollout": json.dumps({"plan": plan})}
    return [
        {**head, "kind": kind, "metadata": {"name": name}, "spec": spec},
        {
            **head,
            "kind": f"{kind}Binding",
            "metadata": {"name": "b", "annotations": annotations},
            "spec": {"policyName": name, **of_binding},
        },
    ]
