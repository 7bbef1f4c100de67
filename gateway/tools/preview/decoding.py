"""Whether kube-apiserver can decode an object of a kind with a schema: the types of its fields.

Source: sigs.k8s.io/json (Go's types decode JSON's of the same sort only); k8s.io/apimachinery
pkg/api/resource/quantity.go, pkg/util/intstr/intstr.go; encoding/base64 of Go (line breaks are left out).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission_gateway_worker.quantity import MalformedQuantity, parse
from gateway.config.yaml.fields import child
from gateway.pure.openapi.types import reference

if TYPE_CHECKING:
    from gateway.engine.object_review import Json
    from gateway.pure.openapi.types import Schema

_UNTYPED: Final = ("RawExtension", "FieldsV1", "JSONSchemaProps")
"""What they contain has no type."""
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_LINE_BREAKS: Final = re.compile("[\r\n]")
_BITS: Final = {"int32": 31, "int64": 63}


class Problem(NamedTuple):
    """Something that kube-apiserver refuses."""

    path: str
    """The field, as in ``spec.containers[0].image``."""
    message: str
    """Without values of fields that may be secret."""
    is_undecodable: bool = False
    """Whether the API server cannot even decode the object."""


Rule = Callable[["Json", str], Iterator[Problem]]
"""Yields what else is wrong with a mapping, which is at a path."""


class Reader:
    """Compares values with *schemas*, and mappings with the *rules* of the schemas that they have by name."""

    def __init__(self, schemas: Mapping[str, Schema], rules: Mapping[str, Rule]) -> None:
        self._schemas = schemas
        self._rules = rules

    def read(self, schema: Schema, value: Any, path: str) -> Iterator[Problem]:  # noqa: ANN401
        """Yield what is wrong with *value*, which is at *path*."""
        name = reference(schema)
        if value is None or name.endswith(_UNTYPED):
            return
        if name.endswith(".Quantity"):
            if not _is_quantity(value):
                yield _undecodable(path, "found no quantity, expected one such as 250m or 64Mi")
        elif name:
            yield from self.read(self._schemas[name], value, path)
            if name in self._rules and isinstance(value, dict):
                yield from self._rules[name](value, path)
        elif expected := _EXPECTED.get(schema.get("type", schema.get("format", ""))):
            is_right, text = expected
            if is_right(value):
                yield from self._parts(schema, value, path)
            else:
                yield _undecodable(path, f"found {_described(value)}, expected {text}")

    def _parts(self, schema: Schema, value: Any, path: str) -> Iterator[Problem]:  # noqa: ANN401
        """Yield what is wrong in *value*, which has the sort of *schema*."""
        format_ = schema.get("format")
        if isinstance(value, dict):
            fields, others = schema.get("properties") or {}, schema.get("additionalProperties")
            for field, part in value.items():
                declared = fields.get(field, others)
                if isinstance(declared, dict):
                    yield from self.read(declared, part, child(path, field))
        elif isinstance(value, list):
            for index, part in enumerate(value):
                yield from self.read(schema.get("items") or {}, part, f"{path}[{index}]")
        elif format_ == "byte" and not _BASE64.fullmatch(_LINE_BREAKS.sub("", value)):
            yield _undecodable(path, "found a text that is not base64, expected one")
        elif format_ in _BITS and abs(int(value)) >> _BITS[format_]:
            yield _undecodable(
                path, f"found a number beyond {format_}, expected one of at most {_BITS[format_]} bits"
            )


def _undecodable(path: str, message: str) -> Problem:
    return Problem(path, message, is_undecodable=True)


def _is_integer(value: object) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole or (isinstance(value, float) and value.is_integer())


def _is_quantity(value: object) -> bool:
    try:
        parse(str(value).strip() if isinstance(value, str | int | float) else "")
    except MalformedQuantity:
        return False
    return not isinstance(value, bool)


_EXPECTED: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "object": (lambda value: isinstance(value, dict), "a mapping"),
    "array": (lambda value: isinstance(value, list), "a list"),
    "string": (lambda value: isinstance(value, str), "a text, in quotes if it looks like another value"),
    "boolean": (lambda value: isinstance(value, bool), "true or false, without quotes"),
    "integer": (_is_integer, "a whole number, without quotes"),
    "number": (lambda value: _is_integer(value) or isinstance(value, float), "a number, without quotes"),
    "int-or-string": (lambda value: _is_integer(value) or isinstance(value, str), "a number or a text"),
}
"""By type, or else by format: whether a value is of it, and what is expected."""


def _described(value: object) -> str:
    """Return the sort of *value*, which itself may be a secret."""
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "a mapping"
