"""Facts of the JSON Patch library of kube-apiserver."""

from __future__ import annotations

import copy
import json
import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.json_patch import patch
from admission_gateway_worker.json_patch.diff import (
    MAX_OPERATIONS,
    MAX_PATH_PARTS,
    MAX_SHIFTED,
    Operation,
    same,
)
from admission_gateway_worker.json_patch.patch import (
    MAX_COPY_BYTES,
    MAX_LEVELS,
    MAX_VALUES,
    PatchConflict,
    PatchSyntaxError,
    apply_patch,
    parse_patch,
)

OBJECT: dict[str, object] = {
    "metadata": {"name": "x", "labels": {"a/b": "1", "m~n": "2"}, "nothing": None},
    "spec": {"list": [10, 20, 30], "empty": [], "number": 1, "nested": [{"x": 1}]},
}


def applied(*operations: Operation) -> object:
    return apply_patch(copy.deepcopy(OBJECT), [copy.deepcopy(operation) for operation in operations])


def changed(pointer: str, value: object) -> dict[str, object]:
    """OBJECT with the member at a dotted path set to a value, or removed."""
    expected = copy.deepcopy(OBJECT)
    *parents, last = pointer.split(".")
    node = expected
    for name in parents:
        node = node[name]  # type: ignore[assignment]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return expected


@pytest.mark.parametrize(
    ("operation", "pointer", "value"),
    [
        # Members: add sets or overwrites, replace does too.
        ({"op": "add", "path": "/spec/new", "value": 1}, "spec.new", 1),
        ({"op": "add", "path": "/spec/number", "value": "2"}, "spec.number", "2"),
        ({"op": "replace", "path": "/spec/number", "value": 2}, "spec.number", 2),
        ({"op": "replace", "path": "/spec/absent", "value": 2}, "spec.absent", 2),
        ({"op": "remove", "path": "/spec/number"}, "spec.number", ...),
        ({"op": "remove", "path": "/metadata/nothing"}, "metadata.nothing", ...),
        ({"op": "add", "path": "/", "value": 1}, "", 1),
        # A missing value is null.
        ({"op": "add", "path": "/spec/new"}, "spec.new", None),
        ({"op": "replace", "path": "/spec/number"}, "spec.number", None),
        ({"op": "replace", "path": "/spec/list/0"}, "spec.list", [None, 20, 30]),
        # Items.
        ({"op": "add", "path": "/spec/list/0", "value": 5}, "spec.list", [5, 10, 20, 30]),
        ({"op": "add", "path": "/spec/list/3", "value": 5}, "spec.list", [10, 20, 30, 5]),
        ({"op": "add", "path": "/spec/list/-", "value": 5}, "spec.list", [10, 20, 30, 5]),
        ({"op": "add", "path": "/spec/list/-1", "value": 5}, "spec.list", [10, 20, 30, 5]),
        ({"op": "add", "path": "/spec/list/-2", "value": 5}, "spec.list", [10, 20, 5, 30]),
        ({"op": "add", "path": "/spec/list/-4", "value": 5}, "spec.list", [5, 10, 20, 30]),
        ({"op": "add", "path": "/spec/empty/-1", "value": 5}, "spec.empty", [5]),
        ({"op": "replace", "path": "/spec/list/2", "value": 5}, "spec.list", [10, 20, 5]),
        ({"op": "replace", "path": "/spec/list/-1", "value": 5}, "spec.list", [10, 20, 5]),
        ({"op": "replace", "path": "/spec/list/-3", "value": 5}, "spec.list", [5, 20, 30]),
        ({"op": "remove", "path": "/spec/list/0"}, "spec.list", [20, 30]),
        ({"op": "remove", "path": "/spec/list/-1"}, "spec.list", [10, 20]),
        ({"op": "add", "path": "/spec/nested/0/y", "value": 2}, "spec.nested", [{"x": 1, "y": 2}]),
        ({"op": "add", "path": "/spec/nested/-1/y", "value": 2}, "spec.nested", [{"x": 1, "y": 2}]),
        # Indices are what Go's Atoi reads.
        ({"op": "add", "path": "/spec/list/+1", "value": 5}, "spec.list", [10, 5, 20, 30]),
        ({"op": "add", "path": "/spec/list/01", "value": 5}, "spec.list", [10, 5, 20, 30]),
        ({"op": "remove", "path": "/spec/list/-0"}, "spec.list", [20, 30]),
        # Pointers: escapes, and text before the first slash that does not count.
        ({"op": "replace", "path": "/metadata/labels/a~1b", "value": 1}, "metadata.labels.a/b", 1),
        ({"op": "replace", "path": "/metadata/labels/m~0n", "value": 1}, "metadata.labels.m~n", 1),
        ({"op": "replace", "path": "/metadata/labels/m~n", "value": 1}, "metadata.labels.m~n", 1),
        ({"op": "add", "path": "/metadata/labels/~01", "value": 1}, "metadata.labels.~1", 1),
        ({"op": "add", "path": "metadata/name", "value": 1}, "name", 1),
        ({"op": "add", "path": "anything/metadata/name", "value": 1}, "metadata.name", 1),
        # move takes out before it puts in.
        (
            {"op": "move", "from": "/spec/list/0", "path": "/spec/list/2"},
            "spec.list",
            [20, 30, 10],
        ),
        ({"op": "move", "from": "/spec/list/0", "path": "/spec/list/-"}, "spec.list", [20, 30, 10]),
        ({"op": "move", "from": "/spec/number", "path": "/spec/number"}, "spec.number", 1),
        ({"op": "move", "from": "/spec/list", "path": "/spec/list"}, "spec.list", [10, 20, 30]),
        # copy, also of a missing value.
        ({"op": "copy", "from": "/spec/number", "path": "/spec/new"}, "spec.new", 1),
        ({"op": "copy", "from": "/spec/absent", "path": "/spec/new"}, "spec.new", None),
        ({"op": "copy", "from": "/spec/list/-1", "path": "/spec/list/0"}, "spec.list", [30, 10, 20, 30]),
        # Members that an operation does not use are ignored.
        ({"op": "remove", "path": "/spec/number", "value": 1, "from": 5, "x": {}}, "spec.number", ...),
    ],
)
def test_an_operation_that_applies(operation: Operation, pointer: str, value: object) -> None:
    assert same(applied(operation), changed(pointer, value))


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "", "value": OBJECT},
        {"op": "test", "path": "/spec/number", "value": 1},
        {"op": "test", "path": "/metadata/labels", "value": {"m~n": "2", "a/b": "1"}},
        {"op": "test", "path": "/spec/list", "value": [10, 20, 30]},
        {"op": "test", "path": "/spec/list/-1", "value": 30},
        {"op": "test", "path": "/spec/absent", "value": None},
        {"op": "test", "path": "/spec/absent"},
        {"op": "test", "path": "/metadata/nothing", "value": None},
        {"op": "test", "path": "/metadata/nothing"},
    ],
)
def test_a_test_that_passes(operation: Operation) -> None:
    assert applied(operation) == OBJECT


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "", "value": {}},
        {"op": "test", "path": ""},
        {"op": "test", "path": "/spec/number", "value": 1.0},
        {"op": "test", "path": "/spec/number", "value": "1"},
        {"op": "test", "path": "/spec/number", "value": True},
        {"op": "test", "path": "/spec/number"},
        {"op": "test", "path": "/spec/absent", "value": 1},
        {"op": "test", "path": "/metadata/nothing", "value": False},
        {"op": "test", "path": "/spec/list", "value": [20, 10, 30]},
        {"op": "test", "path": "/spec/list", "value": [10, 20]},
        {"op": "test", "path": "/spec/list", "value": {"0": 10}},
        {"op": "test", "path": "/metadata/labels", "value": {"a/b": "1"}},
        {"op": "test", "path": "/metadata/labels", "value": {"a/b": "1", "x": "2"}},
    ],
)
def test_a_test_that_fails(operation: Operation) -> None:
    with pytest.raises(PatchConflict, match=r"^operation 0: testing value of "):
        applied(operation)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        # The whole document: only replaced, by a container, or tested.
        ({"op": "add", "path": "", "value": {}}, "does not point into the object"),
        ({"op": "remove", "path": ""}, "does not point into the object"),
        ({"op": "move", "from": "", "path": "/a"}, "does not point into the object"),
        ({"op": "move", "from": "/spec", "path": ""}, "does not point into the object"),
        ({"op": "copy", "from": "", "path": "/a"}, "does not point into the object"),
        ({"op": "copy", "from": "/spec", "path": ""}, "does not point into the object"),
        ({"op": "replace", "path": "", "value": 1}, "by an object or an array only"),
        ({"op": "replace", "path": "", "value": None}, "by an object or an array only"),
        ({"op": "replace", "path": ""}, "by an object or an array only"),
        ({"op": "add", "path": "spec", "value": 1}, "does not point into the object"),
        # A way that is not there.
        ({"op": "add", "path": "/absent/x", "value": 1}, "missing or not a container"),
        ({"op": "add", "path": "/metadata/nothing/x", "value": 1}, "missing or not a container"),
        ({"op": "add", "path": "/metadata/name/x", "value": 1}, "missing or not a container"),
        ({"op": "add", "path": "/metadata/name/x/y", "value": 1}, "missing or not a container"),
        ({"op": "replace", "path": "/absent/x", "value": 1}, "missing or not a container"),
        ({"op": "test", "path": "/absent/x"}, "missing or not a container"),
        ({"op": "copy", "from": "/absent/x", "path": "/y"}, "missing or not a container"),
        ({"op": "add", "path": "/spec/nested/5/x", "value": 1}, "out of range"),
        ({"op": "add", "path": "/spec/nested/-/x", "value": 1}, "not an array index"),
        ({"op": "remove", "path": "/spec/absent"}, "no such member"),
        ({"op": "move", "from": "/spec/absent", "path": "/y"}, "no such member"),
        ({"op": "move", "from": "/spec", "path": "/spec/list/0"}, "missing or not a container"),
        # Indices.
        ({"op": "add", "path": "/spec/list/4", "value": 1}, "out of range"),
        ({"op": "add", "path": "/spec/list/-5", "value": 1}, "out of range"),
        ({"op": "replace", "path": "/spec/list/3", "value": 1}, "out of range"),
        ({"op": "replace", "path": "/spec/list/-4", "value": 1}, "out of range"),
        ({"op": "replace", "path": "/spec/list/-", "value": 1}, "not an array index"),
        ({"op": "remove", "path": "/spec/list/3"}, "out of range"),
        ({"op": "remove", "path": "/spec/list/-"}, "not an array index"),
        ({"op": "remove", "path": "/spec/empty/-1"}, "out of range"),
        ({"op": "copy", "from": "/spec/list/3", "path": "/y"}, "out of range"),
        ({"op": "test", "path": "/spec/list/3"}, "out of range"),
        ({"op": "add", "path": "/spec/list/1.0", "value": 1}, "not an array index"),
        ({"op": "add", "path": "/spec/list/1e0", "value": 1}, "not an array index"),
        ({"op": "add", "path": "/spec/list/ 1", "value": 1}, "not an array index"),
        ({"op": "add", "path": "/spec/list/", "value": 1}, "not an array index"),
        ({"op": "add", "path": "/spec/list/1\n", "value": 1}, "not an array index"),
        ({"op": "add", "path": "/spec/list/\u0661", "value": 1}, "not an array index"),
        ({"op": "add", "path": "/spec/list/" + "1" * 5000, "value": 1}, "not an array index"),
        # Operations that are none.
        ({"op": "merge", "path": "/spec"}, "unexpected kind: merge"),
        ({"op": "Add", "path": "/spec/x", "value": 1}, "unexpected kind: Add"),
        ({"op": 1, "path": "/spec"}, "unexpected kind: unknown"),
        ({"op": None, "path": "/spec"}, "unexpected kind: unknown"),
        ({"path": "/spec"}, "unexpected kind: unknown"),
        ({}, "unexpected kind: unknown"),
        ({"op": "add", "value": 1}, "'path' is missing or not a string"),
        ({"op": "add", "path": None, "value": 1}, "'path' is missing or not a string"),
        ({"op": "add", "path": ["spec"], "value": 1}, "'path' is missing or not a string"),
        ({"op": "move", "path": "/x"}, "'from' is missing or not a string"),
        ({"op": "copy", "from": 1, "path": "/x"}, "'from' is missing or not a string"),
    ],
)
def test_an_operation_that_does_not_apply(operation: Operation, message: str) -> None:
    with pytest.raises(PatchConflict, match=f"^operation 0: .*{re.escape(message)}"):
        applied(operation)


def test_the_whole_document_can_be_replaced_by_an_object_or_an_array() -> None:
    assert applied({"op": "replace", "path": "", "value": {"x": 1}}) == {"x": 1}
    assert applied({"op": "replace", "path": "", "value": [1]}) == [1]
    then = {"op": "add", "path": "/1", "value": 2}
    assert applied({"op": "replace", "path": "", "value": [1]}, then) == [1, 2]


def test_operations_apply_in_order() -> None:
    assert applied(
        {"op": "add", "path": "/a", "value": {}},
        {"op": "test", "path": "/a", "value": {}},
        {"op": "add", "path": "/a/b", "value": []},
        {"op": "add", "path": "/a/b/-", "value": 1},
        {"op": "copy", "from": "/a", "path": "/c"},
        {"op": "remove", "path": "/a/b/0"},
    ) == {**OBJECT, "a": {"b": []}, "c": {"b": [1]}}


def test_a_conflict_names_the_operation_that_failed() -> None:
    good: Operation = {"op": "add", "path": "/a", "value": 1}
    with pytest.raises(PatchConflict, match=r"^operation 2: "):
        applied(good, good, {"op": "remove", "path": "/b"}, good)


def test_a_copied_value_is_independent() -> None:
    result = applied(
        {"op": "copy", "from": "/spec/nested", "path": "/spec/again"},
        {"op": "replace", "path": "/spec/again/0/x", "value": 2},
    )
    assert result == changed("spec.again", [{"x": 2}])


def test_copied_bytes_are_bounded_over_the_whole_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert patch.MAX_COPY_BYTES == 3 * 1024 * 1024
    size = len(orjson.dumps(OBJECT["metadata"]))
    monkeypatch.setattr(patch, "MAX_COPY_BYTES", 2 * size)
    copies: list[Operation] = [
        {"op": "copy", "from": "/metadata", "path": f"/copy{number}"} for number in range(3)
    ]
    applied(*copies[:2])
    with pytest.raises(PatchConflict, match="operation 2: copies add up to more than"):
        applied(*copies)


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b" [ ] "])
def test_patches_without_operations(text: bytes) -> None:
    assert parse_patch(text) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"nonsense", "not JSON"),
        (b"[", "not JSON"),
        (b"\xff", "not JSON"),
        (b"{}", "not a JSON array"),
        (b'"[]"', "not a JSON array"),
        (b"1", "not a JSON array"),
        (b"false", "not a JSON array"),
        (b"[1]", "operation 0 is not a JSON object"),
        (b"[{},[]]", "operation 1 is not a JSON object"),
        (b'[{},{},"x"]', "operation 2 is not a JSON object"),
        (b'[{"value":' + b"[" * 300 + b"]" * 300 + b"}]", "nested too deeply"),
    ],
)
def test_bytes_that_are_not_a_json_patch(text: bytes, message: str) -> None:
    with pytest.raises(PatchSyntaxError, match=message):
        parse_patch(text)


def test_operations_are_returned_as_written() -> None:
    operations = [{"op": "remove", "path": "/a"}, {"unknown": 1}]
    assert parse_patch(orjson.dumps(operations)) == operations


def test_a_null_operation_fails_when_it_is_applied() -> None:
    operations = parse_patch(b'[{"op":"add","path":"/a"},null]')
    with pytest.raises(PatchConflict, match="operation 1: unexpected kind: unknown"):
        apply_patch({}, operations)


def test_a_patch_with_too_many_operations_is_not_applied() -> None:
    operations: list[dict[str, object]] = [{"op": "add", "path": "/a/-", "value": 0}] * MAX_OPERATIONS
    assert len(apply_patch({"a": []}, operations)["a"]) == MAX_OPERATIONS  # type: ignore[index]
    with pytest.raises(PatchConflict, match=r"^has 10001 operations, and at most 10000 are applied$"):
        apply_patch({"a": []}, [*operations, operations[0]])


def repeated(text: bytes, count: int) -> bytes:
    return b"[" + b",".join([text] * count) + b"]"


@pytest.mark.parametrize(
    "item", [b"{}", b"null", b'{"op":"test","path":""}', b'{"path":"/\\"\\\\"}', b'{"a":{"b":[]}}']
)
def test_a_patch_with_too_many_values_is_not_parsed(item: bytes) -> None:
    with pytest.raises(PatchConflict, match=r"^has more than 500000 values$"):
        parse_patch(repeated(item, MAX_VALUES + 1))


@pytest.mark.parametrize("sign", [",", "{", "[", '\\",', "\\\\,"])
def test_commas_in_strings_do_not_count_as_values(sign: str) -> None:
    """A file of comma-separated values in a ConfigMap is one string."""
    text = sign.encode() * (MAX_VALUES + 9)
    [operation] = parse_patch(b'[{"op":"add","path":"/data","value":"%b"}]' % text)
    assert len(str(operation["value"])) > MAX_VALUES


def test_doubling_copies_are_bounded_as_in_kube_apiserver() -> None:
    doubling: list[Operation] = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 40
    with pytest.raises(PatchConflict, match=rf"^operation 14: copies .* more than {MAX_COPY_BYTES} bytes$"):
        apply_patch({"a": ["x" * 100]}, doubling)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/l/0", "value": 1},
        {"op": "add", "path": "/l/1", "value": 1},
        {"op": "remove", "path": "/l/0"},
        {"op": "move", "from": "/l/0", "path": "/l/-"},
        {"op": "copy", "from": "/l/0", "path": "/l/0"},
    ],
)
def test_shifted_list_items_are_bounded(operation: Operation) -> None:
    items = [0] * (MAX_SHIFTED // 100)
    with pytest.raises(PatchConflict, match=rf"items of lists are shifted more than {MAX_SHIFTED} times$"):
        apply_patch({"l": items}, [dict(operation) for _ in range(200)])


def test_appended_items_shift_nothing() -> None:
    document = {"l": [0] * (MAX_SHIFTED // 100)}
    patched = apply_patch(document, [{"op": "add", "path": "/l/-", "value": 1} for _ in range(200)])
    assert patched == {"l": [*document["l"], *[1] * 200]}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/a" * (MAX_LEVELS + 1), f"has more than {MAX_LEVELS} parts"),
        ("/" * 1_000_000, f"has more than {MAX_LEVELS} parts"),
        ("/absent/" + "x" * 1_000_000, "leads through something that is missing"),
        ("/a/" + "9" * 1_000_000, "is not an array index"),
        ("/a/" + "9" * 20, "is out of range"),
        ("x" * 1_000_000, "does not point into the object"),
        ("/" + "~" * 1_000_000, "there is no such member"),
    ],
)
def test_a_long_path_is_a_conflict_and_is_cut_in_the_message(path: str, message: str) -> None:
    with pytest.raises(PatchConflict, match=message) as caught:
        apply_patch({"a": [1]}, [{"op": "remove", "path": path}])
    assert len(str(caught.value)) < 1000


def test_a_long_unknown_operation_is_cut_in_the_message() -> None:
    with pytest.raises(PatchConflict, match=r"unexpected kind: x+$") as caught:
        apply_patch({}, [{"op": "x" * 1_000_000, "path": ""}])
    assert len(str(caught.value)) < 1000


def test_the_parts_of_all_paths_are_bounded() -> None:
    document: dict[str, object] = {}
    for _ in range(200):
        document = {"a": document}
    with pytest.raises(PatchConflict, match=rf"paths have more than {MAX_PATH_PARTS} parts together$"):
        apply_patch(document, [{"op": "add", "path": "/a" * 200, "value": {}} for _ in range(MAX_OPERATIONS)])


def test_a_value_is_inserted_unchanged() -> None:
    """A copy, item by item, would take longer than everything else."""
    value: dict[str, object] = {"a": [{}]}
    patched = apply_patch({"l": [1, 2]}, [{"op": "add", "path": "/l/1", "value": value}])
    assert patched == {"l": [1, value, 2]}
    assert patched["l"][1] is value


@pytest.mark.parametrize(
    "text",
    [
        b'[{"op":"test","path":"/a","op":"remove"}]',
        rb'[{"op":"test","path":"/a","\u006fp":"remove"}]',
        b'[{"op":"add","path":"/a","value":{"b": [{"c":1, "c" : 1}]}}]',
        b'[{"op":"add","path":"/a","value":{"":1,"":":"}}]',
        b'[{"op":"add","path":"/a","value":{"\\ud800":1,"\\udfff":2}}]',
    ],
)
def test_a_patch_with_duplicate_members_is_refused(text: bytes) -> None:
    with pytest.raises(PatchSyntaxError, match="two members of an object have the same name"):
        parse_patch(text)


@given(
    st.recursive(
        st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.text('":\\ab', max_size=5),
        lambda items: (
            st.lists(items, max_size=3) | st.dictionaries(st.text('":\\ab', max_size=3), items, max_size=3)
        ),
        max_leaves=8,
    ),
    st.sampled_from([(",", ":"), (" , ", " : ")]),
    st.booleans(),
)
def test_a_patch_without_duplicate_members_is_accepted(
    value: object, separators: tuple[str, str], plain: bool
) -> None:
    text = json.dumps([{"op": "add", "value": value}], separators=separators, ensure_ascii=plain)
    assert same(parse_patch(text.encode()), [{"op": "add", "value": value}])
