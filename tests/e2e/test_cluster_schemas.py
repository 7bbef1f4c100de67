"""Schemas that are read from a real API server: merges by them are those of its server-side apply."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.pure.openapi.schemas import GroupVersionKind, Schemas
from gateway.server.kubernetes.schemas import ClusterSchemas
from tests.waiting import eventually, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster

DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KIND: Final = GroupVersionKind("merge.example.com", "v1", "Gadget")
PATH: Final = f"/apis/{KIND.group}/{KIND.version}/gadgets"
APPLY: Final = "application/apply-patch+yaml"
TEXT: Final = {"type": "string"}
SPEC: Final = {
    "type": "object",
    "properties": {
        "parts": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": TEXT, "size": {"type": "integer"}, "colour": TEXT},
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "tags": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": TEXT},
        "port": {"x-kubernetes-int-or-string": True},
    },
}
LIVE: Final = {
    "parts": [{"name": "a", "size": 1}, {"name": "b"}, {"name": "c", "colour": "red"}],
    "tags": ["x", "y"],
    "free": {"a": {"b": 1}},
    "labels": {"team": "a"},
    "port": 80,
}


@pytest.fixture(scope="module")
def gadgets(cluster: Cluster) -> Iterator[None]:
    version = {
        "name": KIND.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC}}},
    }
    made = cluster.api.create(
        DEFINITIONS,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"gadgets.{KIND.group}"},
            "spec": {
                "group": KIND.group,
                "names": {"kind": KIND.kind, "plural": "gadgets"},
                "scope": "Cluster",
                "versions": [version],
            },
        },
    )
    assert made.status == 201, made
    eventually(lambda: cluster.api.get(PATH).status == 200)
    yield
    cluster.api.delete(f"{DEFINITIONS}/gadgets.{KIND.group}")


def read(cluster: Cluster) -> Schemas:
    async def read() -> Schemas:
        followed = ClusterSchemas(KubernetesSettings(cluster.kubeconfig()))
        try:
            followed.stage([(KIND.group, KIND.version), ("", "v1")])
            await until(lambda: KIND in followed.current.kinds)
            assert not followed.warning
            return followed.current
        finally:
            await followed.close()

    return asyncio.run(read())


@pytest.mark.usefixtures("gadgets")
def test_merged_custom_resources_are_those_of_server_side_apply(cluster: Cluster) -> None:
    schemas = read(cluster)
    patches: list[dict[str, Any]] = [
        {"parts": [{"name": "c", "size": 3}, {"name": "d"}, {"name": "a", "size": 2}]},
        {"tags": ["z", "x"], "port": "http"},
        {"free": {"a": {"c": 2}, "d": 1}, "labels": {"tier": "b"}},
    ]
    for number, patch in enumerate(patches):
        identity = {"apiVersion": f"{KIND.group}/{KIND.version}", "kind": KIND.kind}
        live = {**identity, "metadata": {"name": f"gadget-{number}"}, "spec": LIVE}
        assert cluster.api.create(PATH, live).status == 201
        url = f"{PATH}/gadget-{number}?fieldManager=test&force=true"
        applied = cluster.api.patch(url, {**identity, "spec": patch}, APPLY)
        assert applied.status == 200, applied
        assert schemas.merge(*KIND, live, {"spec": patch})["spec"] == applied.document["spec"]


@pytest.mark.usefixtures("gadgets")
def test_built_in_kinds_are_those_of_the_cluster(cluster: Cluster) -> None:
    schemas = read(cluster)
    pod = {"spec": {"containers": [{"name": "a", "image": "i"}]}}
    patch = {"spec": {"containers": [{"name": "b"}, {"name": "a", "env": [{"name": "E"}]}]}}
    assert schemas.merge("", "v1", "Pod", pod, patch) == {
        "spec": {"containers": [{"name": "b"}, {"name": "a", "image": "i", "env": [{"name": "E"}]}]}
    }
    names, _ = schemas.definition(GroupVersionKind("", "v1", "Pod"))
    assert "io.k8s.api.apps.v1.Deployment" not in names
