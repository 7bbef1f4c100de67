"""Parts of values: fields, elements and keys, found by ``a.b``, ``a[b]`` and ``has(a.b)``.

Source: cel-go interpreter/attributes.go (refQualify), common/types/list.go, map.go.
"""

from __future__ import annotations

from typing import Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.go_types import LIST, MAP, type_in_go
from gateway.pure.cel.meter import count_look_up
from gateway.pure.cel.values import Optional, Struct, Uint, go_type, show, type_name

KEY_TYPES: Final = frozenset({str, int, Uint, bool, float})
"""Types of values that may stand between brackets."""
_NUMBERS: Final = frozenset({int, Uint, float})
_GO_NAMES: Final = {
    LIST: "*common.reflectSchemalessTypedList",
    MAP: "*common.reflectSchemalessTypedMap",
}
_GO_STRUCT: Final = "*common.reflectSchemalessTypedStruct"


class Missing(Exception):
    """A value has no such part."""


class Unset(Missing):
    """A field of a struct is not set. Its value is null, or an empty text."""


def invalid_key(key: object) -> EvaluationError:
    """Return the error of a *key* that is of none of the types that may stand between brackets."""
    in_go = type_in_go(key)
    return EvaluationError(
        f"invalid qualifier type: {_GO_NAMES.get(in_go, _GO_STRUCT) if in_go else go_type(key)}"
    )


def check_go_key(container: object, key: object) -> None:
    """Raise EvaluationError if *container* has a Go type, and *key* is not text, or for a list not an int."""
    if type(key) is not (int if type(container) is list else str) and type_in_go(container):
        what = "index" if type(container) is list else "map key"
        raise EvaluationError(f"unsupported {what} type: {go_type(key)}")


def find(value: object, key: object) -> object:
    """Return the part of *value* at *key*.

    Raises:
        Missing: there is none.
        EvaluationError: a value of this type cannot have one.
    """
    if type(key) not in KEY_TYPES:
        raise invalid_key(key)
    if type(value) is dict:
        if type(key) is str:
            count_look_up(key)
        else:
            check_go_key(value, key)
        if key in value and is_key(value, key):
            return value[key]
        raise Missing(f"no such key: {show(key)}")
    if type(value) is list:
        index = _index(key)
        if 0 <= index < len(value):
            check_go_key(value, key)
            return value[index]
        raise Missing(f"index out of bounds: {show(key)}")
    if type(value) is Struct and type(key) is str:
        if value.is_set(key):
            return value.fields[key]
        raise Unset(key)
    raise Missing(f"no such key: {show(key)}")


def _index(key: object) -> int:
    if type(key) not in _NUMBERS:
        raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")
    index = int(key) if not isinstance(key, float) or key.is_integer() else None  # type: ignore[call-overload]
    if index is None or not -(1 << 63) <= index < 1 << 63:
        raise EvaluationError(f"unsupported index value {show(key)} in list")
    return index  # type: ignore[no-any-return]


def is_key(container: dict[object, object], key: object) -> bool:
    """Whether *key*, which Python finds in *container*, is a key of it in CEL, too.

    1, 1.0 and true are equal keys in Python. In CEL a bool is not a number, and an integer does not find a
    double.
    """
    kind = type(key)
    if kind is str or (kind not in _NUMBERS and kind is not bool):
        return True
    stored = type(next(iter(container)))
    if stored not in _NUMBERS and stored is not bool:
        # Keys of several types, which only a literal with dyn(...) has.
        stored = next(type(each) for each in container if each == key)
    if kind is bool or stored is bool:
        return kind is stored
    return kind is float or stored is not float


def has_field(operand: object, field: str) -> bool:
    """Return ``has(operand.field)``: false also where *operand* cannot have fields, such as null."""
    if isinstance(operand, list):
        raise EvaluationError("unsupported index type 'string' in list")
    if isinstance(operand, Struct):
        return operand.is_set(field)
    return isinstance(operand, dict) and field in operand


def check_key(key: object) -> None:
    """Raise EvaluationError if a map cannot have *key*. cel-go accepts a list or map, and never finds it."""
    if isinstance(key, bytes | list | dict | Optional) or hasattr(key, "cel_type"):
        raise EvaluationError(f"unsupported key type: {type_name(key)}")
    count_look_up(key)


def insert(into: dict[object, object], key: object, value: object) -> None:
    """Put *value* under *key*, which must be new.

    Raises:
        EvaluationError: it is not new, or cannot be a key.
    """
    check_key(key)
    if key in into:
        raise EvaluationError(f"insert failed: key {show(key)} already exists")
    into[key] = value
