"""The keys by which the elements of lists are told apart.

Source: sigs.k8s.io/structured-merge-diff/v6 typed/helpers.go, fieldpath/element.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.pure.cel.values import quoted
from gateway.pure.openapi.go_text import shown

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from gateway.pure.openapi.types import ListType


class NoKeyError(ValueError):
    """An element of a list has no key."""


class Key:
    """The key of an element: its key fields in the order of their names, or, of a set, the element itself.

    Keys with equal values are equal: 1 is 1.0, and not true. The text is the part of a path that names the
    element.
    """

    __slots__ = ("_frozen", "_parts")

    def __init__(self, parts: list[tuple[str, object]]) -> None:
        self._parts = parts
        self._frozen = tuple((name, _frozen(value)) for name, value in parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._frozen == other._frozen

    def __hash__(self) -> int:
        return hash(self._frozen)

    def __str__(self) -> str:
        return f"[{','.join(f'{name}={shown(value)}' for name, value in self._parts)}]"


def key_of(kind: ListType, element: object) -> Key:
    """Return the key of *element* in a list of *kind*, which is not atomic.

    Raises:
        NoKeyError: it has none; the text says why.
    """
    if kind.keys:
        return _key_fields(kind, element)
    match element:
        case dict():
            raise NoKeyError("associative list without keys has an element that's a map type")
        case list():
            raise NoKeyError("not supported: associative list with lists as elements")
        case None:
            raise NoKeyError("associative list without keys has an element that's an explicit null")
        case _:
            return Key([("", element)])


def keys_of(kind: ListType, *lists: list[object]) -> tuple[Sequence[Hashable], ...]:
    """Return the keys of the elements of each of *lists*, of *kind*, which is not atomic.

    Two of them are equal if the :class:`Key` of the elements is. They are texts where all elements have one.

    Raises:
        NoKeyError: an element has none; the text says why.
    """
    if len(kind.keys) == 1:
        (name,) = kind.keys
        texts = [[each.get(name) if type(each) is dict else None for each in one] for one in lists]
        if all(type(text) is str for one in texts for text in one):
            return tuple(texts)
    return tuple([key_of(kind, each) for each in one] for one in lists)


def _key_fields(kind: ListType, element: object) -> Key:
    if element is None:
        raise NoKeyError("associative list with keys may not have a null element")
    if not isinstance(element, dict):
        raise NoKeyError("associative list with keys may not have non-map elements")
    parts = []
    for name in kind.keys:
        value = element[name] if name in element else _default(kind, name)
        if value is not None or name in element:
            parts.append((name, value))
    if not parts:
        names = " ".join(map(quoted, kind.keys))
        raise NoKeyError(
            f"associative list with keys has an element that omits all key fields [{names}] "
            "(and doesn't have default values for any key fields)"
        )
    return Key(sorted(parts, key=lambda part: part[0]))


def _default(kind: ListType, name: str) -> object:
    declared = kind.element.get().map
    if not declared:
        problem = "associative list may not have non-map types"
        raise NoKeyError(f"couldn't find default value for {name}: {problem}")
    return declared.fields[name].default if name in declared.fields else None


def _frozen(value: object) -> Hashable:
    match value:
        case bool():
            return ("bool", value)
        case dict():
            return frozenset((name, _frozen(each)) for name, each in value.items())
        case list():
            return tuple(map(_frozen, value))
        case _:
            return value  # str, int, float or None
