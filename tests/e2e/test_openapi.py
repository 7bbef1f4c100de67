"""The schemas that come with the gateway, merging and type checking by them, beside kube-apiserver's own."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.config.kinds.validating_policy import read_validating_policy
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.admission_policies.type_checking import type_errors
from gateway.pure.openapi.documents import FILE, built_in_schemas
from gateway.pure.openapi.schemas import GroupVersionKind, MergeError, Schemas
from tests.e2e.built_in_schemas import packed
from tests.e2e.openapi_oracle import ask
from tests.openapi.drawing import NAMED, draw, draw_schemas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.pure.openapi.types import TypeRef

FIRST: Final = int(os.environ.get("E2E_SEED", "0"))
KINDS: Final = [
    ("", "v1", "Pod"),
    ("", "v1", "Pod"),
    ("", "v1", "Service"),
    ("", "v1", "Node"),
    ("", "v1", "PersistentVolumeClaim"),
    ("apps", "v1", "Deployment"),
    ("batch", "v1", "CronJob"),
    ("networking.k8s.io", "v1", "NetworkPolicy"),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
]

_UNDECLARED_LIVE: Final = re.compile(
    r"failed to convert original object.*field not declared in schema", re.DOTALL
)


def test_the_schemas_of_built_in_kinds_are_those_of_the_release() -> None:
    assert gzip.decompress(FILE.read_bytes()) == gzip.decompress(packed()), "run `make schemas`"


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 3))
def test_merged_objects_are_those_of_the_api_server(seed: int) -> None:
    """The same object, or the same error; the order of several errors is random there."""
    document = json.loads(gzip.decompress(FILE.read_bytes()))
    assert differences(random.Random(seed), document["components"]["schemas"], KINDS, 4000) > 1000


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 20))
def test_merged_objects_of_random_schemas(seed: int) -> None:
    source = random.Random(seed)
    kinds = [("example.io", "v1", f"Kind{index}") for index in range(NAMED)]
    assert differences(source, draw_schemas(source), kinds, 500) > 20


def differences(
    source: random.Random, schemas: dict[str, Any], kinds: list[tuple[str, str, str]], count: int
) -> int:
    """Compare *count* merges of objects of *kinds*; return how many were not refused."""
    here = Schemas([{"components": {"schemas": schemas}}])
    pairs = list(drawn(source, here, kinds, count))
    different = []
    merged = 0
    for (live, patch), expected in zip(
        pairs, ask(schemas, ({"live": live, "patch": patch} for live, patch in pairs)), strict=True
    ):
        if _UNDECLARED_LIVE.match(expected.get("error", "")):
            continue  # the gateway keeps what newer versions of the kind have
        found = result(here, live, patch)
        merged += "merged" in found
        if comparable(found) != comparable(expected):
            different.append(f"{json.dumps(live)}\n+ {json.dumps(patch)}\nhere  {found}\nthere {expected}")
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:3])
    return merged


def drawn(
    source: random.Random, schemas: Schemas, kinds: list[tuple[str, str, str]], count: int
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield an object of one of *kinds* and a patch, *count* times."""
    for _ in range(count):
        kind = GroupVersionKind(*source.choice(kinds))
        live, patch = (draw(source, schemas.type_of(kind), is_patch=each) for each in (False, True))
        if isinstance(live, dict) and isinstance(patch, dict):
            yield {**live, "apiVersion": f"{kind.group}/{kind.version}".lstrip("/"), "kind": kind.kind}, patch


def result(schemas: Schemas, live: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return what the gateway makes of a patch, as the oracle says it."""
    group, _, version = live["apiVersion"].rpartition("/")
    try:
        return {"merged": schemas.merge(group, version, live["kind"], live, patch)}
    except MergeError as error:
        return {"error": str(error)}


def comparable(result: dict[str, Any]) -> Any:
    text = result.get("error", "")
    if "errors:" in text or "not declared" in text:
        return text.partition(":")[0]
    if text:  # the order of fields and of paths is random there
        return sorted(text)
    return json.dumps(result, sort_keys=True)


@pytest.mark.parametrize(
    ("resource", "expression", "is_wrong"),
    [
        ("deployments", "object.spec.replicas > 1", False),
        ("deployments", "object.spec.replica > 1", True),
        ("deployments", "object.spec.replicas > '1'", True),
        ("deployments", "object.metadata.labels.team == 'a' && object.metadata.labels['x'] == 'a'", False),
        ("deployments", "object.metadata.labels == 'a'", True),
        ("deployments", "object.metadata.name == 1", True),
        ("deployments", "object.spec.template.spec.containers.all(c, c.image == '')", False),
        ("deployments", "object.spec.template.spec.containers.all(c, c.images == '')", True),
        ("deployments", "object.spec.template.spec.containers.name == ''", True),
        ("deployments", "object.spec.strategy.rollingUpdate.maxSurge == 1", False),
        ("deployments", "has(oldObject.spec.foo)", True),
        ("deployments", "object == null", False),
        ("deployments", "object.spec == null", False),
        ("deployments", "object.spec.replicas == null", True),
        ("deployments", "object.spec['replicas'] == 1", True),
        ("deployments", "object.?spec.?nothing.hasValue()", True),
        ("deployments", "object.spec.template.spec.tolerations.exists(t, t.key == 'a')", False),
        ("deployments", "object.spec.template.spec.nodeSelector.exists(k, k == 'a')", False),
        ("deployments", "object.spec.template.spec.nodeSelector.exists(k, k == 1)", True),
        ("pods", "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", False),
        ("pods", "object.status.conditions.exists(c, c.status)", True),
        ("pods", "object.spec.containers.map(c, c.name)[0] == 1", True),
        ("pods", "variables.names.all(n, n == 1)", True),
        ("pods", "variables.names.all(n, n == 'a')", False),
        ("pods", "variables.spec.anything == 1", False),
        ("pods", "namespaceObject.metadata.labels['a'] == 'a'", False),
        ("pods", "dyn(object).spec.foo == 1", False),
    ],
)
def test_type_checking_finds_what_the_api_server_finds(
    resource: str, expression: str, is_wrong: bool
) -> None:
    assert type_checked(resource, [expression]) == [(is_wrong, is_wrong)]


COMPARED: Final = tuple(
    text.replace("c.", "object.spec.containers[0].")
    for text in (
        "c.readinessProbe == c.livenessProbe",
        "c.livenessProbe == c.livenessProbe",
        "c.livenessProbe != null",
        "c.lifecycle.postStart == c.lifecycle.preStop",
        "object.spec == oldObject.spec",
        "object == oldObject",
        "object.metadata == oldObject.metadata",
        "object.spec.containers == object.spec.initContainers",
        "object.spec.containers[0] == object.spec.containers[1]",
        "object.spec.containers[0] in object.spec.initContainers",
        "object.spec.containers[0] in object.spec.containers",
        "object.spec.securityContext == c.securityContext",
        "object.metadata.labels == object.metadata.annotations",
        "c.env[0].valueFrom.configMapKeyRef == c.env[0].valueFrom.secretKeyRef",
        "object.spec.affinity.podAffinity == object.spec.affinity.podAntiAffinity",
        "[c.livenessProbe, c.readinessProbe].size() == 2",
        "(object.spec.containers + object.spec.initContainers).size() == 2",
        "object.spec.volumes.all(v, v.configMap == object.spec.volumes[0].configMap)",
        "object.spec.initContainers.exists(i, i == object.spec.containers[0])",
    )
)


def test_fields_of_one_schema_have_different_types() -> None:
    """As in the API server, the type of an object is named for its path."""
    found = type_checked("pods", list(COMPARED))
    assert [here for here, _ in found] == [there for _, there in found]
    assert {here for here, _ in found} == {True, False}


def test_the_api_server_warns_of_more() -> None:
    """Texts with a format have the type of the format there, although expressions find texts.

    A field whose schema has no type is undefined there.
    """
    expressions = [
        "object.metadata.creationTimestamp == '2020-01-01T00:00:00Z'",
        "object.metadata.managedFields[0].fieldsV1.any == 1",
        "object.spec.containers[0].resources.limits.cpu == '1'",
        "authorizer.requestResource.check('get').allowed()",
    ]
    assert type_checked("pods", expressions) == [(False, True)] * 4
    assert type_checked("secrets", ["object.data['a'] == 'YQ=='"]) == [(False, True)]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 3))
def test_random_paths_are_wrong_only_where_the_api_server_says_so(seed: int) -> None:
    source = random.Random(seed)
    checked = 0
    for resource, kind in RESOURCES.items():
        group = "apps" if kind == "Deployment" else ""
        ref = SCHEMAS.type_of(GroupVersionKind(group, "v1", kind))
        expressions = [f"object{drawn_path(source, ref)} == {source.choice(VALUES)}" for _ in range(15)]
        for expression, (here, there) in zip(expressions, type_checked(resource, expressions), strict=True):
            assert here <= there, expression
            checked += here
    assert checked > 5


VALUES: Final = ["1", "'a'", "true", "1.5", "[]", "{}", "null"]
RESOURCES: Final = {"deployments": "Deployment", "pods": "Pod", "secrets": "Secret"}
SCHEMAS: Final = built_in_schemas()


def type_checked(resource: str, expressions: list[str]) -> list[tuple[bool, bool]]:
    """Return whether each of *expressions* is wrong for the gateway, and for the API server."""
    group, kind = "apps" if resource == "deployments" else "", RESOURCES[resource]
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["*"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "variables": [
            {"name": "names", "expression": "object.spec.containers.map(c, c.name)"},
            {"name": "spec", "expression": "object.spec"},
        ],
        "validations": [{"expression": f"{each} || true"} for each in expressions],
    }
    problems = Problems("test")
    policy = read_validating_policy(Fields({"metadata": {"name": "p"}, "spec": spec}, "", problems))
    assert not problems.found
    known = GroupVersionKind(group, "v1", kind)
    here = {error.field for error in type_errors(policy, SCHEMAS, lambda *_: [known])}
    mapped = {"Group": group, "Version": "v1", "Kind": kind, "Resource": resource, "Namespaced": True}
    schemas = json.loads(gzip.decompress(FILE.read_bytes()))["components"]["schemas"]
    (answer,) = ask(schemas, [{"policy": {"spec": spec}, "resources": [mapped]}])
    there = {warning["fieldRef"] for warning in answer.get("warnings", ())}
    fields = [f"spec.validations[{number}].expression" for number in range(len(expressions))]
    return [(field in here, field in there) for field in fields]


def drawn_path(source: random.Random, ref: TypeRef) -> str:
    """Return the selection of a random field of *ref*, or of one with another name."""
    kind = ref.get()
    if kind.list and not kind.scalar:
        return f"[0]{drawn_path(source, kind.list.element)}" if source.random() < 0.9 else ""
    if not kind.map or not kind.map.fields or source.random() < 0.1:
        return ""
    name = source.choice([name for name in kind.map.fields if name.isidentifier()])
    if source.random() < 0.1:
        return f".{name}s"
    return f".{name}{drawn_path(source, kind.map.fields[name].type)}"
