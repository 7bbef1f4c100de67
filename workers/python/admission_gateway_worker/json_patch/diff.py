"""The JSON Patch that turns one JSON document into another.

It contains only ``add``, ``remove`` and ``replace`` with non-negative indices on existing paths, which mean
the same to every JSON Patch library, including kube-apiserver's. List items are aligned by their common head
and tail only. This finds the changes of admission policies (append, prepend, change in place) without the
cost of an edit distance.

The documents may be hostile, and the function runs between two other reviews: its time is that of reading
both a few times, for any documents. Whole members are replaced if a patch with every change would be too much
work to apply.

Equality here is JSON's, not Python's: ``1``, ``1.0`` and ``true`` are three different values.

Source: RFC 6902.
"""

from __future__ import annotations

from typing import Final, cast

import orjson

Operation = dict[str, object]

MAX_OPERATIONS: Final = 10_000
"""kube-apiserver's bound for a user's JSON Patch (maxJSONPatchOperations in endpoints/handlers/patch.go). It
has no bound for a webhook's."""

MAX_SHIFTED: Final = 100_000_000
"""List items that a patch moves by insertions and removals, in all. Ten thousand insertions at the head of a
list move half as many."""

MAX_PATH_PARTS: Final = 500_000
"""Parts of all paths of a patch; fifty for each operation."""

MAX_PATH_LENGTH: Final = 8 * 1024 * 1024
"""Characters of all paths of a patch that is derived. Each operation under a long key repeats the key."""

_SEARCHED_LEVELS: Final = 8
"""Levels at which containers are compared as a whole before their members are. Each such level reads
everything below it. Kubernetes' own types nest lists three levels deep, and schemas hardly deeper."""

_PAIRED: Final = 16
"""Items up to which lists of one length are compared item by item."""


def same(left: object, right: object) -> bool:
    """Whether two JSON values are equal; objects regardless of the order of their keys. Linear.

    Raises:
        RecursionError: nested deeper than the interpreter allows.
    """
    if left is right:
        return True
    # Python's own comparison is fast, but 1, 1.0 and true are equal for it; their JSON differs.
    if left != right:
        return False
    try:
        # Most values are equal to the byte; to look for -0.0 would take as long as to write them.
        return (
            orjson.dumps(left) == orjson.dumps(right)
            or _text(left) == _text(right)
            or _text(left, sort=True) == _text(right, sort=True)
        )
    except TypeError:
        return _same_slowly(left, right)


def _text(value: object, *, sort: bool = False) -> bytes:
    # -0.0 equals 0.0. The callers know that all strings in the values are equal.
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort else None).replace(b"-0.0", b"0.0")


def _same_slowly(left: object, right: object) -> bool:
    """Do as :func:`same` for values that orjson cannot write: too deep, or with very long integers."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        other = cast("dict[str, object]", right)
        return len(left) == len(other) and all(
            key in other and _same_slowly(value, other[key]) for key, value in left.items()
        )
    if isinstance(left, list):
        items = cast("list[object]", right)
        return len(left) == len(items) and all(map(_same_slowly, left, items))
    return left == right


def diff(before: object, after: object, max_operations: int | None = None) -> list[Operation]:
    """Return the operations that turn *before* into *after*; empty when they are equal.

    Whole members are replaced if there would be more than *max_operations*, by default ``MAX_OPERATIONS``.

    The result shares values with *after*. Keys are visited in sorted order, so equal documents give equal
    patches.

    Raises:
        RecursionError: nested deeper than the interpreter allows.
    """
    max_operations = MAX_OPERATIONS if max_operations is None else max_operations
    script = _Script(max_operations)
    try:
        _diff_value("", before, after, script, 0, 0)
    except _TooMuchError:
        return _replaced_members(before, after, max_operations)
    return script.operations


_ABSENT: Final = object()


class _TooMuchError(Exception):
    """A patch with every change would exceed a bound."""


class _Script:
    """The operations so far."""

    def __init__(self, max_operations: int) -> None:
        self.operations: list[Operation] = []
        self._max_operations = max_operations
        self._shifted = self._parts = self._length = 0

    def note(self, operation: Operation, path: str, shifted: int = 0) -> None:
        """Add *operation* at *path*, which moves *shifted* items of a list."""
        self._shifted += shifted
        self._parts += path.count("/")
        self._length += len(path)
        if (
            len(self.operations) == self._max_operations
            or self._parts > MAX_PATH_PARTS
            or self._length > MAX_PATH_LENGTH
            or self._shifted > MAX_SHIFTED
        ):
            raise _TooMuchError
        self.operations.append(operation)


def _replaced_members(before: object, after: object, max_operations: int) -> list[Operation]:
    whole: list[Operation] = [{"op": "replace", "path": "", "value": after}]
    if not isinstance(before, dict) or not isinstance(after, dict):
        return whole
    operations: list[Operation] = []
    for key in sorted(before.keys() | after.keys()):
        path = f"/{escape(key)}"
        if key not in after:
            operations.append({"op": "remove", "path": path})
        elif key not in before:
            operations.append({"op": "add", "path": path, "value": after[key]})
        elif not same(before[key], after[key]):
            operations.append({"op": "replace", "path": path, "value": after[key]})
    return operations if len(operations) <= max_operations else whole


def _diff_value(path: str, before: object, after: object, script: _Script, level: int, lists: int) -> None:
    """Add what differs at *path*, *level* levels down, of which so many are *lists*."""
    if isinstance(before, dict) and isinstance(after, dict):
        _diff_object(path, before, after, script, level + 1, lists)
    elif isinstance(before, list) and isinstance(after, list):
        if lists < _SEARCHED_LEVELS:
            _diff_array(path, before, after, script, level + 1, lists + 1)
        elif not same(before, after):
            script.note({"op": "replace", "path": path, "value": after}, path)
    elif type(before) is not type(after) or before != after:
        script.note({"op": "replace", "path": path, "value": after}, path)


def _diff_object(
    path: str, before: dict[str, object], after: dict[str, object], script: _Script, level: int, lists: int
) -> None:
    # Members that differ, and containers that were not compared.
    keys: list[str] = []
    kept = len(before)
    for key, value in before.items():
        other = after.get(key, _ABSENT)
        if other is value:
            # As most members are after a patch.
            continue
        if other is _ABSENT:
            kept -= 1
        elif type(value) is dict or type(value) is list:
            if level <= _SEARCHED_LEVELS and same(value, other):
                continue
        elif value == other and type(value) is type(other):
            continue
        keys.append(key)
    if len(after) > kept:
        keys += [key for key in after if key not in before]
    keys.sort()
    for key in keys:
        child = f"{path}/{escape(key)}"
        if key not in after:
            script.note({"op": "remove", "path": child}, child)
        elif key not in before:
            script.note({"op": "add", "path": child, "value": after[key]}, child)
        else:
            _diff_value(child, before[key], after[key], script, level, lists)


def _diff_array(
    path: str, before: list[object], after: list[object], script: _Script, level: int, lists: int
) -> None:
    head = tail = 0
    old, new = before, after
    if len(before) != len(after) or len(before) > _PAIRED:
        shorter = min(len(before), len(after))
        head = _common(before[:shorter], after[:shorter])
        rest = shorter - head
        tail = _common(before[len(before) - rest :][::-1], after[len(after) - rest :][::-1])
        old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    paired = min(len(old), len(new))
    for index in range(paired):
        if old[index] is not new[index]:
            _diff_value(f"{path}/{head + index}", old[index], new[index], script, level, lists)
    # From the end, so that each index is that in *before*.
    for index in range(len(old) - 1, paired - 1, -1):
        child = f"{path}/{head + index}"
        script.note({"op": "remove", "path": child}, child, tail)
    for index in range(paired, len(new)):
        child = f"{path}/{head + index}"
        script.note({"op": "add", "path": child, "value": new[index]}, child, tail)


def _common(left: list[object], right: list[object]) -> int:
    """Return how many items two lists of the same length have in common at their beginning."""
    low, high = 0, len(left)
    # By bisection, comparing many items at once, since few differ.
    while low < high:
        middle = (low + high + 1) // 2
        if same(left[low:middle], right[low:middle]):
            low = middle
        else:
            high = middle - 1
    return low


def escape(key: str) -> str:
    """Return *key* as a JSON Pointer token (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
