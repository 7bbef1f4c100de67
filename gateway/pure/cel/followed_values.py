"""Follows values through the tree of an expression to where they are used.

Variables, macros and conditions hand a value on. A subclass says where values come from, as a set of origins
for the value of each node, and notes what depends on them: a value, whether it is there, or how many parts it
has. Whatever else is done with a value uses all of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from gateway.pure.cel.environment import VARIABLES
from gateway.pure.cel.libraries.optional_values import OR_VALUE
from gateway.pure.cel.syntax import (
    Call,
    Comprehension,
    Ident,
    Let,
    ListLiteral,
    Literal,
    OptionalMap,
    Select,
    children,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.pure.cel.syntax import Node

Origin = TypeVar("Origin")
Names: TypeAlias = "Mapping[str, frozenset[Origin]]"
"""The origins of the variables of the macros around a node."""

_INDEX: Final = frozenset({"_[_]", "_[?_]"})
_COMPARISONS: Final = frozenset({"_==_", "_!=_"})
_SAME: Final = frozenset({"value", "dyn", "or", "orValue", OR_VALUE})
"""Functions whose value is one of their arguments, or an optional with it."""


class FollowedValues(ABC, Generic[Origin]):
    """A walk through expressions. *variables* are those of the policy; of a name there may be several."""

    def __init__(self, variables: Mapping[str, Sequence[Node]]) -> None:
        self.variables = variables
        self._of_variables: dict[str, frozenset[Origin]] = {}

    @abstractmethod
    def used(self, origins: frozenset[Origin]) -> None:
        """Note that something depends on all of a value."""

    @abstractmethod
    def looked_for(self, origins: frozenset[Origin]) -> None:
        """Note that something depends on whether a value is there."""

    @abstractmethod
    def counted(self, origins: frozenset[Origin]) -> None:
        """Note that something depends on how many parts a value has."""

    def compared_with_null(self, origins: frozenset[Origin]) -> None:
        """Note that something depends on whether a value is null."""
        self.looked_for(origins)

    def key_sought(self, origins: frozenset[Origin], key: str) -> None:
        """Note that something depends on whether a value has the member or the element *key*."""
        self.looked_for(self.member(origins, key))

    @abstractmethod
    def of_global(self, name: str) -> frozenset[Origin]:
        """Return the origins of the variable *name*, which no macro declares."""

    def of_call(self, node: Call, names: Names[Origin]) -> frozenset[Origin] | None:
        """Return the origins of a call that is itself one; None of all others."""

    @abstractmethod
    def member(self, origins: frozenset[Origin], key: str) -> frozenset[Origin]:
        """Return the origins of the member *key* of a value."""

    @abstractmethod
    def elements(self, origins: frozenset[Origin]) -> frozenset[Origin]:
        """Return the origins of any element of a list or map."""

    @abstractmethod
    def listed(self, origins: frozenset[Origin]) -> frozenset[Origin]:
        """Return the origins of a list with elements from *origins*."""

    def added(self, origins: frozenset[Origin]) -> frozenset[Origin]:
        """Return the origins of a sum of values from *origins*."""
        return origins

    def consume(self, node: Node, names: Names[Origin]) -> None:
        """Note that all of the value of *node* is used."""
        self.used(self.origins(node, names))

    def origins(self, node: Node, names: Names[Origin]) -> frozenset[Origin]:
        """Return where the value of *node* is from, and note what is read to find it."""
        match node:
            case Ident(name=name):
                return names[name] if name in names else self.of_global(name.removeprefix("."))
            case Select(operand=operand, field=key):
                if key in self.variables and are_variables(operand, names):
                    return self._variable(key)
                found = self.member(self.origins(operand, names), key)
                if not node.is_test:
                    return found
                self.looked_for(found)
                return frozenset()
            case Call():
                found_by_call = self.of_call(node, names)
                return self._called(node, names) if found_by_call is None else found_by_call
            case ListLiteral(elements=elements):
                return self.listed(self._either(elements, names))
            case Comprehension():
                return self._comprehension(node, names)
            case (
                OptionalMap(target=target, variable=name, body=body)
                | Let(target=target, variable=name, body=body)
            ):
                of_target = self.origins(target, names)
                self.looked_for(of_target)
                return self.origins(body, {**names, name: of_target})
        return self._consumed(node, names)

    def _called(self, node: Call, names: Names[Origin]) -> frozenset[Origin]:
        match node.function, children(node):
            case "_?_:_", [condition, *values]:
                self.consume(condition, names)
                return self._either(values, names)
            case "_+_", parts:
                return self.added(self._either(parts, names))
            case function, parts if function in _SAME:
                return self._either(parts, names)
            case function, [operand, Literal(value=str(key))] if function in _INDEX:
                return self.member(self.origins(operand, names), key)
            case function, [operand, index] if function in _INDEX:
                self.consume(index, names)
                return self.elements(self.origins(operand, names))
            case "@in", [Literal(value=str(key)), container]:
                self.key_sought(self.origins(container, names), key)
            case "size", [operand]:
                self.counted(self.origins(operand, names))
            case "hasValue", [operand]:
                self.looked_for(self.origins(operand, names))
            case function, parts if function in _COMPARISONS and any(map(_is_null, parts)):
                self.compared_with_null(self._either(parts, names))
            case _:
                return self._consumed(node, names)
        return frozenset()

    def _consumed(self, node: Node, names: Names[Origin]) -> frozenset[Origin]:
        for each in children(node):
            self.consume(each, names)
        return frozenset()

    def _either(self, several: Iterable[Node], names: Names[Origin]) -> frozenset[Origin]:
        return frozenset(origin for each in several for origin in self.origins(each, names))

    def _variable(self, name: str) -> frozenset[Origin]:
        """Return where the variable *name* of the policy is from."""
        if name not in self._of_variables:
            self._of_variables[name] = frozenset()  # a variable in a circle has no value
            self._of_variables[name] = self._either(self.variables[name], {})
        return self._of_variables[name]

    def _comprehension(self, node: Comprehension, names: Names[Origin]) -> frozenset[Origin]:
        over = self.origins(node.range, names)
        self.counted(over)
        elements = self.elements(over)
        inner = {**names, node.variable: elements}
        if node.variable2 is not None:
            inner |= {node.variable: frozenset(), node.variable2: elements}
        if node.condition is not None:
            self.consume(node.condition, inner)
        if node.macro == "map":
            return self.listed(self.origins(node.body, inner))
        self.consume(node.body, inner)
        return over if node.macro == "filter" else frozenset()


def are_variables(node: Node, names: Mapping[str, object]) -> bool:
    """Whether *node* is the global with the variables of the policy. Macros around it have *names*."""
    return isinstance(node, Ident) and node.name not in names and node.name.removeprefix(".") == VARIABLES


def _is_null(node: Node) -> bool:
    return isinstance(node, Literal) and node.value is None
