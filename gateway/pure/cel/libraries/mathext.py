"""The mathematical functions of cel-go, in version 3.

Source: cel-go ext/math.go; Go math.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import Function, function
from gateway.pure.cel.libraries.order import compare
from gateway.pure.cel.meter import count_values
from gateway.pure.cel.values import Uint

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBERS: Final = ("double", "int", "uint")
_MASK: Final = (1 << 64) - 1
_LEAST: Final = -(1 << 63)


def wrapped(value: int) -> int:
    """Return the int of the lowest 64 bits of *value*."""
    return ((value - _LEAST) & _MASK) + _LEAST


def _same(value: object) -> object:
    return value


def _extreme(name: str, sign: int, values: list[object]) -> object:
    """Return the first of *values* that no other one is before: the least for the *sign* 1."""
    found = values[0]
    for each in values[1:]:
        order = compare(found, each)
        if order is None:
            is_nan = any(isinstance(one, float) and math.isnan(one) for one in (found, each))
            problem = "NaN values cannot be ordered" if is_nan else "no such overload"
            raise EvaluationError(f"{problem}: {name}")
        if order == sign:
            found = each
    return found


def _of_list(name: str, sign: int) -> Callable[[list[object]], object]:
    def extreme(values: list[object]) -> object:
        count_values(len(values))
        if not values:
            raise EvaluationError(f"{name}(list) argument must not be empty")
        found = _extreme(name, sign, values)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise EvaluationError(f"no such overload: {name}")
        return found

    return extreme


def _extremes(name: str, sign: int) -> list[Function]:
    full = f"math.@{name}"

    def of_pair(left: object, right: object) -> object:
        return _extreme(full, sign, [left, right])

    found = [function(f"math_@{name}_{kind}", f"{full}({kind}) -> {kind}", _same, 1) for kind in _NUMBERS]
    found += [
        function(
            f"math_@{name}_{one}_{two}",
            f"{full}({one}, {two}) -> {one if one == two else 'dyn'}",
            of_pair,
            1,
        )
        for one in _NUMBERS
        for two in _NUMBERS
    ]
    of_list = _of_list(full, sign)
    found += [
        function(f"math_@{name}_list_{kind}", f"{full}(list({kind})) -> {kind}", of_list, 1, len)
        for kind in _NUMBERS
    ]
    return found


def _whole(round_to: Callable[[float], int]) -> Callable[[float], float]:
    def rounded(value: float) -> float:
        return math.copysign(round_to(value), value) if math.isfinite(value) else value

    return rounded


trunc: Final = _whole(math.trunc)


def round_half_away(value: float) -> float:
    """Return the next whole number; of two the one that is farther from zero."""
    whole = trunc(value)
    is_up = math.isfinite(value) and abs(value - whole) >= 0.5
    return whole + math.copysign(1, value) if is_up else whole


def _absolute(value: int) -> int:
    if value == _LEAST:
        raise EvaluationError("integer overflow")
    return abs(value)


def _sign(value: float) -> float:
    return value if math.isnan(value) else float((value > 0) - (value < 0))


def _root(value: float) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


def _of_uints(combine: Callable[[int, int], int]) -> Callable[[int, int], Uint]:
    return lambda left, right: Uint(combine(left, right))


def _shifted(name: str, *, is_left: bool, is_uint: bool) -> Callable[[int, int], int]:
    def shift(value: int, bits: int) -> int:
        if bits < 0:
            raise EvaluationError(f"math.{name}() negative offset: {bits}")
        found = 0
        if bits < 64:
            found = value << bits if is_left else (value & _MASK) >> bits
        return Uint(found & _MASK) if is_uint else wrapped(found)

    return shift


def _bits() -> list[Function]:
    found = []
    for name, combine in (("And", operator.and_), ("Or", operator.or_), ("Xor", operator.xor)):
        for kind in ("int", "uint"):
            call = combine if kind == "int" else _of_uints(combine)
            signature = f"math.bit{name}({kind}, {kind}) -> {kind}"
            found.append(function(f"math_bit{name}_{kind}_{kind}", signature, call, 1))
    for name, is_left in (("bitShiftLeft", True), ("bitShiftRight", False)):
        for kind in ("int", "uint"):
            shift = _shifted(name, is_left=is_left, is_uint=kind == "uint")
            found.append(function(f"math_{name}_{kind}_int", f"math.{name}({kind}, int) -> {kind}", shift, 1))
    return found


FUNCTIONS: Final[tuple[Function, ...]] = (
    *_extremes("min", 1),
    *_extremes("max", -1),
    function("math_ceil_double", "math.ceil(double) -> double", _whole(math.ceil), 1),
    function("math_floor_double", "math.floor(double) -> double", _whole(math.floor), 1),
    function("math_round_double", "math.round(double) -> double", round_half_away, 1),
    function("math_trunc_double", "math.trunc(double) -> double", trunc, 1),
    function("math_isInf_double", "math.isInf(double) -> bool", math.isinf, 1),
    function("math_isNaN_double", "math.isNaN(double) -> bool", math.isnan, 1),
    function("math_isFinite_double", "math.isFinite(double) -> bool", math.isfinite, 1),
    function("math_abs_double", "math.abs(double) -> double", abs, 1),
    function("math_abs_int", "math.abs(int) -> int", _absolute, 1),
    function("math_abs_uint", "math.abs(uint) -> uint", _same, 1),
    function("math_sign_double", "math.sign(double) -> double", _sign, 1),
    function("math_sign_int", "math.sign(int) -> int", lambda value: (value > 0) - (value < 0), 1),
    function("math_sign_uint", "math.sign(uint) -> uint", lambda value: Uint(value > 0), 1),
    *(function(f"math_sqrt_{kind}", f"math.sqrt({kind}) -> double", _root, 1) for kind in _NUMBERS),
    *_bits(),
    function("math_bitNot_int_int", "math.bitNot(int) -> int", operator.invert, 1),
    function("math_bitNot_uint_uint", "math.bitNot(uint) -> uint", lambda value: Uint(~value & _MASK), 1),
)
