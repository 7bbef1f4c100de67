"""The types of patches: ``JSONPatch``, and ``Object``, ``Object.spec`` and so on, which can have any field.

Source: k8s.io/apiserver pkg/cel/mutation/jsonpatch.go, typeresolver.go, dynamic/objects.go.
"""

from __future__ import annotations

import math
from typing import Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import Function, function
from gateway.pure.cel.meter import count_text
from gateway.pure.cel.types import DYN, STRING, Type
from gateway.pure.cel.values import Struct

JSON_PATCH: Final = "JSONPatch"
OBJECT: Final = "Object"
JSON_PATCH_FIELDS: Final[dict[str, Type]] = {"op": STRING, "path": STRING, "from": STRING, "value": DYN}

_GO_NAMES: Final = {bool: "bool", int: "int64", float: "float64", bytes: "[]uint8", list: "[]ref.Val"}


def is_struct(name: str) -> bool:
    """Whether *name* is that of a type of patches."""
    return name in (JSON_PATCH, OBJECT) or name.startswith("Object.")


def struct(name: str, fields: dict[str, object]) -> Struct:
    """Return the value of the type *name* with *fields*.

    Raises:
        EvaluationError: a field of ``JSONPatch`` that is declared as a text is another value.
    """
    if name == JSON_PATCH:
        for field, value in fields.items():
            if field != "value" and type(value) is not str:
                kind = _GO_NAMES.get(type(value), type(value).__name__)
                raise EvaluationError(f"unexpected type {kind} for JSONPatchType '{field}' field")
    return Struct(name, fields)


def _escape_key(key: object) -> str:
    if type(key) is not str:
        raise EvaluationError("no such overload: jsonpatch.escapeKey")
    count_text(2 * len(key), key)
    return key.replace("~", "~0").replace("/", "~1")


FUNCTIONS: Final[tuple[Function, ...]] = (
    function(
        "string_jsonpatch_escapeKey_string",
        "jsonpatch.escapeKey(string) -> string",
        _escape_key,
        extra=lambda key: math.ceil(len(key) * 0.1),
    ),
)
