"""The list functions of Kubernetes.

Source: k8s.io/apiserver pkg/cel/library/lists.go (version 1).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.equality import is_equal, position
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import function
from gateway.pure.cel.libraries.order import charge_traversal, check_comparable, compare
from gateway.pure.cel.operators import add
from gateway.pure.cel.values import Duration, Uint

if TYPE_CHECKING:
    from collections.abc import Callable

_COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_ZEROS: Final[dict[str, object]] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}
_SUMMABLE: Final = frozenset(map(type, _ZEROS.values()))


def _is_sorted(values: list[object]) -> bool:
    charge_traversal(values)
    for index, value in enumerate(values):
        check_comparable(value, "isSorted" if not index else "")
        if index and compare(values[index - 1], value) == 1:
            return False
    return True


def _best(name: str, replaced_by: int) -> Callable[[list[object]], object]:
    def best(values: list[object]) -> object:
        charge_traversal(values)
        if not values:
            raise EvaluationError(f"{name} called on empty list")
        result = values[0]
        check_comparable(result, name)
        for value in values:
            check_comparable(value)
            if compare(result, value) == replaced_by:
                result = value
        return result

    return best


def _sum(zero: object) -> Callable[[list[object]], object]:
    def total(values: list[object]) -> object:
        charge_traversal(values)
        if not values:
            return zero
        result = values[0]
        if type(result) not in _SUMMABLE:
            raise EvaluationError("no such overload: sum(list)")
        for value in islice(values, 1, None):
            if type(value) is not type(result):
                raise EvaluationError("no such overload")
            result = add(result, value)
        return result

    return total


def _index_of(values: list[object], wanted: object) -> int:
    charge_traversal(values)
    found = position(values, wanted, range(len(values)))
    return -1 if found is None else found


def _last_index_of(values: list[object], wanted: object) -> int:
    charge_traversal(values)
    found = position(values, wanted, range(len(values) - 1, -1, -1))
    return -1 if found is None else found


def _includes(target: object, wanted: object) -> bool:
    charge_traversal(target)
    if isinstance(target, list):
        return position(target, wanted, range(len(target))) is not None
    return is_equal(target, wanted)


FUNCTIONS: Final = (
    *(
        function(f"list_{name}_is_sorted_bool", f"list({name})::isSorted() -> bool", _is_sorted)
        for name in _COMPARABLE
    ),
    *(
        function(f"list_{name}_{which}_{name}", f"list({name})::{which}() -> {name}", best)
        for which, best in (("max", _best("max", -1)), ("min", _best("min", 1)))
        for name in _COMPARABLE
    ),
    *(
        function(f"list_{name}_sum_{name}", f"list({name})::sum() -> {name}", _sum(zero))
        for name, zero in _ZEROS.items()
    ),
    function("list_a_index_of_int", "list(A)::indexOf(A) -> int", _index_of),
    function("list_a_last_index_of_int", "list(A)::lastIndexOf(A) -> int", _last_index_of),
    function("list_includes_dyn_dyn", "dyn::includes(dyn) -> bool", _includes),
)
