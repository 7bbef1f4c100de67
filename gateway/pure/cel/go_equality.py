"""``==`` where values of Go types may be among the operands: what cel-go makes of errors within comparisons.

Source: k8s.io/apiserver pkg/cel/common/valuesschemalesstyped.go; cel-go common/types (Equal of list and map).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.go_types import is_struct, type_in_go
from gateway.pure.cel.indexing import is_key
from gateway.pure.cel.meter import METER, count_values
from gateway.pure.cel.values import Optional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Equal = Callable[[object, object], bool]

_CONTAINERS: Final = frozenset({list, dict})
_NESTED: Final = frozenset({list, dict, Optional})
_NO_OVERLOAD: Final = "no such overload"
_CONTAINER: Final = 60
"""The number of values that take as long as an empty list or map: they are compared by recursion."""


class _KeyError:
    """What a Go struct has at a key that is not text: an error, which other values compare with."""


_KEY_ERROR: Final = _KeyError()


def may_decide(left: object, right: object) -> bool:
    """Return whether Go types may decide if *left*, a list, map or optional value, equals *right*."""
    if METER.inputs is None or right is None:
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and any(type(each) in _NESTED for each in left)
    return type(left) in _CONTAINERS or isinstance(right, Optional)


def equal_by_type(left: object, right: object, equal: Equal) -> bool:
    """Return ``left == right``. *equal* compares values without a Go type.

    Raises:
        EvaluationError: *left* has a Go type and *right* is of another kind, or parts of structs are so.
    """
    try:
        found = _equal(left, right, equal)
    except RecursionError:
        # No Go type nests so deep, except in itself.
        return equal(left, right)
    if found is None:
        raise EvaluationError(_NO_OVERLOAD)
    return found


def _equal(left: object, right: object, equal: Equal) -> bool | None:
    """Return the result of cel-go's ``Equal(left, right)``; None if it is an error."""
    if left is None or right is None:
        return left is right
    if isinstance(left, Optional) and isinstance(right, Optional):
        both = left.present and right.present
        return _equal(left.value, right.value, equal) if both else left.present is right.present
    return _is_equal_to(left, right, equal)


def _is_equal_to(left: object, right: object, equal: Equal) -> bool | None:
    """Return the result of Go's ``left.Equal(right)``; None if it is an error."""
    if not isinstance(left, list | dict):
        try:
            return equal(left, right)
        except EvaluationError:
            return None
    of_left = type_in_go(left)
    if type(left) is not type(right):
        return None if of_left else False
    assert isinstance(right, list | dict)
    of_right = type_in_go(right)
    if is_struct(of_left) and is_struct(of_right):
        return of_left == of_right and equal(left, right)
    if len(left) != len(right):
        return False
    count_values(len(left) + _CONTAINER)
    if isinstance(left, list):
        pairs: Iterable[tuple[object, object]] = zip(left, right, strict=True)
    else:
        assert isinstance(right, dict)
        has_error = is_struct(of_right)
        if not all(
            (key in right and is_key(right, key)) or (has_error and type(key) is not str) for key in left
        ):
            return False
        pairs = ((value, right.get(key, _KEY_ERROR)) for key, value in left.items())
    compare = _is_equal_to if of_left else _equal
    results = (compare(one, other, equal) for one, other in pairs)
    if is_struct(of_left):
        return next((each for each in results if each is not True), True)
    # A list or map of an expression takes for equal what cannot be compared, one of Go for different.
    return all(each is True for each in results) if of_left else all(each is not False for each in results)
