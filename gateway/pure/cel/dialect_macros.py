"""Macros that other engines have beside those of Kubernetes. Each takes the call of a member.

Source: github.com/kyverno/kyverno pkg/cel/compiler/env.go (orValueCompatMacro); cel-go ext/bindings.go,
ext/math.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.cel.lexer import CompileError
from gateway.pure.cel.libraries.cluster_objects import HTTP_GET, RESOURCE
from gateway.pure.cel.libraries.optional_values import OR_VALUE
from gateway.pure.cel.syntax import Call, Ident, Let, ListLiteral, Literal, MapLiteral, Node, StructLiteral

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.cel.functions import Macro


def _is_in(namespace: str, call: Call) -> bool:
    return isinstance(call.target, Ident) and call.target.name == namespace


def or_value(call: Call) -> Node:
    """Return the expansion of ``x.orValue(y)``, which is x if x is no optional value."""
    if call.target is None or len(call.arguments) != 1:
        return call
    return Call(call.at, OR_VALUE, None, [call.target, *call.arguments])


def bind(call: Call) -> Node:
    """Return the expansion of ``cel.bind(variable, value, body)``."""
    if not _is_in("cel", call) or len(call.arguments) != 3:
        return call
    variable, value, body = call.arguments
    if not isinstance(variable, Ident):
        raise CompileError("cel.bind() variable names must be simple identifiers", variable.at)
    return Let(call.at, variable.name, value, body, is_lazy=True)


def now(call: Call) -> Node:
    """Return the expansion of ``time.now()``: the time of the review is a variable."""
    return Ident(call.at, NOW) if _is_in("time", call) and not call.arguments else call


def http_get(call: Call) -> Node:
    """Return the expansion of ``http.get(url, headers)``: the variable ``resource`` makes it, too."""
    if not _is_in("http", call):
        return call
    return Call(call.at, HTTP_GET, Ident(call.at, f".{RESOURCE}"), call.arguments)


def _extreme(function: str) -> Macro:
    def expand(call: Call) -> Node:
        if not _is_in("math", call):
            return call
        name, given = f"math.{call.function}()", call.arguments
        if not given:
            raise CompileError(f"{name} requires at least one argument", call.at)
        if len(given) == 1:
            (only,) = given
            is_list = (
                isinstance(only, ListLiteral) and only.elements and all(map(_can_be_number, only.elements))
            )
            if not is_list and not _can_be_number(only):
                raise CompileError(f"{name} invalid single argument value", only.at)
        else:
            for each in given:
                if not _can_be_number(each):
                    raise CompileError(f"{name} simple literal arguments must be numeric", each.at)
        if len(given) > 2:
            given = [ListLiteral(call.at, given, frozenset())]
        return Call(call.at, function, None, given)

    return expand


def _can_be_number(node: Node) -> bool:
    if isinstance(node, Literal):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return not isinstance(node, ListLiteral | MapLiteral | StructLiteral)


NOW: Final = "@now"
"""The variable with the time of the review."""
OR_VALUE_ONLY: Final[Mapping[str, Macro]] = {"orValue": or_value}
ALL: Final[Mapping[str, Macro]] = {
    **OR_VALUE_ONLY,
    "bind": bind,
    "least": _extreme("math.@min"),
    "greatest": _extreme("math.@max"),
    "now": now,
    "get": http_get,
    "Get": http_get,
}
