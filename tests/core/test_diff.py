"""The form of derived patches. tests/properties checks that they are right for every pair."""

from __future__ import annotations

import orjson
import pytest

from admission_gateway_worker.json_patch.diff import (
    MAX_OPERATIONS,
    MAX_PATH_LENGTH,
    MAX_SHIFTED,
    diff,
    escape,
    same,
)
from admission_gateway_worker.json_patch.patch import apply_patch


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
def test_equality_is_equality_of_json(left: object, right: object, expected: bool) -> None:
    assert same(left, right) is expected
    assert same(right, left) is expected


@pytest.mark.parametrize(
    ("key", "token"), [("a", "a"), ("a/b", "a~1b"), ("~", "~0"), ("~1", "~01"), ("", "")]
)
def test_tokens_are_escaped(key: str, token: str) -> None:
    assert escape(key) == token


LONG = MAX_OPERATIONS + 1
KEY = "k" * (MAX_PATH_LENGTH // 8)


def applied(before: dict[str, object], after: object) -> list[dict[str, object]]:
    """The patch, after a check that the gateway would accept it from a worker."""
    operations = diff(before, after)
    patched = apply_patch(orjson.loads(orjson.dumps(before)), orjson.loads(orjson.dumps(operations)))
    assert same(patched, after)
    return operations


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(list(range(LONG)), list(range(LONG))[::-1], id="reversed"),
        pytest.param(list(range(2 * LONG)), list(range(0, 2 * LONG, 2)), id="every other removed"),
        pytest.param([0] * (MAX_SHIFTED // 50), [1] * 60 + [0] * (MAX_SHIFTED // 50), id="shifted"),
        pytest.param({str(n): 1 for n in range(LONG)}, {str(n): 2 for n in range(LONG)}, id="values"),
        pytest.param({f"a{n}": 1 for n in range(LONG)}, {f"b{n}": 1 for n in range(LONG)}, id="keys"),
        pytest.param({KEY: [0] * 10}, {KEY: [1] * 10}, id="paths"),
    ],
)
def test_whole_members_are_replaced_when_a_patch_would_be_too_long(before: object, after: object) -> None:
    kept = {"x": 1.5, "gone": 1}
    assert applied({**kept, "much": before}, {"x": 1.5, "much": after, "new": 2}) == [
        remove("/gone"),
        replace("/much", after),
        add("/new", 2),
    ]


def test_the_whole_object_is_replaced_when_there_are_too_many_members() -> None:
    before: dict[str, object] = {str(number): 1 for number in range(LONG)}
    after = {str(number): 2 for number in range(LONG)}
    assert applied(before, after) == [replace("", after)]


def test_a_patch_has_up_to_the_maximum_of_operations() -> None:
    before: dict[str, object] = {str(number): 1 for number in range(MAX_OPERATIONS)}
    assert len(applied(before, {str(number): 2 for number in range(MAX_OPERATIONS)})) == MAX_OPERATIONS


def nested(levels: int, value: object) -> object:
    for _ in range(levels):
        value = [0, value]
    return value


def test_nested_lists_are_compared_by_item_as_deep_as_schemas_nest_them() -> None:
    assert applied({"l": nested(8, 1)}, {"l": nested(8, 2)}) == [replace("/l" + "/1" * 8, 2)]
    assert applied({"l": nested(200, 1)}, {"l": nested(200, 2)}) == [replace("/l" + "/1" * 8, nested(192, 2))]
    assert applied({"l": nested(200, 1)}, {"l": nested(200, 1)}) == []


def test_negative_zero_equals_zero() -> None:
    assert same([0.0, "-0.0", -0.05], [-0.0, "-0.0", -0.05])
    assert diff({"a": [0.0]}, {"a": [-0.0]}) == []
    assert not same([0], [-0.0])
    assert not same(["-0.0"], ["0.0"])


def test_integers_of_any_length_are_compared() -> None:
    assert same([2**70], [2**70])
    assert not same([2**70], [2**70 + 1])
    assert not same([2**70, 1], [2**70, True])
