"""The old engine's webhooks in force, with the worker that answers as the whole engine as their candidate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.migrating.kit import new_configuration, old_engine, pod, write
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import StartGateway

pytestmark = pytest.mark.process


def body(number: int, **labels: str) -> bytes:
    request = pod(number, **labels)
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()


@pytest.mark.parametrize(
    ("fault", "kinds"), [("none", {}), ("words", {"message": 2}), ("stamp", {"object": 3})]
)
def test_each_live_answer_is_compared_with_that_of_the_whole_engine(
    tmp_path: Path, start_gateway: StartGateway, fault: str, kinds: dict[str, int]
) -> None:
    with old_engine(tmp_path) as engine:
        documents: list[Any] = engine.registrations()
        for document, policy in zip(documents, ("mutation", "validation"), strict=True):
            worker = {"worker": {"pool": "engine", "policy": policy}}
            document["webhooks"][0]["rollout"] = {"candidate": {"clientConfig": worker}}
        config = new_configuration(tmp_path / "config", fault)
        (pool, *_) = (config / "c.yaml").read_text().split("---\n")
        write(config / "c.yaml", *documents)
        (config / "pool.yaml").write_text(pool)
        gateway = start_gateway(config)
        for number, labels in enumerate(({}, {"owner": "a"}, {"owner": "a", "cost": "1"})):
            assert gateway.review("/mutate", body(number, **labels))["allowed"]
            answer = gateway.review("/validate", body(number, **labels))
            assert answer["allowed"] is (len(labels) == 2)
        compared = "admission_gateway_candidate_reviews_total"
        eventually(lambda: gateway.metric(compared) == 6)
        found = "admission_gateway_candidate_differences_total"
        every = ("newly_denied", "newly_allowed", "failed", "code", "message", "object", "warnings")
        differences = {kind: gateway.metric(found, kind=kind) for kind in every}
        assert {kind: number for kind, number in differences.items() if number} == kinds
        assert len(engine.reviews) == 6
