"""The representation of CEL values.

null, bool, int, double, string, bytes, list and map are None, bool, int, float, str, bytes, list and dict, as
in parsed JSON. The other types are here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
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
    """A type as a value: the result of ``type()``, or the value of ``int``, ``list`` and so on."""

    name: str


_OF_TEXTS: Final = frozenset({"JSONPatch", "user.ServiceAccount"})
"""Types whose fields are texts, which are not set if they are empty; ``value`` of a patch is no text."""


class Struct:
    """A value with fields: of a type of patches, see ``gateway.pure.cel.structs``, or a service account.

    ``equal`` compares two of them.
    """

    __slots__ = ("cel_type", "fields")

    def __init__(self, cel_type: str, fields: dict[str, object]) -> None:
        self.cel_type = cel_type
        """The name of the type: ``JSONPatch``, ``Object.spec``."""
        self.fields = fields

    def is_set(self, field: str) -> bool:
        """Return ``has(struct.field)``."""
        value = self.fields.get(field, "")
        return field in self.fields and (value != "" or self.cel_type not in _OF_TEXTS or field == "value")


def unset(struct: object, field: str) -> object:
    """Return the value of a *field* that is not set."""
    assert isinstance(struct, Struct)
    return "" if struct.cel_type in _OF_TEXTS and field != "value" else None


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
    return _NAMES.get(kind) or str(getattr(value, "cel_type", "dyn"))


_GO_TYPES: Final[dict[type, str]] = {
    type(None): "types.Null",
    bool: "types.Bool",
    int: "types.Int",
    Uint: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
    list: "*types.baseList",
    dict: "*types.baseMap",
    Timestamp: "types.Timestamp",
    Duration: "types.Duration",
    Optional: "*types.Optional",
    TypeName: "*types.Type",
}


def go_type(value: object) -> str:
    """Return the name of cel-go's own type for *value*, which some of its messages contain."""
    return _GO_TYPES.get(type(value)) or f"cel.{type_name(value).rpartition('.')[2]}"


ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
"""Characters with Go's escapes of them within quotes."""


def quoted(text: str) -> str:
    """Return *text* as Go's ``%q`` writes it."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in ESCAPES:
        return ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def format_double(value: float) -> str:
    """Return *value* as Go's ``%g`` writes it: the shortest digits; an exponent below -4 and from 6 on."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    power = len(digits) + exponent - 1
    if value and (power < -4 or power >= 6):
        text = "".join(map(str, digits))
        mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
        return f"{'-' if sign else ''}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02}"
    return plain_double(value)


def plain_double(value: float) -> str:
    """Return the shortest digits of *value* without an exponent."""
    if not value:
        return "-0" if math.copysign(1, value) < 0 else "0"
    return f"{Decimal(repr(value)).normalize():f}"


_MAX_SHOWN: Final = 1000
"""Characters of a text in a message. An expression can have a message for each element of a list."""


def show(value: object) -> str:
    """Return *value* as an error message names it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str) and len(value) > _MAX_SHOWN:
        return f"{value[:_MAX_SHOWN]}…"
    return format_double(value) if isinstance(value, float) else str(value)
