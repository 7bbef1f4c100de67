"""Modes and candidates: what they change in answers, and what is counted and shown of them."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from gateway.tools.status.decisions import Decisions, text
from tests.decisions.test_line import is_valid
from tests.kit import REVIEWS, pool_document, webhook_document
from tests.pages.test_pages import found
from tests.waiting import eventually
from tests.world import simulated

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import StartGateway
    from tests.worker.server import StartWorker
    from tests.world import SimulatedWorld

REVIEW = (REVIEWS / "pod-create-mutate.json").read_bytes()
NO = {"deny": {"code": 403, "message": "no team"}}
SHADOW = {"webhook": {"rollout": {"mode": "Shadow"}}}
NOT_ENFORCED = "admission_gateway_webhook_not_enforced_total"
DROPPED = "admission_gateway_calls_after_answer_dropped_total"
"""Of calls after the answer, among others those that the event loop is late for."""


def candidate(pool: str, policy: dict[str, Any]) -> dict[str, Any]:
    client = {"worker": {"pool": pool, "policy": json.dumps(policy)}}
    return {"webhook": {"rollout": {"candidate": {"clientConfig": client}}}}


def review(uid: str) -> bytes:
    document = json.loads(REVIEW)
    document["request"]["uid"] = uid
    return json.dumps(document).encode()


@simulated
async def test_a_denial_in_the_mode_warn_is_a_warning(world: SimulatedWorld) -> None:
    warn = {**NO, "webhook": {"rollout": {"mode": "Warn"}}}
    await world.serve(webhook_document("validate", "v", "pool", warn, {}))
    response = await world.review("/validate", "pod-create-mutate")
    assert response["allowed"] is True
    assert response["warnings"] == ["would be refused later, date not set: h0.v.test: no team"]
    assert json.loads(response["auditAnnotations"]["not-enforced.round_0_index_0"])["mode"] == "Warn"
    assert world.metric(NOT_ENFORCED, name="h0.v.test", mode="Warn", result="denied") == 1


@pytest.mark.process
@pytest.mark.parametrize("phase", ["mutate", "validate"])
@pytest.mark.parametrize(
    "script",
    [NO, {"exit": True}, {"hang": True}, {"patch": [{"op": "add", "path": "/x", "value": 1}]}, {"raw": "?"}],
)
def test_a_webhook_in_the_mode_shadow_changes_no_byte(
    tmp_path: Path,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    phase: str,
    script: dict[str, Any],
) -> None:
    pools = pool_document("pool", start_worker().target) + pool_document("other", start_worker().target)
    others = ({"annotations": {"k": "v"}}, {"warnings": ["careful"]})
    answers = []
    for name, hooks in (
        ("without", ""),
        ("with", webhook_document(phase, "a", "other", {**script, **SHADOW})),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "c.yaml").write_text(pools + hooks + webhook_document(phase, "v", "pool", *others))
        gateway = start_gateway(folder)
        answers.append([gateway.post(f"/{phase}?timeout=10s", REVIEW) for _ in range(3)])
    assert answers[0] == answers[1]
    if script is NO:

        def counted(sent: int) -> float:
            """Return how many calls after *sent* reviews were made, when all others were dropped."""
            denied = partial(gateway.metric, NOT_ENFORCED, name="h0.a.test", mode="Shadow", result="denied")
            eventually(lambda: denied() + gateway.metric(DROPPED) == sent)
            return denied()

        sent = 3
        while counted(sent) < 3:
            gateway.post(f"/{phase}?timeout=10s", REVIEW)
            sent += 1
        read = found(gateway, "/decisions?webhook=a/h0.a.test&outcome=Denied")["decisions"]
        (first, *_) = text([Decisions("gateway", read)])
        assert " Allowed, would be refused by h0.a.test (mode Shadow): " in first


@pytest.mark.process
def test_a_candidate_is_compared_and_its_differences_are_counted_kept_and_logged(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    pools = pool_document("pool", start_worker().target) + pool_document("next", start_worker().target)
    logging = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "logging": {"format": "json"},
    }
    (tmp_path / "c.yaml").write_text(
        pools
        + webhook_document("validate", "v", "pool", candidate("next", NO), candidate("next", {}))
        + json.dumps(logging)
    )
    gateway = start_gateway(tmp_path)

    def compared(name: str) -> float:
        return gateway.metric("admission_gateway_candidate_reviews_total", name=name)

    dropped = 0.0
    while not compared("h0.v.test"):
        response = gateway.review("/validate", "pod-create-mutate")
        assert set(response) == {"uid", "allowed"}
        # Both calls of a review are made, or both are dropped.
        eventually(lambda: compared("h0.v.test") or gateway.metric(DROPPED) == dropped + 2)  # noqa: B023
        dropped = gateway.metric(DROPPED)
    eventually(lambda: compared("h0.v.test") == compared("h1.v.test") == 1)
    differences = "admission_gateway_candidate_differences_total"
    assert gateway.metric(differences) == 1
    assert gateway.metric(differences, name="h0.v.test", kind="newly_denied") == 1
    (found,) = json.loads(gateway.admin("/differences?format=json")[1])["differences"]
    assert (found["webhook"], found["differences"], found["outcome"]) == (
        "h0.v.test",
        ["newly_denied"],
        "Difference",
    )
    in_force, other = found["webhooks"]
    assert (in_force["outcome"], in_force["pool"]) == ("Allowed", "pool")
    assert (other["outcome"], other["message"], other["mode"]) == ("Denied", "no team", "Candidate")
    assert "newly denied" in gateway.admin("/differences")[1]
    line = json.loads(gateway.expect(r'\{[^\n]*"outcome":"Difference"[^\n]*\}')[0])
    assert line["differences"] == ["newly_denied"]
    is_valid(line)


@pytest.mark.process
def test_a_candidate_that_fails_costs_nothing(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    pools = pool_document("pool", start_worker().target) + pool_document("gone", f"unix:{tmp_path}/none")
    (tmp_path / "c.yaml").write_text(pools + webhook_document("validate", "v", "pool", candidate("gone", {})))
    gateway = start_gateway(tmp_path)
    for number in range(20):
        response = json.loads(gateway.post("/validate", review(f"u-{number}")))["response"]
        assert response == {"uid": f"u-{number}", "allowed": True}
    eventually(
        lambda: (
            gateway.metric("admission_gateway_candidate_differences_total", kind="failed")
            + gateway.metric(DROPPED)
            == 20
        )
    )


@pytest.mark.process
def test_more_calls_after_the_answer_than_there_is_room_for_are_dropped_and_counted(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", start_worker().target, maxInFlight=8)
        + webhook_document("validate", "v", "pool", {}, {"hang": True, **SHADOW}, timeoutSeconds=30)
    )
    gateway = start_gateway(tmp_path)
    connection = gateway.connect()
    for number in range(30):
        response = json.loads(gateway.post("/validate", review(f"u-{number}"), connection))["response"]
        assert response == {"uid": f"u-{number}", "allowed": True}
    connection.close()
    eventually(lambda: gateway.metric(DROPPED) >= 26)
