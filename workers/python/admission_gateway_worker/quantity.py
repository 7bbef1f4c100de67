"""Quantities of Kubernetes: exact numbers, with the two representations of Kubernetes.

A quantity is an integer of 64 bits times a power of ten if that holds it, otherwise a decimal of any length.
The notation of a quantity decides its kind.

Source: k8s.io/apimachinery pkg/api/resource quantity.go, amount.go, math.go, suffix.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

PATTERN: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
"""The form of a quantity, for the ``pattern`` of a JSON Schema."""
# Possessive: a text that is not a quantity is found out in linear time.
_FORM: Final = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[+-]?[0-9]*+)")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT: Final = re.compile("[eE]([+-]?[0-9]{1,1000})")
_NANO: Final = -9
INT64: Final = range(-(2**63), 2**63)
_MOST: Final = 2**63 - 1
_DIGITS: Final = 18
"""Digits that always fit 64 bits (maxInt64Factors)."""
_LONGEST: Final = 500
"""Digits, written or by the exponent. Kubernetes computes with any number of them."""


class MalformedQuantity(ValueError):
    """A text is not a quantity."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """``number`` times ten to the power of ``exponent``."""

    cel_type: ClassVar[str] = "kubernetes.Quantity"
    """Name of the type in expressions."""
    number: int
    exponent: int
    is_decimal: bool
    """Whether Go holds it as a decimal of any length."""
    is_computed: bool = False
    """Whether it is a result of ``add`` or ``sub``: cel-go has no overload of ``==`` for it on the right."""

    def __eq__(self, other: object) -> bool:
        return compare(self, other) == 0 if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        number, exponent = self.number, self.exponent
        while number and number % 10 == 0:
            number, exponent = number // 10, exponent + 1
        return hash((number, exponent if number else 0))


def compare(a: Quantity, b: Quantity) -> int:
    """Return -1, 0 or 1 if *a* is less than, equal to or greater than *b*."""
    least = min(a.exponent, b.exponent)
    one: int = a.number * 10 ** (a.exponent - least)
    other: int = b.number * 10 ** (b.exponent - least)
    return (one > other) - (one < other)


def parse(text: str) -> Quantity:
    """Return the quantity *text*.

    Raises:
        MalformedQuantity: it is not a quantity, or has more than ``_LONGEST`` digits.
    """
    found = _FORM.fullmatch(text)
    if not text or found is None:
        raise MalformedQuantity(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    sign, whole, fraction, suffix = found[1], found[2].lstrip("0"), found[3] or "", found[4]
    bits = _BINARY.get(suffix)
    exponent = 0 if bits is not None else _decimal_exponent(suffix)
    digits = (whole or "0") + fraction
    if len(digits) + abs(exponent) > _LONGEST:
        raise MalformedQuantity(f"a quantity of more than {_LONGEST} digits is not supported")
    factor = -1 if sign == "-" else 1
    scale = exponent - len(fraction)
    if bits is None:
        fits = len(digits) <= _DIGITS
    else:
        # Go's estimate of the decimal digits of the power of two.
        fits = not fraction and 15 - len(digits) - int(bits * 3 / 10) - 1 >= 0
    if fits and scale >= _NANO:
        number = int(digits) << (bits or 0)
        if number in INT64:
            return Quantity(factor * number, scale, is_decimal=False)
    if not whole and not fraction and not found[2]:
        raise MalformedQuantity("unable to parse numeric part of quantity")
    return _rounded(factor, int(digits) << (bits or 0), scale, capped=bits is not None)


def _decimal_exponent(suffix: str) -> int:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    found = _EXPONENT.fullmatch(suffix)
    if found is None or int(found[1]) not in INT64:
        raise MalformedQuantity("unable to parse quantity's suffix")
    # Go truncates it to 32 bits.
    return (int(found[1]) + 2**31) % 2**32 - 2**31


def _rounded(factor: int, number: int, scale: int, *, capped: bool) -> Quantity:
    if number:
        # Rounded to nano, away from zero.
        number = number * 10 ** (scale - _NANO) if scale >= _NANO else -(-number // 10 ** (_NANO - scale))
        scale = _NANO
    if capped and number > _MOST * 10**-_NANO:
        number, scale = _MOST, 0
    return Quantity(factor * number, scale, is_decimal=True)


def add(a: Quantity, b: Quantity) -> Quantity:
    """Return the sum."""
    if not a.is_decimal and not b.is_decimal:
        if b.number == 0:
            return Quantity(a.number, a.exponent, is_decimal=False, is_computed=True)
        if a.number == 0:
            return Quantity(b.number, b.exponent, is_decimal=False, is_computed=True)
    least = min(a.exponent, b.exponent)
    one, other = a.number * 10 ** (a.exponent - least), b.number * 10 ** (b.exponent - least)
    fits = one in INT64 and other in INT64 and one + other in INT64
    return Quantity(one + other, least, a.is_decimal or b.is_decimal or not fits, is_computed=True)


def negated(quantity: Quantity) -> Quantity:
    """Return the quantity with the other sign."""
    return Quantity(-quantity.number, quantity.exponent, quantity.is_decimal)
