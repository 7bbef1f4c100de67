"""The list functions of cel-go, version 3, and the list functions of its optional types.

Source: cel-go ext/lists.go; cel/library.go (first, last).
"""

from __future__ import annotations

from functools import cmp_to_key
from operator import itemgetter
from typing import Final

from gateway.pure.cel.chunks import ITEMS, chunks, joined
from gateway.pure.cel.equality import is_equal
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import function
from gateway.pure.cel.libraries.order import compare, same_type
from gateway.pure.cel.meter import charge, count_items, count_steps, count_values
from gateway.pure.cel.values import NONE, Optional

_CREATION: Final = 11
"""The cost of a call that makes a list."""
_PLACE: Final = 3000
"""Steps to sort an element into its place."""
_NUMBER_ITEMS: Final = 5
"""Items of a list that take as much memory as a number and its place."""
_MOST: Final = 1_000_000
"""Elements of a list that range makes."""


def _slice(values: list[object], start: int, end: int) -> list[object]:
    charge(_CREATION)
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if len(values) < end:
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(values)}")
    charge(end - start)
    count_items(end - start)
    # Not with one slice, which copies all of them at once.
    return [value for at in range(start, end, ITEMS) for value in values[at : min(at + ITEMS, end)]]


def _flatten(values: list[object], depth: int = 1) -> list[object]:
    charge(_CREATION + len(values) * (depth if depth >= 0 else 1))
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    count_items(len(values))
    if not depth:
        return values
    result: list[object] = []
    waiting = [(iter(values), depth)]
    while waiting:
        items, left = waiting[-1]
        for item in items:
            if isinstance(item, list):
                count_items(len(item) + 1)
                if left > 1:
                    waiting.append((iter(item), left - 1))
                    break
                for some in chunks(item):
                    result += some
            else:
                result.append(item)
        else:
            waiting.pop()
    return result


def _all_compared(values: object) -> int:
    """Return cel-go's cost of comparing all *values* with each other, beyond one unit."""
    if not isinstance(values, list):
        return 0
    size = len(values)
    return _CREATION - 1 + int(size * size * (2.1 if size and isinstance(values[0], str | bytes) else 2.0))


def _sorted_by(values: list[object], keys: list[object]) -> list[object]:
    size = len(keys)
    count_steps(size * _PLACE)
    if len(values) != size:
        raise EvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(values)} and {size} elements respectively"
        )
    if not size:
        return values
    if compare(keys[0], keys[0]) is None and not isinstance(keys[0], float):
        raise EvaluationError("list elements must be comparable")
    if not same_type(keys):
        raise EvaluationError("list elements must have the same type")
    texts = sum(len(key) for key in keys if isinstance(key, str | bytes))
    count_steps((texts >> 5) * size.bit_length())
    in_order = cmp_to_key(lambda a, b: compare(a, b) or 0)
    pairs = zip(map(in_order, keys), values, strict=True)
    return [value for _, value in sorted(pairs, key=itemgetter(0))]


def _sorted(values: list[object]) -> list[object]:
    return _sorted_by(values, values)


def _range(size: int) -> list[object]:
    charge(_CREATION + size if 0 <= size <= _MOST else _CREATION + 1)
    if size < 0:
        raise EvaluationError(f"lists.range: size must be non-negative, got {size}")
    if size > _MOST:
        raise EvaluationError(f"lists.range: size {size} exceeds maximum allowed ({_MOST})")
    count_items(size * _NUMBER_ITEMS)
    return joined(range(size))


def _reverse(values: list[object]) -> list[object]:
    charge(_CREATION + len(values))
    count_items(len(values))
    return [value for at in range(len(values), 0, -ITEMS) for value in values[max(0, at - ITEMS) : at][::-1]]


def _distinct(values: list[object]) -> list[object]:
    charge(1 + _all_compared(values))
    if all(isinstance(value, str) for value in values):
        return list(dict.fromkeys(values))
    result: list[object] = []
    for value in values:
        count_values(len(result))
        if not any(is_equal(value, other) for other in result):
            result.append(value)
    return result


def _first(values: list[object]) -> Optional:
    charge(1)
    return Optional(values[0]) if values else NONE


def _last(values: list[object]) -> Optional:
    charge(1)
    return Optional(values[-1]) if values else NONE


_COMPARABLE: Final = {
    "int": "int",
    "uint": "uint",
    "double": "double",
    "bool": "bool",
    "google.protobuf.Duration": "duration",
    "google.protobuf.Timestamp": "timestamp",
    "string": "string",
    "bytes": "bytes",
}
FUNCTIONS: Final = (
    function("list_slice", "list(T)::slice(int, int) -> list(T)", _slice),
    function("list_flatten", "list(list(T))::flatten() -> list(T)", _flatten),
    function("list_flatten_int", "list(dyn)::flatten(int) -> list(dyn)", _flatten),
    *(
        function(f"list_{name}_sort", f"list({kind})::sort() -> list({kind})", _sorted, 1, _all_compared)
        for name, kind in _COMPARABLE.items()
    ),
    *(
        function(
            f"list_{name}_sortByAssociatedKeys",
            f"list(T)::@sortByAssociatedKeys(list({kind})) -> list(T)",
            _sorted_by,
            1,
            lambda _, keys: _all_compared(keys),
        )
        for name, kind in _COMPARABLE.items()
    ),
    function("lists_range", "lists.range(int) -> list(int)", _range),
    function("list_reverse", "list(T)::reverse() -> list(T)", _reverse),
    function("list_distinct", "list(T)::distinct() -> list(T)", _distinct),
    function("list_first", "list(T)::first() -> optional_type(T)", _first),
    function("list_last", "list(T)::last() -> optional_type(T)", _last),
)
