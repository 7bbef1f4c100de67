"""Calls of functions and operators → code.

Source: cel-go interpreter/planner.go, interpreter/interpretable.go, interpreter/decorators.go.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gateway.cel import operators
from gateway.cel.errors import EvaluationError
from gateway.cel.lexer import Misread
from gateway.cel.meter import METER
from gateway.cel.operators import no_overload
from gateway.cel.standard import equality, inequality
from gateway.cel.syntax import Call, ListLiteral, Literal, Node
from gateway.cel.values import Duration, Optional, Timestamp, type_name

if TYPE_CHECKING:
    from gateway.cel.functions import Function

Frame = list[object]
Code = Callable[[Frame], object]
Built = tuple[Code, int]
"""Code, and what it costs beside what it charges itself."""

CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)


def call_code(node: Call, built: list[Built]) -> Built:
    """Return the code of *node*, whose operands, the receiver first, are *built*."""
    if (special := _SPECIAL.get(node.function)) is not None and len(built) > 1:
        return special(built)
    if node.function == "@in" and isinstance(held := node.arguments[1], ListLiteral) and not held.elements:
        # As cel-go's planner has it, whatever is to be in it.
        return constant_code(value=False), 0
    codes = [code for code, _ in built]
    cost = sum(each for _, each in built)
    if node.function in ("_==_", "_!=_"):
        return _equality(node, codes, is_equal=node.function == "_==_"), cost + 1
    if node.function == "!_":
        return _negation(codes[0]), cost + 1
    if (holds := _ORDER.get(node.function)) is not None:
        return _comparison(holds, *codes), cost + 1
    if node.function == "@in" and len(node.overloads) > 1:
        wanted, container = codes
        return (lambda frame: operators.is_in(wanted(frame), container(frame), is_typed=False)), cost + 1
    if (combine := _OPERATORS.get(node.function)) is not None:
        left, right = codes
        return (lambda frame: combine(left(frame), right(frame))), cost + 1
    overloads = node.overloads
    return _dispatch(overloads, codes), cost + overloads[0].cost


def folded(node: Node) -> Node:
    """Return *node*, or the constant that it is: constants are converted beforehand.

    Raises:
        InvalidExpression: a constant cannot be converted.
    """
    if not isinstance(node, Call) or node.function not in CONVERSIONS or node.target is not None:
        return node
    constant = folded(node.arguments[0])
    if not isinstance(constant, Literal):
        return node
    try:
        return Literal(node.at, _dispatch(node.overloads, [constant_code(constant.value)])([]))
    except EvaluationError as error:
        raise Misread(str(error), constant.at) from None


def constant_code(value: object) -> Code:
    """The code of a constant."""
    return lambda _: value


def _equality(node: Call, codes: list[Code], *, is_equal: bool) -> Code:
    left, right = codes
    constant = node.arguments[1]
    if isinstance(constant, Literal) and isinstance(constant.value, str) and len(constant.value) <= 100:
        # Of a short constant the price is known to be next to nothing, and no other type can be equal to it.
        text = constant.value
        if is_equal:
            return lambda frame: left(frame) == text
        return lambda frame: left(frame) != text
    if is_equal:
        return lambda frame: equality(left(frame), right(frame))
    return lambda frame: inequality(left(frame), right(frame))


def _negation(operand: Code) -> Code:
    def negate(frame: Frame) -> object:
        value = operand(frame)
        if value is True:
            return False
        if value is False:
            return True
        raise no_overload()

    return negate


def _logic(built: list[Built], decisive: bool) -> Built:
    """``&&``, for which false is *decisive*, and ``||``: an error counts only where no operand decides."""
    first_cost = built[0][1]
    terms = [(code, cost if number else 0) for number, (code, cost) in enumerate(built)]

    def decide(frame: Frame) -> object:
        failure = None
        for code, cost in terms:
            METER.left -= cost
            try:
                value = code(frame)
            except EvaluationError as error:
                failure = failure or error
                continue
            if value is decisive:
                return decisive
            if value is not (not decisive):
                failure = failure or no_overload()
        if failure is not None:
            raise failure
        return not decisive

    return decide, first_cost


def _conditional(built: list[Built]) -> Built:
    (condition, cost), (first, first_cost), (second, second_cost) = built

    def choose(frame: Frame) -> object:
        value = condition(frame)
        if value is True:
            METER.left -= first_cost
            return first(frame)
        if value is False:
            METER.left -= second_cost
            return second(frame)
        raise no_overload()

    return choose, cost


def _or(built: list[Built], *, is_value: bool) -> Built:
    """``optional.orValue(other)`` and, without *is_value*, ``optional.or(other)``."""
    (optional, cost), (other, other_cost) = built

    def choose(frame: Frame) -> object:
        found = optional(frame)
        if not isinstance(found, Optional):
            raise no_overload()
        if found.present:
            return found.value if is_value else found
        METER.left -= other_cost
        return other(frame)

    return choose, cost + 1


_SPECIAL: Final[dict[str, Callable[[list[Built]], Built]]] = {
    "_&&_": lambda built: _logic(built, decisive=False),
    "_||_": lambda built: _logic(built, decisive=True),
    "_?_:_": _conditional,
    "or": lambda built: _or(built, is_value=False),
    "orValue": lambda built: _or(built, is_value=True),
}
# These look at the types of their operands themselves.
_OPERATORS: Final[dict[str, Callable[[object, object], object]]] = {
    "_+_": operators.add,
    "_-_": operators.subtract,
    "_*_": operators.multiply,
    "_[_]": operators.index,
    "_[?_]": operators.optional_index,
    "@in": operators.is_in,
}
_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
_KINDS: Final = {Timestamp: "timestamp", Duration: "duration"}


def _comparison(holds: Callable[[Any, Any], bool], first: Code, second: Code) -> Code:
    def compare(frame: Frame) -> object:
        left, right = first(frame), second(frame)
        if type(left) is int and type(right) is int:
            return holds(left, right)
        return holds(operators.compare(left, right), 0)

    return compare


def _dispatch(overloads: list[Function], codes: list[Code]) -> Code:
    """Call the first of *overloads* that is for values of the types that there are."""
    known: dict[tuple[type, ...], Callable[..., object]] = {}

    def find(values: tuple[object, ...]) -> Callable[..., object]:
        kinds = [_KINDS.get(type(value)) or type_name(value) for value in values]
        for each in overloads:
            wanted = [
                parameter.is_parameter or parameter.name in ("dyn", kind)
                for parameter, kind in zip(each.parameters, kinds, strict=True)
            ]
            if all(wanted):
                known[tuple(map(type, values))] = each.call
                return each.call
        raise no_overload()

    if len(codes) == 1:
        (only,) = codes

        def call_one(frame: Frame) -> object:
            value = only(frame)
            return (known.get((type(value),)) or find((value,)))(value)

        return call_one
    if len(codes) == 2:
        first, second = codes

        def call_two(frame: Frame) -> object:
            left, right = first(frame), second(frame)
            return (known.get((type(left), type(right))) or find((left, right)))(left, right)

        return call_two

    def call_many(frame: Frame) -> object:
        values = tuple(code(frame) for code in codes)
        return (known.get(tuple(map(type, values))) or find(values))(*values)

    return call_many
