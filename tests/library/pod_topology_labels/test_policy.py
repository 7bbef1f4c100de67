"""Source of the cases: kubernetes plugin/pkg/admission/podtopologylabels admission_test.go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.library.builtin import changed, of

if TYPE_CHECKING:
    from tests.library.api_server import ApiServer

NAME = "pod-topology-labels"
ZONE, REGION, OTHER = (f"topology.kubernetes.io/{name}" for name in ("zone", "region", "arbitrary"))


@pytest.mark.parametrize(
    ("of_node", "given", "expected"),
    [
        ({ZONE: "zone1", REGION: "region1", OTHER: "a", "b": "c"}, {}, {ZONE: "zone1", REGION: "region1"}),
        ({ZONE: "zone1", OTHER: "a"}, {}, {ZONE: "zone1"}),
        ({REGION: "region1", f"sub.{ZONE}": "a"}, {}, {REGION: "region1"}),
        ({"topology.kubernetes.io": "a"}, {}, {}),
        ({ZONE: "newValue"}, {ZONE: "oldValue", "a": "b"}, {ZONE: "newValue", "a": "b"}),
    ],
)
def test_labels(api_server: ApiServer, of_node: Any, given: Any, expected: Any) -> None:
    api_server.lists["/api/v1/nodes"] = [{"metadata": {"name": "n", "labels": of_node}}]
    metadata = {"name": "web", "labels": given}
    binding = {"metadata": metadata, "target": {"kind": "Node", "name": "n"}}
    pod = {"metadata": metadata, "spec": {"nodeName": "n"}}
    assert changed(NAME, of("pods/binding", "Binding", binding))["metadata"]["labels"] == expected
    assert changed(NAME, of("pods", "Pod", pod))["metadata"]["labels"] == expected


def test_other_labels(api_server: ApiServer) -> None:
    api_server.lists["/api/v1/nodes"] = [{"metadata": {"name": "n", "labels": {"rack": "7", ZONE: "a"}}}]
    pod = {"metadata": {"name": "web"}, "spec": {"nodeName": "n"}}
    found = changed(NAME, of("pods", "Pod", pod), {"labels": ["rack"]})
    assert found["metadata"]["labels"] == {"rack": "7"}


@pytest.mark.parametrize(
    ("plural", "found"),
    [
        ("pods", {"metadata": {}, "spec": {}}),
        ("pods", {"metadata": {}, "spec": {"nodeName": "unknown"}}),
        ("pods/binding", {"metadata": {}, "target": {"kind": "Machine", "name": "n"}}),
        ("pods/status", {"metadata": {}, "spec": {"nodeName": "n"}}),
    ],
)
def test_what_is_left_alone(api_server: ApiServer, plural: str, found: dict[str, Any]) -> None:
    api_server.lists["/api/v1/nodes"] = [{"metadata": {"name": "n", "labels": {ZONE: "a"}}}]
    assert changed(NAME, of(plural, "", found)) == found
