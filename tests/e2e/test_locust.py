"""The load test that users run, ``locust --via apiserver``: creates that a real API server admits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import ADMIN, STRANGER
from tests.e2e.objects import config_map, pod
from tests.e2e.setups import BehindGateway, Hook, rule
from tests.kit import REVIEWS
from tests.loadtest.locust_run import run_locust, write_corpus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster

PODS = rule("pods", "CREATE")
HOOKS = [
    Hook("mutate", "label.locust.test", {"label": "admitted"}, (PODS,)),
    Hook("validate", "no.locust.test", {"deny": {"code": 403, "message": "no"}, "when": "denied"}, (PODS,)),
    Hook(
        "validate",
        "broken.locust.test",
        {"status": "UNAVAILABLE"},
        (rule("configmaps", "CREATE"),),
        fields={"objectSelector": {"matchLabels": {"broken": "yes"}}},
    ),
]


@pytest.fixture(scope="module")
def setup(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BehindGateway]:
    with BehindGateway(cluster, tmp_path_factory.mktemp("locust"), HOOKS, "locust") as setup:
        yield setup


def access(cluster: Cluster, user: str = ADMIN) -> list[object]:
    """Return the options by which Locust reaches the API server as *user*."""
    token = cluster.folder / f"{user}.token"
    token.write_text(user)
    host = f"https://127.0.0.1:{cluster.port}"
    return ["--via", "apiserver", "--host", host, "--ca-file", cluster.ca_file, "--token-file", token]


def reviews(setup: BehindGateway) -> float:
    return setup.gateway.metric("admission_gateway_review_duration_seconds_count")


def names(cluster: Cluster, namespace: str) -> list[str]:
    answer = cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")
    return [item["metadata"]["name"] for item in answer.document["items"]]


def test_recorded_reviews_and_objects_go_through_the_registered_gateway(
    cluster: Cluster, setup: BehindGateway, namespace: str, tmp_path: Path
) -> None:
    recorded = ["pod-create-mutate", "pod-create-6kb", "deployment-create", "role-create", "namespace-create"]
    found = {name: json.loads((REVIEWS / f"{name}.json").read_bytes()) for name in recorded}
    corpus = write_corpus(
        tmp_path / "corpus", **found, plain=pod("plain"), denied=pod("bad", {"denied": "x"})
    )
    before = reviews(setup)
    run = run_locust(corpus, *access(cluster), "--namespace", namespace, "--stop-after", "40")
    assert run.status == 0, run.output + run.log
    answered, denied = map(int, run.line(r"pass: 0 of (\d+) answers are failures, .*; (\d+) are denials"))
    assert answered >= 40
    assert denied >= 4
    # Half of the corpus are pods, each of which is a review of either phase.
    assert reviews(setup) - before >= answered / 2
    assert names(cluster, namespace) == []


def test_stored_pods_are_deleted_at_the_end(
    cluster: Cluster, setup: BehindGateway, namespace: str, tmp_path: Path
) -> None:
    corpus = write_corpus(tmp_path / "corpus", plain=pod("plain"))
    run = run_locust(corpus, *access(cluster), "--namespace", namespace, "--persist")
    assert run.status == 0, run.output + run.log
    deleted, created = run.line(r"(\d+) of (\d+) objects deleted")
    assert deleted == created != "0"
    assert names(cluster, namespace) == []


def test_a_gateway_that_fails_closed_is_a_failure(
    cluster: Cluster, setup: BehindGateway, namespace: str, tmp_path: Path
) -> None:
    corpus = write_corpus(tmp_path / "corpus", broken=config_map("c", {"broken": "yes"}))
    run = run_locust(corpus, *access(cluster), "--namespace", namespace)
    assert run.status == 1
    run.line(r"FAIL: (\d+) of \1 answers are failures, 100.00%")
    run.line(r"POST broken: .*HTTP status 5\d\d: ")


def test_a_webhook_that_cannot_be_called_is_a_failure(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    corpus = write_corpus(tmp_path / "corpus", plain=pod("plain"))
    with BehindGateway(cluster, tmp_path / "gone", HOOKS[:1], "gone") as gone:
        gone.gateway.stop()
        run = run_locust(corpus, *access(cluster), "--namespace", namespace)
        gone.start_gateway()
    assert run.status == 1
    run.line(r"POST plain: .*HTTP status 500: Internal error occurred: failed calling webhook")


def test_a_user_without_the_right_to_create_is_an_error(
    cluster: Cluster, setup: BehindGateway, namespace: str, tmp_path: Path
) -> None:
    recorded = json.loads((REVIEWS / "pod-create-mutate.json").read_bytes())
    corpus = write_corpus(tmp_path / "corpus", recorded=recorded)
    run = run_locust(corpus, *access(cluster, STRANGER), "--namespace", namespace)
    assert run.status == 1
    run.line(r"POST recorded: .*HTTP status 403: pods is forbidden")
