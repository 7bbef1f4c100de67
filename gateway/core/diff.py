"""Two JSON documents to the JSON Patch that turns the first into the second.

Only ``add``, ``remove`` and ``replace`` with plain non-negative indices on paths that exist are written,
since these mean the same to every JSON Patch library, kube-apiserver's included. The patch is right first
and short second: list items are aligned by their common head and tail only, which finds what admission
policies do (append, prepend, change in place) without the cost of an edit distance.

Equality here is JSON's, not Python's: ``1``, ``1.0`` and ``true`` are three different values.

Source: RFC 6902.
"""

from __future__ import annotations

from typing import cast

Operation = dict[str, object]


def same(left: object, right: object) -> bool:
    """Whether two JSON values are equal; objects regardless of the order of their keys. Linear.

    Raises:
        RecursionError: nested deeper than the interpreter allows.
    """
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        other = cast("dict[str, object]", right)
        return len(left) == len(other) and all(
            key in other and same(value, other[key]) for key, value in left.items()
        )
    if isinstance(left, list):
        items = cast("list[object]", right)
        return len(left) == len(items) and all(map(same, left, items))
    return left == right


def diff(before: object, after: object) -> list[Operation]:
    """Return the operations that turn *before* into *after*; empty when they are equal.

    Neither is changed; the result shares values with *after*, so dump it before changing that. Keys are
    visited in sorted order: equal documents give equal patches, however they came about.

    Raises:
        RecursionError: nested deeper than the interpreter allows.
    """
    operations: list[Operation] = []
    _diff_value("", before, after, operations)
    return operations


def _diff_value(path: str, before: object, after: object, operations: list[Operation]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        _diff_object(path, before, after, operations)
    elif isinstance(before, list) and isinstance(after, list):
        _diff_array(path, before, after, operations)
    elif type(before) is not type(after) or before != after:
        operations.append({"op": "replace", "path": path, "value": after})


def _diff_object(
    path: str, before: dict[str, object], after: dict[str, object], operations: list[Operation]
) -> None:
    for key in sorted(before.keys() | after.keys()):
        child = f"{path}/{escape(key)}"
        if key not in after:
            operations.append({"op": "remove", "path": child})
        elif key not in before:
            operations.append({"op": "add", "path": child, "value": after[key]})
        else:
            _diff_value(child, before[key], after[key], operations)


def _diff_array(path: str, before: list[object], after: list[object], operations: list[Operation]) -> None:
    shorter = min(len(before), len(after))
    head = 0
    while head < shorter and same(before[head], after[head]):
        head += 1
    tail = 0
    while tail < shorter - head and same(before[-1 - tail], after[-1 - tail]):
        tail += 1
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    paired = min(len(old), len(new))
    for index in range(paired):
        _diff_value(f"{path}/{head + index}", old[index], new[index], operations)
    # From the end, so that each index still means what it meant in *before*.
    for index in range(len(old) - 1, paired - 1, -1):
        operations.append({"op": "remove", "path": f"{path}/{head + index}"})
    for index in range(paired, len(new)):
        operations.append({"op": "add", "path": f"{path}/{head + index}", "value": new[index]})


def escape(key: str) -> str:
    """Return *key* as a JSON Pointer token (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
