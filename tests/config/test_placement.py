"""Where a policy can be evaluated: each reason for which the API server cannot, and none without one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.config.merge.placement import Placement, placements

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.merge.model import Config

    Json = dict[str, Any]

VALIDATING, MUTATING = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"
GATEWAY = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "GatewayConfiguration",
    "kubernetes": {},
    "policies": {"placement": "APIServer"},
}
PODS = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
EVERYTHING = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
LABEL = "kubernetes.io/metadata.name"
NOT_KUBE_SYSTEM = {"matchExpressions": [{"key": LABEL, "operator": "NotIn", "values": ["kube-system"]}]}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
LIMIT = {"apiVersion": "example.com/v1", "kind": "Limit"}
BY_NAME = {"name": "limits", "namespace": "policies", "parameterNotFoundAction": "Deny"}
NEWEST = 1, 37


def constraints(*rules: Json, **more: Any) -> Json:
    return {"resourceRules": list(rules or (PODS,)), "namespaceSelector": NOT_KUBE_SYSTEM, **more}


def of_admission(kind: str, name: str, spec: Json, annotations: dict[str, str] | None = None) -> Json:
    metadata = {"name": name, **({} if annotations is None else {"annotations": annotations})}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def validating(expression: str = "object.spec.hostNetwork != true", name: str = "p", **more: Any) -> Json:
    spec = {"matchConstraints": constraints(), "validations": [{"expression": expression}], **more}
    return of_admission(VALIDATING, name, spec)


def merged(expression: str) -> Json:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patched(expression: str) -> Json:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def label(name: str) -> Json:
    return merged(f'Object{{metadata: Object.metadata{{labels: {{"{name}": "yes"}}}}}}')


def mutating(*mutations: Json, name: str = "m", **more: Any) -> Json:
    spec = {
        "matchConstraints": constraints(),
        "reinvocationPolicy": "IfNeeded",
        "mutations": list(mutations or (label(name),)),
        **more,
    }
    return of_admission(MUTATING, name, spec)


def binding(policy: Json, name: str = "", mode: str = "", **more: Any) -> Json:
    policy_name = policy["metadata"]["name"]
    spec = {"policyName": policy_name, **more}
    if policy["kind"] == VALIDATING:
        spec.setdefault("validationActions", ["Deny"])
    annotations = {"admission-gateway.io/mode": mode} if mode else None
    return of_admission(f"{policy['kind']}Binding", name or policy_name, spec, annotations)


def loaded(folder: Path, *documents: Json, gateway: Json | None = None) -> Config:
    (folder / "all.json").write_text(
        json.dumps(
            {
                "kind": "List",
                "apiVersion": "v1",
                "items": [GATEWAY if gateway is None else gateway, *documents],
            }
        )
    )
    return load([folder])


def judged(folder: Path, *documents: Json, gateway: Json | None = None, **more: Any) -> Placement:
    """Return the placement of the first document, which gets a binding unless there is another document."""
    every = documents if len(documents) > 1 else (*documents, binding(documents[0]))
    config = loaded(folder, *every, gateway=gateway)
    name, version = documents[0]["metadata"]["name"], more.pop("version", NEWEST)
    (found,) = (one for one in placements(config, version, **more) if one.name == name)
    return found


@pytest.mark.parametrize("policy", [validating(), mutating()], ids=["validating", "mutating"])
def test_policy_can_move(tmp_path: Path, policy: Json) -> None:
    assert judged(tmp_path, policy) == (policy["kind"], policy["metadata"]["name"], "APIServer", ())


@pytest.mark.parametrize(
    ("default", "annotation", "expected"),
    [
        (None, None, "Gateway"),
        ("Auto", None, "Auto"),
        ("Auto", "Gateway", "Gateway"),
        (None, "APIServer", "APIServer"),
    ],
)
@pytest.mark.parametrize("policy", [validating(), mutating()], ids=["validating", "mutating"])
def test_annotation_overrides_setting(
    tmp_path: Path, policy: Json, default: str | None, annotation: str | None, expected: str
) -> None:
    gateway = {**GATEWAY, "policies": {} if default is None else {"placement": default}}
    metadata = dict(policy["metadata"])
    if annotation is not None:
        metadata["annotations"] = {"admission-gateway.io/placement": annotation}
    found = judged(tmp_path, {**policy, "metadata": metadata}, gateway=gateway)
    assert (found.wanted, found.can_move) == (expected, expected != "Gateway")


def test_unknown_value_names_file_and_field(tmp_path: Path) -> None:
    policy = of_admission(VALIDATING, "p", validating()["spec"], {"admission-gateway.io/placement": "Node"})
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, policy, gateway={**GATEWAY, "policies": {"placement": "Node"}})
    expected = 'found "Node", expected Gateway, APIServer or Auto'
    annotation = 'items[1].metadata.annotations["admission-gateway.io/placement"]'
    file = tmp_path / "all.json"
    found = [(one.where, one.field, one.message) for one in caught.value.problems]
    assert found == [
        (f"{file}: document 1: GatewayConfiguration", "items[0].policies.placement", expected),
        (f'{file}: document 1: {VALIDATING} "p"', annotation, expected),
    ]
