"""The types of CEL for the checker, and the notation of types in declarations.

Source: cel-go common/types/types.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Type:
    """A type: a name and parameters. A name of one capital letter, or with a $, is a type parameter."""

    name: str
    of: tuple[Type, ...] = ()
    size: int = field(init=False, compare=False)
    """The number of types in it, with itself."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + sum(part.size for part in self.of))

    @property
    def is_parameter(self) -> bool:
        """Whether it is a type parameter."""
        return len(self.name) == 1 or self.name[0] == "$"

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.of))})" if self.of else self.name


BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null_type")
DYN: Final = Type("dyn")
ERROR: Final = Type("!error!")
TIMESTAMP: Final = Type("timestamp")
DURATION: Final = Type("duration")
OF_VARIABLES: Final = Type("kubernetes.variables")
"""The type of the variable whose fields are the variables of a policy."""
_KEPT: Final = frozenset({BOOL, BYTES, DOUBLE, DURATION, INT, NULL, STRING, TIMESTAMP, UINT})


def list_of(element: Type) -> Type:
    """The type of lists of *element*."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """The type of maps from *key* to *value*."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """The type of an optional *value*."""
    return Type("optional_type", (value,))


def type_of(what: Type) -> Type:
    """The type of the type *what* as a value."""
    return Type("type", (what,))


def variable_type(found: Type) -> Type:
    """Return the type of a variable whose expression has the type *found*: ``dyn`` for types of objects."""
    if found in _KEPT:
        return found
    if found.name in ("list", "map"):
        return Type(found.name, tuple(map(variable_type, found.of)))
    return DYN


_TOKEN: Final = re.compile(r"[\w.$]+|[(),]")


def parse_type(text: str) -> Type:
    """Return the type that *text* names: ``list(A)``, ``map(string, dyn)``, ``kubernetes.Quantity``.

    *text* is a declaration in the code; its form is not checked.
    """
    tokens = _TOKEN.findall(text)[::-1]

    def read() -> Type:
        name = tokens.pop()
        of: list[Type] = []
        if tokens and tokens[-1] == "(":
            tokens.pop()
            while tokens[-1] != ")":
                of.append(read())
                if tokens[-1] == ",":
                    tokens.pop()
            tokens.pop()
        return Type(name, tuple(of))

    return read()
