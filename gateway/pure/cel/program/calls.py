"""The code of calls: functions and operators.

Source: cel-go interpreter/planner.go, interpreter/interpretable.go, interpreter/decorators.go.
"""

from __future__ import annotations

import math
import operator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gateway.pure.cel import operators
from gateway.pure.cel.equality import equal_as_json
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.meter import METER, charge
from gateway.pure.cel.operators import no_overload
from gateway.pure.cel.program import call_sources
from gateway.pure.cel.program.code import Built, all_values, constant_code, first_decisive
from gateway.pure.cel.standard import equality, inequality
from gateway.pure.cel.syntax import Call, Literal
from gateway.pure.cel.values import Duration, Optional, Timestamp, Uint, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.pure.cel.functions import Function
    from gateway.pure.cel.program.code import Code, Frame


def call_code(node: Call, built: list[Built], *, is_alike: bool = False) -> Built:
    """Return the code of *node*, whose operands, the receiver first, are *built*.

    *is_alike*: the operands are the same part of ``object`` and ``oldObject``, and have the same Go type.
    """
    if (special := _SPECIAL.get(node.function)) is not None and len(built) > 1:
        return special(built)
    overloads = node.overloads
    if node.function == "@in" and len(overloads) == 1 and isinstance(held := node.arguments[1], Literal):
        if not held.value:
            # As in cel-go's planner, whatever the first operand is.
            return Built(constant_code(value=False), 0)
        if isinstance(held.value, list) and all(type(each) in _IN_SETS for each in held.value):
            return _membership(built[0], held.value)
    cost = sum(each.cost for each in built)
    if node.function in ("_==_", "_!=_"):
        return _equality(node, built, is_equal=node.function == "_==_", is_alike=is_alike)
    if node.function == "!_":
        return _negation(built[0])
    cost += overloads[0].cost
    # cel-go charges by the overload; if there are several and the values decide, the price is flat.
    extra = overloads[0].extra if len(overloads) == 1 else None
    call: Callable[..., object]
    if node.function in _ORDER:
        call = _comparison(node.function, extra)
    elif (combine := _OPERATORS.get(node.function)) is not None:
        call = combine if extra is None else _priced(extra, combine)
    else:
        call = _dispatched(overloads, extra)
    source = call_sources.call_source(node, call, built)
    if 1 <= len(built) <= 2:
        return Built(_call_code(call, [each.code for each in built]), cost, source)
    values = all_values(built, overloads[0].cost)
    return Built(lambda frame: call(*values(frame)), cost, source)


def _call_code(call: Callable[..., object], codes: list[Code]) -> Code:
    """Return the code that calls *call* with the values of *codes*, one or two."""
    if len(codes) == 1:
        (only,) = codes
        return lambda frame: call(only(frame))
    first, second = codes

    def call_two(frame: Frame) -> object:
        try:
            left = first(frame)
        except EvaluationError:
            # cel-go evaluates the other operand, too: it costs.
            with suppress(EvaluationError):
                second(frame)
            raise
        return call(left, second(frame))

    return call_two


def _compared_code(compare: Callable[[object, object], bool], left: Code, right: Code) -> Code:
    """Return the code that calls *compare* with two values, whose comparison was charged one unit."""

    def run(frame: Frame) -> object:
        try:
            one = left(frame)
        except EvaluationError:
            with suppress(EvaluationError):
                METER.left += right(frame) in _EMPTY
            raise
        try:
            other = right(frame)
        except EvaluationError:
            # In cel-go the price of a comparison is that of the smaller value; an error has the size 1.
            METER.left += one in _EMPTY
            raise
        return compare(one, other)

    return run


def _priced(
    extra: Callable[..., int], combine: Callable[[object, object], object]
) -> Callable[[object, object], object]:
    def call(left: object, right: object) -> object:
        charge(extra(left, right))
        return combine(left, right)

    return call


def _membership(wanted: Built, held: list[object]) -> Built:
    """Return the code of ``wanted in [constants]``: a lookup, which is free in cel-go."""
    # Numbers of each type, as cel-go converts those of the list; a double holds them rounded.
    sets: dict[type, set[object]] = {kind: set() for kind in _IN_SETS}
    for each in held:
        sets[type(each)].add(each)
        if isinstance(each, bool) or not isinstance(each, int | float) or not math.isfinite(each):
            continue
        if isinstance(each, int):
            sets[float].add(float(each))
        elif not each.is_integer():
            continue
        if -(1 << 63) <= each < 1 << 63:
            sets[int].add(int(each))
        if 0 <= each < 1 << 64:
            sets[Uint].add(int(each))
    texts = sets[str]

    def is_member(value: object) -> bool:
        kind = type(value)
        if kind is str:
            return value in texts
        if kind is bytes:
            raise EvaluationError("internal error: runtime error: hash of unhashable type types.Bytes")
        return kind in sets and value in sets[kind]

    return Built(
        _call_code(is_member, [wanted.code]),
        wanted.cost,
        call_sources.membership_source(wanted, texts, is_member),
    )


def _equality(node: Call, built: list[Built], *, is_equal: bool, is_alike: bool) -> Built:
    left, right = built
    usual = equality if is_equal else inequality
    compare = partial(usual, same=equal_as_json) if is_alike else usual
    constant = node.arguments[1]
    cost = left.cost + right.cost
    if not isinstance(constant, Literal) or not isinstance(constant.value, str):
        source = call_sources.equality_source(left, right, compare, is_equal=is_equal)
        return Built(_compared_code(compare, left.code, right.code), cost + 1, source)
    text = constant.value
    size, price = len(text), math.ceil(len(text) * 0.1)

    def compare_text(value: object) -> bool:
        if type(value) is not str:
            METER.left += price - 1
            return compare(value, text)
        if value == text:
            return is_equal
        if len(value) < size:
            METER.left += price - math.ceil(len(value) * 0.1)
        return not is_equal

    source = call_sources.text_equality_source(left, text, is_equal=is_equal)
    code = left.code

    def run(frame: Frame) -> object:
        try:
            value = code(frame)
        except EvaluationError:
            METER.left += max(price - 1, 0)
            raise
        return compare_text(value)

    return Built(run, cost + price, source)


def _negation(operand: Built) -> Built:
    code = operand.code

    def negate(frame: Frame) -> object:
        value = code(frame)
        if value is True:
            return False
        if value is False:
            return True
        raise no_overload()

    return Built(negate, operand.cost + 1, call_sources.negation_source(operand))


def _logic(built: list[Built], *, decisive: bool) -> Built:
    """Return the code of ``&&``, for which false is *decisive*, or of ``||``."""
    terms = [(each.code, each.cost if number else 0) for number, each in enumerate(built)]
    return Built(
        lambda frame: first_decisive(terms, frame, decisive=decisive),
        built[0].cost,
        call_sources.logic_source(built, decisive=decisive),
    )


def _conditional(built: list[Built]) -> Built:
    (condition, cost, _), (first, first_cost, _), (second, second_cost, _) = built

    def choose(frame: Frame) -> object:
        value = condition(frame)
        if value is True:
            METER.left -= first_cost
            return first(frame)
        if value is False:
            METER.left -= second_cost
            return second(frame)
        raise no_overload()

    return Built(choose, cost, call_sources.conditional_source(built))


def _or(built: list[Built], *, is_value: bool) -> Built:
    """Return the code of ``optional.orValue(other)`` or, without *is_value*, ``optional.or(other)``."""
    (optional, cost, _), (other, other_cost, _) = built

    def choose(frame: Frame) -> object:
        found = optional(frame)
        if not isinstance(found, Optional):
            raise no_overload()
        if found.present:
            return found.value if is_value else found
        METER.left -= other_cost
        return other(frame)

    return Built(choose, cost, call_sources.or_source(built, is_value=is_value))


_SPECIAL: Final[dict[str, Callable[[list[Built]], Built]]] = {
    "_&&_": lambda built: _logic(built, decisive=False),
    "_||_": lambda built: _logic(built, decisive=True),
    "_?_:_": _conditional,
    "or": lambda built: _or(built, is_value=False),
    "orValue": lambda built: _or(built, is_value=True),
}
# Functions that check the types of their operands themselves.
_OPERATORS: Final[dict[str, Callable[[object, object], object]]] = {
    "_+_": operators.add,
    "_-_": operators.subtract,
    "_*_": operators.multiply,
    "_/_": operators.divide,
    "_%_": operators.modulo,
    "@in": operators.is_in,
}
_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
_PLAIN: Final = frozenset({"startsWith", "endsWith", "contains", "matches", "-_"})
"""Functions that check their arguments themselves in cel-go; their error does not name the types."""
_EMPTY: Final[tuple[object, ...]] = ("", b"", [], {})
_IN_SETS: Final = (str, int, Uint, float, bool)
_KINDS: Final = {Timestamp: "timestamp", Duration: "duration"}


def _comparison(name: str, extra: Callable[..., int] | None) -> Callable[[object, object], bool]:
    holds = _ORDER[name]

    def compare(left: object, right: object) -> bool:
        if type(left) is int and type(right) is int:
            return holds(left, right)
        if extra is not None:
            charge(extra(left, right))
        return holds(operators.compare(left, right, name), 0)

    return compare


def _dispatched(overloads: list[Function], extra: Callable[..., int] | None = None) -> Callable[..., object]:
    """Return a function that calls the first of *overloads* that fits the types of the values.

    *extra* returns the units that the call costs in addition.
    """
    known: dict[tuple[type, ...], Callable[..., object]] = {}

    def paid(call: Callable[..., object]) -> Callable[..., object]:
        assert extra is not None
        price = extra

        def pay(*values: object) -> object:
            charge(price(*values))
            return call(*values)

        return pay

    def find(values: tuple[object, ...]) -> Callable[..., object]:
        kinds = [_KINDS.get(type(value)) or type_name(value) for value in values]
        for each in overloads:
            wanted = [
                parameter.is_parameter or parameter.name in ("dyn", kind)
                for parameter, kind in zip(each.parameters, kinds, strict=True)
            ]
            if all(wanted):
                known[tuple(map(type, values))] = call = each.call if extra is None else paid(each.call)
                return call
        name = overloads[0].name
        if name in _PLAIN:
            raise no_overload("-_" if name == "-_" else "", values[0])
        given = "" if name == "size" else f"({', '.join(map(type_name, values))})"
        raise EvaluationError(f"no such overload: {name}{given}")

    def call(*values: object) -> object:
        return (known.get(tuple(map(type, values))) or find(values))(*values)

    def call_one(value: object) -> object:
        return (known.get((type(value),)) or find((value,)))(value)

    def call_two(left: object, right: object) -> object:
        return (known.get((type(left), type(right))) or find((left, right)))(left, right)

    number = len(overloads[0].parameters)
    return call_one if number == 1 else call_two if number == 2 else call


def dispatch(overloads: list[Function], values: list[object]) -> object:
    """Return the value of the first of *overloads* that fits the types of *values*."""
    return _dispatched(overloads)(*values)
