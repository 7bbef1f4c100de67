"""How values of CEL are represented, where Python has nothing that fits.

null, bool, int, double, string, bytes, list and map are None, bool, int, float, str, bytes, list and dict, as
they come from JSON. The rest is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


class Uint(int):
    """An unsigned integer. Equal to the int of the same value, as in CEL."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """An instant."""

    ns: int
    """Since 1970-01-01T00:00:00Z."""


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time."""

    ns: int


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be missing."""

    value: object = None
    present: bool = True


NONE: Final = Optional(present=False)
"""``optional.none()``."""


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as a value: what ``type()`` returns and ``int``, ``list``… stand for."""

    name: str


_NAMES: Final[dict[type, str]] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    Optional: "optional_type",
    TypeName: "type",
}


def type_name(value: object) -> str:
    """Return the name of the type of *value*, as CEL writes it."""
    kind = type(value)
    return _NAMES.get(kind) or str(getattr(kind, "cel_type", "dyn"))
