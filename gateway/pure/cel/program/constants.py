"""Constant folding as in cel-go: conversions of constants, and lists and maps of constants.

Source: cel-go interpreter/decorators.go (decOptimize).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.indexing import check_key
from gateway.pure.cel.lexer import CompileError
from gateway.pure.cel.program.calls import dispatch
from gateway.pure.cel.syntax import Call, Ident, ListLiteral, Literal, MapLiteral, Node

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.pure.cel.values import TypeName

_CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)


def folded(node: Node, type_of: Callable[[str, int], TypeName | None]) -> Node:
    """Return *node*, or its value as a literal if it is constant. Constant parts of it become literals.

    *type_of* returns the type with this name at this position, if there is one.

    Raises:
        CompileError: a constant cannot be converted, or cannot be a key.
    """
    match node:
        case Ident(name=name) if (found := type_of(name, node.at)) is not None:
            return Literal(node.at, found)
        case Call(target=None, function=function, arguments=[argument]) if function in _CONVERSIONS:
            constant = node.arguments[0] = folded(argument, type_of)
            if isinstance(constant, Literal):
                try:
                    value = dispatch(node.overloads, [constant.value])
                except EvaluationError as error:
                    raise CompileError(str(error), constant.at) from None
                return Literal(node.at, value)
        case ListLiteral():
            node.elements[:] = [folded(each, type_of) for each in node.elements]
            values = [each.value for each in node.elements if isinstance(each, Literal)]
            if len(values) == len(node.elements) and not node.optional:
                return Literal(node.at, values)
        case MapLiteral():
            node.entries[:] = [
                (folded(key, type_of), folded(value, type_of), is_optional)
                for key, value, is_optional in node.entries
            ]
            return _map(node)
    return node


def _map(node: MapLiteral) -> Node:
    found: dict[object, object] = {}
    for key, value, is_optional in node.entries:
        if is_optional or not isinstance(key, Literal) or not isinstance(value, Literal):
            return node
        try:
            check_key(key.value)
        except EvaluationError as error:
            raise CompileError(str(error), key.at) from None
        found[key.value] = value.value
    return Literal(node.at, found)
