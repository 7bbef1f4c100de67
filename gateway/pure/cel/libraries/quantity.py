"""The Quantity functions of Kubernetes. Only quantities of 64 bits can be integers for ``isInteger``.

Source: k8s.io/apiserver pkg/cel/library/quantity.go; Go math Pow10.
"""

from __future__ import annotations

import math
from typing import Final

from admission_gateway_worker.quantity import INT64, MalformedQuantity, Quantity, add, compare, negated, parse
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import function
from gateway.pure.cel.meter import charge, count_reading


def _as_integer(quantity: Quantity) -> int | None:
    if quantity.is_decimal or quantity.exponent < 0:
        return None
    value = quantity.number * 10**quantity.exponent
    return value if value in INT64 else None


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
    count_reading(text, 2)
    try:
        return parse(text)
    except MalformedQuantity as error:
        raise EvaluationError(str(error)) from None


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
    return compare(a, b)


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
    return add(a, b)


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
    function("quantity_sub", f"{_TYPE}::sub({_TYPE}) -> {_TYPE}", lambda a, b: _add(a, negated(b))),
    function("quantity_sub_int", f"{_TYPE}::sub(int) -> {_TYPE}", lambda a, b: _add(a, _whole(-b))),
)
