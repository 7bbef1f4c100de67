"""MutatingAdmissionPolicy and its bindings in files."""

# ruff: noqa: E501 - tables
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.merge.digest import digest
from gateway.pure.core.webhook import PolicyRef, Rollout
from tests.config.test_policies import HEAD, RULES, loaded, problem
from tests.config.test_policies import binding as validating_binding

if TYPE_CHECKING:
    from pathlib import Path

PATCH = {
    "patchType": "JSONPatch",
    "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/x', value: 1}]"},
}
APPLY = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}
NEVER = {"reinvocationPolicy": "Never"}


def policy(name: str = "p", version: str = "v1", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"admissionregistration.k8s.io/{version}",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": RULES}, "mutations": [PATCH], **NEVER, **spec},
    }


def binding(name: str = "b", version: str = "v1", mode: str = "", **spec: Any) -> dict[str, Any]:
    annotations = {"annotations": {"admission-gateway.io/mode": mode}} if mode else {}
    return {
        "apiVersion": f"admissionregistration.k8s.io/{version}",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name, **annotations},
        "spec": {"policyName": "p", **spec},
    }


def test_policies_come_before_webhooks_and_by_name(tmp_path: Path) -> None:
    webhook = {
        **HEAD,
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "a"},
        "webhooks": [
            {
                "name": "a.hooks.test",
                "clientConfig": {"url": "https://hook.test/"},
                "rules": RULES,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    documents = (webhook, policy(), policy("o"), binding(), binding("c", policyName="o"))
    config = loaded(tmp_path, *documents)
    assert [hook.name for hook in config.mutating] == ["o", "p", "a.hooks.test"]
    client = config.mutating[0].client
    assert isinstance(client, PolicyRef)
    assert client.kind == "MutatingAdmissionPolicy"
    assert not config.validating


def test_defaults_are_those_of_the_api_server(tmp_path: Path) -> None:
    (hook,) = loaded(tmp_path, policy(), binding()).mutating
    assert (hook.failure_policy, hook.match_policy, hook.reinvocation_policy) == (
        "Fail",
        "Equivalent",
        "Never",
    )
    assert (hook.side_effects, hook.rollout) == ("None", None)


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_all_versions_are_read(tmp_path: Path, version: str) -> None:
    lists = [
        {"apiVersion": document["apiVersion"], "kind": f"{document['kind']}List", "items": [document]}
        for document in (policy(version=version), binding(version=version))
    ]
    assert [hook.name for hook in loaded(tmp_path, *lists).mutating] == ["p"]


def test_only_v1alpha1_has_a_default_for_parameters_that_are_not_found(tmp_path: Path) -> None:
    params: dict[str, Any] = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
    ref: dict[str, Any] = {"paramRef": {"name": "x"}}
    loaded(tmp_path, policy(version="v1alpha1", **params), binding(version="v1alpha1", **ref))
    for version in ("v1", "v1beta1"):
        documents = (policy(version=version, **params), binding(version=version, **ref))
        assert "spec.paramRef.parameterNotFoundAction: is required" in problem(tmp_path, *documents)


def test_bindings_of_each_mode_are_an_entry(tmp_path: Path) -> None:
    modes = ("Enforce", "Warn", "Audit", "Shadow", "Warn")
    bindings = [binding(f"b{number}", mode=mode) for number, mode in enumerate(modes)]
    config = loaded(tmp_path, policy(), *bindings)
    rollouts = [hook.rollout for hook in config.mutating]
    assert rollouts == [None, Rollout("Warn"), Rollout("Audit"), Rollout("Shadow")]
    assert len({hook.order for hook in config.mutating}) == 1


def test_a_policy_may_have_the_name_of_a_policy_of_the_other_kind(tmp_path: Path) -> None:
    validating = {
        **HEAD,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": RULES}, "validations": [{"expression": "true"}]},
    }
    config = loaded(tmp_path, policy(), binding(), validating, validating_binding())
    assert ([hook.name for hook in config.mutating], [hook.name for hook in config.validating]) == (["p"], ["p"])  # fmt: skip


def test_a_policy_without_a_binding_and_a_binding_without_a_policy_are_warnings(tmp_path: Path) -> None:
    texts = [str(warning) for warning in loaded(tmp_path, policy(), binding(policyName="q")).warnings]
    assert any("no MutatingAdmissionPolicyBinding names it: the policy has no effect" in one for one in texts)
    assert any('spec.policyName: there is no MutatingAdmissionPolicy "q"' in one for one in texts)


def test_every_change_of_a_document_changes_the_digest(tmp_path: Path) -> None:
    changes = [
        (policy(), binding()),
        (policy(mutations=[APPLY]), binding()),
        (policy(mutations=[PATCH, PATCH]), binding()),
        (policy(reinvocationPolicy="IfNeeded"), binding()),
        (policy(failurePolicy="Ignore"), binding()),
        (policy(), binding(mode="Warn")),
        (policy(), binding(matchResources={"objectSelector": {"matchLabels": {"a": "b"}}})),
    ]
    digests = {digest(loaded(tmp_path, *documents)) for documents in changes}
    assert len(digests) == len(changes)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"mutations": [{"patchType": "JSONPatch"}]}, "spec.mutations[0].jsonPatch: is required with patchType JSONPatch"),
        ({"mutations": [{"patchType": "ApplyConfiguration"}]}, "spec.mutations[0].applyConfiguration: is required"),
        ({"mutations": [{**PATCH, "applyConfiguration": {"expression": "Object{}"}}]}, "applyConfiguration: is not allowed with patchType JSONPatch"),
        ({"mutations": [{**APPLY, "jsonPatch": {"expression": "[]"}}]}, "jsonPatch: is not allowed with patchType ApplyConfiguration"),
        ({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": " "}}]}, "spec.mutations[0].jsonPatch.expression: is required"),
        ({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]}, "must evaluate to list(JSONPatch) but got list(dyn)"),
        ({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[Object{}]"}}]}, "must evaluate to list(JSONPatch) but got list(Object)"),
        ({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "1 +"}}]}, "spec.mutations[0].jsonPatch.expression: 1:4: syntax error"),
        ({"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": '"I am a teapot"'}}]}, "must evaluate to Object but got string"),
        ({"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object.spec.metadata{}"}}]}, "must evaluate to Object but got Object.spec.metadata"),
        ({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{path: params.a}]"}}]}, "undeclared reference to 'params'"),
        ({"variables": [{"name": "a", "expression": "Object{}"}]}, "spec.variables[0].expression: 1:1: undeclared reference to 'Object'"),
        ({"matchConditions": [{"name": "a", "expression": "Object{} == Object{}"}]}, "spec.matchConditions[0].expression: 1:1: undeclared reference"),
        ({"matchConstraints": {"resourceRules": []}}, "spec.matchConstraints.resourceRules: is required"),
    ],
)  # fmt: skip
def test_a_policy_that_the_api_server_refuses_is_a_problem(tmp_path: Path, spec: dict[str, Any], path: str) -> None:  # fmt: skip
    assert path in problem(tmp_path, policy(**spec), binding())


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (binding(policyName="No"), "spec.policyName"),
        (policy("x.static.k8s.io"), "metadata.name: found"),
        (binding("x.static.k8s.io"), "metadata.name: found"),
        (
            binding(paramRef={"parameterNotFoundAction": "Deny"}),
            "spec.paramRef: expected one of name and selector",
        ),
        (binding(mode="Off"), 'metadata.annotations["admission-gateway.io/mode"]: found'),
    ],
)
def test_a_binding_that_the_api_server_refuses_is_a_problem(
    tmp_path: Path, document: dict[str, Any], path: str
) -> None:
    assert path in problem(tmp_path, policy(), document)


def test_excluded_rules_may_have_any_operation(tmp_path: Path) -> None:
    match = {"resourceRules": RULES, "excludeResourceRules": [{**RULES[0], "operations": ["DELETE"]}]}
    assert loaded(tmp_path, policy(matchConstraints=match), binding()).mutating


def test_the_binding_of_a_validating_policy_has_no_mode(tmp_path: Path) -> None:
    document = validating_binding()
    document["metadata"]["annotations"] = {"admission-gateway.io/mode": "Warn"}
    texts = [str(warning) for warning in loaded(tmp_path, document).warnings]
    assert any("has no effect: this binding has validationActions instead of a mode" in one for one in texts)
