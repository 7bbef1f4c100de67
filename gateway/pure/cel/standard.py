"""The standard functions and operators of CEL, and those of optional types.

All overloads of one name share one implementation, which checks the types of its arguments.

Source: cel-go common/stdlib/standard.go, cel/library.go (OptionalTypes).
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final

from gateway.pure.cel import conversions, operators, times
from gateway.pure.cel.equality import equal
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import Function, function
from gateway.pure.cel.go_types import type_in_go
from gateway.pure.cel.meter import charge, count_values
from gateway.pure.cel.regex import compile_regex
from gateway.pure.cel.values import NONE, Duration, Optional, Struct, Timestamp, Uint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_SMALL: Final = frozenset({int, float, bool, type(None), Uint})
"""Types of values of the size 1."""


def _size(value: object) -> int:
    """Return the size of *value* in cel-go's costs."""
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    if isinstance(value, Optional):
        return _size(value.value) if value.present else 1
    return getattr(value, "size", 1)


def _compared(left: object, right: object) -> int:
    """Return the cost of a comparison beyond one unit."""
    return math.ceil(min(_size(left), _size(right)) * 0.1) - 1


def _added(left: object, right: object) -> int:
    return math.ceil((_size(left) + _size(right)) * 0.1) - 1


def _traversed(text: object) -> int:
    return math.ceil(_size(text) * 0.1) - 1


def _many(name: str, signatures: Iterable[str], call: Callable[..., object], cost: int = 1) -> list[Function]:
    return [function(f"{name}_{number}", text, call, cost) for number, text in enumerate(signatures)]


def _unused(*_: object) -> object:
    raise AssertionError("the program evaluates this operator itself")


_NUMBERS: Final = ("int", "uint", "double")
_TEXTS: Final = ("string", "bytes")
_ORDERED: Final = [
    *((left, right) for left in _NUMBERS for right in _NUMBERS),
    *((kind, kind) for kind in ("bool", "string", "bytes", "timestamp", "duration")),
]


def _order(symbol: str, decide: Callable[[int], bool]) -> list[Function]:
    name = f"_{symbol}_"
    return [
        function(
            f"{name}_{left}_{right}",
            f"{name}({left}, {right}) -> bool",
            lambda one, other: decide(operators.compare(one, other)),
            1,
            _compared if left in _TEXTS else None,
        )
        for left, right in _ORDERED
    ]


def _arithmetic(symbol: str, kinds: Iterable[str], call: Callable[..., object]) -> list[Function]:
    name = f"_{symbol}_"
    found = []
    for kind in kinds:
        left, right, result = kind.split() if " " in kind else (kind, kind, kind)
        extra = _added if symbol == "+" and kind in _TEXTS else None
        found.append(function(f"{name}_{kind}", f"{name}({left}, {right}) -> {result}", call, 1, extra))
    return found


def _operators() -> list[Function]:
    sums = [*_NUMBERS, "string", "bytes", "list(A)", "duration"]
    return [
        function("conditional", "_?_:_(bool, A, A) -> A", _unused),
        function("logical_and", "_&&_(bool, bool) -> bool", _unused),
        function("logical_or", "_||_(bool, bool) -> bool", _unused),
        function("logical_not", "!_(bool) -> bool", _unused),
        function("equals", "_==_(A, A) -> bool", _unused),
        function("not_equals", "_!=_(A, A) -> bool", _unused),
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
            _unused,
        ),
        *_many(
            "optindex",
            [
                "_[?_](list(A), int) -> optional_type(A)",
                "_[?_](optional_type(list(A)), int) -> optional_type(A)",
                "_[?_](map(A, B), A) -> optional_type(B)",
                "_[?_](optional_type(map(A, B)), A) -> optional_type(B)",
            ],
            _unused,
        ),
        function("in_list", "@in(A, list(A)) -> bool", operators.is_in, 1, lambda _, items: _size(items) - 1),
        function("in_map", "@in(A, map(A, B)) -> bool", operators.is_in, 1),
    ]


def equality(left: object, right: object, same: Callable[[object, object], bool] = equal) -> bool:
    """Return ``left == right``, by *same*; charges cel-go's cost beyond one unit."""
    if (type(left) not in _SMALL or type(right) not in _SMALL) and not hasattr(left, "cel_type"):
        charge(_compared(left, right))
    return same(left, right)


def inequality(left: object, right: object, same: Callable[[object, object], bool] = equal) -> bool:
    """Return ``left != right``, by *same*; true if the two cannot be compared."""
    try:
        if type(left) not in _SMALL or type(right) not in _SMALL:
            charge(_compared(left, right))
        return not same(left, right)
    except EvaluationError:
        return True


def _text(method: Callable[[str, str], bool], *, is_product: bool) -> Callable[[object, object], bool]:
    def search(text: object, part: object) -> bool:
        if type(text) is str and type(part) is str:
            cost = math.ceil(0.1 * len(part))
            charge(cost * math.ceil(0.1 * len(text)) if is_product else cost)
            return method(text, part)
        charge(math.ceil(0.1 * _size(part)) * (math.ceil(0.1 * _size(text)) if is_product else 1))
        raise operators.no_overload()

    return search


def _matches(text: object, pattern: object) -> bool:
    if type(text) is not str or type(pattern) is not str:
        charge(math.ceil((1 + _size(text)) * 0.1) * math.ceil(_size(pattern) * 0.25))
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
        function(
            f"{source}_to_{name}",
            f"{name}({source}) -> {name}",
            call,
            1,
            _traversed if (source, name) in (("string", "bytes"), ("bytes", "string")) else None,
        )
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


_MAY_BE_ZERO: Final = (bool, int, float, str, bytes, list, dict)
_ZEROS: Final = (Duration(0), times.parse_timestamp("0001-01-01T00:00:00Z"))
"""Go's zero time is the beginning of the year 1."""


def _of_non_zero(value: object) -> Optional:
    if isinstance(value, Timestamp | Duration):
        is_zero = value in _ZEROS
    else:
        content = value.fields if isinstance(value, Struct) and value.cel_type != "JSONPatch" else value
        is_empty = content is None or (isinstance(content, _MAY_BE_ZERO) and not content)
        is_zero = is_empty and not type_in_go(content)
    return NONE if is_zero else Optional(value)


def _unwrap(name: str, items: object) -> list[object]:
    if not isinstance(items, list):
        raise operators.no_overload()
    count_values(len(items))
    if items and not isinstance(items[0], Optional):
        raise EvaluationError(f"no such overload: {name}(list)")
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
        # The program evaluates these itself, since their argument is only evaluated if there is no value.
        function(
            "optional_or_optional", "optional_type(A)::or(optional_type(A)) -> optional_type(A)", _unused
        ),
        function("optional_orValue_value", "optional_type(A)::orValue(A) -> A", _unused),
        function(
            "optional_unwrap",
            "optional.unwrap(list(optional_type(A))) -> list(A)",
            partial(_unwrap, "optional.unwrap"),
            1,
        ),
        function(
            "optional_unwrapOpt",
            "list(optional_type(A))::unwrapOpt() -> list(A)",
            partial(_unwrap, "unwrapOpt"),
            1,
        ),
    ]


def standard_functions() -> list[Function]:
    """Return all overloads."""
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
