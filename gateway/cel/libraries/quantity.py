"""The Quantity functions of Kubernetes: exact numbers, with the two representations of Kubernetes.

A quantity is an integer of 64 bits times a power of ten if that holds it, otherwise a decimal of any length.
Only the first kind can be an integer for ``isInteger``. The notation of a quantity decides its kind.

Source: k8s.io/apiserver pkg/cel/library/quantity.go; k8s.io/apimachinery pkg/api/resource quantity.go,
amount.go, math.go, suffix.go; Go math Pow10.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar, Final

from gateway.cel.errors import EvaluationError
from gateway.cel.functions import function
from gateway.cel.meter import charge

_FORM: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*(?:[+-])?[0-9]*)")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT: Final = re.compile("[eE]([+-]?[0-9]{1,1000})")
_NANO: Final = -9
_INT64: Final = range(-(2**63), 2**63)
_MOST: Final = 2**63 - 1
_DIGITS: Final = 18
"""Digits that always fit 64 bits (maxInt64Factors)."""
_LONGEST: Final = 500
"""Digits, written or by the exponent. Kubernetes computes with any number of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """``number`` times ten to the power of ``exponent``."""

    cel_type: ClassVar[str] = "kubernetes.Quantity"
    number: int
    exponent: int
    is_decimal: bool
    """Whether Go holds it as a decimal of any length."""
    is_computed: bool = False
    """Whether it is a result of ``add`` or ``sub``: cel-go has no overload of ``==`` for it on the right."""

    def __eq__(self, other: object) -> bool:
        return _compared(self, other) == 0 if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        number, exponent = self.number, self.exponent
        while number and number % 10 == 0:
            number, exponent = number // 10, exponent + 1
        return hash((number, exponent if number else 0))


def _compared(a: Quantity, b: Quantity) -> int:
    least = min(a.exponent, b.exponent)
    one: int = a.number * 10 ** (a.exponent - least)
    other: int = b.number * 10 ** (b.exponent - least)
    return (one > other) - (one < other)


def _parsed(text: str) -> Quantity:
    """Return the quantity *text*.

    Raises:
        EvaluationError: it is not a quantity, or has more than ``_LONGEST`` digits.
    """
    found = _FORM.fullmatch(text)
    if not text or found is None:
        raise EvaluationError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    sign, whole, fraction, suffix = found[1], found[2].lstrip("0"), found[3] or "", found[4]
    bits = _BINARY.get(suffix)
    exponent = 0 if bits is not None else _decimal_exponent(suffix)
    digits = (whole or "0") + fraction
    if len(digits) + abs(exponent) > _LONGEST:
        raise EvaluationError(f"a quantity of more than {_LONGEST} digits is not supported")
    factor = -1 if sign == "-" else 1
    scale = exponent - len(fraction)
    if bits is None:
        fits = len(digits) <= _DIGITS
    else:
        # Go's estimate of the decimal digits of the power of two.
        fits = not fraction and 15 - len(digits) - int(bits * 3 / 10) - 1 >= 0
    if fits and scale >= _NANO:
        number = int(digits) << (bits or 0)
        if number in _INT64:
            return Quantity(factor * number, scale, is_decimal=False)
    if not whole and not fraction and not found[2]:
        raise EvaluationError("unable to parse numeric part of quantity")
    return _rounded(factor, int(digits) << (bits or 0), scale, capped=bits is not None)


def _decimal_exponent(suffix: str) -> int:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    found = _EXPONENT.fullmatch(suffix)
    if found is None or int(found[1]) not in _INT64:
        raise EvaluationError("unable to parse quantity's suffix")
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


def _added(a: Quantity, b: Quantity) -> Quantity:
    if not a.is_decimal and not b.is_decimal:
        if b.number == 0:
            return Quantity(a.number, a.exponent, is_decimal=False, is_computed=True)
        if a.number == 0:
            return Quantity(b.number, b.exponent, is_decimal=False, is_computed=True)
    least = min(a.exponent, b.exponent)
    one, other = a.number * 10 ** (a.exponent - least), b.number * 10 ** (b.exponent - least)
    fits = one in _INT64 and other in _INT64 and one + other in _INT64
    return Quantity(one + other, least, a.is_decimal or b.is_decimal or not fits, is_computed=True)


def _negated(quantity: Quantity) -> Quantity:
    return Quantity(-quantity.number, quantity.exponent, quantity.is_decimal)


def _as_integer(quantity: Quantity) -> int | None:
    if quantity.is_decimal or quantity.exponent < 0:
        return None
    value = quantity.number * 10**quantity.exponent
    return value if value in _INT64 else None


def _power_of_ten(exponent: int) -> float:
    # Go multiplies two table entries, which is not always the nearest number.
    if exponent < -323:
        return 0.0
    if exponent > 308:
        return math.inf
    high, low = divmod(abs(exponent), 32)
    first, second = float(f"1e{high * 32}"), float(f"1e{low}")
    return first * second if exponent >= 0 else float(f"1e-{high * 32}") / second


def _quantity(text: str) -> Quantity:
    charge(math.ceil(len(text) * 0.1))
    return _parsed(text)


def _is_quantity(text: str) -> bool:
    try:
        _quantity(text)
    except EvaluationError as error:
        return "more than" in str(error)
    return True


def _sign(quantity: Quantity) -> int:
    charge(1)
    return (quantity.number > 0) - (quantity.number < 0)


def _compare(a: Quantity, b: Quantity) -> int:
    charge(1)
    return _compared(a, b)


def _float(quantity: Quantity) -> float:
    charge(1)
    try:
        base = float(quantity.number)
    except OverflowError:
        base = math.copysign(math.inf, quantity.number)
    return base * _power_of_ten(quantity.exponent) if quantity.exponent else base


def _integer(quantity: Quantity) -> int:
    charge(1)
    value = _as_integer(quantity)
    if value is None:
        raise EvaluationError("cannot convert value to integer")
    return value


def _is_integer(quantity: Quantity) -> bool:
    charge(1)
    return _as_integer(quantity) is not None


def _whole(number: int) -> Quantity:
    return Quantity(number, 0, is_decimal=False)


def _add(a: Quantity, b: Quantity) -> Quantity:
    charge(1)
    return _added(a, b)


_TYPE: Final = "kubernetes.Quantity"
FUNCTIONS: Final = (
    function("string_to_quantity", f"quantity(string) -> {_TYPE}", _quantity),
    function("is_quantity_string", "isQuantity(string) -> bool", _is_quantity),
    function("quantity_sign", f"sign({_TYPE}) -> int", _sign),
    function(
        "quantity_is_greater_than",
        f"{_TYPE}::isGreaterThan({_TYPE}) -> bool",
        lambda a, b: _compare(a, b) > 0,
    ),
    function(
        "quantity_is_less_than", f"{_TYPE}::isLessThan({_TYPE}) -> bool", lambda a, b: _compare(a, b) < 0
    ),
    function("quantity_compare_to", f"{_TYPE}::compareTo({_TYPE}) -> int", _compare),
    function("quantity_get_float", f"{_TYPE}::asApproximateFloat() -> double", _float),
    function("quantity_get_int", f"{_TYPE}::asInteger() -> int", _integer),
    function("quantity_is_integer", f"{_TYPE}::isInteger() -> bool", _is_integer),
    function("quantity_add", f"{_TYPE}::add({_TYPE}) -> {_TYPE}", _add),
    function("quantity_add_int", f"{_TYPE}::add(int) -> {_TYPE}", lambda a, b: _add(a, _whole(b))),
    function("quantity_sub", f"{_TYPE}::sub({_TYPE}) -> {_TYPE}", lambda a, b: _add(a, _negated(b))),
    function("quantity_sub_int", f"{_TYPE}::sub(int) -> {_TYPE}", lambda a, b: _add(a, _whole(-b))),
)
