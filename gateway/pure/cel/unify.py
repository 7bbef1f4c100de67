"""Assignability of types, and the substitution of type parameters.

Source: cel-go checker/types.go.
"""

from __future__ import annotations

from typing import Final

from gateway.pure.cel.errors import CostExceeded
from gateway.pure.cel.types import DYN, ERROR, NULL, Type

LARGEST: Final = 1000
"""The number of types that one can consist of. Each ``.map(v, {v: v})`` in a row doubles it."""
MOST_VISITS: Final = 1_000_000
"""Types that are visited to check one expression, which takes about a second. Type parameters that are bound
to each other can have 2^n parts at a length of n."""

_NULLABLE: Final = frozenset({"timestamp", "duration", "optional_type", "Object", "JSONPatch"})
"""Types without a dot to which null can be assigned."""


class Substitution:
    """The types that type parameters stand for."""

    def __init__(self) -> None:
        self._bound: dict[Type, Type] = {}
        self._trail: list[tuple[Type, Type | None]] = []
        """The parameters that the present ``assign`` has bound, each with its earlier type."""
        self._fresh = 0
        self._visits = 0

    def fresh(self) -> Type:
        """Return a new type parameter, which is not bound."""
        self._fresh += 1
        return Type(f"${self._fresh}")

    def assign(self, first: tuple[Type, ...], second: tuple[Type, ...]) -> bool:
        """Return whether all of *first* are assignable to those of *second*; if so, keep the bindings."""
        self._trail.clear()
        if self._all_fit(first, second):
            return True
        for parameter, before in reversed(self._trail):
            if before is None:
                del self._bound[parameter]
            else:
                self._bound[parameter] = before
        return False

    def resolve(self, what: Type, *, is_final: bool = False) -> Type:
        """Return *what* with all bindings put in. If *is_final*, parameters without one become dyn."""
        while what.is_parameter:
            bound = self._bound.get(what)
            if bound is None:
                return DYN if is_final else what
            what = bound
        if not what.of:
            return what
        self._visit()
        found = Type(what.name, tuple(self.resolve(part, is_final=is_final) for part in what.of))
        if found.size > LARGEST:
            raise CostExceeded("a type is too large")
        return found

    def _all_fit(self, first: tuple[Type, ...], second: tuple[Type, ...]) -> bool:
        return len(first) == len(second) and all(map(self._fits, first, second))

    def _visit(self) -> None:
        self._visits += 1
        if self._visits > MOST_VISITS:
            raise CostExceeded("the types are too large together")

    def _fits(self, first: Type, second: Type) -> bool:
        self._visit()
        if second.is_parameter:
            fits, is_bound = self._stands_for(first, second)
            if fits or is_bound:
                return fits
        if first.is_parameter:
            return self._stands_for(second, first)[0]
        if first in (DYN, ERROR) or second in (DYN, ERROR):
            return True
        if NULL in (first, second):
            other = second if first == NULL else first
            return other == NULL or other.name in _NULLABLE or "." in other.name
        if first.name == "type":
            return second.name == "type"
        return first.name == second.name and self._all_fit(first.of, second.of)

    def _stands_for(self, value: Type, parameter: Type) -> tuple[bool, bool]:
        """Return whether *parameter* can be bound to *value*, and whether it was bound before."""
        if value == parameter:
            return True, True
        bound = self._bound.get(parameter)
        if bound is None:
            if self._occurs(parameter, value):
                return False, False
            self._bind(parameter, value)
            return True, False
        if value == bound:
            return True, True
        if not self._fits(value, bound):
            return False, True
        general = most_general(value, bound)
        if not self._occurs(parameter, general):
            self._bind(parameter, general)
        return True, True

    def _bind(self, parameter: Type, value: Type) -> None:
        self._trail.append((parameter, self._bound.get(parameter)))
        self._bound[parameter] = value

    def _occurs(self, parameter: Type, within: Type) -> bool:
        waiting = [within]
        seen = set()
        while waiting:
            one = waiting.pop()
            self._visit()
            if not one.is_parameter:
                waiting += one.of
            elif one == parameter:
                return True
            elif one not in seen:
                seen.add(one)
                if (bound := self._bound.get(one)) is not None:
                    waiting.append(bound)
        return False


def most_general(first: Type, second: Type) -> Type:
    """Return the more general one of two types that fit together."""
    return first if _is_as_general(first, second) else second


def _is_as_general(first: Type, second: Type) -> bool:
    if first == DYN or first.is_parameter:
        return True
    if second == DYN or second.is_parameter or first.name != second.name or len(first.of) != len(second.of):
        return False
    return first.name == "type" or all(map(_is_as_general, first.of, second.of))
