"""``status.details`` of a denial by a policy: the object, as the API server names it for its own policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.pure.core.verdict import Details
from tests.core.build import POD
from tests.policies.documents import binding, decided, mutating, policy

if TYPE_CHECKING:
    from pathlib import Path

GENERATED: Any = {**POD, "metadata": {"generateName": "web-"}}
SCALE = {
    "name": "web",
    "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
    "requestResource": {"group": "extensions", "version": "v1beta1", "resource": "deployments"},
    "subResource": "scale",
    "object": {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "other"}},
}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"name": "web"}, Details("web", "", "pods")),
        ({"object": POD}, Details(POD["metadata"]["name"], "", "pods")),
        ({"object": GENERATED}, Details("web-", "", "pods")),
        ({"object": {**POD, "metadata": None}}, Details("Unknown", "", "pods")),
        ({"operation": "DELETE", "object": None, "oldObject": POD}, Details("Unknown", "", "pods")),
        (SCALE, Details("web", "extensions", "deployments")),
    ],
)
@pytest.mark.parametrize("phase", ["validate", "mutate"])
def test_a_denial_names_the_object(tmp_path: Path, members: Any, expected: Details, phase: Any) -> None:
    failing = mutating("p", '[JSONPatch{op: "remove", path: "/nothing"}]')
    documents = [policy(), binding()] if phase == "validate" else failing
    status = decided(tmp_path, documents, members, phase=phase).decision.status
    if phase == "mutate" and members.get("operation") == "DELETE":
        assert status is None
        return
    assert status is not None
    assert status.details == expected
    assert status.causes
