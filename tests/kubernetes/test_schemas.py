"""The schemas of a cluster's kinds: read, read again after a change, and kept while it is away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.pure.openapi.schemas import MergeError, UnknownKindError
from gateway.server.kubernetes.schemas import ClusterSchemas
from tests.kubernetes.server import refuse
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.in_process import Stage
    from tests.kubernetes.server import ApiServer

WIDGETS = "/openapi/v3/apis/example.io/v1"
LIVE = {"apiVersion": "example.io/v1", "kind": "Widget", "parts": [{"name": "a", "size": 1}]}
PATCH = {"parts": [{"name": "a", "colour": "red"}]}


def publish(server: ApiServer, number: int, **fields: Any) -> None:
    """Serve a document of the kind Widget, whose parts have *fields*."""
    part = {"type": "object", "properties": {"name": {"type": "string"}, **fields}}
    parts = {"type": "array", "items": part, "x-kubernetes-list-type": "map"}
    widget = {
        "type": "object",
        "description": "what the gateway leaves out",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "parts": {**parts, "x-kubernetes-list-map-keys": ["name"]},
        },
        "x-kubernetes-group-version-kind": [{"group": "example.io", "version": "v1", "kind": "Widget"}],
    }
    server.objects[WIDGETS] = {"paths": {}, "components": {"schemas": {"io.example.v1.Widget": widget}}}
    server.objects["/openapi/v3"] = {
        "paths": {
            "version": {"serverRelativeURL": "/openapi/v3/version?hash=1"},
            "apis/example.io/v1": {"serverRelativeURL": f"{WIDGETS}?hash={number}"},
            "apis/gone.io/v1": {"serverRelativeURL": "/openapi/v3/apis/gone.io/v1?hash=1"},
        }
    }


SIZE, COLOUR = {"type": "integer"}, {"type": "string"}


@pytest.fixture
def cluster(server: ApiServer, tmp_path: Path, stage: Stage) -> Iterator[ClusterSchemas]:
    publish(server, 1, size=SIZE, colour=COLOUR)

    async def make() -> ClusterSchemas:
        return ClusterSchemas(KubernetesSettings(server.kubeconfig(tmp_path)))

    followed = stage.run(make())
    yield followed
    stage.run(followed.close())


def merged(cluster: ClusterSchemas) -> Any:
    return cluster.current.merge("example.io", "v1", "Widget", LIVE, PATCH)["parts"]


@pytest.mark.parametrize("version", [("example.io", "v1"), ("example.io", "*"), ("*", "v1"), ("*", "*")])
async def test_custom_resources_are_merged_by_the_schema_of_the_cluster(
    cluster: ClusterSchemas, version: tuple[str, str]
) -> None:
    with pytest.raises(UnknownKindError):
        merged(cluster)
    cluster.stage([version])
    await cluster.wait_until_synced(10)
    assert merged(cluster) == [{"name": "a", "size": 1, "colour": "red"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"hostNetwork": True}}
    assert cluster.current.merge("", "v1", "Pod", {}, pod) == {"spec": {"hostNetwork": True}}


async def test_a_changed_schema_is_read_again_and_an_unchanged_one_is_not(
    server: ApiServer, cluster: ClusterSchemas
) -> None:
    cluster.stage([("example.io", "v1")])
    await cluster.wait_until_synced(10)
    before = cluster.current
    asked = len(server.requests)
    await until(lambda: len(server.requests) > asked + 4)
    assert cluster.current is before
    publish(server, 2, size=SIZE)
    await until(lambda: cluster.current is not before)
    with pytest.raises(MergeError, match="colour: field not declared in schema"):
        merged(cluster)


async def test_the_last_known_schemas_stay_while_the_cluster_is_away(
    server: ApiServer, cluster: ClusterSchemas
) -> None:
    cluster.stage([("example.io", "v1")])
    await cluster.wait_until_synced(10)
    server.faults["get"].extend([refuse(500)] * 3)
    await until(lambda: cluster.warning != "")
    assert "schemas of policies' kinds cannot be read" in cluster.warning
    assert merged(cluster)
    await until(lambda: cluster.warning == "")


async def test_a_document_that_cannot_be_read_does_not_keep_others_back(cluster: ClusterSchemas) -> None:
    cluster.stage([("*", "*")])
    await cluster.wait_until_synced(10)
    assert merged(cluster)
    assert "404" in cluster.warning


async def test_schemas_that_no_policy_needs_are_dropped(cluster: ClusterSchemas) -> None:
    cluster.stage([("example.io", "v1")])
    await cluster.wait_until_synced(10)
    cluster.activate([("other.io", "v1")])
    await cluster.wait_until_synced(10)
    with pytest.raises(UnknownKindError):
        merged(cluster)
    cluster.activate([])
    assert cluster.warning == ""
