"""ValidatingAdmissionPolicy and its bindings in files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.digest import digest
from gateway.config.load import load
from gateway.core.webhook import PolicyRef
from gateway.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.model import Config

HEAD = {"apiVersion": "admissionregistration.k8s.io/v1"}
RULES = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]


def policy(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {
        **HEAD,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": RULES},
            "validations": [{"expression": "true"}],
            **spec,
        },
    }


def binding(name: str = "b", **spec: Any) -> dict[str, Any]:
    return {
        **HEAD,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": "p", "validationActions": ["Deny"], **spec},
    }


def loaded(folder: Path, *documents: dict[str, Any]) -> Config:
    (folder / "c.yaml").write_text("".join(f"{json.dumps(each)}\n---\n" for each in documents))
    return load([folder])


def problem(folder: Path, *documents: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as raised:
        loaded(folder, *documents)
    return str(raised.value)


def test_policies_come_before_webhooks_and_by_name(tmp_path: Path) -> None:
    webhook = {
        **HEAD,
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "a"},
        "webhooks": [
            {
                "name": "a.example.com",
                "clientConfig": {"url": "https://localhost/"},
                "rules": RULES,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    config = loaded(
        tmp_path, webhook, policy("z"), policy(), binding(), binding("c", policyName="z"), policy("unbound")
    )
    assert [each.name for each in config.validating] == ["p", "z", "a.example.com"]
    assert [type(each.client) is PolicyRef for each in config.validating] == [True, True, False]


def test_a_policy_without_a_binding_and_the_reverse_are_warnings(tmp_path: Path) -> None:
    config = loaded(tmp_path, policy("unbound"), binding(policyName="none"))
    assert config.validating == ()
    texts = list(map(str, config.warnings))
    assert "no ValidatingAdmissionPolicyBinding names it: the policy has no effect" in texts[0]
    assert 'spec.policyName: there is no ValidatingAdmissionPolicy "none"' in texts[1]


def test_parameters_are_documents_of_the_kind_that_a_policy_names(tmp_path: Path) -> None:
    param = {"apiVersion": "example.com/v1", "kind": "Limits", "metadata": {"name": "l"}, "max": 3}
    bound = (policy(paramKind={"apiVersion": "example.com/v1", "kind": "Limits"}), binding())
    first = digest(loaded(tmp_path, *bound, param))
    assert digest(loaded(tmp_path, *bound, {**param, "max": 4})) != first
    assert digest(loaded(tmp_path, *bound, param)) == first
    assert 'kind: found the unknown kind "Limits"' in problem(tmp_path, policy(), binding(), param)
    assert "metadata: is required" in problem(tmp_path, *bound, {**param, "metadata": None})


CASES: list[tuple[dict[str, Any], str]] = [
    (policy(failurePolicy="Maybe"), 'spec.failurePolicy: found "Maybe", expected'),
    (policy(matchConstraints=None), "spec.matchConstraints: is required"),
    (policy(matchConstraints={}), "resourceRules: is required with at least one entry"),
    (policy(validations=[]), "found neither validations nor auditAnnotations"),
    (policy(validations=[{"expression": " "}]), "validations[0].expression: is required"),
    (policy(validations=[{"expression": "1"}]), "must evaluate to bool but got int"),
    (policy(validations=[{"expression": "params.a == 1"}]), "undeclared reference to 'params'"),
    (policy(validations=[{"expression": "variables.a"}]), "undeclared reference to 'variables'"),
    (policy(validations=[{"expression": "true", "message": "a\nb"}]), "message: has line breaks"),
    (policy(validations=[{"expression": "true", "reason": "Gone"}]), 'reason: found "Gone"'),
    (
        policy(
            validations=[
                {"expression": "true", "messageExpression": "authorizer.path('/').check('get').reason()"}
            ]
        ),
        "undeclared reference to 'authorizer'",
    ),
    (policy(variables=[{"name": "if", "expression": "1"}]), 'variables[0].name: found "if"'),
    (
        policy(variables=[{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]),
        "undeclared reference to 'variables'",
    ),
    (
        policy(
            variables=[{"name": "a", "expression": "1"}],
            matchConditions=[{"name": "c", "expression": "variables.a == 1"}],
        ),
        "matchConditions[0].expression: 1:1: undeclared reference to 'variables'",
    ),
    (policy(auditAnnotations=[{"key": "a/b", "valueExpression": "'x'"}]), "auditAnnotations[0].key"),
    (
        policy(auditAnnotations=[{"key": "a", "valueExpression": "1"}]),
        "must evaluate to one of [string null_type]",
    ),
    (
        policy(auditAnnotations=[{"key": f"k{number}", "valueExpression": "'x'"} for number in range(21)]),
        "found 21, expected at most 20",
    ),
    (policy(paramKind={"apiVersion": "a/b/c", "kind": "X"}), 'paramKind.apiVersion: found "a/b/c"'),
    (binding(validationActions=[]), "validationActions: is required"),
    (binding(validationActions=["Deny", "Warn"]), "found Deny and Warn, expected one of them"),
    (binding(validationActions=["Audit", "Audit"]), "found Audit twice"),
    (
        binding(paramRef={"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"}),
        "one of name and selector",
    ),
    (binding(paramRef={"name": "a"}), "parameterNotFoundAction: is required"),
    (binding(policyName=""), "policyName: is required"),
    (
        binding(matchResources={"resourceRules": [{**RULES[0], "resourceNames": ["a/b"]}]}),
        'which contains "/"',
    ),
]


@pytest.mark.parametrize(("document", "text"), CASES, ids=[text[:50] for _, text in CASES])
def test_what_the_api_server_refuses_is_refused(tmp_path: Path, document: dict[str, Any], text: str) -> None:
    assert text in problem(tmp_path, document)
