"""Checks of literals when an expression is compiled.

Source: cel-go cel/validator.go (ValidateDurationLiterals, ValidateTimestampLiterals, ValidateRegexLiterals,
ValidateHomogeneousAggregateLiterals).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.cel.conversions import to_duration, to_timestamp
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.lexer import CompileError
from gateway.pure.cel.libraries.formatting import check_format
from gateway.pure.cel.regex import compile_regex
from gateway.pure.cel.syntax import Call, ListLiteral, Literal, MapLiteral, Node

if TYPE_CHECKING:
    from gateway.pure.cel.types import Type

_CHECKED: Final = {
    "duration": to_duration,
    "timestamp": to_timestamp,
    "matches": compile_regex,
    "find": compile_regex,
    "findAll": compile_regex,
}


_RUN_TIME: Final = {"timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}
_SEARCHES: Final = frozenset({"find", "findAll"})


def check_literal(node: Node) -> None:
    """Raise CompileError if *node* is a call with an invalid constant argument."""
    if not isinstance(node, Call):
        return
    if node.function == "format" and node.target is not None:
        _check_format(node, node.target)
    if (
        node.function not in _CHECKED
        or not node.arguments
        or (node.target is None and node.function in _SEARCHES)
    ):
        return
    argument = node.arguments[0]
    if isinstance(argument, Literal):
        try:
            _CHECKED[node.function](argument.value)  # type: ignore[operator]
        except EvaluationError as error:
            # kube-apiserver's message ends before the reason.
            raise CompileError(f"invalid {node.function} argument: {error}", argument.at) from None


def _check_format(node: Call, target: Node) -> None:
    """Raise CompileError if the arguments of ``'…'.format([…])`` do not fit the text."""
    arguments = node.arguments[0]
    if (
        not isinstance(target, Literal)
        or not isinstance(target.value, str)
        or not isinstance(arguments, ListLiteral)
    ):
        return
    kinds = [_RUN_TIME.get(each.type.name, each.type.name) for each in arguments.elements]
    if (problem := check_format(target.value, kinds)) is not None:
        raise CompileError(problem, target.at)


def check_homogeneous(node: Node) -> None:
    """Raise CompileError if a literal mixes dyn with other types, which are assignable but not equal."""
    columns: list[list[tuple[Node, bool]]] = []
    if isinstance(node, ListLiteral):
        columns = [[(part, index in node.optional) for index, part in enumerate(node.elements)]]
    elif isinstance(node, MapLiteral):
        columns = [
            [(key, False) for key, _, _ in node.entries],
            [(value, is_optional) for _, value, is_optional in node.entries],
        ]
    for column in columns:
        wanted: Type | None = None
        for part, is_optional in column:
            if is_optional and not part.type.of:
                # The API server's check of these panics.
                raise CompileError(
                    f"expected type 'optional_type({part.type})' but found '{part.type}'", part.at
                )
            found = part.type.of[0] if is_optional else part.type
            if wanted is not None and wanted != found:
                raise CompileError(f"expected type '{wanted}' but found '{found}'", part.at)
            wanted = found
