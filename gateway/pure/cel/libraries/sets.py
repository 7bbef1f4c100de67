"""The sets functions of cel-go: lists as sets.

Source: cel-go ext/sets.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.cel.chunks import chunks
from gateway.pure.cel.equality import is_equal
from gateway.pure.cel.functions import function
from gateway.pure.cel.meter import charge, count_values

if TYPE_CHECKING:
    from collections.abc import Sequence


def _hashable(values: Sequence[object]) -> bool:
    """Whether equality of *values* is the same in Python and CEL: texts and numbers, not bool, not NaN."""
    return all(
        isinstance(one, str | int | float) and not isinstance(one, bool) and one == one for one in values
    )


def _rest(wanted: Sequence[object], values: Sequence[object]) -> set[object]:
    """Return those of *wanted* that are not in *values*."""
    rest: set[object] = set()
    for some in chunks(wanted):
        rest.update(some)
    for some in chunks(values):
        rest.difference_update(some)
    return rest


def _contains(values: Sequence[object], wanted: Sequence[object]) -> bool:
    if not values or not wanted:
        return not wanted
    if _hashable(values) and _hashable(wanted):
        return not _rest(wanted, values)
    count_values(len(values) * len(wanted))
    return all(any(is_equal(one, other) for other in values) for one in wanted)


def _sets_contains(values: Sequence[object], wanted: Sequence[object]) -> bool:
    charge(1 + len(values) * len(wanted))
    return _contains(values, wanted)


def _sets_equivalent(values: Sequence[object], others: Sequence[object]) -> bool:
    charge(1 + len(values) * len(others) * 2)
    return _contains(values, others) and _contains(others, values)


def _sets_intersects(values: Sequence[object], others: Sequence[object]) -> bool:
    charge(1 + len(values) * len(others))
    if not values or not others:
        return False
    if _hashable(values) and _hashable(others):
        held = _rest(values, ())
        return any(not held.isdisjoint(some) for some in chunks(others))
    count_values(len(values) * len(others))
    return any(is_equal(one, other) for one in values for other in others)


FUNCTIONS: Final = (
    function("list_sets_contains_list", "sets.contains(list(T), list(T)) -> bool", _sets_contains),
    function("list_sets_equivalent_list", "sets.equivalent(list(T), list(T)) -> bool", _sets_equivalent),
    function("list_sets_intersects_list", "sets.intersects(list(T), list(T)) -> bool", _sets_intersects),
)
