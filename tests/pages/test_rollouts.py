"""The pages of rollout plans of a running gateway."""

from __future__ import annotations

import json
import shlex
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import pool_document, run_command, webhook_document
from tests.pages.test_pages import fetch, found
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import GatewayProcess, StartGateway
    from tests.worker.server import StartWorker

pytestmark = pytest.mark.process

POD = "pod-create-validate"
PLAN: dict[str, Any] = {
    "stages": [
        {"mode": "Audit", "for": "24h", "gates": {"maxNewlyDenied": 5, "minReviews": 10}},
        {"mode": "Warn", "percentOfNamespaces": 50, "groups": ["canary"], "for": "1h"},
        {"mode": "Enforce"},
    ],
    "groups": [{"name": "canary", "namespaceSelector": {"matchLabels": {"tier": "dev"}}}],
}
NAMESPACES = 30


def plan_documents(folder: Path, target: str, rollout: dict[str, Any] | None = None, **settings: Any) -> str:
    """Return the documents of a gateway whose only webhook has a plan, with *settings* beside its store.

    *rollout* is that of the webhook; None: with ``PLAN``.
    """
    gateway = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "rolloutPlans": {"folder": str(folder)},
        **settings,
    }
    namespaces = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": f"team-{number}", "labels": {"tier": "dev"} if number == 0 else {}},
        }
        for number in range(NAMESPACES)
    ]
    rollout = {"plan": PLAN} if rollout is None else rollout
    hook = webhook_document("validate", "v", "pool", {"deny": {"message": "no"}}, rollout=rollout)
    documents = "".join(f"---\n{json.dumps(one)}\n" for one in (gateway, *namespaces))
    return pool_document("pool", target) + hook + documents


def plan_of(gateway: GatewayProcess) -> dict[str, Any]:
    """Return everything about the only plan, as soon as its evidence was read."""

    def whole() -> dict[str, Any] | None:
        (one,) = found(gateway, "/rollouts")["plans"]
        plan: dict[str, Any] = found(gateway, f"/rollouts/{one['name']}")["plan"]
        return plan if plan["evidence"] else None

    plan = eventually(whole, "evidence")
    assert plan is not None
    return plan


def has_decided(gateway: GatewayProcess, action: str) -> bool:
    return bool(plan_of(gateway)["decisions"][0]["action"] == action)


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_plan_shows_what_is_in_force_where_and_its_commands_work(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, number: int
) -> None:
    folder = tmp_path / "plans of a"
    (tmp_path / "config").mkdir()
    (tmp_path / "config/c.yaml").write_text(plan_documents(folder, start_worker().target))
    gateway = start_gateway(tmp_path / "config", "--processes", str(number))
    plan = plan_of(gateway)
    assert plan["waitsFor"][0].startswith("for 24h: ")
    assert plan["waitsFor"][1].startswith("evidence: none yet") or "minReviews" in plan["waitsFor"][1]
    nowhere, somewhere, everywhere = plan["allStages"]
    assert (nowhere["enforced"], everywhere["enforced"]) == ("nowhere", "everywhere")
    names = somewhere["firstNamespaces"]
    assert somewhere["namespaces"] == len(names)
    assert 1 < len(names) < NAMESPACES
    assert "team-0" in names
    assert nowhere["gates"] == {"maxNewlyDenied": 5, "minReviews": 10}
    assert [one["action"] for one in plan["decisions"]] == ["start"]

    commands = {one["action"]: one["command"] for one in plan["actions"]}
    assert set(commands) == {"pause", "skip"}
    for action, who in (("pause", "Paused"), ("skip", "stage 2 of 3"), ("rollback", "RolledBack")):
        commands = {one["action"]: one["command"] for one in plan_of(gateway)["actions"]}
        done = run_command(*shlex.split(commands[action])[1:])
        assert (done.returncode, done.stderr) == (0, ""), done
        assert who in done.stdout
        eventually(partial(has_decided, gateway, action))
    page = fetch(gateway, f"/rollouts/{plan['name']}")[2]
    for text in ("rolled back by ", "v", "team-0", "maxNewlyDenied", "--folder &#39;", "RolledBack"):
        assert text in page
    assert "/rollouts/" in fetch(gateway, "/")[2]
    status, _, page = fetch(gateway, "/rollouts/none")
    assert status == 404
    assert "admission-gateway rollout status" in page
    assert fetch(gateway, "/rollouts/none?format=json")[0] == 404


def test_a_gateway_without_plans_has_an_empty_page(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", start_worker().target) + webhook_document("validate", "v", "pool", {})
    )
    gateway = start_gateway(tmp_path)
    assert found(gateway, "/rollouts")["plans"] == []
    assert "No webhook has a plan." in fetch(gateway, "/rollouts")[2]
