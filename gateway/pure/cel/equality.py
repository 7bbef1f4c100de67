"""CEL's ``==``: deep equality, also between number types. A bool never equals a number.

Parts of a value can be shared: such a value has far more leaves than it takes memory. So values are walked in
Python, every part is counted in steps before it is compared, and no call of C code sees a whole value.

Source: cel-go common/types (Equal of each type).
"""

from __future__ import annotations

from enum import Enum
from itertools import repeat
from typing import TYPE_CHECKING, Final

import orjson

from gateway.pure.cel.chunks import chunks
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.go_equality import equal_by_type, may_decide
from gateway.pure.cel.go_types import type_in_go
from gateway.pure.cel.meter import LONG_TEXT, count_comparison, count_steps, count_values
from gateway.pure.cel.values import Optional, Struct, Uint

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN: Final = frozenset({str, int, float, type(None), bytes})
_TEXTS: Final = frozenset({str, bytes})
_CONTAINERS: Final = (list, dict)
_SCALARS: Final = frozenset({int, float, bool, type(None)})
_TYPED: Final = frozenset({list, dict, Optional})
_AS_WRITTEN: Final = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS
_SMALL_NUMBER: Final = 10_000
_SMALL_SIZE: Final = 100_000
"""Parts, and characters of long texts, of a value that C code may read at once: within a millisecond."""
_WITH_PARTS: Final = (list, dict, Optional, Struct)
_LOOK: Final = 10
"""Steps for a comparison that Python makes by itself."""
_CONTAINER: Final = 20
"""The number of values that take as long as an empty list or map."""
_AT_ONCE: Final = 100
"""Pairs that are counted together."""
_NUMBERS: Final = frozenset({int, float, Uint})
_ABSENT: Final = object()


class _Rule(Enum):
    """How two parts are compared: what holds if their types cannot be compared."""

    STRICT = 1
    """It is an error."""
    LENIENT = 2
    """They are equal: within lists and maps cel-go treats them so."""
    DIFFERENT = 3
    """They are not equal."""
    IDENTICAL = 4
    """They have to be of the same types, numbers too."""


_STRICT, _LENIENT, _DIFFERENT, _IDENTICAL = _Rule


def equal(left: object, right: object) -> bool:
    """Return whether two values are equal.

    Raises:
        EvaluationError: *left* is of a type of Kubernetes that compares only with itself, and *right* is
            not; or *left* has a Go type, and *right* is of another kind. Within lists and maps of an
            expression cel-go treats the two as equal.
        CostExceeded: they have too many parts.
    """
    if type(left) in _PLAIN and type(left) is type(right):
        return left == right
    if type(left) in _TYPED and may_decide(left, right):
        return equal_by_type(left, right, equal_as_json)
    return equal_as_json(left, right)


def equal_as_json(left: object, right: object) -> bool:
    """Return :func:`equal` of two values, where no Go type decides.

    Raises:
        EvaluationError, CostExceeded: as there.
    """
    if type(left) in _CONTAINERS and type(left) is type(right):
        if len(left) != len(right):  # type: ignore[arg-type]
            return False
        if _is_small(left) and _is_same_json(left, right):
            return True
    return _walked(left, right)


def _is_small(value: object) -> bool:
    """Return whether *value* is JSON that C code may read at once; shared parts count each time."""
    waiting = [value]
    number = size = 0
    while waiting:
        one = waiting.pop()
        if type(one) is not dict and type(one) is not list:
            return False
        number += len(one) + 1
        if number > _SMALL_NUMBER or size > _SMALL_SIZE:
            break
        for each in one.values() if isinstance(one, dict) else one:
            kind = type(each)
            if kind is str:
                size += len(each)
            elif kind not in _SCALARS:
                waiting.append(each)
    count_values(min(number, _SMALL_NUMBER))
    return not waiting and number <= _SMALL_NUMBER and size <= _SMALL_SIZE


def _is_same_json(left: object, right: object) -> bool:
    """Return whether two values are the same JSON: a fast test, which only equal values pass."""
    try:
        # In Python 1 equals true; in the JSON text NaN is null.
        return left == right and orjson.dumps(left, option=_AS_WRITTEN) == orjson.dumps(
            right, option=_AS_WRITTEN
        )
    except (TypeError, EvaluationError, RecursionError):
        return False


def _walked(left: object, right: object) -> bool:
    waiting = [(left, right, _STRICT)]
    seen = 0
    while waiting:
        one, other, rule = waiting.pop()
        pairs, inner = _parts(one, other, rule)
        if pairs is None:
            same = _is_same(one, other, rule)
            if same is None and rule is _STRICT:
                raise EvaluationError("no such overload")
            if same is False or (same is None and rule is _DIFFERENT):
                return False
            continue
        seen += (len(one) if isinstance(one, list | dict) else 1) + _CONTAINER
        if seen > _AT_ONCE:
            count_values(seen)
            seen = 0
        for part, against in pairs:
            if type(part) not in _PLAIN or type(part) is not type(against):
                waiting.append((part, against, inner))
            elif part != against:
                return False
            elif isinstance(part, str) and len(part) > LONG_TEXT:
                count_comparison(part)
    count_values(seen)
    return True


def is_equal(left: object, right: object) -> bool:
    """Return whether two values are equal; values that cannot be compared are not."""
    try:
        return equal(left, right)
    except EvaluationError:
        return False


def _parts(left: object, right: object, rule: _Rule) -> tuple[Iterable[tuple[object, object]] | None, _Rule]:
    """Return pairs of parts with the rule for them; None if the values have no parts, or differ."""
    inner = rule if rule is _IDENTICAL else _LENIENT
    if isinstance(left, dict) and isinstance(right, dict) and len(left) == len(right):
        return zip(left.values(), map(right.get, left, repeat(_ABSENT)), strict=False), inner
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return zip(left, right, strict=True), inner
    if isinstance(left, Optional) and isinstance(right, Optional) and left.present is right.present:
        return [(left.value, right.value)], rule
    if not isinstance(left, Struct) or not isinstance(right, Struct) or left.cel_type != right.cel_type:
        return None, rule
    one, other = left.fields, right.fields
    if left.cel_type != "JSONPatch" or rule is _IDENTICAL:
        # All parts of an Object are compared with their types.
        return [(one, other)], _IDENTICAL
    pairs = [(one.get(each, ""), other.get(each, "")) for each in ("op", "path", "from")]
    return [*pairs, (one.get("value", _ABSENT), other.get("value", _ABSENT))], _DIFFERENT


def _is_same(left: object, right: object, rule: _Rule) -> bool | None:
    """Return whether two values without parts are equal; None if they cannot be compared."""
    if right is _ABSENT or isinstance(left, _WITH_PARTS):
        return left is right
    if rule is _IDENTICAL:
        return type(left) is type(right) and left == right
    # A computed quantity has a Go type that Equal does not accept as its right operand.
    is_alike = type(left) is type(right) and not getattr(right, "is_computed", False)
    if hasattr(left, "cel_type") and right is not None:
        if not is_alike:
            return None
        count_steps(getattr(left, "comparison_steps", 0))
    elif type(left) in _TEXTS and len(left) > LONG_TEXT:  # type: ignore[arg-type]
        count_comparison(left)  # type: ignore[arg-type]
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    # As in cel-go, an integer becomes a double, which may round it.
    if isinstance(left, int) and isinstance(right, float):
        left = float(left)
    elif isinstance(left, float) and isinstance(right, int):
        right = float(right)
    return left == right


def contains(items: list[object], wanted: object) -> bool:
    """Return whether *wanted* is in the list *items*."""
    kind = type(wanted)
    if kind in _PLAIN or kind is Uint:
        count_steps(len(items) * _LOOK)
        if kind in _TEXTS:
            count_comparison(wanted, len(items))  # type: ignore[arg-type]
        is_like_bool = kind in _NUMBERS and wanted in (0, 1)
        for some in chunks(items):
            if wanted in some and (
                # In Python true equals 1.
                not is_like_bool or any(item == wanted for item in some if type(item) in _NUMBERS)
            ):
                return True
        return False
    count_values(len(items) * _CONTAINER)
    if type_in_go(items):
        return any(is_equal(item, wanted) for item in items)
    return any(is_equal(wanted, item) for item in items)


def position(items: list[object], wanted: object, order: range) -> int | None:
    """Return the first index in *order* at which *items* has *wanted*, if any."""
    kinds = _NUMBERS if type(wanted) in _NUMBERS else {type(wanted)} if type(wanted) in _PLAIN else ()
    count_values(len(order))
    if type(wanted) in _TEXTS:
        count_comparison(wanted, len(order))  # type: ignore[arg-type]
    for index in order:
        item = items[index]
        if type(item) in kinds:
            if item == wanted:
                return index
        elif not kinds and is_equal(item, wanted):
            return index
    return None
