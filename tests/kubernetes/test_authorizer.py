"""Checks of the authorizer are sent as SubjectAccessReviews; without a decision nothing is allowed."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.pure.core.conditions import AccessCheck, AccessDecision
from gateway.server.kubernetes.namespaces import ClusterNamespaces
from tests.kit import PATIENCE_S
from tests.kubernetes.server import ApiServer, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SPEC = {"user": "alice", "groups": ["devs"], "resourceAttributes": {"verb": "get", "resource": "pods"}}
CHECK = AccessCheck(orjson.dumps(SPEC, option=orjson.OPT_SORT_KEYS))
LONG_S = 60.0


def decisions(
    server: ApiServer, folder: Path, checks: Sequence[AccessCheck] = (CHECK,), timeout_s: float = LONG_S
) -> list[AccessDecision]:
    async def scenario() -> list[AccessDecision]:
        cluster = ClusterNamespaces(KubernetesSettings(server.kubeconfig(folder)))
        results: list[AccessDecision] = []
        for check in checks:
            cluster.authorize(check, timeout_s, results.append)
        assert results == []
        await cluster.close()
        return results

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"allowed": True, "reason": "by a role"}, AccessDecision(allowed=True, reason="by a role")),
        (
            {"allowed": True, "evaluationError": "one role is missing"},
            AccessDecision(allowed=True, evaluation_error="one role is missing"),
        ),
        ({"allowed": False}, AccessDecision()),
        ({"allowed": False, "denied": True, "reason": "never"}, AccessDecision(reason="never", denied=True)),
        ({"allowed": False, "evaluationError": "broken"}, AccessDecision(evaluation_error="broken")),
    ],
)
def test_the_decision_is_the_status_of_the_review(
    server: ApiServer, tmp_path: Path, status: dict[str, Any], expected: AccessDecision
) -> None:
    server.rights = lambda _: status
    assert decisions(server, tmp_path) == [expected]
    assert server.reviewed == [SPEC]


def test_several_checks_are_sent_at_once(server: ApiServer, tmp_path: Path) -> None:
    server.rights = lambda spec: {"allowed": spec["user"] == "u1"}
    checks = [AccessCheck(orjson.dumps({**SPEC, "user": f"u{number}"})) for number in range(3)]
    found = decisions(server, tmp_path, checks)
    assert sorted(decision.allowed for decision in found) == [False, False, True]


@pytest.mark.parametrize("status", [{}, {"allowed": "yes"}, {"allowed": 1}])
def test_an_invalid_answer_allows_nothing(server: ApiServer, tmp_path: Path, status: dict[str, Any]) -> None:
    server.rights = lambda _: status
    (decision,) = decisions(server, tmp_path)
    assert not decision.allowed
    assert "not a SubjectAccessReview" in decision.error


def test_a_refusal_is_an_error_with_its_reason(server: ApiServer, tmp_path: Path) -> None:
    server.faults["review"].append(refuse(403, "the gateway may not ask"))
    (decision,) = decisions(server, tmp_path)
    assert not decision.allowed
    assert "the gateway may not ask" in decision.error


def test_a_late_answer_is_an_error(server: ApiServer, tmp_path: Path) -> None:
    is_over = threading.Event()

    def late(_: dict[str, Any]) -> dict[str, Any]:
        assert is_over.wait(PATIENCE_S)
        return {"allowed": True}

    server.rights = late
    (decision,) = decisions(server, tmp_path, timeout_s=0.1)
    is_over.set()
    assert not decision.allowed
    assert "in time" in decision.error


async def test_a_cancelled_check_has_no_result(server: ApiServer, tmp_path: Path) -> None:
    cluster = ClusterNamespaces(KubernetesSettings(server.kubeconfig(tmp_path)))
    results: list[AccessDecision] = []
    cluster.authorize(CHECK, LONG_S, results.append)()
    cluster.authorize(CHECK, LONG_S, results.append)
    await cluster.close()
    assert len(results) == 1
