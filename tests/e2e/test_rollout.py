"""Deployments in a whole cluster: controllers, a scheduler and nodes, with the set-ups of the rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.bench_setups import BEHIND, POLICIES
from tests.e2e.cluster import Cluster
from tests.e2e.controllers import Controllers
from tests.e2e.go_tools import build_tools
from tests.e2e.histograms import Histogram
from tests.e2e.objects import deployment
from tests.e2e.rollout import DEPLOYMENTS, Measured, check_pods, ratios, references, roll_out, sequence
from tests.e2e.rollout_setups import DOCUMENTS, NOTHING, PLACED, SETUPS, Setup
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES = 3
PODS = 40
PODS_PATH = "/api/v1/namespaces/default/pods"
(MUTATING,) = (case for case in BEHIND if case.server == "python" and case.phase == "mutate")


@pytest.fixture(params=SETUPS, ids=lambda setup: setup.title)
def setup(request: pytest.FixtureRequest, cluster: Cluster) -> Setup:
    """Each set-up that this machine can start."""
    found: Setup = request.param
    if why := found.missing():
        pytest.skip(why)
    if found is PLACED and cluster.binaries.version < "v1.36":
        pytest.skip("the API server has no MutatingAdmissionPolicies")
    return found


@pytest.fixture
def whole(cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of its own: the shared one has no controllers, which other tests rely on."""
    with Cluster(cluster.binaries, tmp_path / "whole") as whole, Controllers(whole, NODES):
        yield whole


def test_every_pod_of_a_rollout_is_as_the_policies_leave_it_and_runs(
    setup: Setup, whole: Cluster, tmp_path: Path
) -> None:
    with setup.in_force(whole, tmp_path, build_tools()):
        roll_out(whole, PODS, replicas=15)
        check_pods(whole, setup, PODS)
        pods = whole.api.get(PODS_PATH).document["items"]
        assert {pod["status"]["phase"] for pod in pods} == {"Running"}
        assert {pod["spec"]["nodeName"] for pod in pods} <= {f"node-{n}" for n in range(NODES)}


def test_every_policy_reviews_every_pod_once(whole: Cluster, tmp_path: Path) -> None:
    with MUTATING.setup(whole, tmp_path, {}) as setup:
        roll_out(whole, PODS, replicas=15)
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


def _measured(seconds: float) -> Measured:
    return Measured(seconds, 1.0, 1.0, 1.0, Histogram(), Histogram(), Histogram())


def test_a_rollout_is_compared_with_the_two_without_webhooks_around_it() -> None:
    """The machine becomes slower all the time: a rollout of equal work has the ratio 1."""
    run = [
        (title, _measured(10.0 + number))
        for number, title in enumerate((NOTHING.title, "a", "b", NOTHING.title))
    ]
    assert ratios(run, "a") == ratios(run, "b") == [1.0]
    assert ratios(run, NOTHING.title) == [1.0, 1.0]
    assert references(run) == [10.0, 13.0]


def test_odd_rounds_are_reversed_and_references_are_first_last_and_between() -> None:
    order = sequence((PLACED, DOCUMENTS), 2)
    assert order == [NOTHING, PLACED, DOCUMENTS, NOTHING, DOCUMENTS, PLACED, NOTHING]
