"""The conversions between types: ``int(x)``, ``string(x)`` and the others.

Source: cel-go common/types (ConvertToType of each type); Go strconv.
"""

from __future__ import annotations

import math
import re
from typing import Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.meter import count_text
from gateway.pure.cel.operators import checked_int, checked_timestamp, checked_uint
from gateway.pure.cel.times import SECOND, format_duration, format_timestamp, parse_duration, parse_timestamp
from gateway.pure.cel.values import Duration, Timestamp, TypeName, Uint, format_double, type_name

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DIGITS: Final = "[0-9](?:_?[0-9])*"
_HEX_DIGITS: Final = "[0-9a-fA-F](?:_?[0-9a-fA-F])*"
# Each text can match in one way, so that matching takes linear time.
_DECIMAL: Final = re.compile(
    rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?", re.ASCII
)
_HEXADECIMAL: Final = re.compile(
    rf"[+-]?0[xX](?:_?{_HEX_DIGITS}(?:\.(?:{_HEX_DIGITS})?)?|\.{_HEX_DIGITS})[pP][+-]?{_DIGITS}", re.ASCII
)
_NOT_FINITE: Final = {"inf", "infinity", "nan"}
_LONGEST: Final = 10_000
"""Characters of a number. A longer text is not a number."""
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def _no_conversion(value: object, wanted: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{type_name(value)}' to '{wanted}'")


def to_int(value: object) -> int:
    """``int(value)``."""
    kind = type(value)
    if kind is int:
        return value  # type: ignore[return-value]
    if isinstance(value, Uint):
        return checked_int(int(value))
    if isinstance(value, float):
        # cel-go refuses both ends: a double there may be a rounded integer.
        if not -9223372036854775808.0 < value < 9223372036854775808.0:
            raise EvaluationError("integer overflow")
        return int(value)
    if isinstance(value, str) and _INTEGER.fullmatch(value) and -(1 << 63) <= int(value) < 1 << 63:
        return int(value)
    if isinstance(value, Timestamp):
        return value.ns // SECOND
    if isinstance(value, Duration):
        return value.ns
    raise _no_conversion(value, "int")


def to_uint(value: object) -> Uint:
    """``uint(value)``."""
    if isinstance(value, Uint):
        return value
    if type(value) is int:
        return checked_uint(value)
    if isinstance(value, float):
        if not 0 <= value < 18446744073709551616.0:
            raise EvaluationError("unsigned integer overflow")
        return Uint(value)
    if isinstance(value, str) and value[:1].isdigit() and _INTEGER.fullmatch(value) and int(value) < 1 << 64:
        return Uint(value)
    raise _no_conversion(value, "uint")


def to_double(value: object) -> float:
    """``double(value)``."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and len(value) <= _LONGEST:
        found = math.nan
        if _DECIMAL.fullmatch(value):
            found = float(value)
        elif _HEXADECIMAL.fullmatch(value):
            try:
                found = float.fromhex(value.replace("_", ""))
            except OverflowError:
                found = math.inf
        elif value.lower().lstrip("+-") in _NOT_FINITE and len(value) - len(value.lstrip("+-")) <= 1:
            return float(value)
        if math.isfinite(found):
            return found
    raise _no_conversion(value, "double")


def to_bool(value: object) -> bool:
    """``bool(value)``."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _BOOLS:
        return _BOOLS[value]
    raise _no_conversion(value, "bool")


def to_bytes(value: object) -> bytes:
    """``bytes(value)``."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        count_text(len(value), value)
        return value.encode("utf-8", "surrogatepass")
    raise _no_conversion(value, "bytes")


def to_string(value: object) -> str:
    """``string(value)``."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return format_double(value)
    if isinstance(value, bytes):
        count_text(len(value))
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    raise _no_conversion(value, "string")


def to_timestamp(value: object) -> Timestamp:
    """``timestamp(value)``."""
    if isinstance(value, Timestamp):
        return value
    if isinstance(value, str):
        return parse_timestamp(value)
    if type(value) is int:
        return checked_timestamp(value * SECOND)
    raise _no_conversion(value, "google.protobuf.Timestamp")


def to_duration(value: object) -> Duration:
    """``duration(value)``."""
    if isinstance(value, Duration):
        return value
    if isinstance(value, str):
        return parse_duration(value)
    raise _no_conversion(value, "google.protobuf.Duration")


def to_dyn(value: object) -> object:
    """``dyn(value)``: the value itself; its type is dyn for the checker."""
    return value


def to_type(value: object) -> TypeName:
    """``type(value)``."""
    return TypeName(type_name(value))
