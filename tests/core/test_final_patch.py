"""The patch of an answer, and its check."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core import final_patch as module
from gateway.core.final_patch import apply_strictly, final_patch
from tests.core.build import POD, request


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 1},
        {"op": "copy", "path": "/x", "from": "/a"},
        {"op": "remove", "path": ""},
        {"op": "remove", "path": "/x"},
        {"op": "replace", "path": "/x", "value": 1},
        {"op": "add", "path": "/a", "value": 1},
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "add", "path": "/l/3", "value": 1},
        {"op": "add", "path": "/l/-", "value": 1},
        {"op": "replace", "path": "/l/2", "value": 1},
        {"op": "replace", "path": "/l/-1", "value": 1},
        {"op": "remove", "path": "/l/01"},
        {"op": "add", "path": "a", "value": 1},
    ],
)
def test_the_check_refuses_an_operation_that_no_derived_patch_has(operation: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, LookupError, ValueError)):
        apply_strictly({"a": {"b~/c": 1}, "l": [0, 1]}, [operation])


def test_the_check_replaces_the_whole_object() -> None:
    operations: list[Any] = [
        {"op": "replace", "path": "", "value": {"b": [1]}},
        {"op": "remove", "path": "/b/0"},
    ]
    assert apply_strictly({"a": 1}, operations) == {"b": []}


def test_a_patch_that_does_not_give_the_final_object_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "diff", lambda *_: [{"op": "add", "path": "/spec/x", "value": 1}])
    with pytest.raises(AssertionError, match="the derived patch does not give the final object"):
        final_patch(request(), {**POD, "spec": {"replicas": 1, "x": True}})


def test_an_object_that_was_changed_in_place_is_an_error() -> None:
    given = request()
    held: Any = given.object
    held["spec"]["x"] = 1
    with pytest.raises(AssertionError, match="the derived patch does not give the final object"):
        final_patch(given, {**held, "y": 1})
