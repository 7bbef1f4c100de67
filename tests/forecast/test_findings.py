"""What a version of Kubernetes changes for objects and configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.merge.load import load
from gateway.tools.forecast.fields import MAX_FIELDS, NEWEST, OLDEST, unknown_fields
from gateway.tools.forecast.findings import limits, minor_of, of_config, of_object
from gateway.tools.forecast.kinds import lifecycles, resources
from tests.gatekeeper.documents import constraint, template
from tests.kit import pool_document, webhook_document
from tests.kyverno.documents import condition, validating
from tests.policies.documents import binding, policy, written
from tests.workloads.drawing import draw

if TYPE_CHECKING:
    from pathlib import Path

_POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: devices.example.com}}
spec:
  matchConstraints: {{resourceRules: [{rule}]}}
  validations: [{{expression: {expression!r}}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: devices.example.com}}
spec: {{policyName: devices.example.com, validationActions: [Deny]}}
"""


_NEW = "[1, 2].distinct().size() == 2"


def _object(api_version: str, kind: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "shop"}, **parts}


def _lines(found: dict[str, Any], minor: int) -> list[str]:
    return [one.line() for one in of_object(found, minor)]


def _config(folder: Path, versions: str, resource: str = "deviceclasses", expression: str = "true") -> Any:
    rule = (
        f"{{apiGroups: [resource.k8s.io], apiVersions: [{versions}], "
        f"operations: [CREATE], resources: ['{resource}']}}"
    )
    file = folder / "policy.yaml"
    file.write_text(_POLICY.format(rule=rule, expression=expression))
    return load([file])


@pytest.mark.parametrize(
    ("api_version", "kind", "minor", "expected"),
    [
        (
            "policy/v1beta1",
            "PodDisruptionBudget",
            37,
            [("error: PodDisruptionBudget shop: 1.25 removes PodDisruptionBudget of "
             "policy/v1beta1; use policy/v1")],
        ),
        (
            "resource.k8s.io/v1beta1",
            "DeviceClass",
            37,
            [("warning: DeviceClass shop: DeviceClass of resource.k8s.io/v1beta1 is deprecated "
             "since 1.35, and 1.38 removes it; use resource.k8s.io/v1")],
        ),
        (
            "resource.k8s.io/v1",
            "DeviceClass",
            33,
            [("error: DeviceClass shop: 1.33 does not have DeviceClass of resource.k8s.io/v1, "
             "which 1.34 adds")],
        ),
        ("apps/v1", "Deployment", 38, []),
        ("example.io/v1", "Deployment", 38, []),
    ],
)  # fmt: skip
def test_versions_of_kinds(api_version: str, kind: str, minor: int, expected: list[str]) -> None:
    assert _lines(_object(api_version, kind), minor) == expected


@pytest.mark.parametrize(("minor", "known"), [(33, False), (34, True), (37, True), (38, True)])
def test_a_field_that_a_version_adds(minor: int, known: bool) -> None:
    template = {"spec": {"hostnameOverride": "shop"}}
    found = _lines(_object("apps/v1", "Deployment", spec={"template": template}), minor)
    assert (found == []) == known
    assert known or '"spec.template.spec.hostnameOverride": 1.34 adds it' in found[0]


@pytest.mark.parametrize(("minor", "reason"), [(34, "1.35 adds it"), (35, ""), (36, "1.36 removed it")])
def test_a_field_that_a_version_removes(minor: int, reason: str) -> None:
    pod = _object("v1", "Pod", spec={"workloadRef": {"name": "a"}})
    assert [one.reason for one in unknown_fields(pod, minor)] == [reason] * bool(reason)


def test_a_field_that_no_version_has() -> None:
    containers = [{"name": "a", "imagePullPolice": "Always"}] * 50
    found = list(unknown_fields(_object("v1", "Pod", spec={"containers": containers}), 37))
    reason = '1.37 has no such field; did you mean "imagePullPolicy"?'
    assert found[0] == ("spec.containers[0].imagePullPolice", reason)
    assert len(found) == MAX_FIELDS


@pytest.mark.parametrize("minor", range(OLDEST, NEWEST + 1))
def test_a_field_of_a_kind_is_known_or_told(minor: int) -> None:
    """Objects with fields of 1.37 have no unknown ones there, and some in each older version."""
    from random import Random

    from gateway.pure.openapi.documents import built_in_schemas

    kinds = sorted(kind for kind in built_in_schemas().kinds if kind.group in ("", "apps", "batch"))
    drawn = [draw(Random(f"{kind} {index}"), kind) for kind in kinds for index in range(5)]
    unknown = [one for each in drawn for one in unknown_fields(each, minor)]
    assert (unknown == []) == (minor == NEWEST)
    assert all("adds it" in one.reason for one in unknown)


def test_who_writes_a_version_that_is_removed() -> None:
    fields = [{"manager": "helm", "apiVersion": "resource.k8s.io/v1beta1"}, {"manager": []}, None]
    found = _object("resource.k8s.io/v1", "DeviceClass")
    found["metadata"]["managedFields"] = fields
    assert "has written it as resource.k8s.io/v1beta1" in _lines(found, 38)[0]
    assert _lines(found, 37) == []


@pytest.mark.parametrize("found", [{}, {"apiVersion": 1}, {"apiVersion": "v1", "kind": "Pod", "spec": []}])
def test_what_is_no_object_has_no_findings(found: dict[str, Any]) -> None:
    for minor in (30, 35, 40):
        list(of_object(found, minor))


@pytest.mark.parametrize(
    ("versions", "resource", "level"),
    [
        ("v1beta1", "deviceclasses", "error"),
        ("v1beta1", "*", "error"),
        ("v1beta1, v1beta2", "deviceclasses", "note"),
        ("v1beta1, v1", "resourceclaims/status", "note"),
        ("v1", "deviceclasses", ""),
        ("'*'", "deviceclasses", ""),
    ],
)
def test_rules_of_removed_versions(tmp_path: Path, versions: str, resource: str, level: str) -> None:
    found = list(of_config(_config(tmp_path, versions, resource), 38))
    assert [one.level for one in found] == [level] * bool(level)
    assert not list(of_config(_config(tmp_path, versions, resource), 37))


def test_rules_in_manifests() -> None:
    rule = {"apiGroups": ["policy"], "apiVersions": ["v1beta1"], "resources": ["*"]}
    webhooks = [{"rules": [rule, None]}, None]
    found = _object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", webhooks=webhooks)
    [line] = _lines(found, 37)
    assert "webhooks[0].rules[0]: 1.37 serves resources of policy in none of the versions v1beta1" in line
    spec = {"matchConstraints": {"resourceRules": [rule]}}
    policy = _object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", spec=spec)
    assert "spec.matchConstraints.resourceRules[0]: 1.37 serves" in _lines(policy, 37)[0]


def test_expressions_of_newer_versions(tmp_path: Path) -> None:
    config = _config(tmp_path, "v1", expression="[1, 2].distinct().size() == 2")
    [one] = of_config(config, 34)
    assert one.level == "warning"
    assert one.where.endswith("spec.validations[0].expression")
    assert "distinct(), which API servers accept in new objects from 1.35 on" in one.message
    assert not list(of_config(config, 35))


@pytest.mark.parametrize(
    ("documents", "where"),
    [
        (["hook"], ["validate \"v/h0.v.test\": matchConditions \"c\""]),
        ([policy(validations=["true"], matchConditions=condition(_NEW)), binding()],
         ["ValidatingAdmissionPolicy \"p\": spec.matchConditions[0].expression"]),
        ([validating(_NEW, matchConditions=condition(_NEW))], []),
        ([template("New", _NEW), constraint("New")], []),
    ],
    ids=["webhook", "policy", "kyverno", "gatekeeper"],
)  # fmt: skip
def test_whose_expressions_api_servers_compile(
    tmp_path: Path, documents: list[Any], where: list[str]
) -> None:
    if documents == ["hook"]:
        text = pool_document("p", "127.0.0.1:9")
        text += webhook_document("validate", "v", "p", {"webhook": {"matchConditions": condition(_NEW)}})
        (tmp_path / "c.yaml").write_text(text)
    else:
        written(tmp_path, documents)
    found = [one for one in of_config(load([tmp_path]), 34) if one.rule == "forecast-expression"]
    assert [one.where for one in found] == where


def test_what_is_not_known_of_a_version() -> None:
    assert [len([*limits(minor)]) for minor in (OLDEST - 1, OLDEST, NEWEST, NEWEST + 1)] == [1, 0, 0, 1]


def test_names_of_resources() -> None:
    assert resources("policy", "v1beta1").keys() >= {"podsecuritypolicies", "poddisruptionbudgets"}
    assert lifecycles()["v1", "Pod"].is_served(99)


def test_a_version() -> None:
    assert [minor_of(text) for text in ("1.38", "v1.38.2")] == [38, 38]
    for text in ("2.1", "1.9", "1", "", "1.38.x", "1.38\n"):
        with pytest.raises(ValueError, match="expected a version of Kubernetes"):
            minor_of(text)
