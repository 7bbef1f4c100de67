"""Type checking of policies: the cases of the API server's own tests, and the schemas of built-in kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.kinds.validating_policy import read_validating_policy
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.admission_policies.type_checking import matched_kinds, type_errors
from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.schemas import GroupVersionKind, Schemas

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.pure.admission_policies.model import ValidatingPolicy

KINDS = {"deployments": "Deployment", "pods": "Pod", "secrets": "Secret", "leases": "Lease"}
OTHERS = [GroupVersionKind("apps", "v1", f"Kind{number:02}") for number in range(30)]


def kinds_of(group: str, version: str, resource: str) -> Iterable[GroupVersionKind]:
    if resource in KINDS:
        yield GroupVersionKind(group, version, KINDS[resource])
    elif resource.startswith("kind"):
        yield OTHERS[int(resource[4:])]


def rule(group: str, version: str, *resources: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": list(resources),
        "operations": ["*"],
    }


def policy(*validations: Any, rules: Any = None, variables: Any = (), **spec: Any) -> ValidatingPolicy:
    problems = Problems("test")
    content = {
        "matchConstraints": {"resourceRules": rules or [rule("apps", "v1", "deployments")]},
        "validations": [each if isinstance(each, dict) else {"expression": each} for each in validations],
        "variables": [{"name": name, "expression": text} for name, text in variables],
        **spec,
    }
    found = read_validating_policy(Fields({"metadata": {"name": "p"}, "spec": content}, "", problems))
    assert not problems.found, problems.found
    return found


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([rule("apps", "v1", "deployments")], [("apps", "v1", "Deployment")]),
        (
            [rule("apps", "v1", "deployments"), rule("", "v1", "pods")],
            [("", "v1", "Pod"), ("apps", "v1", "Deployment")],
        ),
        ([rule("apps", "v1", "*")], []),
        ([rule("apps", "v1", "pods/*")], []),
        ([rule("apps", "v1", "deployments/status")], []),
        (
            [rule("apps", "v1", "deployments"), rule("apps", "*", "deployments")],
            [("apps", "v1", "Deployment")],
        ),
        ([rule("*", "v1", "deployments")], []),
        ([rule("apps", "v1", "unknown")], []),
        ([rule("apps", "v1", *(f"kind{number:02}" for number in range(30)))], OTHERS[:10]),
    ],
)
def test_the_kinds_that_are_checked(rules: Any, expected: list[tuple[str, str, str]]) -> None:
    assert matched_kinds(policy("true", rules=rules), kinds_of) == expected


def schemas(schema: dict[str, Any] | None, *names: str) -> Schemas:
    """Return schemas in which Deployment and the kinds *names* of the core group have *schema*."""
    if schema is None:
        return Schemas([])
    kinds = [("apps", "Deployment"), *(("", name) for name in names)]
    named = [{"group": group, "version": "v1", "kind": kind} for group, kind in kinds]
    one = {**schema, "x-kubernetes-group-version-kind": named}
    return Schemas([{"components": {"schemas": {"io.example.One": one}}}])


def fields(**types: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": type_} for name, type_ in types.items()}}


def found(checked: ValidatingPolicy, known: Schemas) -> list[tuple[str, str]]:
    return [
        (error.field.removeprefix("spec."), error.message) for error in type_errors(checked, known, kinds_of)
    ]


FOO = "object.foo == 'bar'"
EXPRESSION = "validations[0].expression"


@pytest.mark.parametrize(
    ("checked", "schema", "expected"),
    [
        pytest.param(policy(FOO), None, [], id="no schema"),
        pytest.param(policy(FOO), fields(foo="string"), [], id="right"),
        pytest.param(
            policy(FOO), fields(bar="string"), [(EXPRESSION, "1:7: undefined field 'foo'")], id="no field"
        ),
        pytest.param(
            policy(FOO),
            fields(foo="integer"),
            [(EXPRESSION, "1:12: found no matching overload for '_==_' applied to '(int, string)'")],
            id="wrong type",
        ),
        pytest.param(
            policy("object.foo == params.bar", paramKind={"apiVersion": "v1", "kind": "Limits"}),
            fields(foo="string"),
            [(EXPRESSION, "1:21: undefined field 'bar'")],
            id="params",
        ),
        pytest.param(
            policy("params != null", paramKind={"apiVersion": "v1", "kind": "Limits"}),
            {},
            [],
            id="any params",
        ),
        pytest.param(
            policy("params.any == 1", paramKind={"apiVersion": "v1", "kind": "Unknown"}),
            fields(foo="string"),
            [],
            id="params without a schema",
        ),
        pytest.param(
            policy(FOO, "object.bar == 'foo'"),
            fields(foo="string"),
            [("validations[1].expression", "1:7: undefined field 'bar'")],
            id="several expressions",
        ),
        pytest.param(
            policy({"expression": FOO, "messageExpression": "'a' + object.x"}),
            fields(foo="string"),
            [("validations[0].messageExpression", "1:13: undefined field 'x'")],
            id="messageExpression",
        ),
        pytest.param(
            policy("authorizer.group('').resource('endpoints').check('create').allowed()"),
            fields(foo="string"),
            [],
            id="authorizer",
        ),
        pytest.param(
            policy("authorizer.requestResource.check('create').allowed()"),
            fields(foo="string"),
            [],
            id="requestResource",
        ),
        pytest.param(
            policy("has(object.spec.text)"),
            {
                "type": "object",
                "properties": {
                    "spec": fields(text="string"),
                    "status": {"type": "object", "additionalProperties": True},
                },
            },
            [],
            id="additionalProperties",
        ),
        pytest.param(
            policy("variables.works", variables=[("works", "true")]),
            fields(foo="integer"),
            [],
            id="variables",
        ),
        pytest.param(
            policy("variables.name == object.foo", variables=[("name", "'something'")]),
            fields(foo="integer"),
            [(EXPRESSION, "1:16: found no matching overload for '_==_' applied to '(string, int)'")],
            id="type of a variable",
        ),
        pytest.param(
            policy("variables.name == object.foo", variables=[("name", "object.foo == 'str'")]),
            fields(foo="integer"),
            [],
            id="error of a variable",
        ),
    ],
)
def test_errors_of_expressions(
    checked: ValidatingPolicy, schema: dict[str, Any] | None, expected: list[tuple[str, str]]
) -> None:
    assert found(checked, schemas(schema, "Limits")) == expected


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("object.spec.replicas > 1", ""),
        ("object.spec.replica > 1", "undefined field 'replica'"),
        ("object.spec.replicas > '1'", "no matching overload for '_>_'"),
        ("object.metadata.labels.team == 'a' && object.metadata.labels['x'] == 'a'", ""),
        ("object.metadata.labels == 'a'", "no matching overload"),
        ("object.spec.template.spec.containers.all(c, !c.image.endsWith(':latest'))", ""),
        ("object.spec.template.spec.containers.all(c, !c.images.endsWith(':latest'))", "undefined field"),
        ("object.spec.template.spec.containers[0].resources.limits.cpu == '1'", ""),
        ("object.spec.strategy.rollingUpdate.maxSurge == 1", ""),
        ("object.spec.strategy.rollingUpdate.maxSurge == '10%'", ""),
        ("object.metadata.creationTimestamp == '2020-01-01T00:00:00Z'", ""),
        ("object.metadata.managedFields[0].fieldsV1.any == 1", ""),
        ("has(oldObject.spec.foo)", "undefined field 'foo'"),
        ("object == null || oldObject != null", ""),
        ("object.apiVersion == 'apps/v1' && object.kind == 'Deployment'", ""),
        ("object.?spec.?nothing.hasValue()", "undefined field 'nothing'"),
    ],
)
def test_expressions_on_a_built_in_kind(expression: str, problem: str) -> None:
    errors = found(policy(expression), built_in_schemas())
    assert bool(errors) == bool(problem)
    assert not errors or problem in errors[0][1]


def test_the_schema_of_a_definition_that_refers_to_itself() -> None:
    schema = "object.spec.versions[0].schema.openAPIV3Schema"
    deep = f"{schema}{'.properties.a' * 20}"
    rules = [rule("apiextensions.k8s.io", "v1", "customresourcedefinitions")]

    def kinds(group: str, version: str, _: str) -> Iterable[GroupVersionKind]:
        return [GroupVersionKind(group, version, "CustomResourceDefinition")]

    checked = policy(f"{deep}.type == 'a'", f"{deep}.typo == 'a'", rules=rules)
    (error,) = type_errors(checked, built_in_schemas(), kinds)
    assert error.field == "spec.validations[1].expression"


def test_a_policy_is_checked_for_each_kind() -> None:
    checked = policy("object.data.x == 'a'", rules=[rule("", "v1", "pods", "secrets")])
    (error,) = type_errors(checked, built_in_schemas(), kinds_of)
    assert str(error.kind) == "/v1, Kind=Pod"
