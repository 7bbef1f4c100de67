"""What an ApplyConfiguration may be, by the schemas of built-in kinds; the texts are kube-apiserver's."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.schemas import MergeError, Schemas, UnknownKindError

SCHEMAS = built_in_schemas()
ATOMIC = "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
NOT_VALID = "failed to convert patch object to typed object: "


def deployment(pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    template = {"template": {"spec": pod}} if pod else {}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {**spec, **template}}


def merge(live: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    before = copy.deepcopy((live, patch))
    merged = SCHEMAS.merge("apps", "v1", "Deployment", live, patch)
    assert (live, patch) == before
    return merged


@pytest.mark.parametrize(
    ("live", "patch", "expected"),
    [
        (deployment(replicas=2), deployment(replicas=3), deployment(replicas=3)),
        (
            deployment({"volumes": [{"name": "x"}]}),
            deployment({"volumes": [{"name": "y"}]}),
            deployment({"volumes": [{"name": "x"}, {"name": "y"}]}),
        ),
        (
            deployment({"volumes": [{"name": "x"}, {"name": "y"}]}),
            deployment({"volumes": [{"name": "y", "hostPath": {"path": "a"}}]}),
            deployment({"volumes": [{"name": "x"}, {"name": "y", "hostPath": {"path": "a"}}]}),
        ),
        (
            deployment(
                {
                    "containers": [
                        {"name": "a", "env": [{"name": "t", "value": "a"}, {"name": "t", "value": "b"}]}
                    ]
                }
            ),
            deployment({"containers": [{"name": "a", "env": [{"name": "t", "value": "c"}]}]}),
            deployment({"containers": [{"name": "a", "env": [{"name": "t", "value": "c"}]}]}),
        ),
        (
            deployment({"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}),
            deployment({"containers": [{"name": "a", "ports": [{"containerPort": 80, "hostPort": 8}]}]}),
            deployment(
                {
                    "containers": [
                        {"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP", "hostPort": 8}]}
                    ]
                }
            ),
        ),
        (
            deployment({"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]}),
            deployment({"containers": [{"name": "a", "resources": {"limits": {"memory": 5}}}]}),
            deployment({"containers": [{"name": "a", "resources": {"limits": {"cpu": "1", "memory": 5}}}]}),
        ),
        # A version of the kind that is newer than the schema.
        (deployment(replicas=1, new=[{}]), deployment(replicas=2), deployment(replicas=2, new=[{}])),
    ],
)
def test_merged_objects(live: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]) -> None:
    assert merge(live, patch) == expected


def test_the_kind_of_a_patch_does_not_count() -> None:
    assert merge(deployment(), {"apiVersion": 1, "kind": "Pod", "spec": {"replicas": 1}}) == deployment(
        replicas=1
    )


def container(**fields: Any) -> dict[str, Any]:
    return deployment({"containers": [{"name": "a", **fields}]})


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (deployment(selector={"matchLabels": {"a": "b"}}), f"{ATOMIC}.spec.selector"),
        (
            deployment({"initContainers": [{"name": "a"}, {"name": "b", "args": [], "command": ["x"]}]}),
            (
                f"{ATOMIC}.spec.template.spec.initContainers[1].args, "
                ".spec.template.spec.initContainers[1].command"
            ),
        ),
        (deployment(replicasx=1), f"{NOT_VALID}.spec.replicasx: field not declared in schema"),
        (
            deployment(replicas="1"),
            f"{NOT_VALID}.spec.replicas: expected numeric (int or float), got string",
        ),
        (
            deployment(replicas={"a": [1, None]}),
            f"{NOT_VALID}.spec.replicas: expected numeric (int or float), got map[string]interface {{}}",
        ),
        (deployment(paused=1.5), f"{NOT_VALID}.spec.paused: expected boolean, got &{{1.5}}"),
        (
            container(image=["x", 1, True]),
            (
                f'{NOT_VALID}.spec.template.spec.containers[name="a"].image: expected string, got '
                '&value.valueUnstructured{Value:[]interface {}{"x", 1, true}}'
            ),
        ),
        (
            container(env={"b": None, "a": "x"}),
            (
                f'{NOT_VALID}.spec.template.spec.containers[name="a"].env: '
                "expected list, got &{map[a:x b:<nil>]}"
            ),
        ),
        (container(resources=[1]), '[name="a"].resources: expected map, got &{[1]}'),
        (container(resources={"limits": {"cpu": [1]}}), ".cpu: expected any scalar, got &{[1]}"),
        (container(env=[None]), ".env: element 0: associative list with keys may not have a null element"),
        (
            container(env=["x"]),
            ".env: element 0: associative list with keys may not have non-map elements",
        ),
        (container(env=[{"name": "x"}, {"name": "x"}]), '.env: duplicate entries for key [name="x"]'),
        (
            container(ports=[{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]),
            '.ports: duplicate entries for key [containerPort=80,protocol="TCP"]',
        ),
        (
            deployment(strategy=1, replicas=True),
            (
                f"{NOT_VALID}errors:\n  .spec.strategy: expected map, got &{{1}}\n"
                "  .spec.replicas: expected numeric (int or float), got bool"
            ),
        ),
    ],
)
def test_refused_patches(patch: dict[str, Any], expected: str) -> None:
    with pytest.raises(MergeError) as raised:
        merge(deployment(replicas=1), patch)
    assert str(raised.value).endswith(expected)


def test_a_kind_that_is_atomic_as_a_whole() -> None:
    kind = {"group": "example.io", "version": "v1", "kind": "Widget"}
    schema = {"type": "object", "x-kubernetes-map-type": "atomic", "x-kubernetes-group-version-kind": [kind]}
    with pytest.raises(MergeError) as raised:
        Schemas([{"components": {"schemas": {"Widget": schema}}}]).merge("example.io", "v1", "Widget", {}, {})
    assert str(raised.value) == ATOMIC


def test_an_object_that_is_not_valid() -> None:
    with pytest.raises(MergeError) as raised:
        merge(deployment(replicas="1"), deployment(paused=True))
    assert str(raised.value) == (
        "failed to convert original object to typed object: .spec.replicas: "
        "expected numeric (int or float), got string"
    )


def test_an_object_that_nests_too_deeply() -> None:
    fields: dict[str, Any] = {}
    for _ in range(5000):
        fields = {"properties": {"a": fields}}
    schema = {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": fields}}]}}
    with pytest.raises(MergeError, match="too deeply"):
        SCHEMAS.merge("apiextensions.k8s.io", "v1", "CustomResourceDefinition", schema, schema)


def test_a_kind_without_a_schema() -> None:
    with pytest.raises(UnknownKindError, match=r"example\.io/v1, Kind=Widget"):
        SCHEMAS.merge("example.io", "v1", "Widget", {}, {})
