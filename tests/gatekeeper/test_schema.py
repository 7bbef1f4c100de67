"""The schema of parameters: defaults, unknown members and problems."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.gatekeeper.schema import MAX_DEPTH, MAX_SCHEMAS, MAX_WORK, Schema, SchemaError, Work

Json = dict[str, Any]

STRING: Json = {"type": "string"}
STRINGS: Json = {"type": "array", "items": STRING}


def of(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "given", "expected"),
    [
        (of(a={**STRING, "default": "x"}), {}, {"a": "x"}),
        (of(a={**STRING, "default": "x"}), {"a": "y"}, {"a": "y"}),
        (of(a={**STRING, "default": "x"}), {"a": None}, {"a": "x"}),
        (of(a={**STRING, "default": "x", "nullable": True}), {"a": None}, {"a": None}),
        (of(a=STRING), {"a": None}, {}),
        (of(a={**STRING, "default": "x"}), None, None),
        ({**of(a={**STRING, "default": "x"}), "default": {}}, None, {"a": "x"}),
        (of(a=of(b={**STRING, "default": "x"})), {"a": {}}, {"a": {"b": "x"}}),
        (of(a=of(b={**STRING, "default": "x"})), {}, {}),
        (
            of(a={"type": "array", "items": of(b={**STRING, "default": "x"})}),
            {"a": [{}, {"b": "y", "c": 1}]},
            {"a": [{"b": "x"}, {"b": "y"}]},
        ),
        (of(a=STRING), {"a": "x", "other": 1}, {"a": "x"}),
        ({**of(a=STRING), "x-kubernetes-preserve-unknown-fields": True}, {"o": 1}, {"o": 1}),
        ({"type": "object"}, {"o": 1}, {}),
        (
            {"type": "object", "additionalProperties": of(a=STRING)},
            {"o": {"a": "x", "b": 1}},
            {"o": {"a": "x"}},
        ),
    ],
)
def test_a_value_is_stored_as_by_the_api_server(schema: Json, given: Any, expected: Any) -> None:
    before = copy.deepcopy(given)
    assert Schema(schema).applied("parameters", given)[0] == expected
    assert given == before


def test_dropped_members_are_named() -> None:
    _, dropped = Schema(of(labels=STRINGS)).applied("parameters", {"label": ["a"], "x": {"y": 1}})
    assert dropped == [
        (".label", 'is not in the template\'s schema, and is dropped; did you mean "labels"?'),
        (".x", "is not in the template's schema, and is dropped"),
    ]


@pytest.mark.parametrize(
    ("schema", "right", "wrong", "problem"),
    [
        (STRING, "x", 1, ("", "found the number 1, expected a value of type string")),
        ({"type": "integer"}, 3, "3", ("", 'found the string "3", expected a value of type integer')),
        ({"type": "integer"}, 3.0, 3.5, ("", "found the number 3.5, expected a value of type integer")),
        ({"type": "integer"}, 0, True, ("", "found true, expected a value of type integer")),
        ({"type": "number"}, 3, None, ("", "found null, expected a value of type number")),
        ({"type": "boolean"}, False, 0, ("", "found the number 0, expected a value of type boolean")),
        (STRINGS, ["x"], ["x", 1], ("[1]", "found the number 1, expected a value of type string")),
        (of(a=STRING), {"a": "x"}, {"a": []}, (".a", "found a list, expected a value of type string")),
        ({**of(a=STRING), "required": ["a"]}, {"a": "x"}, {}, (".a", "is required")),
        ({**STRING, "enum": ["x", "y"]}, "y", "z", ("", 'found "z", expected "x" or "y"')),
        ({**STRING, "pattern": "^a+$"}, "aa", "b", ("", 'found "b", expected a text that matches "^a+$"')),
        ({**STRING, "minLength": 2}, "aa", "a", ("", "found 1 characters, expected at least 2")),
        ({**STRINGS, "maxItems": 1}, ["a"], ["a", "b"], ("", "found 2 entries, expected at most 1")),
        (
            {**STRINGS, "uniqueItems": True},
            ["a"],
            ["a", "a"],
            ("", "found an entry twice, expected each once"),
        ),
        ({"type": "integer", "minimum": 1}, 1, 0, ("", "found 0, expected at least 1")),
        (
            {"type": "integer", "maximum": 1, "exclusiveMaximum": True},
            0,
            1,
            ("", "found 1, expected less than 1"),
        ),
        ({"type": "integer", "multipleOf": 2}, 4, 3, ("", "found 3, expected a multiple of 2")),
        (
            {"x-kubernetes-int-or-string": True},
            "1",
            1.5,
            ("", "found the number 1.5, expected a whole number or a string"),
        ),
        (
            {**STRING, "anyOf": [{"enum": ["a"]}, {"pattern": "^b"}]},
            "bc",
            "c",
            ("", "found a value that fits none of anyOf"),
        ),
        (
            {**STRING, "oneOf": [{"minLength": 1}, {"maxLength": 2}]},
            "abc",
            "a",
            ("", "found a value that fits 2 of oneOf, expected 1"),
        ),
        ({**STRING, "not": {"enum": ["a"]}}, "b", "a", ("", "found what the schema excludes by not")),
        ({**STRING, "allOf": [{"maxLength": 1}]}, "b", "ab", ("", "found 2 characters, expected at most 1")),
    ],
)
def test_problems_name_path_found_and_expected(
    schema: Json, right: Any, wrong: Any, problem: tuple[str, str]
) -> None:
    read = Schema(schema)
    assert read.problems(right) == []
    assert read.problems(wrong) == [problem]


@pytest.mark.parametrize(
    ("schema", "path", "message"),
    [
        ({}, ".type", "is required, expected array, boolean, integer, number, object or string"),
        (
            {"type": "map"},
            ".type",
            'found "map", expected array, boolean, integer, number, object or string',
        ),
        ({"type": ["string"]}, ".type", None),
        ({"type": "array"}, ".items", "is required for an array"),
        (of(a={"$ref": "#"}), '.properties["a"].$ref', "is not allowed in the schema of a CRD"),
        (of(a=[]), '.properties["a"]', "found a list, expected a schema, which is a mapping"),
        ({**STRING, "pattern": "("}, ".pattern", "error parsing regexp: missing closing ): `(`"),
        ({**STRING, "anyOf": {}}, ".anyOf", "found a mapping, expected a list"),
        ({"type": "object", "required": "a"}, ".required", "is not a list of strings"),
        ({"type": "object", "required": [1]}, ".required", "is not a list of strings"),
        ({"type": "object", "properties": []}, ".properties", "found a list, expected a mapping"),
    ],
)
def test_a_schema_that_no_crd_can_have_is_refused(schema: Json, path: str, message: str | None) -> None:
    with pytest.raises(SchemaError) as raised:
        Schema(schema)
    assert raised.value.path == path
    assert message is None or str(raised.value) == message


def test_legacy_schemas_keep_unknown_members_and_need_no_types() -> None:
    schema = {"properties": {"a": {"items": {}}, "b": {"properties": {"c": STRING}}, "d": {"type": "array"}}}
    value = {"a": [1, {"x": 2}], "b": {"c": "x", "y": 3}, "z": 4, "d": [{"e": 5}]}
    read = Schema(schema, is_legacy=True)
    assert read.applied("parameters", value) == (value, [])
    assert read.problems(value) == []


def test_schemas_are_bounded() -> None:
    deep: Json = STRING
    for _ in range(MAX_DEPTH + 1):
        deep = {"type": "array", "items": deep}
    with pytest.raises(SchemaError, match="nests deeper"):
        Schema(deep)
    recursive: Json = {"type": "object", "properties": {}}
    recursive["properties"]["self"] = recursive
    with pytest.raises(SchemaError, match="nests deeper"):
        Schema(recursive)
    wide = of(**{f"p{number}": STRING for number in range(MAX_SCHEMAS)})
    with pytest.raises(SchemaError, match="more than 5000 schemas"):
        Schema(wide)


def test_checks_are_bounded() -> None:
    branches = {**STRING, "anyOf": [*({"enum": [f"{each}"]} for each in range(1000)), {"enum": ["x"]}]}
    problems = Schema({"type": "array", "items": branches}).problems(["x"] * 1000)
    assert problems == [("", "is too large for its schema: found more than 200000 comparisons")]


def test_the_size_of_what_is_compared_counts() -> None:
    """All of a list is written to find an entry twice, once for each schema that asks for it."""
    schema = {**STRINGS, "allOf": [{"uniqueItems": True}] * 1000}
    problems = Schema(schema).problems([f"{each}" for each in range(500)])
    assert problems == [("", "is too large for its schema: found more than 200000 comparisons")]


def test_defaults_inside_defaults_are_bounded() -> None:
    """Each level has ten times the values of the one around it."""
    schema = STRING
    for _ in range(8):
        schema = of(a={"type": "array", "items": schema, "default": [{}] * 10})
    with pytest.raises(SchemaError, match="needs more than 2000000 comparisons and defaults"):
        Schema(schema).applied("parameters", {})


def test_the_work_for_all_values_is_bounded() -> None:
    work, schema = Work(), Schema(of(a={"type": "array", "items": STRING, "default": ["x" * 64] * 1000}))
    schema.applied("parameters", {}, work)
    assert work.left == MAX_WORK - 2001
    assert schema.problems({"a": ["x"] * 10}, work) == []
    assert work.left == MAX_WORK - 2001 - 12
    work.left = 2000
    with pytest.raises(SchemaError, match="needs more than 2000000 comparisons and defaults"):
        schema.applied("parameters", {}, work)


def test_what_an_alias_repeats_is_pruned_in_each_place_by_its_own_schema() -> None:
    shared = {"k": "x"}
    read = Schema(of(a=of(k=STRING), b=of(j=STRING)))
    stored, dropped = read.applied("parameters", {"a": shared, "b": shared})
    assert stored == {"a": {"k": "x"}, "b": {}}
    assert [path for path, _ in dropped] == [".b.k"]


def test_few_dropped_members_are_listed() -> None:
    """The first of them with a hint."""
    given = {f"label{number}": number for number in range(5000)}
    stored, dropped = Schema(of(label=STRING)).applied("parameters", given)
    assert stored == {}
    assert len(dropped) == 1000
    assert 'did you mean "label"?' in dropped[0][1]
    assert "did you mean" not in dropped[-1][1]


def test_few_problems_are_listed() -> None:
    assert len(Schema(STRINGS).problems([1] * 100)) == 10


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
PARTS = st.recursive(
    st.sampled_from([STRING, {"type": "integer"}, {**STRING, "default": "x"}]),
    lambda inner: (
        st.builds(lambda members: of(**members), st.dictionaries(st.sampled_from("abc"), inner, max_size=3))
        | st.builds(lambda one: {"type": "array", "items": one}, inner)
    ),
    max_leaves=5,
)


@given(PARTS, VALUES)
def test_what_is_stored_is_stored_the_same_again(schema: Json, value: Any) -> None:
    read = Schema(schema)
    stored, _ = read.applied("parameters", value)
    assert read.applied("parameters", stored) == (stored, [])
