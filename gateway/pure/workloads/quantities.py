"""The notation in which the API server writes a quantity.

Source: k8s.io/apimachinery pkg/api/resource quantity.go (CanonicalizeBytes), amount.go, suffix.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from admission_gateway_worker.quantity import MalformedQuantity, Quantity, add, compare, parse

_DECIMAL: Final = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_KI: Final = 1024
_MILLI: Final = -3


def canonical(found: object, *, rounded: bool = False) -> object:
    """Return the quantity *found* as the API server writes it, and *found* if it is not a quantity.

    *rounded*: up to a thousandth, as in a list of resources.
    """
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        return found
    text = str(found).strip()
    try:
        value = parse(text)
    except MalformedQuantity:
        return found
    if rounded and value.exponent < _MILLI:
        step = 10 ** (_MILLI - value.exponent)
        sign = -1 if value.number < 0 else 1
        value = Quantity(sign * -(-abs(value.number) // step), _MILLI, is_decimal=value.is_decimal)
    return _written(value, text[-2:]) or found


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity with its notation."""

    value: Quantity
    suffix: str

    @classmethod
    def read(cls, found: object) -> Amount:
        """Return the quantity *found*.

        Raises:
            MalformedQuantity: it is not a quantity.
        """
        if isinstance(found, bool) or not isinstance(found, str | int | float):
            raise MalformedQuantity("it is neither a text nor a number")
        text = str(found).strip()
        return cls(parse(text), text[-2:])

    def __add__(self, other: Amount) -> Amount:
        return Amount(add(self.value, other.value), self.suffix if self.value.number else other.suffix)

    def __gt__(self, other: Amount) -> bool:
        return compare(self.value, other.value) > 0

    def __str__(self) -> str:
        return _written(self.value, self.suffix)


def _written(value: Quantity, suffix: str) -> str:
    """Return *value* in the notation to which *suffix*, its last two characters, belongs."""
    number, exponent = value.number, value.exponent
    if number == 0:
        return "0"
    if suffix in _BINARY[1:] and exponent <= 0:
        whole, rest = divmod(abs(number), 10**-exponent)
    elif suffix in _BINARY[1:]:
        whole, rest = abs(number) * 10**exponent, 0
    else:
        whole, rest = 0, 0
    if whole >= _KI and not rest:
        times = 0
        while whole % _KI == 0 and times < len(_BINARY) - 1:
            whole, times = whole // _KI, times + 1
        return f"{'-' if number < 0 else ''}{whole}{_BINARY[times]}"
    while number % 10 == 0:
        number, exponent = number // 10, exponent + 1
    number *= 10 ** (exponent % 3)
    exponent -= exponent % 3
    if "e" in suffix.lower() and suffix[-1:].isdigit():
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{_DECIMAL[exponent]}" if exponent in _DECIMAL else ""
