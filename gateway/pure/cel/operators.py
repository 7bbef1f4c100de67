"""Operators as functions of values: arithmetic, order, membership, size. They charge no costs.

Source: cel-go common/types/*.go.
"""

from __future__ import annotations

import math
from typing import Final

from gateway.pure.cel.chunks import ITEMS, joined
from gateway.pure.cel.equality import contains
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.go_types import type_in_go
from gateway.pure.cel.indexing import check_go_key, is_key
from gateway.pure.cel.meter import LONG_TEXT, count_comparison, count_items, count_look_up, count_text
from gateway.pure.cel.values import Duration, Timestamp, Uint

NO_OVERLOAD: Final = "no such overload"
_INT64: Final = 1 << 63
_UINT64: Final = 1 << 64
_SECOND: Final = 1_000_000_000
_FIRST_NS: Final = -62135596800 * _SECOND
_LAST_NS: Final = 253402300800 * _SECOND - 1


def no_overload(operator: str = "", left: object = None) -> EvaluationError:
    """Return the error of a function without an overload for its arguments.

    The error names *operator* if values of the type of *left* do not have the operator at all.
    """
    if operator and type(left) not in _OPERANDS[operator] and type(left) not in _RECEIVERS:
        return EvaluationError(f"{NO_OVERLOAD}: {operator}")
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
    raise EvaluationError("integer overflow")


def add(left: object, right: object) -> object:
    """``left + right``."""
    kind = type(left)
    if kind is not type(right):
        if isinstance(left, Timestamp) and isinstance(right, Duration):
            return checked_timestamp(left.ns + right.ns)
        if isinstance(left, Duration) and isinstance(right, Timestamp):
            return checked_timestamp(left.ns + right.ns)
        raise no_overload("_+_", left)
    if isinstance(left, str) and isinstance(right, str):
        count_text(len(left) + len(right), left, right)
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        if not left and not type_in_go(left):
            return right
        count_items(len(left) + len(right))
        return joined(left, right) if len(left) + len(right) > ITEMS else left + right
    if isinstance(left, bytes) and isinstance(right, bytes):
        count_text(len(left) + len(right))
        return left + right
    if isinstance(left, Duration) and isinstance(right, Duration):
        return checked_duration(left.ns + right.ns)
    if kind is int:
        return checked_int(left + right)  # type: ignore[operator]
    if kind is float:
        return left + right  # type: ignore[operator]
    if kind is Uint:
        return checked_uint(left + right)  # type: ignore[operator]
    raise no_overload("_+_", left)


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
    raise no_overload("_-_", left)


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
    raise no_overload("_*_", left)


def divide(left: object, right: object) -> object:
    """``left / right``, of integers towards zero."""
    kind = type(left)
    if kind is not type(right) or not isinstance(left, int | float) or not isinstance(right, int | float):
        raise no_overload("_/_", left)
    if kind is float:
        if right:
            return left / right
        return (
            float("nan")
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
        raise no_overload("_/_" if is_quotient else "_%_", left)
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


def compare(left: object, right: object, name: str = "_<_") -> int:
    """Return a negative number, zero or a positive one, as *left* is less, equal or greater.

    *name* is the name of the operator.
    """
    kind, other = type(left), type(right)
    if kind is other:
        if kind not in _ORDERED:
            raise no_overload(name, left)
    elif kind not in _NUMBERS or other not in _NUMBERS:
        raise no_overload(name, left)
    if isinstance(left, Timestamp | Duration) and isinstance(right, Timestamp | Duration):
        left, right = left.ns, right.ns
    elif kind is not other and float in (kind, other):
        # As in cel-go, an integer becomes a double, which may round it.
        left, right = float(left), float(right)  # type: ignore[arg-type]
    if (kind is str or kind is bytes) and len(left) > LONG_TEXT:  # type: ignore[arg-type]
        count_comparison(left)  # type: ignore[arg-type]
    if left != left or right != right:
        raise EvaluationError("NaN values cannot be ordered")
    return int(left > right) - int(left < right)  # type: ignore[operator]


_NUMBERS: Final = frozenset({int, float, Uint})
_ORDERED: Final = _NUMBERS | {str, bytes, bool, Timestamp, Duration}
_OPERANDS: Final = {
    "_+_": _NUMBERS | {str, bytes, list, Timestamp, Duration},
    "_-_": _NUMBERS | {Timestamp, Duration},
    "_*_": _NUMBERS,
    "_/_": _NUMBERS,
    "_%_": frozenset({int, Uint}),
    "-_": frozenset({int, float}),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _ORDERED),
}
"""Types of left operands that have an operator."""
_RECEIVERS: Final = frozenset({str, Timestamp, Duration})
"""Types whose own methods in cel-go refuse an operator, with an error that does not name it."""


def is_in(wanted: object, container: object) -> bool:
    """``wanted in container``."""
    if isinstance(container, list):
        return contains(container, wanted)
    if isinstance(container, dict):
        if type(wanted) is str:
            count_look_up(wanted)
        else:
            check_go_key(container, wanted)
        try:
            return wanted in container and is_key(container, wanted)
        except TypeError:
            return False
    raise no_overload()


def size(value: object) -> int:
    """``size(value)``: characters, bytes, items or entries."""
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    raise no_overload()
