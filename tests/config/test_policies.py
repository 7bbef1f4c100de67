"""ValidatingAdmissionPolicy and its bindings in files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import ConfigError
from gateway.config.merge.digest import digest
from gateway.config.merge.load import load
from gateway.pure.core.webhook import PolicyRef
from tests.e2e.policy_documents import DOCUMENTS

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.merge.model import Config

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


def mutating(**mutation: Any) -> dict[str, Any]:
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}, **mutation}
    spec = {
        "matchConstraints": {"resourceRules": RULES},
        "reinvocationPolicy": "Never",
        "mutations": [mutation],
    }
    return {**HEAD, "kind": "MutatingAdmissionPolicy", "metadata": {"name": "p"}, "spec": spec}


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


def test_the_texts_of_a_secret_are_part_of_its_data_as_in_the_cluster(tmp_path: Path) -> None:
    bound = (policy(paramKind={"apiVersion": "v1", "kind": "Secret"}), binding())
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    stored = {**secret, "data": {"a": "YQ==", "b": "Yg=="}}
    written = {**secret, "data": {"a": "eA==", "b": "Yg=="}, "stringData": {"a": "a"}}
    assert digest(loaded(tmp_path, *bound, written)) == digest(loaded(tmp_path, *bound, stored))
    wrong = problem(tmp_path, *bound, {**secret, "stringData": {"a": 1}})
    assert "stringData.a: found the number 1, expected a string" in wrong


LIMITS = {"apiVersion": "example.com/v1", "kind": "Limits", "metadata": {"name": "l", "namespace": "a"}}
OF_LIMITS = policy(paramKind={"apiVersion": "example.com/v1", "kind": "Limits"})


def test_a_parameter_is_unique_in_its_namespace(tmp_path: Path) -> None:
    other = {**LIMITS, "metadata": {"name": "l", "namespace": "b"}}
    assert len(loaded(tmp_path, OF_LIMITS, binding(), LIMITS, other).validating) == 1
    again = problem(tmp_path, OF_LIMITS, binding(), LIMITS, LIMITS)
    assert 'metadata.name: found "l" a second time; the first: ' in again


@pytest.mark.parametrize(
    ("ref", "param", "warned"),
    [
        ({"name": "l"}, LIMITS, ""),
        ({"name": "l", "namespace": "a"}, LIMITS, ""),
        ({"selector": {}}, LIMITS, ""),
        ({"name": "limit"}, LIMITS, "no params found"),
        ({"name": "l", "namespace": "b"}, LIMITS, "no params found"),
        ({"selector": {"matchLabels": {"a": "b"}}}, LIMITS, "no params found"),
        (
            {"name": "l", "namespace": "a"},
            {**LIMITS, "metadata": {"name": "l"}},
            "have no metadata.namespace",
        ),
    ],
)
def test_a_binding_that_finds_no_parameter_is_a_warning(
    tmp_path: Path, ref: dict[str, Any], param: dict[str, Any], warned: str
) -> None:
    bound = binding(paramRef={"parameterNotFoundAction": "Deny", **ref})
    texts = [str(each) for each in loaded(tmp_path, OF_LIMITS, bound, param).warnings]
    assert len(texts) == bool(warned)
    if warned:
        assert "spec.paramRef: no Limits in files is found for any request" in texts[0]
        assert warned in texts[0]


def test_an_unknown_kind_names_the_kinds_of_parameters(tmp_path: Path) -> None:
    version = {**LIMITS, "apiVersion": "example.com/v2"}
    expected = 'apiVersion: found "example.com/v2", expected example.com/v1, which policies read'
    assert expected in problem(tmp_path, OF_LIMITS, binding(), version)
    assert 'did you mean "Limits"' in problem(tmp_path, OF_LIMITS, binding(), {**LIMITS, "kind": "Limit"})
    assert "parameters need a policy with their paramKind" in problem(tmp_path, policy(), LIMITS)


def test_a_version_of_the_core_group_may_begin_with_a_slash(tmp_path: Path) -> None:
    of_core = policy(paramKind={"apiVersion": "/v1", "kind": "ConfigMap"})
    param = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "l"}}
    assert not loaded(
        tmp_path, of_core, binding(paramRef={"name": "l", "parameterNotFoundAction": "Deny"}), param
    ).warnings


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({**policy(), "spec": "x"}, "spec: found"),
        (policy(matchConstraints=[]), "spec.matchConstraints: found"),
        (
            policy(validations=[{"expression": 1}]),
            "spec.validations[0].expression: found the number 1, expected a string",
        ),
        (mutating(patchType="Merge"), 'spec.mutations[0].patchType: found "Merge"'),
        (mutating(jsonPatch={"expression": True}), "spec.mutations[0].jsonPatch.expression: found true"),
    ],
)
def test_one_mistake_is_one_problem(tmp_path: Path, document: dict[str, Any], line: str) -> None:
    (found,) = problem(tmp_path, document).splitlines()
    assert line in found


def test_an_annotation_with_the_key_of_failures_is_a_warning(tmp_path: Path) -> None:
    annotated = policy(auditAnnotations=[{"key": "validation_failure", "valueExpression": "'a'"}])
    (warning,) = loaded(tmp_path, annotated, binding()).warnings
    assert "auditAnnotations[0].key: is the key of failures" in str(warning)


REFUSALS = {
    "policy-no-rules": "resourceRules: is required with at least one entry",
    "policy-no-validations": "found neither validations nor auditAnnotations",
    "policy-blank-expression": "validations[0].expression: is required",
    "policy-expression-type": "must evaluate to bool but got int",
    "policy-expression-params": "undeclared reference to 'params'",
    "policy-expression-variables": "undeclared reference to 'variables'",
    "policy-message-lines": "message: has line breaks",
    "policy-message-expression-authorizer": "undeclared reference to 'authorizer'",
    "policy-variable-name-reserved": 'variables[0].name: found "if"',
    "policy-variables-wrong-order": "undefined field 'foo'",
    "policy-condition-variables": "matchConditions[0].expression: 1:1: undeclared reference to 'variables'",
    "policy-annotation-key-slash": "auditAnnotations[0].key",
    "policy-annotation-type": "must evaluate to one of [string null_type]",
    "policy-annotations-too-many": "found 21, expected at most 20",
    "policy-param-kind-slashes": 'paramKind.apiVersion: found "a/b/c"',
    "policy-resource-name": 'which contains "/"',
    "binding-actions-deny-and-warn": "found Deny and Warn, expected one of them",
    "binding-action-twice": "found Deny twice",
    "binding-param-name-and-selector": "one of name and selector",
    "binding-no-policy-name": "policyName: is required",
}
"""What is said of documents that the API server refuses; `tests/recorded` has the fields of all."""


@pytest.mark.parametrize("name", REFUSALS)
def test_what_the_api_server_refuses_is_refused(tmp_path: Path, name: str) -> None:
    assert REFUSALS[name] in problem(tmp_path, DOCUMENTS[name])


def test_some_names_are_reserved_for_the_api_server(tmp_path: Path) -> None:
    for document in (policy("x.static.k8s.io"), binding("x.static.k8s.io")):
        assert "reserved for kube-apiserver" in problem(tmp_path, document)


def test_an_empty_message_is_none(tmp_path: Path) -> None:
    empty = policy(validations=[{"expression": "true", "message": "", "messageExpression": ""}])
    assert loaded(tmp_path, empty, binding()).validating


def test_a_wrong_variable_is_one_problem(tmp_path: Path) -> None:
    wrong = policy(
        variables=[{"name": "a", "expression": "1 + 'a'"}, {"name": "b", "expression": "variables.a"}],
        validations=[{"expression": "variables.a == 1 && variables.b"}],
    )
    assert problem(tmp_path, wrong, binding()).count("spec.") == 1
