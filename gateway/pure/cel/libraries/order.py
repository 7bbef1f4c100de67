"""The order of values, and the cost of traversing them.

Source: cel-go common/types (Compare of each type); k8s.io/apiserver pkg/cel/library/cost.go (traversalCost).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.meter import charge, count_reading, count_values
from gateway.pure.cel.values import Duration, Timestamp, type_name

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS: Final[dict[type, str]] = {
    str: "string",
    bytes: "bytes",
    bool: "bool",
    Timestamp: "timestamp",
    Duration: "duration",
    int: "number",
    float: "number",
}


_CONTAINER: Final = 20
"""The number of values that take as long as an empty list or map."""


def check_comparable(value: object, function: str = "") -> None:
    """Raise EvaluationError unless *value* is of a type that has an order.

    For the first value of a list, *function* is the called function, which the error names.
    """
    if _kind(value) is None:
        raise EvaluationError(f"no such overload: {function}(list)" if function else "no such overload")


def compare(left: object, right: object) -> int | None:
    """Return -1, 0 or 1; None if the two have no order: neither is less."""
    kind = _kind(left)
    if kind is None or kind != _kind(right) or left != left or right != right:
        return None
    return (left > right) - (left < right)  # type: ignore[operator,no-any-return]


def _kind(value: object) -> str | None:
    return _KINDS.get(type(value)) or ("number" if isinstance(value, int) else None)


def same_type(values: Sequence[object]) -> bool:
    """Whether *values* are all of one type."""
    return len({type_name(value) for value in values}) <= 1


def charge_traversal(value: object) -> None:
    """Charge for the traversal of *value*: 0.1 for a byte of text, 1 for any other scalar."""
    cost = 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            if not one.isascii():
                count_reading(one)
            cost += (len(one) if one.isascii() else len(one.encode())) // 10
        elif isinstance(one, bytes):
            cost += len(one) // 10
        elif isinstance(one, list | dict):
            count_values(2 * len(one) + _CONTAINER)
            waiting.extend(one)
            if isinstance(one, dict):
                waiting.extend(one.values())
        else:
            cost += 1
    charge(cost)
