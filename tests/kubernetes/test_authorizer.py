"""Questions to the authorizer: what a condition wants to know is asked, and no answer allows nothing."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gateway.config.model import Kubernetes
from gateway.core.conditions import AccessCheck, AccessDecision
from gateway.kubernetes.namespaces import ClusterNamespaces
from tests.kubernetes.server import ApiServer, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SPEC = {"user": "alice", "groups": ["devs"], "resourceAttributes": {"verb": "get", "resource": "pods"}}
CHECK = AccessCheck(orjson.dumps(SPEC, option=orjson.OPT_SORT_KEYS))
LONG_S = 60.0


def ask(
    server: ApiServer, folder: Path, checks: Sequence[AccessCheck] = (CHECK,), within_s: float = LONG_S
) -> list[AccessDecision]:
    async def scenario() -> list[AccessDecision]:
        cluster = ClusterNamespaces(Kubernetes(server.kubeconfig(folder)))
        told: list[AccessDecision] = []
        for check in checks:
            cluster.authorize(check, within_s, told.append)
        assert told == []
        await cluster.close()
        return told

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"allowed": True, "reason": "by a role"}, AccessDecision(allowed=True, reason="by a role")),
        ({"allowed": True, "evaluationError": "one role is missing"}, AccessDecision(allowed=True)),
        ({"allowed": False}, AccessDecision()),
        ({"allowed": False, "denied": True, "reason": "never"}, AccessDecision(reason="never")),
        ({"allowed": False, "evaluationError": "broken"}, AccessDecision(error="broken")),
    ],
)
def test_the_answer_is_what_the_review_says(
    server: ApiServer, tmp_path: Path, status: dict[str, Any], expected: AccessDecision
) -> None:
    server.rights = lambda _: status
    assert ask(server, tmp_path) == [expected]
    assert server.reviewed == [SPEC]


def test_several_questions_are_asked_at_once(server: ApiServer, tmp_path: Path) -> None:
    server.rights = lambda spec: {"allowed": spec["user"] == "u1"}
    checks = [AccessCheck(orjson.dumps({**SPEC, "user": f"u{number}"})) for number in range(3)]
    answers = ask(server, tmp_path, checks)
    assert sorted(answer.allowed for answer in answers) == [False, False, True]


@pytest.mark.parametrize("status", [{}, {"allowed": "yes"}, {"allowed": 1}])
def test_what_is_no_answer_allows_nothing(server: ApiServer, tmp_path: Path, status: dict[str, Any]) -> None:
    server.rights = lambda _: status
    (answer,) = ask(server, tmp_path)
    assert not answer.allowed
    assert "no SubjectAccessReview" in answer.error


def test_a_refusal_is_an_error_that_says_why(server: ApiServer, tmp_path: Path) -> None:
    server.faults["review"].append(refuse(403, "the gateway may not ask"))
    (answer,) = ask(server, tmp_path)
    assert not answer.allowed
    assert "the gateway may not ask" in answer.error


def test_an_answer_that_comes_too_late_is_an_error(server: ApiServer, tmp_path: Path) -> None:
    def late(_: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.5)
        return {"allowed": True}

    server.rights = late
    (answer,) = ask(server, tmp_path, within_s=0.1)
    assert not answer.allowed
    assert "in time" in answer.error


def test_who_withdraws_is_not_told(server: ApiServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = ClusterNamespaces(Kubernetes(server.kubeconfig(tmp_path)))
        told: list[AccessDecision] = []
        cluster.authorize(CHECK, LONG_S, told.append)()
        cluster.authorize(CHECK, LONG_S, told.append)
        await cluster.close()
        assert len(told) == 1

    asyncio.run(scenario())
