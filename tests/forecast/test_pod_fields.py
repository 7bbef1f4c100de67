"""Fields of Pods that no policy reads, by policies of all engines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.config.kinds.gateway_configuration import NEWEST_VERSION
from gateway.config.merge.load import load
from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.schemas import GroupVersionKind
from gateway.tools.forecast.fields import FIELDS_FILE, NEWEST
from gateway.tools.forecast.findings import of_config
from gateway.tools.forecast.pod_fields import FIELDS, parsed, undecidable, unread
from tests.e2e.golang import CannotBuild
from tests.forecast.history import objects_of
from tests.gatekeeper.documents import constraint, template
from tests.kit import pool_document, webhook_document
from tests.kyverno.documents import PODS, validating
from tests.policies.documents import binding, policy, written

if TYPE_CHECKING:
    from pathlib import Path

IMAGES: Final = "object.spec.containers.all(c, c.image.startsWith('registry.example/'))"
CONTAINERS: Final = "spec.initContainers spec.ephemeralContainers"
NOT_TOLD: Final = {
    "of alpha gates, which are off": {
        "bindMountOptions", "defaultUser", "evictionResponders", "mode", "user", "userAnnotations",
    },
    "of probes": {"protocol"},
}  # fmt: skip


def _config(folder: Path, documents: list[dict[str, Any]], version: str = "1.34") -> Any:
    gateway = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "metadata": {"name": "gateway"},
        "kubernetesVersion": version,
    }
    written(folder, [*documents, gateway])
    return load([folder])


def _fields(
    folder: Path, documents: list[dict[str, Any]], kubernetes: int = 37, version: str = "1.34"
) -> str:
    """Return what is told, a word for each field."""
    found = unread(_config(folder, documents, version), kubernetes)
    return " ".join(
        one.message.partition(" have ")[2].partition(",")[0] or one.message.partition(",")[0] for one in found
    )


CEL_RULE: Final = {
    "name": "r",
    "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
    "validate": {"cel": {"expressions": [{"expression": IMAGES}]}},
}


@pytest.mark.parametrize(
    "documents",
    [
        [policy(matchConstraints={"resourceRules": [PODS]}, validations=[IMAGES]), binding()],
        [validating(IMAGES, matchConstraints={"resourceRules": [PODS]})],
        [template("Images", IMAGES.replace("object", "variables.anyObject")), constraint("Images")],
        [
            {
                "apiVersion": "kyverno.io/v1",
                "kind": "ClusterPolicy",
                "metadata": {"name": "p"},
                "spec": {
                    "rules": [{**CEL_RULE, "validate": {"cel": {"expressions": [{"expression": IMAGES}]}}}]
                },
            }
        ],
    ],
    ids=["VAP", "Kyverno", "Gatekeeper", "ClusterPolicy"],
)
def test_policies_of_all_engines(tmp_path: Path, documents: list[dict[str, Any]]) -> None:
    assert _fields(tmp_path, documents) == f"{CONTAINERS} spec.volumes[].image"
    assert _fields(tmp_path, documents, 34, "1.33") == CONTAINERS
    [*_, one] = unread(_config(tmp_path, documents), 37)
    assert "reads spec.containers[].image" in one.message
    # The version that the configuration names is not older: what the oldest known one lacks is told.
    assert _fields(tmp_path, documents, 37, "1.37") == f"{CONTAINERS} spec.volumes[].image"
    assert _fields(tmp_path, documents, 38, "1.37") == CONTAINERS


def _policy(*validations: str, resources: tuple[str, ...] = ("pods",), **spec: Any) -> list[dict[str, Any]]:
    rules = {"resourceRules": [{**PODS, "resources": [*resources]}]}
    return [policy(matchConstraints=rules, validations=list(validations), **spec), binding()]


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        ([IMAGES, "!has(object.spec.initContainers)"], "spec.ephemeralContainers spec.volumes[].image"),
        (["object.spec.hostPID == false"], ""),
        (["object.spec.schedulerName == 'a'"], "spec.workloadRef spec.schedulingGroup"),
        (["object.spec.hostname == 'a'"], "spec.hostnameOverride"),
        (["object == oldObject"], ""),
        (["object.metadata.name == 'a'"], ""),
        (["object.spec.containers[0].resources.limits.cpu == '1'"], CONTAINERS),
    ],
)
def test_siblings_that_are_read(tmp_path: Path, expressions: list[str], expected: str) -> None:
    assert _fields(tmp_path, _policy(*expressions)) == expected


def test_users_of_the_node_are_told_to_older_versions(tmp_path: Path) -> None:
    assert _fields(tmp_path, _policy("object.spec.hostPID == false"), 37, "1.32") == "spec.hostUsers"


def test_subresources_that_no_rule_has(tmp_path: Path) -> None:
    both = "!has(object.spec.initContainers) && !has(object.spec.ephemeralContainers)"
    reads = [
        both,
        "object.spec.containers.all(c, c.resources.limits.cpu == '1')",
        "has(object.spec.resources)",
    ]
    assert _fields(tmp_path, _policy(*reads), 37, "1.32") == "by pods/ephemeralcontainers by pods/resize"
    assert _fields(tmp_path, _policy(*reads)) == "by pods/ephemeralcontainers"
    every = _policy(*reads, resources=("pods", "pods/*"))
    assert _fields(tmp_path, every, 37, "1.32") == ""


def test_what_webhooks_read_is_said_once_to_be_undecidable(tmp_path: Path) -> None:
    text = pool_document("pool", "127.0.0.1:1") + webhook_document("validate", "v", "pool", {}, {}, {}, {})
    (tmp_path / "c.yaml").write_text(text)
    config = load([tmp_path])
    assert len(undecidable(config)) == 4
    (one,) = of_config(config, 37)
    assert "is not decidable: " in one.message
    assert one.message.endswith(" and 1 more")
    assert one.rule == "forecast-limits"


def _added() -> dict[str, int]:
    """Return the fields of PodSpec that a known version has added, by its last part."""
    schemas, name = built_in_schemas().definition(GroupVersionKind("", "v1", "Pod"))
    history = dict(line.split() for line in FIELDS_FILE.read_text().splitlines() if " +" in line)
    found, seen = {}, set[str]()
    waiting = [schemas[name]["properties"]["spec"]]
    while waiting:
        schema = waiting.pop()
        of = str(schema.get("$ref") or [one.get("$ref") for one in schema.get("allOf", [])] or "")
        for each in schemas if of else ():
            if each in of.replace("']", "").split("/") and each not in seen:
                seen.add(each)
                for field, part in (schemas[each].get("properties") or {}).items():
                    waiting.append(part)
                    if (added := history.get(f"{'.'.join(each.split('.')[-3:])}.{field}")) is not None:
                        found[field] = int(added[1:])
        waiting += [
            part for key in ("items", "additionalProperties") if isinstance(part := schema.get(key), dict)
        ]
    return found


def test_each_field_that_is_added_is_told_or_known_not_to_be() -> None:
    told = {parsed(each.path)[-1]: each.since for each in FIELDS}
    left_out = set().union(*NOT_TOLD.values())
    added = _added()
    assert added.keys() >= {"hostnameOverride", "fileKeyRef", "podCertificate"}, "the walk finds them"
    assert added.keys() - told.keys() == left_out & added.keys()
    assert all(added[name] <= since for name, since in told.items() if name in added)
    assert f"1.{NEWEST}" == NEWEST_VERSION


def test_the_all_fields_pods_of_kubernetes_have_the_fields() -> None:
    try:
        pods = {minor: json.loads((found / "core.v1.Pod.json").read_bytes()) for minor, found in objects_of()}
    except CannotBuild as error:
        pytest.skip(str(error))
    assert len(pods) > 3
    for field in FIELDS:
        for minor, pod in pods.items():
            values: list[Any] = [pod]
            for part in parsed(field.path):
                values = [
                    below
                    for value in values
                    for below in (value if part == "[]" else [value.get(part)])
                    if below is not None
                ]
            if minor >= field.since and not (field.path == "spec.workloadRef" and minor > 35):
                assert values, f"1.{minor} has no {field.path}"
