"""Source of the cases: kubernetes plugin/pkg/admission/antiaffinity admission_test.go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.library.builtin import of, of_pod, refusal

NAME = "limit-pod-hard-anti-affinity-topology"
HOST = "kubernetes.io/hostname"
DENIED = (
    'pods "123" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {} '
    "but only key kubernetes.io/hostname is allowed"
)


def spec(*keys: str, preferred: str = "") -> dict[str, Any]:
    terms = [{"labelSelector": {}, "topologyKey": key} for key in keys]
    anti: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    if preferred:
        term = {"weight": 5, "podAffinityTerm": {"topologyKey": preferred}}
        anti["preferredDuringSchedulingIgnoredDuringExecution"] = [term]
    return {"affinity": {"podAntiAffinity": anti}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ""),
        ({"affinity": {}}, ""),
        ({"affinity": {"podAntiAffinity": {}}}, ""),
        (spec(preferred="az"), ""),
        (spec(HOST, preferred="az"), ""),
        (spec(HOST), ""),
        (spec(" zone "), DENIED.format(" zone ")),
        (spec(HOST, "zone", HOST), DENIED.format("zone")),
        (spec(""), DENIED.format("")),
    ],
)
def test_the_topology_of_required_anti_affinity(given: dict[str, Any], expected: str) -> None:
    assert refusal(NAME, of_pod(given)) == expected
    assert refusal(NAME, of_pod(given, old={})) == expected
    assert refusal(NAME, of_pod(given, plural="pods/eviction")) == ""
    assert refusal(NAME, of("foos", "Foo", {"spec": given})) == ""


def test_a_pod_without_a_name() -> None:
    asked = of("pods", "Pod", {"metadata": {"generateName": "web-"}, "spec": spec("zone")})
    assert refusal(NAME, asked) == DENIED.format("zone").replace(' "123"', "")
