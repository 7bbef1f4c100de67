"""The standard functions and operators of CEL, and those of optional types.

All overloads of one name share one implementation, which looks at the values itself.

Source: cel-go common/stdlib/standard.go, cel/library.go (OptionalTypes).
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final

from gateway.cel import conversions, operators, times
from gateway.cel.equality import equal
from gateway.cel.errors import EvaluationError
from gateway.cel.functions import Function, function
from gateway.cel.meter import charge
from gateway.cel.regex import compile_regex
from gateway.cel.values import NONE, Duration, Optional, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def _many(name: str, signatures: Iterable[str], call: Callable[..., object], cost: int = 1) -> list[Function]:
    return [function(f"{name}_{number}", text, call, cost) for number, text in enumerate(signatures)]


def _unused(*_: object) -> object:
    raise AssertionError("evaluated by the evaluator itself")


_NUMBERS: Final = ("int", "uint", "double")
_ORDERED: Final = [
    *((left, right) for left in _NUMBERS for right in _NUMBERS),
    *((kind, kind) for kind in ("bool", "string", "bytes", "timestamp", "duration")),
]


def _order(symbol: str, decide: Callable[[int], bool]) -> list[Function]:
    name = f"_{symbol}_"
    signatures = [f"{name}({left}, {right}) -> bool" for left, right in _ORDERED]
    return _many(name, signatures, lambda left, right: decide(operators.compare(left, right)))


def _arithmetic(symbol: str, kinds: Iterable[str], call: Callable[..., object]) -> list[Function]:
    name = f"_{symbol}_"
    signatures = [
        f"{name}({parts[0]}, {parts[1]}) -> {parts[2]}"
        if len(parts) == 3
        else f"{name}({kind}, {kind}) -> {kind}"
        for kind in kinds
        for parts in [kind.split()]
    ]
    return _many(name, signatures, call)


def _operators() -> list[Function]:
    sums = [*_NUMBERS, "string", "bytes", "list(A)", "duration"]
    return [
        function("conditional", "_?_:_(bool, A, A) -> A", _unused),
        function("logical_and", "_&&_(bool, bool) -> bool", _unused),
        function("logical_or", "_||_(bool, bool) -> bool", _unused),
        function("logical_not", "!_(bool) -> bool", _unused),
        function("equals", "_==_(A, A) -> bool", equality),
        function("not_equals", "_!=_(A, A) -> bool", inequality),
        *_order("<", lambda sign: sign < 0),
        *_order("<=", lambda sign: sign <= 0),
        *_order(">", lambda sign: sign > 0),
        *_order(">=", lambda sign: sign >= 0),
        *_arithmetic(
            "+", [*sums, "duration timestamp timestamp", "timestamp duration timestamp"], operators.add
        ),
        *_arithmetic(
            "-",
            [*_NUMBERS, "duration", "timestamp duration timestamp", "timestamp timestamp duration"],
            operators.subtract,
        ),
        *_arithmetic("*", _NUMBERS, operators.multiply),
        *_arithmetic("/", _NUMBERS, operators.divide),
        *_arithmetic("%", ("int", "uint"), operators.modulo),
        *_many("negate", ["-_(double) -> double", "-_(int) -> int"], operators.negate),
        *_many(
            "index",
            [
                "_[_](list(A), int) -> A",
                "_[_](map(A, B), A) -> B",
                "_[_](optional_type(list(A)), int) -> optional_type(A)",
                "_[_](optional_type(map(A, B)), A) -> optional_type(B)",
            ],
            operators.index,
        ),
        *_many(
            "optindex",
            [
                "_[?_](list(A), int) -> optional_type(A)",
                "_[?_](optional_type(list(A)), int) -> optional_type(A)",
                "_[?_](map(A, B), A) -> optional_type(B)",
                "_[?_](optional_type(map(A, B)), A) -> optional_type(B)",
            ],
            operators.optional_index,
        ),
        *_many("in", ["@in(A, list(A)) -> bool", "@in(A, map(A, B)) -> bool"], operators.is_in),
    ]


def equality(left: object, right: object) -> bool:
    """``left == right``, charged as cel-go does beyond the first unit."""
    if isinstance(left, str | bytes | list | dict) and isinstance(right, str | bytes | list | dict):
        size = min(len(left), len(right))
        if size > 10:
            charge(math.ceil(0.1 * size) - 1)
    return equal(left, right)


def inequality(left: object, right: object) -> bool:
    """``left != right``, also of what cannot be compared."""
    try:
        return not equality(left, right)
    except EvaluationError:
        return True


def _text(method: Callable[[str, str], bool], *, is_product: bool) -> Callable[[object, object], bool]:
    def search(text: object, part: object) -> bool:
        if not isinstance(text, str) or not isinstance(part, str):
            raise operators.no_overload()
        cost = math.ceil(0.1 * len(part))
        charge(cost * math.ceil(0.1 * len(text)) if is_product else cost)
        return method(text, part)

    return search


def _matches(text: object, pattern: object) -> bool:
    if not isinstance(text, str) or not isinstance(pattern, str):
        raise operators.no_overload()
    charge(math.ceil((1 + len(text)) * 0.1) * math.ceil(len(pattern) * 0.25))
    return compile_regex(pattern).search(text) is not None


def _conversions() -> list[Function]:
    sources = {
        "bool": ("bool string", conversions.to_bool),
        "bytes": ("bytes string", conversions.to_bytes),
        "double": ("double int string uint", conversions.to_double),
        "duration": ("duration string", conversions.to_duration),
        "int": ("int double duration string timestamp uint", conversions.to_int),
        "string": ("string bool bytes double duration int timestamp uint", conversions.to_string),
        "timestamp": ("timestamp int string", conversions.to_timestamp),
        "uint": ("uint double int string", conversions.to_uint),
    }
    found = [
        function(f"{source}_to_{name}", f"{name}({source}) -> {name}", call, 1)
        for name, (kinds, call) in sources.items()
        for source in kinds.split()
    ]
    return [
        *found,
        function("to_dyn", "dyn(A) -> dyn", conversions.to_dyn, 1),
        function("type", "type(A) -> type(A)", conversions.to_type, 1),
    ]


_PARTS: Final = (
    "FullYear",
    "Month",
    "DayOfYear",
    "Date",
    "DayOfMonth",
    "DayOfWeek",
    "Hours",
    "Minutes",
    "Seconds",
    "Milliseconds",
)


def _part_of_time(name: str, *given: object) -> int:
    match given:
        case (Timestamp() as value,):
            return times.timestamp_part(name, value)
        case (Timestamp() as value, str(zone)):
            return times.timestamp_part(name, value, zone)
        case (Duration() as value,) if name in ("getHours", "getMinutes", "getSeconds", "getMilliseconds"):
            return times.duration_part(name, value)
    raise operators.no_overload()


def _times() -> list[Function]:
    found = []
    for name in (f"get{part}" for part in _PARTS):
        call = partial(_part_of_time, name)
        signatures = [f"timestamp::{name}() -> int", f"timestamp::{name}(string) -> int"]
        if name in ("getHours", "getMinutes", "getSeconds", "getMilliseconds"):
            signatures.append(f"duration::{name}() -> int")
        found += _many(name, signatures, call)
    return found


def _value(optional: object) -> object:
    if not isinstance(optional, Optional):
        raise operators.no_overload()
    if not optional.present:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def _has_value(optional: object) -> bool:
    if not isinstance(optional, Optional):
        raise operators.no_overload()
    return optional.present


def _of_non_zero(value: object) -> Optional:
    is_zero = (
        value is None or value in (False, 0, 0.0, "", b"")
        if not isinstance(value, list | dict)
        else not value
    )
    if isinstance(value, Timestamp | Duration):
        is_zero = isinstance(value, Duration) and value.ns == 0
    if isinstance(value, Optional):
        is_zero = not value.present
    return NONE if is_zero else Optional(value)


def _unwrap(items: object) -> list[object]:
    if not isinstance(items, list):
        raise operators.no_overload()
    charge(len(items))
    return [_value(item) for item in items if _has_value(item)]


def _optionals() -> list[Function]:
    return [
        function("optional_of", "optional.of(A) -> optional_type(A)", Optional, 1),
        function(
            "optional_ofNonZeroValue", "optional.ofNonZeroValue(A) -> optional_type(A)", _of_non_zero, 1
        ),
        function("optional_none", "optional.none() -> optional_type(A)", lambda: NONE, 1),
        function("optional_value", "optional_type(A)::value() -> A", _value, 1),
        function("optional_hasValue", "optional_type(A)::hasValue() -> bool", _has_value, 1),
        # Evaluated by the evaluator, since their argument is not where there is a value.
        function(
            "optional_or_optional", "optional_type(A)::or(optional_type(A)) -> optional_type(A)", _unused
        ),
        function("optional_orValue_value", "optional_type(A)::orValue(A) -> A", _unused),
        function("optional_unwrap", "optional.unwrap(list(optional_type(A))) -> list(A)", _unwrap, 1),
        function("optional_unwrapOpt", "list(optional_type(A))::unwrapOpt() -> list(A)", _unwrap, 1),
    ]


def standard_functions() -> list[Function]:
    """All of them."""
    sizes = [f"{kind}" for kind in ("bytes", "list(A)", "map(A, B)", "string")]
    search = {
        "contains": _text(lambda text, part: part in text, is_product=True),
        "endsWith": _text(str.endswith, is_product=False),
        "startsWith": _text(str.startswith, is_product=False),
    }
    return [
        *_operators(),
        *_conversions(),
        *_times(),
        *_optionals(),
        *_many(
            "size",
            [form.format(kind) for kind in sizes for form in ("size({}) -> int", "{}::size() -> int")],
            operators.size,
        ),
        *(function(name, f"string::{name}(string) -> bool", call) for name, call in search.items()),
        *_many(
            "matches", ["matches(string, string) -> bool", "string::matches(string) -> bool"], _matches, 0
        ),
    ]
