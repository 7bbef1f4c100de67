"""CEL's ``==``: deep equality, also between number types. A bool never equals a number.

Source: cel-go common/types (Equal of each type).
"""

from __future__ import annotations

from typing import Final

import orjson

from gateway.cel.errors import EvaluationError
from gateway.cel.meter import count_steps, count_values
from gateway.cel.values import Optional, Struct, Uint

_PLAIN: Final = frozenset({str, int, float, type(None), bytes})
_CONTAINERS: Final = (list, dict)
_AS_WRITTEN: Final = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS
_LOOK: Final = 10
"""Steps for a comparison that Python makes by itself."""
_BYTE: Final = 5
"""Steps for a byte in a comparison of JSON texts."""
_CONTAINER: Final = 20
"""The number of values that take as long as an empty list or map."""
_AT_ONCE: Final = 100
"""Pairs that are counted together."""
_NUMBERS: Final = frozenset({int, float, Uint})


def equal(left: object, right: object) -> bool:
    """Return whether two values are equal.

    Raises:
        EvaluationError: *left* is of a type of Kubernetes that compares only with itself, and *right* is not.
            Within lists and maps cel-go treats the two as equal.
    """
    if type(left) in _PLAIN and type(left) is type(right):
        return left == right
    if type(left) in _CONTAINERS and type(left) is type(right) and _is_same_json(left, right):
        return True
    return _walked(left, right)


def _walked(left: object, right: object) -> bool:
    waiting = [(left, right, True)]
    seen = 0
    while waiting:
        one, other, is_strict = waiting.pop()
        if isinstance(one, list | dict):
            seen += len(one) + _CONTAINER
            if seen > _AT_ONCE:
                count_values(seen)
                seen = 0
        parts = _parts(one, other)
        if parts is None:
            same = _is_same(one, other)
            if same is None and is_strict:
                raise EvaluationError("no such overload")
            if same is False:
                return False
            continue
        if not isinstance(parts, list):
            return False
        is_strict = is_strict and isinstance(one, Optional)
        for part, against in parts:
            kind = type(part)
            if kind not in _PLAIN or kind is not type(against):
                waiting.append((part, against, is_strict))
            elif part != against:
                return False
    count_values(seen)
    return True


def _is_same_json(left: object, right: object) -> bool:
    """Return whether two values are the same JSON: a fast test, which only equal values pass."""
    try:
        # In Python 1 equals true; in the JSON text NaN is null.
        if left != right:
            return False
        written = orjson.dumps(left, option=_AS_WRITTEN)
        count_steps(len(written) * _BYTE)
        return written == orjson.dumps(right, option=_AS_WRITTEN)
    except (TypeError, EvaluationError, RecursionError):
        return False


def is_equal(left: object, right: object) -> bool:
    """Return whether two values are equal; values that cannot be compared are not."""
    try:
        return equal(left, right)
    except EvaluationError:
        return False


def _parts(left: object, right: object) -> list[tuple[object, object]] | bool | None:
    """Return pairs of parts to compare; False if the values differ, None if they have no parts."""
    if isinstance(left, dict) and isinstance(right, dict):
        if left.keys() != right.keys():
            return False
        return [(value, right[key]) for key, value in left.items()]
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and list(zip(left, right, strict=True))
    if isinstance(left, Optional) and isinstance(right, Optional):
        return left.present is right.present and [(left.value, right.value)]
    return None


def _is_same(left: object, right: object) -> bool | None:
    """Return whether two values without parts are equal; None if they cannot be compared."""
    if isinstance(left, Struct):
        return isinstance(right, Struct) and _is_same_struct(left, right)
    # A computed quantity has a Go type that Equal does not accept as its right operand.
    is_alike = type(left) is type(right) and not getattr(right, "is_computed", False)
    if hasattr(left, "cel_type") and right is not None and not is_alike:
        return None
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    # As in cel-go, an integer becomes a double, which may round it.
    if isinstance(left, int) and isinstance(right, float):
        left = float(left)
    elif isinstance(left, float) and isinstance(right, int):
        right = float(right)
    return left == right


def _is_same_struct(left: Struct, right: Struct) -> bool:
    """Compare the texts and the value of a ``JSONPatch``, and all parts of an ``Object`` with their types."""
    if left.cel_type != right.cel_type:
        return False
    if left.cel_type != "JSONPatch":
        return _is_identical(left.fields, right.fields)
    if ("value" in left.fields) is not ("value" in right.fields):
        return False
    texts = all(left.fields.get(each, "") == right.fields.get(each, "") for each in ("op", "path", "from"))
    return texts and is_equal(left.fields.get("value"), right.fields.get("value"))


def _is_identical(left: object, right: object) -> bool:
    """Whether two values are equal and of the same types."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        same_keys = left.keys() == right.keys()
        return same_keys and all(_is_identical(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_identical, left, right))
    if isinstance(left, Struct) and isinstance(right, Struct):
        return left.cel_type == right.cel_type and _is_identical(left.fields, right.fields)
    return left == right


def contains(items: list[object], wanted: object) -> bool:
    """Return whether *wanted* is in the list *items*."""
    kind = type(wanted)
    if kind in _PLAIN or kind is Uint:
        count_steps(len(items) * _LOOK)
        found = wanted in items
        # In Python true equals 1.
        if not found or kind not in _NUMBERS or wanted not in (0, 1):
            return found
        return any(item == wanted for item in items if type(item) in _NUMBERS)
    count_values(len(items) * _CONTAINER)
    return any(is_equal(wanted, item) for item in items)


def position(items: list[object], wanted: object, order: range) -> int | None:
    """Return the first index in *order* at which *items* has *wanted*, if any."""
    kinds = _NUMBERS if type(wanted) in _NUMBERS else {type(wanted)} if type(wanted) in _PLAIN else ()
    count_values(len(order))
    for index in order:
        item = items[index]
        if type(item) in kinds:
            if item == wanted:
                return index
        elif not kinds and is_equal(item, wanted):
            return index
    return None
