"""``audit --kubernetes``: who writes objects in versions that Kubernetes removes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.audit.kit import deployment

if TYPE_CHECKING:
    from tests.audit.kit import World

_POLICY = {"resources": ["pods"]}


def _written(by: str, version: str) -> dict[str, Any]:
    return {"managedFields": [{"manager": by, "apiVersion": version, "operation": "Update"}]}


def _furnish(world: World) -> None:
    world.policy("named", "true")
    applied = json.dumps({"apiVersion": "apps/v1beta1", "kind": "Deployment"})
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    for number in range(2):
        found = deployment(app=f"web-{number}")
        found.setdefault("metadata", {}).update(_written("helm", "apps/v1beta2"), annotations=annotations)
        world.add("shop", "deployments", f"web-{number}", **found)
    newer = deployment(app="new")
    newer.setdefault("metadata", {}).update(_written("helm", "apps/v1"))
    world.add("shop", "deployments", "new", **newer)


def test_writers_in_removed_versions_are_counted(world: World) -> None:
    _furnish(world)
    found = world.audit("--kubernetes", "1.37")["forecast"]
    common = {"kind": "Deployment", "objects": 2, "example": "shop/web-0"}
    assert found == {
        "kubernetes": "1.37",
        "findings": [],
        "writers": [
            {"name": "a file of kubectl apply", "apiVersion": "apps/v1beta1", **common},
            {"name": "helm", "apiVersion": "apps/v1beta2", **common},
        ],
    }
    assert "forecast" not in world.audit()


def test_the_text_says_what_changes(world: World) -> None:
    _furnish(world)
    lines = world.run("--kubernetes", "1.38").splitlines()
    at = lines.index("for Kubernetes 1.38:")
    assert lines[at + 1].startswith("  note: Kubernetes 1.38: its fields are not known")
    assert lines[at + 3] == "        2  written by helm as Deployment of apps/v1beta2, such as shop/web-0"
