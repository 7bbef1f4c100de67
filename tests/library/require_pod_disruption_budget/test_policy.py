"""The policy ``require-pod-disruption-budget``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from admission_gateway_worker import Denied
from admission_gateway_worker.policies.require_pod_disruption_budget import (
    DEFINITIONS,
    require_pod_disruption_budget,
    selects,
)
from tests.library.requests import denial, request

if TYPE_CHECKING:
    from tests.library.api_server import ApiServer

(POLICY,) = DEFINITIONS
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
MESSAGE = "no PodDisruptionBudget in the namespace default selects the pods: create one first"


def workload(replicas: int | None, **labels: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"template": {"metadata": {"labels": labels}}}
    return {"metadata": {"name": "web"}, "spec": spec if replicas is None else {**spec, "replicas": replicas}}


def of(found: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    return request("apps", "v1", "Deployment", found, old)


def budget(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}}}


def test_a_budget_has_to_select_the_pods(api_server: ApiServer) -> None:
    api_server.lists[BUDGETS] = [budget(app="other")]
    assert denial(POLICY, of(workload(2, app="web"))) == {"spec.template.metadata.labels": MESSAGE}
    assert denial(POLICY, of(workload(2, app="other"))) == {}


def test_few_replicas_need_none(api_server: ApiServer) -> None:
    assert denial(POLICY, of(workload(None, app="web"))) == {}
    assert denial(POLICY, of(workload(2, app="web")), {"replicas": 3}) == {}
    assert api_server.requests == []


def test_other_changes_of_a_workload_without_a_budget_are_allowed(api_server: ApiServer) -> None:
    api_server.lists[BUDGETS] = []
    assert denial(POLICY, of(workload(4, app="web"), workload(3, app="web"))) == {}
    assert denial(POLICY, of(workload(2, app="web"), workload(1, app="web"))) != {}


def scale(replicas: int, before: int) -> dict[str, Any]:
    found, old = ({"kind": "Scale", "spec": {"replicas": each}} for each in (replicas, before))
    resource = {"group": "apps", "version": "v1", "resource": "deployments"}
    others = {"resource": resource, "subResource": "scale", "name": "web"}
    return request("autoscaling", "v1", "Scale", found, old, **others)


def test_a_workload_that_is_scaled_needs_one(api_server: ApiServer) -> None:
    api_server.lists[BUDGETS] = [budget(app="other")]
    path = "/apis/apps/v1/namespaces/default/deployments"
    api_server.lists[path] = [workload(1, app="web")]
    assert denial(POLICY, scale(2, 1)) == {"spec.template.metadata.labels": MESSAGE}
    assert denial(POLICY, scale(3, 2)) == denial(POLICY, scale(1, 0)) == {}
    api_server.lists[path] = [workload(1, app="other")]
    assert denial(POLICY, scale(2, 1)) == {}
    api_server.lists[path] = []
    assert denial(POLICY, scale(2, 1)) == {}


def test_a_new_budget_counts_at_once(api_server: ApiServer) -> None:
    async def denied_after(*budgets: dict[str, Any]) -> bool:
        api_server.lists[BUDGETS] = list(budgets)
        try:
            await require_pod_disruption_budget(POLICY.review(of(workload(2, app="web"))))
        except Denied:
            return True
        return False

    async def outcomes() -> list[bool]:
        return [await denied_after(), await denied_after(budget(app="web"))]

    assert asyncio.run(outcomes()) == [True, False]


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "2"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, True),
        ({"matchExpressions": [{"key": "b", "operator": "In", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}, True),
        ({"matchExpressions": [{"key": "b", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, True),
        ({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}, False),
    ],
)
def test_a_selector(selector: dict[str, Any] | None, *, is_selected: bool) -> None:
    assert selects(selector, {"a": "1"}) == is_selected
