"""The types of patches in expressions.

Source of the tables: k8s.io/apiserver pkg/cel/mutation/typeresolver_test.go, dynamic/objects_test.go.
"""

# ruff: noqa: E501 - tables

from __future__ import annotations

from typing import Any

import pytest

from gateway.pure.admission_policies.values import PatchError, check_type_names, json_value, object_value
from gateway.pure.cel.compile import compile_expression
from gateway.pure.cel.environment import GLOBALS, policy_environment
from gateway.pure.cel.errors import EvaluationError, InvalidExpression
from gateway.pure.cel.values import NONE, Duration, Optional, Struct, Timestamp, TypeName, Uint

ENVIRONMENT = policy_environment(None, has_params=False, has_structs=True)


def evaluated(expression: str, current: Any = None) -> Any:
    compiled = compile_expression(expression, ENVIRONMENT)
    frame = [current, *[None] * (len(GLOBALS) - 1 + compiled.program.slots)]
    return compiled.evaluate(frame, 1_000_000)


def plain(value: Any) -> Any:
    return object_value(value, is_exact=True) if isinstance(value, Struct) else value


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("string(114514)", "114514"),
        ("Object{}", {}),
        ("Object{spec: Object.spec{replicas: 3}}", {"spec": {"replicas": 3}}),
        (
            'Object{spec: Object.spec{template: Object.spec.template{containers: [Object.spec.template.containers.item{name: "nginx", args: ["-g"]}]}}}',
            {"spec": {"template": {"containers": [{"name": "nginx", "args": ["-g"]}]}}},
        ),
        ("Object{intList: [1, 2, 3]}", {"intList": [1, 2, 3]}),
        ('Object{annotations: {"foo": "bar"}}', {"annotations": {"foo": "bar"}}),
        ("Object{intList: [1, 2, 3]}.intList.sum()", 6),
        ("Object{spec: Object.spec{replicas: 3}} == Object{spec: Object.spec{replicas: 1 + 2}}", True),
        (
            'true ? JSONPatch{op: "add", path: "/r", value: 3} : JSONPatch{op: "remove", path: "/r"}',
            {"op": "add", "path": "/r", "value": 3},
        ),
        ('JSONPatch{op: "remove", path: "/r"}', {"op": "remove", "path": "/r"}),
        (
            'JSONPatch{op: "move", from: "/r", path: "/s"}',
            {"op": "move", "from": "/r", "path": "/s"},
        ),
        ('JSONPatch{op: "invalid", path: "/r", value: 3}', {"op": "invalid", "path": "/r", "value": 3}),
        ('JSONPatch{op: "add", value: 3}', {"op": "add", "value": 3}),
        ("Object{?existing: optional.none()}", {}),
        ("Object{?spec: optional.ofNonZeroValue(Object.spec{?replicas: Object{}.?replicas})}", {}),
        ("Object{}.?existing", NONE),
        ('{"foo": 1}[?"bar"]', NONE),
        ('{"foo": 1}[?"foo"]', Optional(1)),
        ('has({"foo": 1}.bar)', False),
        ('has({"foo": 1}.foo)', True),
        ('has(Object{a: "x"}.a)', True),
        ("has(Object{}.a)", False),
        ("Object{}.a", None),
        ("[Object{a: 1}][0].a", 1),
        ("[Object{a: 1}].map(each, each.?b)[0]", NONE),
        ("JSONPatch{}.op", ""),
        ("JSONPatch{}.value", None),
        ("has(JSONPatch{op: ''}.op)", False),
        ("has(JSONPatch{value: ''}.value)", True),
        *((f"JSONPatch{{op: 'x', {field}: 'x'}} == JSONPatch{{op: 'x', {field}: 'y'}}", False) for field in ("path", "from")),
        ("JSONPatch{op: 'x'} == JSONPatch{op: 'y'}", False),
        ("JSONPatch{value: '1'} == JSONPatch{value: 1}", False),
        ("JSONPatch{} == JSONPatch{value: null}", False),
        ("JSONPatch{op: 'x', value: [1]} == JSONPatch{op: 'x', value: [1]}", True),
        ("Object{a: 1} == Object{a: 1.0}", False),
        ("Object{a: [Object.a{b: 1}], m: {'k': 1}} == Object{a: [Object.a{b: 1}], m: {'k': 1}}", True),
        ("dyn(Object{}) == dyn(1)", False),
        ("Object.a{`b-c`: 1, in_: 2}", {"b-c": 1, "in_": 2}),
        ("type(Object.spec{})", TypeName("Object.spec")),
        ("jsonpatch.escapeKey('k8s.io/my~label')", "k8s.io~1my~0label"),
        ("Object {spec: Object . spec {a: 1,},}", {"spec": {"a": 1}}),
    ],
)  # fmt: skip
def test_expressions_make_structs(expression: str, expected: object) -> None:
    value = evaluated(expression)
    found = value.fields if isinstance(value, Struct) and value.cel_type == "JSONPatch" else plain(value)
    assert found == expected


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("Invalid{}", "undeclared reference to 'Invalid'"),
        ('JSONPatch{op: "add", path: "/r", value: Invalid{}}', "undeclared reference to 'Invalid'"),
        ('JSONPatch{op: "add", path: Invalid{}, value: 3}', "undeclared reference to 'Invalid'"),
        ("JSONPatch{op: 1}", "expected type of field 'op' is 'string' but provided type is 'int'"),
        ("JSONPatch{path: 1}", "expected type of field 'path' is 'string' but provided type is 'int'"),
        ("JSONPatch{from: 1}", "expected type of field 'from' is 'string' but provided type is 'int'"),
        ("JSONPatch{other: 1}", "undefined field 'other'"),
        ("JSONPatch{}.other", "undefined field 'other'"),
        ("Object{?a: 1}", "expected type 'optional_type(int)' but found 'int'"),
        ("[Object.a{}, Object.b{}]", "expected type 'Object.a' but found 'Object.b'"),
        ("Object{a: 1", "unexpected end of the expression, expected '}'"),
        ("Object{1: 1}", "unexpected '1'"),
        ("jsonpatch.escapeKey(1)", "found no matching overload"),
        ("JSONPatch{} == Object{}", "found no matching overload"),
    ],
)
def test_a_wrong_literal_is_an_error_of_the_expression(expression: str, problem: str) -> None:
    with pytest.raises(InvalidExpression) as raised:
        compile_expression(expression, ENVIRONMENT)
    assert problem in str(raised.value)


def test_other_environments_have_no_structs() -> None:
    with pytest.raises(InvalidExpression, match="undeclared reference to 'Object'"):
        compile_expression("Object{}", policy_environment(None, has_params=False))
    with pytest.raises(InvalidExpression, match="undeclared reference"):
        compile_expression("jsonpatch.escapeKey('a')", policy_environment(None, has_params=False))


def test_a_field_of_a_patch_is_a_text() -> None:
    with pytest.raises(EvaluationError, match="unexpected type int64 for JSONPatchType 'op' field"):
        evaluated("JSONPatch{op: dyn(1)}")


def test_an_optional_field_needs_an_optional_value() -> None:
    with pytest.raises(EvaluationError, match="no such overload"):
        evaluated("Object{?a: dyn(1)}")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Struct("Object", {"spec": Struct("Object.spec", {"m": {"k": Struct("Object.spec.m", {})}})}), ""),
        (Struct("Object", {"spec": Struct("Object.spec", {"l": [Struct("Object.spec.l", {})]})}), ""),
        (
            Struct("Object", {"invalid": Struct("Object.spec", {})}),
            '"Object.spec", expected "Object.invalid"',
        ),
        (
            Struct("Object", {"m": {"k": Struct("Object.invalid", {})}}),
            '"Object.invalid", expected "Object.m"',
        ),
        (
            Struct("Object", {"l": [Struct("Object.invalid", {})]}),
            '"Object.invalid", expected "Object.l"',
        ),
    ],
)
def test_names_of_types_are_paths_of_fields(value: Struct, problem: str) -> None:
    if not problem:
        check_type_names(value)
        return
    with pytest.raises(PatchError) as raised:
        check_type_names(value)
    assert str(raised.value).startswith(f"type mismatch: unexpected type name {problem}, which matches")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3),
        (3.0, 3),
        (0.5, 0.5),
        ((1 << 53) - 1, (1 << 53) - 1),
        (1 << 53, "9007199254740992"),
        (Uint(7), 7),
        (b"abc", "YWJj"),
        (Timestamp(0), "1970-01-01T00:00:00Z"),
        (Duration(90_000_000_000), "90s"),
        (Optional("x"), "x"),
        (["a", {"b": None}], ["a", {"b": None}]),
        (Struct("Object.a", {"n": (1 << 53) + 1, "none": NONE, "o": Optional(1)}), {"n": 1 << 53, "none": None, "o": 1}),
    ],
)  # fmt: skip
def test_values_become_json(value: object, expected: object) -> None:
    found = json_value(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({1: "a"}, "unsupported type conversion from 'int' to string"),
        (NONE, "optional.none() dereference"),
        (float("nan"), "json: unsupported value: NaN"),
        (TypeName("int"), "type conversion not supported for 'type'"),
        (Struct("Object", {"m": {1: "a"}}), "map key 1 is of type int, not string"),
        (Struct("Object", {"at": Timestamp(0)}), "type conversion error from 'Timestamp'"),
    ],
)
def test_values_without_a_json_form_are_errors(value: object, problem: str) -> None:
    with pytest.raises(PatchError) as raised:
        json_value(value)
    assert problem in str(raised.value)


def test_null_in_an_object_is_the_number_of_an_enumeration() -> None:
    patch = object_value(Struct("Object", {"a": None, "b": 1 << 60}), is_exact=True)
    assert isinstance(patch, dict)
    assert str(patch["a"]) == "NULL_VALUE"
    assert patch == {"a": 0, "b": 1 << 60}
