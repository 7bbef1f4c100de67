"""What ``check`` warns of in admission policies."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.merge.load import load
from gateway.pure.openapi.documents import built_in_schemas
from gateway.tools.inspection.policies import policy_warnings
from tests.kit import call_command, pool_document
from tests.kubernetes.server import ApiServer

if TYPE_CHECKING:
    from pathlib import Path

GROUP = "admissionregistration.k8s.io/v1"
EXCLUDED = {
    "matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
    ]
}
FIELD = 'ValidatingAdmissionPolicy "limits": spec.validations[0].expression'
LIMITS = {"apiVersion": "v1", "kind": "ConfigMap"}


def policy(expression: str, group: str, resource: str, **spec: Any) -> dict[str, Any]:
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["*"]}
    match = {"resourceRules": [rule], **spec.pop("matchConstraints", {})}
    return {
        "apiVersion": GROUP,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "limits"},
        "spec": {"matchConstraints": match, "validations": [{"expression": expression}], **spec},
    }


def binding(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": GROUP,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "everywhere"},
        "spec": {"policyName": "limits", "validationActions": ["Deny"], **spec},
    }


KUBECONFIG = {
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
    "current-context": "c",
}


def write(folder: Path, *documents: dict[str, Any]) -> Path:
    config = folder / "config"
    config.mkdir()
    for number, document in enumerate(documents):
        (config / f"{number}.json").write_text(json.dumps(document))
    (folder / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    settings = f"kubernetes: {{kubeconfig: {folder / 'kubeconfig'}}}\n"
    (config / "gateway.yaml").write_text(
        pool_document("pool", "localhost:1")
        + f"---\napiVersion: admission-gateway.io/v1alpha1\nkind: GatewayConfiguration\n{settings}"
    )
    return config


def warnings(config: Path) -> list[str]:
    return list(map(str, policy_warnings(load([config]), built_in_schemas())))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("object.spec.replicas < 5", []),
        (
            "object.spec.replica < 5",
            [
                f"{FIELD}: cannot succeed on apps/v1, Kind=Deployment: 1:12: undefined field 'replica'",
            ],
        ),
    ],
)
def test_expressions_that_cannot_succeed(tmp_path: Path, expression: str, expected: list[str]) -> None:
    assert warnings(write(tmp_path, policy(expression, "apps", "deployments"), binding())) == expected


REFUSES = (
    'ValidatingAdmissionPolicyBinding "everywhere": spec.paramRef.parameterNotFoundAction: is Deny, and '
    "failurePolicy of the policy is Fail: while there are no parameters, every request that matches is "
    "refused, also in kube-system; a namespaceSelector can exclude it"
)


@pytest.mark.parametrize(
    ("of_policy", "of_binding", "action", "expected"),
    [
        ({}, {}, "Deny", [REFUSES]),
        ({}, {}, "Allow", []),
        ({"failurePolicy": "Ignore"}, {}, "Deny", []),
        ({"matchConstraints": {"namespaceSelector": EXCLUDED}}, {}, "Deny", []),
        ({}, {"matchResources": {"namespaceSelector": EXCLUDED}}, "Deny", []),
        ({}, {"matchResources": {"namespaceSelector": {"matchLabels": {"team": "a"}}}}, "Deny", []),
    ],
)
def test_bindings_that_refuse_everything_without_parameters(
    tmp_path: Path, of_policy: dict[str, Any], of_binding: dict[str, Any], action: str, expected: list[str]
) -> None:
    ref = {"name": "limits", "namespace": "default", "parameterNotFoundAction": action}
    made = policy(
        "object.spec.replicas < int(params.data.max)", "apps", "deployments", paramKind=LIMITS, **of_policy
    )
    config = write(tmp_path, made, binding(paramRef=ref, **of_binding))
    assert warnings(config) == expected


def test_parameters_in_files_are_always_there(tmp_path: Path) -> None:
    ref = {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}
    made = policy("object.spec.replicas < int(params.data.max)", "apps", "deployments", paramKind=LIMITS)
    limits = {**LIMITS, "metadata": {"name": "limits", "namespace": "default"}, "data": {"max": "5"}}
    assert warnings(write(tmp_path, made, binding(paramRef=ref), limits)) == []


def test_the_command_prints_warnings_and_succeeds(tmp_path: Path) -> None:
    done = call_command(
        "check", "--config", write(tmp_path, policy("object.foo == 1", "", "pods"), binding())
    )
    assert done.returncode == 0
    message = f"{FIELD}: cannot succeed on /v1, Kind=Pod: 1:7: undefined field 'foo'"
    assert re.search(rf"^warning: .+:1:\d+: {re.escape(message)}$", done.stderr, re.MULTILINE)


def test_custom_resources_are_checked_by_the_schemas_of_the_cluster(tmp_path: Path) -> None:
    kind = {"group": "example.io", "version": "v1", "kind": "Widget"}
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}}
    widget = {"type": "object", "properties": {"spec": spec}, "x-kubernetes-group-version-kind": [kind]}
    with ApiServer() as server:
        server.objects["/openapi/v3"] = {
            "paths": {"apis/example.io/v1": {"serverRelativeURL": "/openapi/v3/apis/example.io/v1?hash=1"}}
        }
        server.objects["/openapi/v3/apis/example.io/v1"] = {"components": {"schemas": {"Widget": widget}}}
        for plural in ("mutating", "validating"):
            server.objects[f"/apis/{GROUP}/{plural}webhookconfigurations"] = {"items": []}
        config = write(tmp_path, policy("object.spec.sise == 1", "example.io", "widgets"), binding())
        arguments = ("--cluster", "--kubeconfig", server.kubeconfig(tmp_path))
        done = call_command("check", "--config", config, *arguments)
    problem = f"{FIELD}: cannot succeed on example.io/v1, Kind=Widget: 1:12: undefined field 'sise'"
    assert problem in done.stdout, done.stderr
