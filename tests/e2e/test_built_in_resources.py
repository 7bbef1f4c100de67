"""The table of built-in resources has all that this API server serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster

ADMITTED = {"create", "update", "patch", "delete"}


def discovered(cluster: Cluster) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the group and the discovery document of each resource that admission is for."""
    groups = cluster.api.get("/apis").document["groups"]
    places = [("", "/api/v1")]
    places += [
        (group["name"], f"/apis/{version['groupVersion']}")
        for group in groups
        for version in group["versions"]
    ]
    for group, path in places:
        for resource in cluster.api.get(path).document["resources"]:
            if ADMITTED & {*resource["verbs"]}:
                yield group, resource


def test_every_resource_of_the_api_server_is_known(cluster: Cluster) -> None:
    found = [(group, one) for group, one in discovered(cluster) if group in RESOURCES]
    assert len(found) > 80
    for group, one in found:
        name, _, sub_resource = one["name"].partition("/")
        known = RESOURCES[group][name]
        assert known.is_namespaced == one["namespaced"], one
        if sub_resource:
            assert sub_resource in known.sub_resources, one
        else:
            assert {one["kind"].lower(), *one.get("shortNames", ())} <= known.other_names, one


def test_every_group_of_the_api_server_is_known(cluster: Cluster) -> None:
    groups = {group for group, _ in discovered(cluster)}
    assert {group for group in groups if group.endswith(".k8s.io") or "." not in group} <= RESOURCES.keys()
