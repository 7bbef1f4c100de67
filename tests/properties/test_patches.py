"""Laws of applying patches and of computing them."""

from __future__ import annotations

import copy
from typing import Any
from unittest.mock import patch as replaced

import jsonpatch
import jsonpointer
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.diff import diff, same
from admission_gateway_worker.json_patch.patch import PatchConflict, apply_patch, parse_patch
from gateway.pure.core import final_patch
from tests.core.build import request
from tests.properties.examples import Examples
from tests.properties.strategies import objects, patches_against, values
from tests.properties.test_laws import strictly


@st.composite
def patched(draw: st.DrawFn) -> tuple[Any, list[dict[str, Any]]]:
    """A document, and operations on it."""
    document = draw(objects)
    return document, draw(patches_against(document))


OBJECTS = Examples(100, before=objects, after=objects)
PATCHED = Examples(100, patch=patched())


@OBJECTS.law
def test_the_patch_turns_one_object_into_the_other_for_every_library(before: Any, after: Any) -> None:
    kept = copy.deepcopy((before, after))
    operations = orjson.loads(orjson.dumps(diff(before, after)))
    assert same([before, after], list(kept))
    for apply in (apply_patch, jsonpatch.apply_patch):
        assert same(apply(copy.deepcopy(before), copy.deepcopy(operations)), after)
    strictly(copy.deepcopy(before), operations)


@OBJECTS.law
def test_the_patch_is_empty_exactly_between_equal_objects(before: Any, after: Any) -> None:
    assert (diff(before, after) == []) is same(before, after)
    assert diff(before, copy.deepcopy(before)) == []
    assert same(before, after) is (
        orjson.dumps(before, option=orjson.OPT_SORT_KEYS) == orjson.dumps(after, option=orjson.OPT_SORT_KEYS)
    )


@OBJECTS.law
def test_the_check_of_a_final_patch_finds_any_other_result(before: Any, after: Any) -> None:
    given_request = request(object=before)
    operations: Any = orjson.loads(orjson.dumps(diff(before, after)))
    shared: Any = apply_patch(given_request.object, operations)
    with replaced.object(final_patch, "SAMPLE", 1 << 40):
        assert final_patch.final_patch(given_request, shared) == (
            orjson.dumps(operations) if operations else b""
        )
        for wrong in (operations[1:], operations[:-1], [*operations[1:], *operations[:1]]):
            with replaced.object(final_patch, "diff", lambda *_, wrong=wrong: wrong):
                if wrong and not same(applied_by_rfc(before, wrong), after):
                    with pytest.raises(AssertionError, match="does not give the final object"):
                        final_patch.final_patch(given_request, shared)
                elif wrong:
                    final_patch.final_patch(given_request, shared)


def applied_by_rfc(document: Any, operations: list[dict[str, Any]]) -> Any:
    try:
        return jsonpatch.apply_patch(document, operations)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException):
        return None


@OBJECTS.law
def test_the_order_of_keys_does_not_matter(before: Any, after: Any) -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(held) for key, held in reversed(value.items())}
        return [turned(item) for item in value] if isinstance(value, list) else value

    plain = orjson.dumps(diff(before, after), option=orjson.OPT_SORT_KEYS)
    assert orjson.dumps(diff(turned(before), turned(after)), option=orjson.OPT_SORT_KEYS) == plain


@given(document=objects, added=st.lists(values, min_size=1, max_size=3), at=st.integers(0, 9))
def test_inserted_items_only_produce_add_operations(document: Any, added: list[Any], at: int) -> None:
    items = [[index] for index in range(5)]
    at %= 6
    before, after = {**document, "list": items}, {**document, "list": items[:at] + added + items[at:]}
    if not any(item in items for item in added):
        assert [operation["op"] for operation in diff(before, after)] == ["add"] * len(added)


@PATCHED.law
def test_where_the_strict_library_applies_a_patch_the_result_is_the_same(
    patch: tuple[Any, list[dict[str, Any]]],
) -> None:
    document, operations = patch
    try:
        expected = jsonpatch.apply_patch(copy.deepcopy(document), copy.deepcopy(operations))
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError):
        return
    if any(differs(operation) for operation in operations):
        return
    assert same(apply_patch(copy.deepcopy(document), parse_patch(orjson.dumps(operations))), expected)


def differs(operation: dict[str, Any]) -> bool:
    """Whether the API server differs from RFC 6902, so that the results may differ."""
    # It refuses operations on the whole document, and 1 does not equal true, as it does in Python.
    return operation["op"] == "test" or "" in (operation["path"], operation.get("from"))


@PATCHED.law
def test_any_patch_applies_to_json_or_conflicts(patch: tuple[Any, list[dict[str, Any]]]) -> None:
    document, operations = patch
    try:
        result = apply_patch(copy.deepcopy(document), copy.deepcopy(operations))
    except PatchConflict:
        return
    assert isinstance(result, dict | list)
    assert same(orjson.loads(orjson.dumps(result)), result)


@PATCHED.law
def test_a_patch_changes_neither_the_document_nor_its_operations(
    patch: tuple[Any, list[dict[str, Any]]],
) -> None:
    document, operations = patch
    kept = copy.deepcopy((document, operations))

    def applied(*patches: list[dict[str, Any]]) -> bytes | str:
        found = document
        try:
            for each in patches:
                found = apply_patch(found, each)
        except PatchConflict as conflict:
            return str(conflict).partition(": ")[2]
        return orjson.dumps(found)

    at_once = applied(operations)
    assert same([document, operations], list(kept))
    one_by_one = applied(*([operation] for operation in operations))
    assert same([document, operations], list(kept))
    assert at_once == one_by_one


@PATCHED.law
def test_the_patch_between_objects_that_share_values_is_that_between_their_copies(
    patch: tuple[Any, list[dict[str, Any]]],
) -> None:
    document, operations = patch
    try:
        after = apply_patch(document, operations)
    except PatchConflict:
        return
    shared = orjson.dumps(diff(document, after))
    assert shared == orjson.dumps(diff(document, orjson.loads(orjson.dumps(after))))


@OBJECTS.law
def test_a_copy_is_independent_of_its_source(before: Any) -> None:
    document = {**before, "from": {"x": [1]}}
    copied = apply_patch(
        copy.deepcopy(document),
        [
            {"op": "copy", "from": "/from", "path": "/to"},
            {"op": "add", "path": "/to/x/-", "value": 2},
            {"op": "remove", "path": "/from/x/0"},
        ],
    )
    assert same(copied, {**document, "from": {"x": []}, "to": {"x": [1, 2]}})
