"""Deployments in a whole cluster: controllers, a scheduler and nodes, with policies behind the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.bench_setups import BEHIND, POLICIES
from tests.e2e.cluster import Cluster
from tests.e2e.controllers import Controllers
from tests.e2e.objects import deployment
from tests.e2e.rollout import DEPLOYMENTS, roll_out
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES = 3
PODS = 40
PODS_PATH = "/api/v1/namespaces/default/pods"
(MUTATING,) = (case for case in BEHIND if case.server == "python" and case.phase == "mutate")


@pytest.fixture
def whole(cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of its own: the shared one has no controllers, which other tests rely on."""
    with Cluster(cluster.binaries, tmp_path / "whole") as whole, Controllers(whole, NODES):
        yield whole


def test_every_pod_of_a_rollout_is_reviewed_once_by_every_policy_and_runs(
    whole: Cluster, tmp_path: Path
) -> None:
    with MUTATING.setup(whole, tmp_path, {}) as setup:
        roll_out(whole, PODS, replicas=15)
        pods = whole.api.get(PODS_PATH).document["items"]
        assert len(pods) == PODS
        assert {pod["status"]["phase"] for pod in pods} == {"Running"}
        assert {pod["spec"]["nodeName"] for pod in pods} <= {f"node-{n}" for n in range(NODES)}
        assert MUTATING.calls(whole, setup) == PODS * POLICIES


def test_a_deployment_shows_why_its_pods_are_refused(whole: Cluster, tmp_path: Path) -> None:
    refused = deployment("refused", replicas=2)
    refused["spec"]["template"]["metadata"]["labels"]["refused-by"] = "policy-3"
    with MUTATING.setup(whole, tmp_path, {}):
        assert whole.api.create(DEPLOYMENTS, refused).status == 201

        def failure() -> str:
            found = whole.api.get(f"{DEPLOYMENTS}/refused").document["status"].get("conditions", [])
            return next((each["message"] for each in found if each["type"] == "ReplicaFailure"), "")

        assert "label refused-by names this policy" in eventually(failure)
        assert not whole.api.get(PODS_PATH).document["items"]


def test_a_deleted_deployment_takes_its_pods_along(whole: Cluster) -> None:
    roll_out(whole, 5)
    assert whole.api.delete(f"{DEPLOYMENTS}/shop-0").status == 200
    eventually(lambda: not whole.api.get(PODS_PATH).document["items"])
