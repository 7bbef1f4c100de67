"""The policy ``minimum-replicas``."""

from __future__ import annotations

import pytest

from admission_gateway_worker.policies.minimum_replicas import DEFINITIONS
from tests.library.requests import denial, request

(POLICY,) = DEFINITIONS


def workload(replicas: int | None) -> dict[str, object]:
    return {"kind": "Deployment", "spec": {} if replicas is None else {"replicas": replicas}}


@pytest.mark.parametrize(
    ("replicas", "parameters", "message"),
    [
        (2, {}, ""),
        (1, {}, "1 is less than the minimum of 2"),
        (None, {}, "1 is less than the minimum of 2"),
        (0, {}, ""),
        (0, {"allowZero": False}, "0 is less than the minimum of 2"),
        (3, {"minimum": 4}, "3 is less than the minimum of 4"),
        (1, {"minimum": 1}, ""),
    ],
)
def test_a_workload_has_the_minimum(
    replicas: int | None, parameters: dict[str, object], message: str
) -> None:
    found = denial(POLICY, request("apps", "v1", "Deployment", workload(replicas)), parameters)
    assert found == ({"spec.replicas": message} if message else {})


def test_scaling_is_checked() -> None:
    scale, before = ({"kind": "Scale", "spec": {"replicas": count}} for count in (1, 3))
    admission_request = request("autoscaling", "v1", "Scale", scale, before, subResource="scale")
    assert list(denial(POLICY, admission_request)) == ["spec.replicas"]


def test_other_updates_of_a_small_workload_are_allowed() -> None:
    assert denial(POLICY, request("apps", "v1", "Deployment", workload(1), workload(1))) == {}
    assert denial(POLICY, request("apps", "v1", "Deployment", workload(1), workload(3))) != {}


def test_an_autoscaler_is_checked_by_its_minimum() -> None:
    scaler = {"kind": "HorizontalPodAutoscaler", "spec": {"minReplicas": 1, "maxReplicas": 9}}
    found = denial(POLICY, request("autoscaling", "v2", "HorizontalPodAutoscaler", scaler))
    assert found == {"spec.minReplicas": "1 is less than the minimum of 2"}
