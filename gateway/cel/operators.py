"""The operators, as functions of values: arithmetic, order, indices, membership, size.

Whoever calls them charges one unit; what costs more is charged here.

Source: cel-go common/types/*.go, interpreter/runtimecost.go.
"""

from __future__ import annotations

import math
from typing import Final

from gateway.cel.equality import contains
from gateway.cel.errors import EvaluationError
from gateway.cel.meter import charge
from gateway.cel.values import Duration, Optional, Timestamp, Uint, type_name

NO_OVERLOAD: Final = "no such overload"
_INT64: Final = 1 << 63
_UINT64: Final = 1 << 64
_SECOND: Final = 1_000_000_000
_FIRST_NS: Final = -62135596800 * _SECOND
_LAST_NS: Final = 253402300800 * _SECOND - 1
_SHORT: Final = 10
"""Characters that are charged no more than a call."""
_KEYS_INCLUDED: Final = 20
"""Keys that are looked at for a unit."""
_LOOK_COST: Final = {str: 0.02, bytes: 0.02, int: 0.1, float: 0.1, type(None): 0.02}
"""For a comparison with an item of a list, by what is looked for."""
_ITEM_COST: Final = 0.2
"""For an item of a list that is copied, where cel-go copies none."""


def no_overload() -> EvaluationError:
    """The error of a function that is not for values of these types."""
    return EvaluationError(NO_OVERLOAD)


def checked_int(value: int) -> int:
    """Return *value*. Raises EvaluationError: it does not fit into 64 bits."""
    if -_INT64 <= value < _INT64:
        return value
    raise EvaluationError("integer overflow")


def checked_uint(value: int) -> Uint:
    """Return *value* as an unsigned integer. Raises EvaluationError: it does not fit into 64 bits."""
    if 0 <= value < _UINT64:
        return Uint(value)
    raise EvaluationError("unsigned integer overflow")


def checked_timestamp(ns: int) -> Timestamp:
    """Return the instant. Raises EvaluationError: not in the years from 1 to 9999."""
    if _FIRST_NS <= ns <= _LAST_NS:
        return Timestamp(ns)
    raise EvaluationError("timestamp overflow")


def checked_duration(ns: int) -> Duration:
    """Return the span. Raises EvaluationError: more than 64 bits of nanoseconds."""
    if -_INT64 <= ns < _INT64:
        return Duration(ns)
    raise EvaluationError("duration overflow")


def add(left: object, right: object) -> object:
    """``left + right``."""
    kind = type(left)
    if kind is not type(right):
        if isinstance(left, Timestamp) and isinstance(right, Duration):
            return checked_timestamp(left.ns + right.ns)
        if isinstance(left, Duration) and isinstance(right, Timestamp):
            return checked_timestamp(left.ns + right.ns)
        raise no_overload()
    if isinstance(left, str) and isinstance(right, str):
        charge(0.1 * (len(left) + len(right)) - 1)
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        charge(_ITEM_COST * (len(left) + len(right)))
        return left + right
    if isinstance(left, bytes) and isinstance(right, bytes):
        charge(0.1 * (len(left) + len(right)) - 1)
        return left + right
    if isinstance(left, Duration) and isinstance(right, Duration):
        return checked_duration(left.ns + right.ns)
    if kind is int:
        return checked_int(left + right)  # type: ignore[operator]
    if kind is float:
        return left + right  # type: ignore[operator]
    if kind is Uint:
        return checked_uint(left + right)  # type: ignore[operator]
    raise no_overload()


def subtract(left: object, right: object) -> object:
    """``left - right``."""
    if isinstance(left, Timestamp):
        if isinstance(right, Timestamp):
            return checked_duration(left.ns - right.ns)
        if isinstance(right, Duration):
            return checked_timestamp(left.ns - right.ns)
    kind = type(left)
    if kind is type(right):
        if isinstance(left, Duration) and isinstance(right, Duration):
            return checked_duration(left.ns - right.ns)
        if kind is int:
            return checked_int(left - right)  # type: ignore[operator]
        if kind is float:
            return left - right  # type: ignore[operator]
        if kind is Uint:
            return checked_uint(int(left) - int(right))  # type: ignore[call-overload]
    raise no_overload()


def multiply(left: object, right: object) -> object:
    """``left * right``."""
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return checked_int(left * right)  # type: ignore[operator]
        if kind is float:
            return left * right  # type: ignore[operator]
        if kind is Uint:
            return checked_uint(left * right)  # type: ignore[operator]
    raise no_overload()


def divide(left: object, right: object) -> object:
    """``left / right``, of integers towards zero."""
    kind = type(left)
    if kind is not type(right) or not isinstance(left, int | float) or not isinstance(right, int | float):
        raise no_overload()
    if kind is float:
        if right:
            return left / right
        return (
            math.nan
            if not left or math.isnan(left)
            else math.copysign(math.inf, left) * math.copysign(1, right)
        )
    return _integer(left, right, "division by zero", is_quotient=True)


def modulo(left: object, right: object) -> object:
    """``left % right``, with the sign of *left*."""
    return _integer(left, right, "modulus by zero", is_quotient=False)


def _integer(left: object, right: object, by_zero: str, *, is_quotient: bool) -> object:
    kind = type(left)
    if (
        kind is not type(right)
        or kind not in (int, Uint)
        or not isinstance(left, int)
        or not isinstance(right, int)
    ):
        raise no_overload()
    if not right:
        raise EvaluationError(by_zero)
    quotient, rest = divmod(abs(left), abs(right))
    if is_quotient:
        found = quotient if (left < 0) is (right < 0) else -quotient
    else:
        checked_int(quotient if (left < 0) is (right < 0) or kind is Uint else -quotient)
        found = -rest if left < 0 else rest
    return Uint(found) if kind is Uint else checked_int(found)


def negate(value: object) -> object:
    """``-value``."""
    if type(value) is int:
        return checked_int(-value)
    if isinstance(value, float):
        return -value
    raise no_overload()


def compare(left: object, right: object) -> int:
    """Return a negative number, zero or a positive one, as *left* is less, equal or greater."""
    kind, other = type(left), type(right)
    if kind is other:
        if isinstance(left, str | bytes):
            size = min(len(left), len(right))  # type: ignore[arg-type]
            if size > _SHORT:
                charge(math.ceil(0.1 * size) - 1)
        elif kind not in _ORDERED:
            raise no_overload()
    elif kind not in _NUMBERS or other not in _NUMBERS:
        raise no_overload()
    if isinstance(left, Timestamp | Duration) and isinstance(right, Timestamp | Duration):
        left, right = left.ns, right.ns
    elif kind is not other and float in (kind, other):
        # As cel-go does, at the price of what a double cannot hold.
        left, right = float(left), float(right)  # type: ignore[arg-type]
    if left != left or right != right:
        raise EvaluationError("NaN values cannot be ordered")
    return int(left > right) - int(left < right)  # type: ignore[operator]


_NUMBERS: Final = frozenset({int, float, Uint})
_ORDERED: Final = _NUMBERS | {bool, Timestamp, Duration}


def index(container: object, key: object) -> object:
    """``container[key]``."""
    if type(container) is dict:
        return _of_map(container, key)
    if type(container) is list:
        if isinstance(key, float) and key.is_integer():
            key = int(key)
        if not isinstance(key, int) or isinstance(key, bool):
            raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")
        if 0 <= key < len(container):
            return container[key]
        raise EvaluationError(f"index out of bounds: {key}")
    if isinstance(container, Optional):
        return optional_index(container, key)
    raise EvaluationError(f"no such key: {show(key)}")


def _of_map(container: dict[object, object], key: object) -> object:
    try:
        found = container[key]
    except (KeyError, TypeError):
        raise EvaluationError(f"no such key: {show(key)}") from None
    if key in _BOOL_LIKE and not _has_bool_or_number(container, key):
        raise EvaluationError(f"no such key: {show(key)}")
    return found


_BOOL_LIKE: Final = (0, 1)
"""Of all keys these alone may be there as another: to Python, True is 1."""


def _has_bool_or_number(container: dict[object, object], key: object) -> bool:
    """Whether the key is there as what it is, which takes a look at all keys."""
    charge(len(container) // _KEYS_INCLUDED)
    return any(each == key and isinstance(each, bool) is isinstance(key, bool) for each in container)


def optional_index(container: object, key: object) -> Optional:
    """``container[?key]``."""
    if isinstance(container, Optional):
        return optional_index(container.value, key) if container.present else container
    if isinstance(container, dict | list):
        try:
            return Optional(index(container, key))
        except EvaluationError as error:
            if str(error).startswith(("no such key", "index out of")):
                return Optional(present=False)
            raise
    return Optional(present=False)


def is_in(wanted: object, container: object, *, is_typed: bool = True) -> bool:
    """``wanted in container``. Without *is_typed* cel-go charges nothing for it, however long a list is."""
    if isinstance(container, list):
        price = 1.0 if is_typed else _LOOK_COST.get(type(wanted), 0.3)
        charge(max(0.0, len(container) * price - 1))
        return contains(container, wanted)
    if isinstance(container, dict):
        try:
            is_there = wanted in container
        except TypeError:
            return False
        return is_there and (wanted not in _BOOL_LIKE or _has_bool_or_number(container, wanted))
    raise no_overload()


def size(value: object) -> int:
    """``size(value)``: characters, bytes, items or entries."""
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    raise no_overload()


def show(value: object) -> str:
    """Return *value* as an error message names it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)
