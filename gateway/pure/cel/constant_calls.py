"""The calls of one variable's functions in expressions, with the arguments that are constants.

With them a policy is refused when it is loaded, and not at its first review.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.dialect_macros import ALL
from gateway.pure.cel.parse import parse
from gateway.pure.cel.syntax import Call, Ident, Literal, nodes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

Arguments = tuple[str | None, ...]
"""The text of each argument; None for one that is not the constant of a text."""
_UNKNOWN: Final[Arguments] = ()


def constant_calls(
    texts: Iterable[str], variable: str, functions: Collection[str], mention: str = ""
) -> frozenset[Arguments]:
    """Return the arguments of each call of one of *functions* of *variable* in the expressions *texts*.

    All have been compiled. An expression that is too deep has a call without arguments. A text has such a
    call only if it has *mention*, by default *variable*: macros may have made the call.
    """
    wanted = re.compile(rf"\b(?:{mention or '|'.join(functions)})\b")
    found = set[Arguments]()
    for text in texts:
        if not wanted.search(text) or (not mention and variable not in text):
            continue
        try:
            found.update(
                tuple(map(_constant, node.arguments))
                for node in nodes(parse(text, ALL))
                if isinstance(node, Call)
                and node.function in functions
                and isinstance(node.target, Ident)
                and node.target.name.removeprefix(".") == variable
            )
        except RecursionError:
            found.add(_UNKNOWN)
    return frozenset(found)


def _constant(node: object) -> str | None:
    return node.value if isinstance(node, Literal) and isinstance(node.value, str) else None
