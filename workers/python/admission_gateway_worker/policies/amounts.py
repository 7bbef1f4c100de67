"""Amounts of resources: quantities with the notation in which Kubernetes writes them.

Source: k8s.io/apimachinery pkg/api/resource quantity.go, suffix.go, amount.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from admission_gateway_worker import quantity
from admission_gateway_worker.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

Notation = Literal["decimal", "binary", "exponent"]

_DECIMAL: Final = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_KIBI: Final = 1024
MAX_MILLI_VALUE: Final = (2**63 - 1) // 1000
"""Greatest value that Kubernetes compares in thousandths."""


class Amount(NamedTuple):
    """A quantity and its notation."""

    quantity: Quantity
    notation: Notation

    def __str__(self) -> str:
        """Return it as Kubernetes writes it."""
        value = self.quantity
        if not value.number:
            return "0"
        is_whole = value.number * 10 ** max(value.exponent, 0) % 10 ** max(-value.exponent, 0) == 0
        if self.notation == "binary" and is_whole and abs(whole := self.value) >= _KIBI:
            power = 0
            while whole % _KIBI == 0 and power < len(_BINARY) - 1:
                whole, power = whole // _KIBI, power + 1
            return f"{whole}{_BINARY[power]}"
        number, exponent = value.number, value.exponent
        while number % 10 == 0:
            number, exponent = number // 10, exponent + 1
        number, exponent = number * 10 ** (exponent % 3), exponent - exponent % 3
        if self.notation == "exponent":
            return f"{number}e{exponent}" if exponent else str(number)
        return f"{number}{_DECIMAL.get(exponent, '')}"

    @property
    def value(self) -> int:
        """Return it as a whole number, rounded up."""
        return self._scaled(0)

    @property
    def milli_value(self) -> int:
        """Return its thousandths, rounded up."""
        return self._scaled(3)

    def _scaled(self, power: int) -> int:
        exponent = self.quantity.exponent + power
        number = self.quantity.number
        found: int = number * 10**exponent if exponent >= 0 else -(-number // 10**-exponent)
        return found

    def __add__(self, other: Amount) -> Amount:  # type: ignore[override]
        """Return the sum, in the notation of *self* unless that is zero."""
        notation = self.notation if self.quantity.number else other.notation
        return Amount(quantity.add(self.quantity, other.quantity), notation)

    def is_more_than(self, other: Amount) -> bool:
        """Whether it is greater than *other*."""
        return quantity.compare(self.quantity, other.quantity) > 0


ZERO: Final = Amount(Quantity(0, 0, is_decimal=False), "decimal")

Amounts = dict[str, Amount]
"""By name of the resource."""


def parse(text: object) -> Amount:
    """Return the amount *text*; a JSON number is allowed too.

    Raises:
        quantity.MalformedQuantity: it is not a quantity.
    """
    written = str(text).strip()
    suffix = written.lstrip("+-.0123456789")
    notation: Notation = "decimal"
    if suffix.endswith("i"):
        notation = "binary"
    elif suffix[:1] in ("e", "E") and len(suffix) > 1:
        notation = "exponent"
    return Amount(quantity.parse(written), notation)


def amounts(resources: Mapping[str, Any] | None) -> Amounts:
    """Return the amounts of a field such as ``resources.requests``."""
    return {name: parse(text) for name, text in (resources or {}).items()}
