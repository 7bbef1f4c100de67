"""Warnings about expressions of policies, in the form of the API server."""

from __future__ import annotations

from gateway.pure.admission_policies.expression_warnings import expression_warnings
from gateway.pure.openapi.documents import built_in_schemas
from tests.policies.test_type_checking import policy, rule


def test_a_warning_has_a_paragraph_for_each_kind() -> None:
    rules = [rule("apps", "v1", "deployments", "replicasets"), rule("", "v1", "pods")]
    checked = policy("'é' == object.metadata.name ||\n\tobject.spec.replicaz > 1", "true", rules=rules)
    (found,) = expression_warnings(checked, built_in_schemas())
    assert found.field_ref == "spec.validations[0].expression"
    error = "ERROR: <input>:2:13: undefined field 'replicaz'"
    snippet = " |  object.spec.replicaz > 1\n | ............^\n"
    assert found.warning == (
        f"/v1, Kind=Pod: {error}\n{snippet}\n"
        f"apps/v1, Kind=Deployment: {error}\n{snippet}\n"
        f"apps/v1, Kind=ReplicaSet: {error}\n{snippet}"
    )
    assert found.summary == (
        "spec.validations[0].expression cannot succeed on /v1, Kind=Pod and 2 more kinds: "
        "2:13: undefined field 'replicaz'"
    )


def test_marks_below_characters_of_several_bytes_are_wide() -> None:
    (found,) = expression_warnings(policy("'é' == object.spec.foo"), built_in_schemas())
    assert found.warning.endswith("\n | 'é' == object.spec.foo\n | .\uff0e................^\n")


def test_expressions_that_can_succeed_have_none() -> None:
    assert expression_warnings(policy("object.spec.replicas > 1"), built_in_schemas()) == ()


def test_the_empty_group_stands_for_every_group() -> None:
    checked = policy("object.spec.replicaz > 1", rules=[rule("", "v1", "deployments", "pods")])
    (found,) = expression_warnings(checked, built_in_schemas())
    assert found.warning.startswith("/v1, Kind=Pod: ERROR")
    assert "\napps/v1, Kind=Deployment: ERROR" in found.warning
    assert (
        expression_warnings(
            policy("object.foo == 1", rules=[rule("", "v2", "deployments")]), built_in_schemas()
        )
        == ()
    )
    (wrong,) = expression_warnings(
        policy("object.spec.foo == 1", rules=[rule("apps", "v1", "pods", "deployments")]), built_in_schemas()
    )
    assert "Kind=Pod" not in wrong.warning


def test_fields_of_one_schema_have_different_types() -> None:
    compared = "object.spec.containers[0].readinessProbe == object.spec.containers[0].livenessProbe"
    checked = policy(compared, "object.spec == oldObject.spec", rules=[rule("", "v1", "pods")])
    (found,) = expression_warnings(checked, built_in_schemas())
    assert "no matching overload for '_==_'" in found.warning
