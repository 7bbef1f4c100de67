"""The environment of expressions: variables, fields, and functions with their implementation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.types import Type, parse_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.pure.cel.syntax import Call, Node

    Macro = Callable[[Call], Node]
    """Returns the expansion of a call of a member, or the call itself if it is not that of the macro."""

_SIGNATURE: Final = re.compile(r"(?P<name>[^( ]+)\((?P<rest>.*)\) -> (?P<result>.+)")


@dataclass(frozen=True, slots=True)
class Function:
    """One overload of a function."""

    name: str
    """The name in a call: ``indexOf``, ``sets.contains``."""
    overload: str
    """cel-go's ID of the overload, to which its costs belong."""
    parameters: tuple[Type, ...]
    """The receiver first, if there is one."""
    result: Type
    call: Callable[..., object]
    """Gets its arguments by position, as ``gateway.pure.cel.values`` represents them."""
    is_member: bool
    cost: int
    """The cost of every call, beside what ``call`` charges itself."""
    extra: Callable[..., int] | None = None
    """Returns the additional cost of a call with these arguments; unused if several overloads fit."""


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
    """The names that an expression can use."""

    __slots__ = (
        "fields",
        "functions",
        "has_structs",
        "macros",
        "policy_variables",
        "refused",
        "variables",
    )

    def __init__(
        self,
        variables: Mapping[str, Type],
        fields: Mapping[str, Mapping[str, Type]],
        functions: Mapping[str, tuple[Function, ...]],
        *,
        has_structs: bool = False,
        macros: Mapping[str, Macro] | None = None,
        refused: Mapping[str, str] | None = None,
        policy_variables: Mapping[str, Type] | None = None,
    ) -> None:
        self.variables = variables
        """Also types, as values."""
        self.fields = fields
        """The fields of each object type."""
        self.functions = functions
        self.has_structs = has_structs
        """Whether there are literals of ``JSONPatch``, ``Object``, ``Object.spec`` and so on."""
        self.macros: Mapping[str, Macro] = macros or {}
        """Macros beside those of Kubernetes, by the name in a call."""
        self.refused: Mapping[str, str] = refused or {}
        """Functions that the gateway does not have, each with what to say about it."""
        self.policy_variables = policy_variables
        """The types of the variables of the policy: the fields of ``variables``. None without that. Those of
        variables that are declared later may be added."""
