"""What an expression may name; a function is a declaration and the Python that computes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.cel.types import Type, parse_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SIGNATURE: Final = re.compile(r"(?P<name>[^( ]+)\((?P<rest>.*)\) -> (?P<result>.+)")


@dataclass(frozen=True, slots=True)
class Function:
    """One overload of a function."""

    name: str
    """As it is called: ``indexOf``, ``sets.contains``."""
    overload: str
    """cel-go's id of it, by which it is charged."""
    parameters: tuple[Type, ...]
    """The receiver first, where there is one."""
    result: Type
    call: Callable[..., object]
    """Gets its arguments by position, as ``gateway.cel.values`` represents them."""
    is_member: bool
    cost: int
    """Units that every call costs, beside what ``call`` charges itself."""
    extra: Callable[..., int] | None = None
    """What a call with these arguments costs beside *cost*, if the checker found no other overload."""


def function(
    overload: str,
    signature: str,
    call: Callable[..., object],
    cost: int = 0,
    extra: Callable[..., int] | None = None,
) -> Function:
    """Return the function with this *signature*.

    ``list(A)::indexOf(A) -> int`` is called on a list, ``sets.contains(list(A), list(A)) -> bool`` is not.
    One capital letter is a type parameter; types are named as in ``parse_type``.
    """
    receiver, is_member, rest = signature.rpartition("::")
    match = _SIGNATURE.fullmatch(rest)
    assert match is not None, signature
    given = parse_type(f"x({match['rest']})").of
    parameters = (parse_type(receiver), *given) if is_member else given
    return Function(
        match["name"],
        overload,
        parameters,
        parse_type(match["result"]),
        call,
        bool(is_member),
        cost,
        extra,
    )


class Environment:
    """What an expression may name."""

    def __init__(
        self,
        variables: Mapping[str, Type],
        fields: Mapping[str, Mapping[str, Type]],
        functions: Mapping[str, tuple[Function, ...]],
    ) -> None:
        self.variables = variables
        """Types among them, as values."""
        self.fields = fields
        """Those of each object type."""
        self.functions = functions
