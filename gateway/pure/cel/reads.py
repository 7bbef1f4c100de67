"""The parts of a variable that an expression reads, found in its tree.

The expression has the same result, error and cost for a value with only these parts: the keys of a path are
constants, so nothing else of a map on the way decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.cel.paths import joined
from gateway.pure.cel.syntax import Call, Ident, Literal, Node, Select, children

if TYPE_CHECKING:
    from gateway.pure.cel.paths import Paths

MAX_KEYS: Final = 32
"""The keys of a path. What is deeper is read as a whole."""
_INDEX: Final = frozenset({"_[_]", "_[?_]"})
_COMPARISONS: Final = frozenset({"_==_", "_!=_"})


def paths_of(tree: Node, variable: str) -> Paths:
    """Return the paths of the global *variable*, an object or null, that *tree* reads."""
    found: set[tuple[str, ...]] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        keys: list[str] = []
        match node:
            case Call(function="@in", arguments=[Literal(value=str(key)), container]):
                keys.append(key)
                node = container
            case Call(function=function, arguments=[one, other]) if function in _COMPARISONS:
                # An object differs from null, whatever is in it.
                if any(map(_is_null, (one, other))) and variable in map(_name, (one, other)):
                    continue
        while True:
            match node:
                case Select(operand=operand, field=key, is_test=is_test):
                    keys += ("", key) if is_test else (key,)
                case Call(function=function, arguments=[operand, Literal(value=str(key))]) if (
                    function in _INDEX
                ):
                    keys.append(key)
                case _:
                    break
            node = operand
        if _name(node) == variable:
            found.add(tuple(reversed(keys))[:MAX_KEYS])
        else:
            waiting.extend(children(node))
    return joined([found])


def _is_null(node: Node) -> bool:
    return isinstance(node, Literal) and node.value is None


def _name(node: Node) -> str:
    return node.name.removeprefix(".") if isinstance(node, Ident) else ""
