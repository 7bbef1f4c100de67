"""The syntax tree of an expression. Macros are nodes of their own; cel-go expands them to loops.

Source: cel-go common/ast/expr.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.pure.cel.types import DYN, Type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.pure.cel.functions import Function


@dataclass(slots=True, eq=False)
class Node:
    """Any part of an expression."""

    at: int
    """The position in the text, in characters from the beginning."""
    type: Type = field(default=DYN, init=False)
    """Set by the checker."""


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A constant."""

    value: object


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A variable or a type. After the check also a name with dots, such as ``authorizer.requestResource``."""

    name: str
    """Begins with a dot if it is global even where a macro has a variable of that name."""


@dataclass(slots=True, eq=False)
class Select(Node):
    """``operand.field``, ``operand.?field`` or, *is_test*, ``has(operand.field)``."""

    operand: Node
    field: str
    is_optional: bool = False
    is_test: bool = False


@dataclass(slots=True, eq=False)
class Call(Node):
    """A function or operator, by cel-go's name of it: ``_+_``, ``_[_]``, ``size``."""

    function: str
    target: Node | None
    arguments: list[Node]
    overloads: list[Function] = field(default_factory=list, init=False)
    """The overloads that fit the types, found by the checker."""


@dataclass(slots=True, eq=False)
class ListLiteral(Node):
    """``[a, ?b]``."""

    elements: list[Node]
    optional: frozenset[int]
    """Indices of the elements with a question mark."""


@dataclass(slots=True, eq=False)
class MapLiteral(Node):
    """``{k: v, ?k: v}``: key, value, and whether there is a question mark."""

    entries: list[tuple[Node, Node, bool]]


@dataclass(slots=True, eq=False)
class StructLiteral(Node):
    """``Object.spec{name: value, ?name: value}``: field, value, and whether there is a question mark."""

    name: str
    """The name of the type, with dots."""
    fields: list[tuple[str, Node, bool]]


@dataclass(slots=True, eq=False)
class Comprehension(Node):
    """A macro over a list or map: ``range.all(variable, body)``."""

    macro: str
    """all, exists, existsOne, map, filter, transformMap or transformMapEntry."""
    range: Node
    variable: str
    variable2: str | None
    """The variable for the value, if *variable* is for the key or index."""
    condition: Node | None
    """The filter of ``map`` and ``transform…``."""
    body: Node


@dataclass(slots=True, eq=False)
class OptionalMap(Node):
    """``target.optMap(variable, body)``, or ``optFlatMap`` if *is_flat*."""

    target: Node
    variable: str
    body: Node
    is_flat: bool


@dataclass(slots=True, eq=False)
class Let(Node):
    """*body*, in which *variable* is the value of *target*. Macros are expanded to it."""

    variable: str
    target: Node
    body: Node
    is_lazy: bool = False
    """Whether *target* is evaluated at the first use of the variable, and not before *body*."""


def children(node: Node) -> list[Node]:
    """Return the parts of *node*."""
    match node:
        case Select(operand=operand):
            return [operand]
        case Call(target=target, arguments=arguments):
            return arguments if target is None else [target, *arguments]
        case ListLiteral(elements=elements):
            return elements
        case MapLiteral(entries=entries):
            return [part for key, value, _ in entries for part in (key, value)]
        case StructLiteral(fields=fields):
            return [value for _, value, _ in fields]
        case Comprehension(range=over, condition=condition, body=body):
            return [over, body] if condition is None else [over, condition, body]
        case OptionalMap(target=target, body=body) | Let(target=target, body=body):
            return [target, body]
    return []


def nodes(tree: Node) -> Iterator[Node]:
    """Yield *tree* and all parts of it."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(children(node))


def variables(tree: Node) -> set[str]:
    """Return all names of variables and types in *tree*, also those of macros, without a leading dot."""
    return {node.name.removeprefix(".") for node in nodes(tree) if isinstance(node, Ident)}
