"""What the derived patch looks like. That it is right for every pair is a law in tests/properties."""

from __future__ import annotations

import pytest

from gateway.core.diff import diff, escape, same


def replace(path: str, value: object) -> dict[str, object]:
    return {"op": "replace", "path": path, "value": value}


def add(path: str, value: object) -> dict[str, object]:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> dict[str, object]:
    return {"op": "remove", "path": path}


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        ({}, {}, []),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
        ({}, {"b": 1, "a": {}}, [add("/a", {}), add("/b", 1)]),
        ({"b": 1, "a": 1}, {}, [remove("/a"), remove("/b")]),
        ({"a": 1}, {"a": 2}, [replace("/a", 2)]),
        # Null is a value, and absence none.
        ({"a": None}, {}, [remove("/a")]),
        ({}, {"a": None}, [add("/a", None)]),
        ({"a": None}, {"a": 0}, [replace("/a", 0)]),
        # 1, 1.0, true and "1" are four things.
        ({"a": 1}, {"a": 1.0}, [replace("/a", 1.0)]),
        ({"a": 1}, {"a": True}, [replace("/a", value=True)]),
        ({"a": 0}, {"a": False}, [replace("/a", value=False)]),
        ({"a": 1}, {"a": "1"}, [replace("/a", "1")]),
        ({"a": [1]}, {"a": [True]}, [replace("/a/0", value=True)]),
        # Containers of another kind are replaced as a whole.
        ({"a": {}}, {"a": []}, [replace("/a", [])]),
        ({"a": [1]}, {"a": {"0": 1}}, [replace("/a", {"0": 1})]),
        ({"a": {"b": {"c": 1, "d": 1}}}, {"a": {"b": {"c": 2, "d": 1}}}, [replace("/a/b/c", 2)]),
        ({"a/b": 1, "m~n": 1, "": 1}, {}, [remove("/"), remove("/a~1b"), remove("/m~0n")]),
        # Arrays: aligned by their common head and tail.
        ({"a": [1, 2]}, {"a": [1, 2, 3, 4]}, [add("/a/2", 3), add("/a/3", 4)]),
        ({"a": [1, 2]}, {"a": [0, 1, 2]}, [add("/a/0", 0)]),
        ({"a": [1, 4]}, {"a": [1, 2, 3, 4]}, [add("/a/1", 2), add("/a/2", 3)]),
        ({"a": [1, 2, 3, 4]}, {"a": [1, 4]}, [remove("/a/2"), remove("/a/1")]),
        ({"a": [1, 2, 3]}, {"a": []}, [remove("/a/2"), remove("/a/1"), remove("/a/0")]),
        ({"a": [1, 1]}, {"a": [1]}, [remove("/a/1")]),
        ({"a": [1]}, {"a": [1, 1]}, [add("/a/1", 1)]),
        ({"a": [1, 2, 3]}, {"a": [1, 5, 3]}, [replace("/a/1", 5)]),
        ({"a": [{"x": 1, "y": 1}]}, {"a": [{"x": 1, "y": 2}]}, [replace("/a/0/y", 2)]),
        ({"a": [1, 2, 3, 9]}, {"a": [5, 9]}, [replace("/a/0", 5), remove("/a/2"), remove("/a/1")]),
        ({"a": [1, 9]}, {"a": [5, 6, 7, 9]}, [replace("/a/0", 5), add("/a/1", 6), add("/a/2", 7)]),
        ([1], [1, 2], [add("/1", 2)]),
    ],
)
def test_operations(before: object, after: object, operations: list[dict[str, object]]) -> None:
    found = diff(before, after)
    assert same(found, operations), found


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (None, None, True),
        (None, False, False),
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (0, False, False),
        ("1", 1, False),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": None}, {}, False),
        ({"a": None}, {"b": None}, False),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ([[1]], [[True]], False),
        ([], {}, False),
        ([], [], True),
    ],
)
def test_equality_is_that_of_json(left: object, right: object, expected: bool) -> None:
    assert same(left, right) is expected
    assert same(right, left) is expected


@pytest.mark.parametrize(
    ("key", "token"), [("a", "a"), ("a/b", "a~1b"), ("~", "~0"), ("~1", "~01"), ("", "")]
)
def test_tokens_are_escaped(key: str, token: str) -> None:
    assert escape(key) == token
