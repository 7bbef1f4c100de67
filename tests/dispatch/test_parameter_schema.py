"""JSON Schemas of workers: what they find, and that none can do harm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.text import did_you_mean
from gateway.engine.dispatch import parameter_schema
from gateway.engine.dispatch.parameter_schema import MAX_CHECKS, MAX_PROBLEMS, MAX_SCHEMAS, ParameterSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = {
    "type": "object",
    "properties": {
        "max": {"type": "integer", "minimum": 1, "maximum": 9},
        "mode": {"enum": ["a", "b"]},
        "version": {"const": 2},
        "names": {"type": "array", "items": {"$ref": "#/$defs/name"}, "maxItems": 2},
        "any": {"type": ["string", "null"]},
    },
    "required": ["max"],
    "additionalProperties": False,
    "$defs": {"name": {"type": "string", "pattern": "^[a-z]+$"}},
}


def problems(schema: object, value: object, **more: Any) -> list[str]:
    declared = ParameterSchema(orjson.dumps(schema).decode())
    assert declared.fault == ""
    return declared.problems(orjson.dumps(value), **more)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"max": 3, "mode": "a", "version": 2, "names": ["x"], "any": None}, []),
        ({}, [".max: is required"]),
        ({"max": "3"}, ['.max: found the string "3", expected a value of type integer']),
        ({"max": 0}, [".max: found the number 0, expected at least 1"]),
        ({"max": 10}, [".max: found the number 10, expected at most 9"]),
        ({"max": 1, "mode": "c"}, ['.mode: found the string "c", expected "a" or "b"']),
        ({"max": 1, "version": 1}, [".version: found the number 1, expected 2"]),
        ({"max": 1, "any": 1}, [".any: found the number 1, expected a value of type null or string"]),
        (
            {"max": 1, "names": ["x", "Y"]},
            ['.names[1]: found the string "Y", expected a text that matches "^[a-z]+$"'],
        ),
        ({"max": 1, "names": ["x", "y", "z"]}, ['.names: ["x","y","z"] has more than 2 items']),
        ({"max": 1, "mx": 1}, ['.mx: unknown parameter; did you mean "max"?']),
        ({"max": 1, "\n": 1}, [". : unknown parameter; known: max, mode, version, names, any"]),
    ],
)
def test_a_problem_names_path_found_and_expected(value: object, expected: list[str]) -> None:
    assert problems(SCHEMA, value) == expected


def test_nothing_is_missing_where_a_namespace_adds_values() -> None:
    assert problems(SCHEMA, {}, is_partial=True) == []
    assert problems(SCHEMA, {"mx": 1}, is_partial=True) == ['.mx: unknown parameter; did you mean "max"?']
    assert problems(SCHEMA, {"max": ""}, is_partial=True) != []


def test_a_policy_without_a_schema_takes_none() -> None:
    assert ParameterSchema("").problems(b"") == []
    assert ParameterSchema("").problems(b"{}") == [": found parameters, expected none: the policy takes none"]
    assert len(problems({"items": {"type": "string"}}, [1] * 100)) == MAX_PROBLEMS


def test_a_large_value_has_one_problem_and_a_bound() -> None:
    schema: dict[str, Any] = {"items": {"type": "string"}}
    assert problems(schema, [1] * 30_000) == ["[0]: found the number 1, expected a value of type string"]
    assert problems(schema, ["a"] * 30_000) == []
    schema = {"items": {"anyOf": [{"const": number} for number in range(1000)]}}
    (found,) = problems(schema, [999] * 30_000)
    expected = f"expected at most {MAX_CHECKS // 1002}"
    assert found == f": found about 30000 values, {expected}, which is what can be checked"


def test_the_problem_names_a_parameter_of_a_policy_that_takes_none() -> None:
    none = {"type": "object", "additionalProperties": False}
    expected = [f".{name}: unknown parameter; the policy takes none of this name" for name in ("a", "b")]
    assert problems(none, {"a": 1, "b": {}}) == expected
    assert problems(none, {"a": 1, "b": {}}, is_partial=True) == expected
    assert problems({"properties": {"q": none}}, {"q": {"a": 1}}) == [".q.a: unknown parameter"]
    named = {"properties": {"additionalProperties": False}}
    assert problems(named, {"additionalProperties": 1}) == [
        ".additionalProperties: found the number 1, expected nothing here"
    ]
    assert problems({"properties": {"q": False}}, {"q": 7}) == [
        ".q: found the number 7, expected nothing here"
    ]


def test_of_many_unknown_names_only_the_first_ones_are_compared_with_the_known_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []

    def counted(name: str, known: Sequence[str]) -> str:
        compared.append((name, len(known)))
        return did_you_mean(name, known)

    monkeypatch.setattr(parameter_schema, "did_you_mean", counted)
    schema = {"properties": {f"p{n}": {} for n in range(100)}, "additionalProperties": False}
    assert len(problems(schema, {f"x{n}": 1 for n in range(150)})) == MAX_PROBLEMS
    assert compared == [(f"x{n}", 100) for n in range(MAX_PROBLEMS)]
    # With many known names the comparison itself takes long.
    schema["properties"] = {f"p{n}": {} for n in range(501)}
    (found,) = problems(schema, {"x": 1})
    assert found.startswith(".x: unknown parameter; known: p0, p1, ")
    assert len(compared) == MAX_PROBLEMS


class Counted:
    """A validator that counts the searches for all errors, which copy the value into each."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator
        self.searches: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.searches.append(name)
        return getattr(self._validator, name)


LONG = "x" * 60_000
NUMBERS = [{"type": "integer"}] * 500


@pytest.mark.parametrize(
    ("schema", "value", "searches", "expected"),
    [
        (
            {"required": ["p", "q"]},
            {"a": LONG},
            ["is_valid", "iter_errors"],
            [".p: is required", ".q: is required"],
        ),
        (
            {"required": [f"p{n}" for n in range(1900)]},
            {"a": LONG},
            ["is_valid", "validate"],
            [".p0: is required"],
        ),
        (
            {"items": {"allOf": NUMBERS}},
            ["a"] * 100,
            ["is_valid", "validate"],
            ['[0]: found the string "a", expected a value of type integer'],
        ),
        ({"anyOf": NUMBERS}, {"a": LONG}, ["is_valid"], None),
        ({"properties": {"a": {"oneOf": NUMBERS}}}, {"a": [1] * 100}, ["is_valid"], None),
        ({"anyOf": NUMBERS}, 1, ["is_valid"], []),
    ],
)
def test_errors_of_large_values_are_not_all_made(
    schema: Any, value: Any, searches: list[str], expected: list[str] | None
) -> None:
    declared = ParameterSchema(orjson.dumps(schema).decode())
    declared._validator = counted = Counted(declared._validator)
    if expected is None:
        expected = [": found values that the schema does not allow, too many to search for the first one"]
    assert declared.problems(orjson.dumps(value)) == expected
    assert counted.searches == searches
    assert declared.problems(orjson.dumps(value), is_partial=True) == [
        one for one in expected if one.startswith("[")
    ]


def doubling(levels: int) -> dict[str, Any]:
    """Return a schema whose time doubles with each level."""
    definitions: dict[str, Any] = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{levels}": {"type": "string"}}}


def unevaluated(levels: int) -> dict[str, Any]:
    """Return a schema whose time more than doubles with each level, for any value."""
    schema: dict[str, Any] = {"properties": {"b": True}}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return schema


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ("{", "it is not JSON"),
        ("true", "found true, expected a mapping"),
        ('{"a": "%s"}' % ("x" * 300_000), "it has 300009 characters, expected at most 262144"),
        ('{"type": "integr"}', "at /type: "),
        ('{"pattern": "("}', 'at /pattern: "(" is not a "regex"'),
        ('{"pattern": "(?=a)b"}', 'at /pattern: "(?=a)b" is not a "regex"'),
        ('{"$ref": "http://x.example/y"}', "found the reference"),
        ('{"$ref": "file:/x"}', "found the reference"),
        ('{"$ref": "other"}', "found the reference"),
        ('{"$ref": "#/$defs/x"}', 'the reference "#/$defs/x" refers to nothing'),
        ('{"$ref": "#"}', 'the reference "#" refers to itself'),
        ('{"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}', "refers to itself"),
        ('{"$ref": "#/$defs/%61", "$defs": {"a": {}, "%61": {}}}', "has %, which is not supported"),
        ('{"properties": {"a": {"$id": "http://x.example/a"}}}', "$id is supported at the top only"),
        (
            '{"$schema": "http://json-schema.org/draft-04/schema#", "not": {"id": "http://x.example/a"}}',
            "id is supported at the top only",
        ),
        ('{"$id": "http://x.example/a", "properties": {"$id": {}, "id": {}}}', ""),
        (
            orjson.dumps({"anyOf": [{"pattern": "a"}] * 60}).decode(),
            "it has 60 patterns, expected at most 50",
        ),
        (
            orjson.dumps({"patternProperties": {str(n): {} for n in range(60)}}).decode(),
            "it has 60 patterns, expected at most 50",
        ),
        ('{"const": %s}' % ("[" * 999 + "]" * 999), "it nests too deeply"),
        ('{"$dynamicRef": "#a"}', "$dynamicRef is not supported"),
        (orjson.dumps(unevaluated(20)).decode(), "unevaluatedProperties is supported at the top only"),
        ('{"items": {"unevaluatedItems": false}}', "unevaluatedItems is supported at the top only"),
        ('{"unevaluatedProperties": false, "allOf": [{"properties": {"a": {}}}]}', ""),
        (
            orjson.dumps({"required": [f"p{n}" for n in range(2000)]}).decode(),
            "it has 2001 schemas, names and values with references written out, expected at most",
        ),
        (
            orjson.dumps({"items": {"enum": [*range(1000), *([n] for n in range(1000))]}}).decode(),
            "it has 2002 schemas, names and values with references written out, expected at most",
        ),
        (orjson.dumps({"items": {"enum": [*range(10_000), "a"]}}).decode(), ""),
        ('{"$schema": "http://x.example/own"}', "Unknown meta-schema"),
        ('{"pattern": "((a{500}){500}){500}"}', "at "),
        (orjson.dumps(doubling(24)).decode(), f"references written out, expected at most {MAX_SCHEMAS}"),
        (orjson.dumps(nested(120)).decode(), ""),
    ],
)
def test_a_schema_that_cannot_be_used_is_reported_and_checks_nothing(schema: str, fault: str) -> None:
    declared = ParameterSchema(schema)
    assert fault in declared.fault
    assert bool(fault) == bool(declared.fault)
    assert len(declared.fault) <= 200
    assert declared.problems(b'{"a": 1}') == []


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["#", "#/a", "string", "("]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "$ref",
                        "$id",
                        "type",
                        "properties",
                        "items",
                        "anyOf",
                        "not",
                        "a",
                        "enum",
                        "required",
                        "additionalProperties",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers() | st.text(max_size=2) | st.lists(st.none())),
)
def test_any_schema_is_used_or_refused(schema: object, value: dict[str, Any]) -> None:
    declared = ParameterSchema(orjson.dumps(schema).decode())
    assert isinstance(declared.problems(orjson.dumps(value)), list)
