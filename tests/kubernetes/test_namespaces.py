"""Look-ups of single namespaces: shared while in progress, bounded in time, never kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gateway.base.errors import ClusterError
from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.verdict import Failed, FailureReason
from gateway.server.kubernetes import namespaces
from gateway.server.kubernetes.namespaces import ClusterNamespaces, NamespaceLookups
from tests.kit import PATIENCE_S
from tests.kubernetes.server import ApiServer, refuse
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

RED = Namespace("red", {"team": "a"}, b"{}")


class Cluster:
    """Answers on demand, and counts the requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, asyncio.Future[Namespace | None]] = {}

    async def get(self, name: str) -> Namespace | None:
        self.asked.append(name)
        self.answers[name] = asyncio.get_running_loop().create_future()
        return await self.answers[name]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "LOOK_UP_TIMEOUT_S", PATIENCE_S)


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_concurrent_look_ups_share_a_request_whose_result_is_not_kept() -> None:
    cluster, results = Cluster(), list[object]()
    look_ups = NamespaceLookups(cluster.get)
    for name in ("red", "blue", "red"):
        look_ups.look_up(name, 60, results.append)
    assert results == []
    await turns()
    assert cluster.asked == ["red", "blue"]
    cluster.answers["red"].set_result(RED)
    await turns()
    assert results == [RED, RED]
    look_ups.look_up("red", 60, results.append)
    await turns()
    assert cluster.asked == ["red", "blue", "red"]
    cluster.answers["red"].set_result(None)
    cluster.answers["blue"].set_result(None)
    await look_ups.close()
    assert results == [RED, RED, None, None]


async def test_a_withdrawn_look_up_has_no_result() -> None:
    cluster, results = Cluster(), list[object]()
    look_ups = NamespaceLookups(cluster.get)
    withdraw = look_ups.look_up("red", 60, lambda _: results.append("first"))
    look_ups.look_up("red", 60, lambda _: results.append("second"))
    await turns()
    withdraw()
    cluster.answers["red"].set_result(RED)
    await look_ups.close()
    withdraw()
    assert results == ["second"]


async def test_a_failure_names_the_namespace_and_the_reason() -> None:
    cluster, results = Cluster(), list[object]()
    look_ups = NamespaceLookups(cluster.get)
    look_ups.look_up("red", 60, results.append)
    await turns()
    cluster.answers["red"].set_exception(ClusterError("the API server answers 403: no", 403))
    await look_ups.close()
    cause = 'namespace "red" cannot be looked up: the API server answers 403: no'
    assert results == [Failed(FailureReason.NAMESPACE, cause, 503)]


async def test_an_internal_error_is_a_failure_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    cluster, results = Cluster(), list[object]()
    look_ups = NamespaceLookups(cluster.get)
    look_ups.look_up("red", 60, results.append)
    await turns()
    cluster.answers["red"].set_exception(RuntimeError("never thought of"))
    await look_ups.close()
    cause = 'namespace "red" cannot be looked up: internal error: the gateway\'s log has the details'
    assert results == [Failed(FailureReason.NAMESPACE, cause)]
    assert "never thought of" in caplog.text


async def test_each_look_up_ends_at_its_own_timeout() -> None:
    cluster, results = Cluster(), list[object]()
    look_ups = NamespaceLookups(cluster.get)
    look_ups.look_up("red", 0.0, lambda answer: results.append(("hurried", answer)))
    look_ups.look_up("red", 60, lambda answer: results.append(("patient", answer)))
    await until(lambda: results, "the first timeout")
    late = 'namespace "red" cannot be looked up: the API server has not answered in time'
    assert results == [("hurried", Failed(FailureReason.NAMESPACE, late))]
    cluster.answers["red"].set_result(RED)
    await look_ups.close()
    assert results[1:] == [("patient", RED)]


async def test_a_request_without_an_answer_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "LOOK_UP_TIMEOUT_S", 0.01)
    results = list[object]()
    look_ups = NamespaceLookups(Cluster().get)
    look_ups.look_up("red", 60, results.append)
    await look_ups.close()
    late = 'namespace "red" cannot be looked up: the API server has not answered in time'
    assert results == [Failed(FailureReason.NAMESPACE, late)]


async def test_get_a_namespace_by_name(server: ApiServer, tmp_path: Path) -> None:
    server.put("red", team="a")
    namespaces = ClusterNamespaces(KubernetesSettings(server.kubeconfig(tmp_path)))
    found = await namespaces.get("red")
    assert found is not None
    assert found.labels["team"] == "a"
    assert await namespaces.get("blue") is None
    asked = server.asked("get")
    for name in (".", "..", "../x?y", "Red", "x" * 64):
        assert await namespaces.get(name) is None
    assert (server.asked("get"), server.asked("list")) == (asked, 0)
    server.faults["get"].append(refuse(403, "forbidden"))
    with pytest.raises(ClusterError, match="403: forbidden"):
        await namespaces.get("red")
    server.faults["get"].append(lambda handler: handler.send(200, b"{}"))
    with pytest.raises(ClusterError, match="a Namespace without a name"):
        await namespaces.get("red")
    await namespaces.close()
