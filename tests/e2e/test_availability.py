"""Under steady load with failurePolicy Fail: stopping, replacing or overloading a gateway loses no create.

Nothing here sends again but the API server itself, which repeats a call that was answered with 503 and
Retry-After (client-go, rest/with_retry.go), and no other: a POST that meets a closing connection is lost.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.e2e.load import CLIENTS, Load
from tests.e2e.replicas import Replicas
from tests.e2e.setups import BehindGateway, Hook
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster
    from tests.kit import GatewayProcess

LABEL = "admitted"
HELD_S = 30
"""How long a gateway waits for the rest of a request."""
HOOKS = [
    Hook("mutate", "label.availability.test", {"label": LABEL}),
    Hook("validate", "watch.availability.test", {}),
]


@pytest.fixture(scope="module")
def replicas(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Two gateways behind a Service; each test leaves as many."""
    folder = tmp_path_factory.mktemp("replicas")
    with Replicas(cluster, folder, HOOKS, "replicas", gateway={"drainSeconds": HELD_S}) as replicas:
        yield replicas


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def skipped_webhook(answer: Answer) -> str:
    """Return the fault of a pod that no webhook has changed."""
    return "" if LABEL in answer.document["metadata"].get("labels", {}) else "a webhook was left out"


def steady(cluster: Cluster, path: str, pause_s: float = 0.02) -> Load:
    return Load(cluster.api, path, check=skipped_webhook, pause_s=pause_s)


def refused(gateway: GatewayProcess) -> float:
    """Return how many requests *gateway* has answered with 503."""
    return gateway.metric("admission_gateway_requests_refused_total", code="503")


def stop(gateway: GatewayProcess) -> None:
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.log


@contextmanager
def port_kept_open(gateway: GatewayProcess) -> Iterator[None]:
    """Prevent *gateway* from closing its port before the end of the block, which has ``HELD_S``.

    It closes it when no client has connected for a moment, however late the proxies are. Until then it waits
    for the rest of a request that has begun.
    """
    connection = gateway.connect()
    try:
        connection.sock.sendall(b"POST ")
        yield
    finally:
        connection.close()


# -- stopping a gateway ---------------------------------------------------------------------------


def test_a_rolling_restart_of_two_gateways_loses_no_create(
    cluster: Cluster, replicas: Replicas, pods: str
) -> None:
    """As a Deployment: one more, then one less; both are replaced twice."""
    with steady(cluster, pods) as load:
        for _ in range(2 * len(replicas.replicas)):
            leaving = replicas.replicas[0]
            replicas.scale_up()
            load.flows()
            replicas.forget(leaving)
            load.flows()  # preStop waits for this: no new connection is made to it any more
            stop(leaving)
            load.flows()
    assert load.failures == []
    assert len(replicas.replicas) == 2


def test_a_draining_gateway_costs_no_failed_request(cluster: Cluster, replicas: Replicas, pods: str) -> None:
    """It gets SIGTERM while it is an endpoint; the proxies learn from its probe that it drains."""
    leaving = replicas.replicas[0]
    with steady(cluster, pods) as load:
        replicas.scale_up()
        load.flows()
        with port_kept_open(leaving):
            leaving.signal(signal.SIGTERM)
            load.until(lambda: not replicas.service.is_ready(leaving))
        assert leaving.wait() == 0, leaving.log
        replicas.forget(leaving)
        load.flows()
    assert load.failures == []


def test_connections_that_are_made_to_a_draining_gateway_lose_no_request(
    cluster: Cluster, replicas: Replicas, pods: str
) -> None:
    """The proxies learn late that it drains; its port stays open until it is removed."""
    leaving = replicas.replicas[0]
    with steady(cluster, pods) as load:
        replicas.scale_up()
        load.flows()
        replicas.service.trust(leaving)
        with port_kept_open(leaving):
            taken = replicas.service.taken(leaving)
            leaving.signal(signal.SIGTERM)
            leaving.expect("stopping")
            # More clients, so that the API server opens new connections.
            with steady(cluster, pods) as more:
                eventually(lambda: replicas.service.taken(leaving) > taken)
                eventually(lambda: refused(leaving))
                replicas.forget(leaving)
                more.flows()
        assert leaving.wait() == 0
        load.flows()
    assert load.failures == more.failures == []


def test_open_connections_to_a_removed_endpoint_stay_served(
    cluster: Cluster, replicas: Replicas, pods: str
) -> None:
    """A Service chooses for new connections only: the API server's pool keeps those it has."""
    with steady(cluster, pods) as load:
        removed = replicas.replicas[0]
        replicas.scale_up()
        load.flows()
        replicas.forget(removed)
        assert replicas.service.established(removed)
        served = removed.metric("admission_gateway_review_duration_seconds_count")
        load.until(
            lambda: removed.metric("admission_gateway_review_duration_seconds_count") >= served + CLIENTS
        )
        stop(removed)
        load.flows()
    assert load.failures == []


# -- a gateway that has too much to do ------------------------------------------------------------


def test_an_overloaded_gateway_costs_no_failed_request(cluster: Cluster, tmp_path: Path, pods: str) -> None:
    """The API server repeats a call ten times, a second after each refusal; the overload ends before."""
    released = tmp_path / "released"
    released.touch()
    script = {"label": LABEL, "until": str(released)}
    hooks = [Hook("mutate", "label.overload.test", script, fields={"timeoutSeconds": 30})]
    limits = {"limits": {"maxConcurrentReviews": 2}}
    with BehindGateway(cluster, tmp_path, hooks, "overloaded", gateway=limits) as behind:
        with steady(cluster, pods, pause_s=0.1) as load:
            released.unlink()
            eventually(lambda: refused(behind.gateway) >= 3 * CLIENTS)
            released.touch()
            load.flows()
        assert load.failures == []


# -- a gateway that is killed ---------------------------------------------------------------------


def test_a_killed_gateway_loses_at_most_its_reviews_in_flight(
    cluster: Cluster, replicas: Replicas, pods: str
) -> None:
    with steady(cluster, pods) as load:
        killed = replicas.replicas[0]
        replicas.scale_up()
        load.flows()
        replicas.forget(killed)
        in_flight = min(CLIENTS, replicas.service.established(killed))
        killed.signal(signal.SIGKILL)
        killed.wait()
        load.flows()
        lost = load.failures
        load.flows()
    assert len(lost) <= in_flight, lost
    assert load.failures == lost


def test_a_killed_process_loses_at_most_its_reviews_in_flight(
    cluster: Cluster, tmp_path: Path, pods: str
) -> None:
    with BehindGateway(cluster, tmp_path, HOOKS, "processes", flags=("--processes", "2")) as behind:
        with steady(cluster, pods) as load:
            children = behind.gateway.children()
            assert len(children) == 2
            os.kill(children[0], signal.SIGKILL)
            load.until(lambda: set(behind.gateway.children()) - set(children))
            lost = load.failures
            load.until(lambda: behind.gateway.admin("/readyz")[0] == 200)
        assert len(lost) <= CLIENTS, lost
        assert load.failures == lost
