"""The value of a plain YAML scalar: YAML 1.1 as kubectl reads it, without types that Kubernetes does not use.

Dates and sexagesimal numbers (``1:30``) stay texts. Numbers that JSON cannot carry are refused.

Source: YAML 1.1 type repository; go-yaml v2 resolve.go for what kubectl reads.
"""

from __future__ import annotations

import math
import re

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_INTEGER = re.compile(r"([-+]?)(0x[0-9a-fA-F_]+|0b[01_]+|0o?[0-7_]+|0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")

MAX_DIGITS = 400
"""Digits of a number. Python itself refuses integers of more than 4,300 digits, and 64 bits need 20."""


def resolve(text: str) -> object:
    """Return the value of the plain scalar *text*: None, a bool, an int, a float, or *text* itself.

    Raises:
        ValueError: a number that is not finite or has more than 64 bits.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "0123456789+-.":
        return text
    if match := _INTEGER.fullmatch(text):
        return _integer(match[1], match[2].replace("_", ""))
    if _FLOAT.fullmatch(text):
        number = float(text.replace("_", "")) if len(text) <= MAX_DIGITS else math.inf
        if math.isfinite(number):
            return number
        raise ValueError("the number is too large")
    if _NOT_FINITE.fullmatch(text):
        raise ValueError("a number has to be finite")
    return text


def is_int64(number: int) -> bool:
    """Whether *number* has at most 64 bits, with its sign."""
    return -(2**63) <= number < 2**63


def _integer(sign: str, digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError("the number is too large")
    prefixes = {"0x": 16, "0b": 2, "0o": 8}
    if radix := prefixes.get(digits[:2]):
        number = int(digits[2:] or "0", radix)
    else:
        # A leading zero alone means octal in YAML 1.1.
        number = int(digits, 8 if digits.startswith("0") else 10)
    number = -number if sign == "-" else number
    if not is_int64(number):
        raise ValueError("the number is too large")
    return number
