"""Values of expressions as JSON: the values of patches.

Source: k8s.io/apiserver pkg/cel/mutation/dynamic/objects.go, pkg/admission/plugin/policy/mutating/patch;
cel-go common/types (ConvertToNative of each type).
"""

from __future__ import annotations

import base64
import math
from typing import Final

from gateway.pure.cel.conversions import to_string
from gateway.pure.cel.go_types import LIST, MAP, is_struct, type_in_go
from gateway.pure.cel.sizes import json_bytes
from gateway.pure.cel.values import Duration, Optional, Struct, Timestamp, TypeName, Uint, quoted, type_name

MAX_EXACT: Final = (1 << 53) - 1
"""The largest integer that every JSON parser reads exactly."""
_VALUE: Final = "*structpb.Value"
_GO_NAMES: Final = {LIST: "'list(dyn)'", MAP: "'map(dyn, dyn)'"}
_MAX_INTEGRAL: Final = 2.0**63
"""Doubles from here on stay doubles: they are not integers for the API server, nor for every JSON writer."""


class _Null(int):
    """null in an ``Object``: an enumeration in Go, which is a number where the schema accepts one."""

    def __str__(self) -> str:
        return "NULL_VALUE"


_NULL: Final = _Null()


MAX_VALUE_BYTES: Final = 4 * 1024 * 1024
"""The size of the values in one patch as JSON. An expression can repeat a large object at no cost."""
_WITH_PARTS: Final = frozenset({Struct, list, dict})
_MAX_NAMES: Final = 100
"""Wrong names of types in a message."""


class PatchError(Exception):
    """A patch cannot be made, or does not apply; the text is the API server's."""


class Room:
    """The bytes that are left for the values of a patch."""

    def __init__(self, patch: str) -> None:
        """*patch* is its type, for messages."""
        self._patch = patch
        self._left = MAX_VALUE_BYTES

    def take(self, value: object) -> int:
        """Take the bytes of *value*, before anything copies or writes it, and return them.

        Raises:
            PatchError: there are not so many left.
            CostExceeded: it has too many parts.
        """
        taken = json_bytes(value, self._left)
        self._left -= taken
        if self._left < 0:
            raise PatchError(f"{self._patch}: its values have more than {MAX_VALUE_BYTES} bytes")
        return taken


def json_value(value: object) -> object:
    """Return *value*, that of an operation of a JSON Patch, as plain JSON.

    As cel-go writes JSON: larger integers than ``MAX_EXACT`` become texts.

    Raises:
        PatchError: it has no JSON form, or a part of it has a Go type.
    """
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int):
        return int(value) if -MAX_EXACT <= value <= MAX_EXACT else str(int(value))
    if isinstance(value, list | dict) and (name := type_in_go(value)):
        shown = f"struct type {'.'.join(name.split('.')[-2:])}" if is_struct(name) else _GO_NAMES[name]
        raise PatchError(
            f"type conversion error from {shown} to {_VALUE if is_struct(name) else repr(_VALUE)}"
        )
    if isinstance(value, list):
        return [json_value(each) for each in value]
    if isinstance(value, dict):
        return {_text(key): json_value(each) for key, each in value.items()}
    if isinstance(value, Struct):
        return object_value(value, is_exact=False)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp | Duration):
        return to_string(value)
    if isinstance(value, Optional):
        if value.present:
            return json_value(value.value)
        raise PatchError("optional.none() dereference")
    return _number(value)


def object_value(value: object, *, is_exact: bool) -> object:
    """Return a part of an ``Object`` as plain JSON; with *is_exact* integers stay as they are.

    Otherwise they are doubles, which may round them.

    Raises:
        PatchError: it has no JSON form.
    """
    if value is None:
        return _NULL if is_exact else None
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value) if is_exact else _number(float(value))
    if isinstance(value, Struct):
        return {field: object_value(each, is_exact=is_exact) for field, each in value.fields.items()}
    if isinstance(value, list):
        return [object_value(each, is_exact=is_exact) for each in value]
    if isinstance(value, dict):
        return {_key(key): object_value(each, is_exact=is_exact) for key, each in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Optional):
        return object_value(value.value, is_exact=is_exact) if value.present else None
    return _number(value)


def _number(value: object) -> object:
    if isinstance(value, TypeName):
        raise PatchError("type conversion not supported for 'type'")
    if not isinstance(value, float):
        name = type_name(value).rpartition(".")[2]
        raise PatchError(f"type conversion error from '{name}' to '{_VALUE}'")
    if not math.isfinite(value):
        raise PatchError(f"json: unsupported value: {'NaN' if math.isnan(value) else f'{value:+}'}")
    return int(value) if value.is_integer() and abs(value) < _MAX_INTEGRAL else value


def _text(key: object) -> str:
    if isinstance(key, str):
        return key
    raise PatchError(f"unsupported type conversion from '{type_name(key)}' to string")


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    shown = int(key) if isinstance(key, Uint) else key
    raise PatchError(f"map key {shown} is of type {type_name(key)}, not string")


def check_type_names(value: Struct) -> None:
    """Raise PatchError if a part of *value* is an ``Object`` whose name is not the path of its field."""
    problems: list[str] = []
    _note_wrong_names(value, value.cel_type, problems)
    if problems:
        raise PatchError("type mismatch: " + "\n".join(problems))


def _note_wrong_names(value: object, path: str, problems: list[str]) -> None:
    if len(problems) == _MAX_NAMES:
        return
    if type(value) is Struct:
        if value.cel_type != path:
            wanted = f"expected {quoted(path)}, which matches field name path from root Object type"
            problems.append(f"unexpected type name {quoted(value.cel_type)}, {wanted}")
        for field, each in value.fields.items():
            if type(each) in _WITH_PARTS:
                _note_wrong_names(each, f"{path}.{field}", problems)
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            if type(each) in _WITH_PARTS:
                _note_wrong_names(each, path, problems)
