"""Facts of structured merge: what a merged object is, and in which order its lists are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.openapi.merge import merged
from gateway.pure.openapi.types import Types

STRING, NUMBER, ANY_VALUE = {"type": "string"}, {"type": "number"}, {"$ref": "#/components/schemas/untyped"}
ELEMENT = {
    "type": "object",
    "properties": {
        "key": STRING,
        "id": {**NUMBER, "default": 7},
        "bv": {"type": "boolean"},
        "nv": NUMBER,
        "values": {"type": "object", "additionalProperties": STRING},
    },
}
ROOT = {
    "type": "object",
    "properties": {
        "any": ANY_VALUE,
        "free": {},
        "number": NUMBER,
        "map": {"type": "object", "additionalProperties": ANY_VALUE},
        "struct": {"type": "object", "properties": {"value": ANY_VALUE}},
        "atomicMap": {
            "type": "object",
            "properties": {"a": STRING, "b": STRING},
            "x-kubernetes-map-type": "atomic",
        },
        "atomic": {"type": "array", "items": STRING},
        "set": {"type": "array", "items": {}, "x-kubernetes-list-type": "set"},
        "list": {
            "type": "array",
            "items": ELEMENT,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["key", "id"],
        },
    },
}
TYPES = Types(
    {"root": ROOT, "untyped": {"x-kubernetes-map-type": "atomic", "x-kubernetes-list-type": "atomic"}}
)


def merge(live: Any, patch: Any) -> Any:
    return merged(TYPES.field({"$ref": "#/components/schemas/root"}), live, patch)


@pytest.mark.parametrize(
    ("field", "live", "patch", "expected"),
    [
        ("any", {}, 1, 1),
        ("any", 1, {}, {}),
        ("any", None, {}, {}),
        ("any", {"a": 1}, {"b": 1}, {"b": 1}),
        ("any", [1], None, None),
        ("free", {"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ("free", {"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ("free", {"a": 1}, None, {"a": 1}),
        ("free", {"a": 1}, 2, 2),
        ("free", [1], {"a": 1}, {"a": 1}),
        ("free", [1], None, None),
        ("map", None, {}, {}),
        ("map", {}, None, None),
        ("map", {}, {}, {}),
        ("map", {"a": 1}, None, {"a": 1}),
        ("map", {"a": 1}, {"b": None}, {"a": 1, "b": None}),
        ("map", {"a": 1}, {"a": None}, {"a": None}),
        ("struct", None, {}, {}),
        ("struct", {}, None, None),
        ("struct", {"value": 1}, {}, {"value": 1}),
        ("atomicMap", {"a": "1"}, {"b": "2"}, {"b": "2"}),
        ("atomic", None, [], []),
        ("atomic", [], None, None),
        ("atomic", ["a", "a", "a"], None, None),
        ("atomic", ["a", "b", "c"], [], []),
        ("atomic", ["a", "a", "a"], ["a", "a"], ["a", "a"]),
        ("number", 1, 3.14159, 3.14159),
        ("number", 1, None, None),
    ],
)
def test_a_field_is_merged_by_its_type(field: str, live: Any, patch: Any, expected: Any) -> None:
    assert merge({field: live}, {field: patch}) == {field: expected}


@pytest.mark.parametrize("value", [{}, [], None, {"a": 1}])
def test_what_the_patch_omits_stays_and_what_the_object_omits_comes(value: Any) -> None:
    assert merge({"free": value}, {"number": 1}) == {"free": value, "number": 1}
    assert merge({"number": 1}, {"free": value}) == {"free": value, "number": 1}
    assert merge({}, {"free": value}) == {"free": value}


@pytest.mark.parametrize(
    ("live", "patch", "expected"),
    [
        ("abc", "ab", "abc"),
        ("ab", "abc", "abc"),
        ("abc", "", "abc"),
        ("", "abc", "abc"),
        ("ab", "ba", "ba"),
        ("abc", "def", "abcdef"),
        ("abc", "cdef", "abcdef"),
        ("abcgf", "cdef", "abcgdef"),
        ("abc", "defxyz", "abcdefxyz"),
        ("cdef", "ace", "acdef"),
        ("abcxyz", "def", "abcxyzdef"),
        ("abcxyz", "defxyz", "abcdefxyz"),
        ("cagf", "cfag", "cfag"),
        ("abcd", "defa", "bcdefa"),
        ("cdefghij", "2h3e4kl", "cdfg2hij3e4kl"),
        ("abcdefghij", "1b2h3e4kl", "a1bcdfg2hij3e4kl"),
        # The object has the same element several times.
        ("abb", "c", "abbc"),
        ("abb", "b", "ab"),
        ("abb", "a", "abb"),
        ("abcdec", "1b2ed", "a1bc2ecd"),
        ("abcdec", "1b2ced", "a1b2ced"),
        ("aabb", "bcd", "aabcd"),
        ("aabb", "", "aabb"),
        ("cagfca", "cfag", "cfag"),
    ],
)
def test_the_order_of_a_set(live: str, patch: str, expected: str) -> None:
    assert merge({"set": [*live]}, {"set": [*patch]}) == {"set": [*expected]}


@pytest.mark.parametrize(
    ("live", "patch", "expected"),
    [
        ([True], [False], [True, False]),
        ([1, 2, 3.14159], [1, 2, 3], [1, 2, 3.14159, 3]),
        ([1, 2, 3.14159, 1, 2], [1, 2, 3], [1, 2, 3.14159, 3]),
        ([True, False, True], [False], [True, False, True]),
        ([True, False, True], [True], [True, False]),
        ([1, True, "1"], [1.0], [1.0, True, "1"]),
    ],
)
def test_values_of_a_set(live: list[Any], patch: list[Any], expected: list[Any]) -> None:
    found = merge({"set": live}, {"set": patch})["set"]
    assert [(type(each), each) for each in found] == [(type(each), each) for each in expected]


def element(key: str, number: int, **values: Any) -> dict[str, Any]:
    return {"key": key, "id": number, **values}


@pytest.mark.parametrize(
    ("live", "patch", "expected"),
    [
        ([element("a", 1)], [element("a", 2)], [element("a", 1), element("a", 2)]),
        (
            [element("a", 1), element("b", 1)],
            [element("a", 1), element("a", 2)],
            [element("a", 1), element("b", 1), element("a", 2)],
        ),
        (
            [element("a", 1, bv=True)],
            [element("a", 1, nv=2), element("b", 2)],
            [element("a", 1, bv=True, nv=2), element("b", 2)],
        ),
        (
            [element("a", 1), element("b", 2), element("c", 3)],
            [element("c", 3), element("a", 1)],
            [element("b", 2), element("c", 3), element("a", 1)],
        ),
        # Several elements of the object have one key: the patch's element is merged with none of them.
        (
            [element("a", 1, bv=True), element("b", 2), element("a", 1, bv=False, nv=2)],
            [element("a", 1, nv=3), element("c", 3), element("b", 2)],
            [element("a", 1, nv=3), element("c", 3), element("b", 2)],
        ),
        ([element("a", 1, nv=1), element("a", 1, nv=2)], [], [element("a", 1, nv=1), element("a", 1, nv=2)]),
        # A key that is not there has its default.
        ([{"key": "a", "nv": 1}], [element("a", 7, bv=True)], [element("a", 7, nv=1, bv=True)]),
        ([element("a", 7, nv=1)], [{"key": "a", "nv": 2}], [element("a", 7, nv=2)]),
        ([{"id": 1, "nv": 1}], [{"key": "", "id": 1}], [{"id": 1, "nv": 1}, {"key": "", "id": 1}]),
        (
            [element("a", 1, values={"x": "1", "y": "2"})],
            [element("a", 1, values={"y": "3", "z": "4"})],
            [element("a", 1, values={"x": "1", "y": "3", "z": "4"})],
        ),
    ],
)
def test_a_list_whose_elements_have_keys(live: list[Any], patch: list[Any], expected: list[Any]) -> None:
    assert merge({"list": live}, {"list": patch}) == {"list": expected}


letters = st.lists(st.sampled_from("abcdefg"), max_size=8)


@given(letters, letters.map(dict.fromkeys).map(list))
def test_laws_of_sets(live: list[str], patch: list[str]) -> None:
    found = merge({"set": live}, {"set": patch})["set"]
    assert set(found) == {*live, *patch}
    assert not patch or list(dict.fromkeys(each for each in found if each in patch)) == patch
    assert merge({"set": found}, {"set": patch})["set"] == found
