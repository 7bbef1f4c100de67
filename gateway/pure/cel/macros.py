"""Macros: calls that become nodes of their own.

Source: cel-go parser/macro.go, ext/comprehensions.go, cel/library.go (optMap), ext/lists.go (sortBy).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.cel.lexer import CompileError
from gateway.pure.cel.syntax import Call, Comprehension, Ident, Let, ListLiteral, Node, OptionalMap, Select

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.cel.functions import Macro

# Macros with one and with two variables, and how many arguments each can have.
_ONE: Final = {
    "all": (2,),
    "exists": (2,),
    "exists_one": (2,),
    "map": (2, 3),
    "filter": (2,),
}
_TWO: Final = {
    "all": (3,),
    "exists": (3,),
    "exists_one": (3,),
    "existsOne": (3,),
    "transformList": (3, 4),
    "transformMap": (3, 4),
    "transformMapEntry": (3, 4),
}
_INPUT: Final = "@__sortBy_input__"
_SAME: Final = {"exists_one": "existsOne", "transformList": "map"}


def expand(call: Call, more: Mapping[str, Macro]) -> Node:
    """Return the expansion of *call*, or *call* itself if it is not a macro of Kubernetes or of *more*.

    Raises:
        CompileError: it is a macro with invalid arguments.
    """
    name, given = call.function, call.arguments
    if call.target is None:
        return _presence(call) if name == "has" and len(given) == 1 else call
    for variables, macros in ((1, _ONE), (2, _TWO)):
        if len(given) in macros.get(name, ()):
            names = [_variable(argument) for argument in given[:variables]]
            if len(set(names)) < variables:
                raise CompileError(f"duplicate variable name: {names[0]}", given[1].at)
            *condition, body = given[variables:]
            second = names[1] if variables == 2 else None
            same = _SAME.get(name, name)
            return Comprehension(
                call.at, same, call.target, names[0], second, condition[0] if condition else None, body
            )
    if name in ("optMap", "optFlatMap") and len(given) == 2:
        if not isinstance(given[0], Ident):
            raise CompileError(f"{name}() variable name must be a simple identifier", given[0].at)
        return OptionalMap(call.at, call.target, given[0].name, given[1], name == "optFlatMap")
    if name == "sortBy" and len(given) == 2:
        return _sorted(call, call.target)
    macro = more.get(name)
    return call if macro is None else macro(call)


def _presence(call: Call) -> Node:
    argument = call.arguments[0]
    if not isinstance(argument, Select) or argument.is_test or argument.is_optional:
        raise CompileError("invalid argument to has() macro", argument.at)
    argument.is_test = True
    return argument


def _variable(argument: Node) -> str:
    if not isinstance(argument, Ident):
        raise CompileError("argument must be a simple name", argument.at)
    if argument.name == "__result__":
        raise CompileError("iteration variable overwrites accumulator variable", argument.at)
    return argument.name


def _sorted(call: Call, target: Node) -> Node:
    """Return the expansion of ``target.sortBy(x, key)``. cel-go allows these receivers only."""
    if not isinstance(target, OptionalMap | Call | Comprehension | Ident | Let | ListLiteral | Select):
        raise CompileError(
            "sortBy can only be applied to a list, a name, a macro, a call or a field",
            target.at,
        )
    variable = _variable(call.arguments[0])
    keys = Comprehension(call.at, "map", Ident(target.at, _INPUT), variable, None, None, call.arguments[1])
    ordered = Call(call.at, "@sortByAssociatedKeys", Ident(target.at, _INPUT), [keys])
    return Let(call.at, _INPUT, target, ordered)
