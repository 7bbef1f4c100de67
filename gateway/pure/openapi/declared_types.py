"""The types that expressions have on the objects of a kind, from its schema.

They are those of the API server's type checking, except that a field has the type dyn where its value can
differ from its schema: texts with the format of a time, a duration or bytes, which are texts for expressions,
and objects that keep fields which their schema does not declare.

Source: k8s.io/apiserver pkg/cel/common/schemas.go (SchemaDeclType), pkg/cel/openapi.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.types import BOOL, DOUBLE, DYN, INT, STRING, Type, list_of, map_of
from gateway.pure.openapi.types import reference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.pure.openapi.schemas import Definition
    from gateway.pure.openapi.types import Schema

_SCALARS: Final = {"boolean": BOOL, "integer": INT, "number": DOUBLE}
_DYNAMIC_FORMATS: Final = frozenset({"byte", "date", "date-time", "duration"})
_OF_OBJECTS: Final[dict[str, Schema]] = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}},
    },
}
"""What every object has, whether its schema declares it or not."""


class ObjectFields(Mapping[str, Mapping[str, Type]]):
    """The fields of object types by name: those of *known*, and those of the kinds that were added.

    The fields of a type are read when they are first needed.
    """

    def __init__(self, known: Mapping[str, Mapping[str, Type]]) -> None:
        self._known = dict(known)
        self._unread: dict[str, tuple[Mapping[str, Schema], Schema]] = {}
        """Object types with their document and schema."""

    def add(self, definition: Definition) -> Type:
        """Return the type of the objects of a kind."""
        schemas, name = definition
        schema = schemas[name]
        root = f"object.{name}"
        properties = {**_OF_OBJECTS, **(schema.get("properties") or {})}
        return self._type(schemas, {**schema, "properties": properties}, root)

    def __getitem__(self, name: str) -> Mapping[str, Type]:
        if name not in self._known:
            schemas, schema = self._unread[name]
            self._known[name] = {
                field: self._type(schemas, each, f"{name}.{field}")
                for field, each in schema["properties"].items()
            }
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._known, **self._unread})

    def __len__(self) -> int:
        return len({**self._known, **self._unread})

    def _type(self, schemas: Mapping[str, Schema], schema: Schema, name: str) -> Type:
        """Return the type of a value with *schema*; *name* is for an object.

        It is the path, as in the API server: two fields with one schema have different types.
        """
        if referred := reference(schema):
            return self._type(schemas, schemas[referred], name) if referred in schemas else DYN
        if schema.get("x-kubernetes-int-or-string") is True or schema.get("format") == "int-or-string":
            return DYN
        match schema.get("type"):
            case "array" if isinstance(items := schema.get("items"), dict):
                return list_of(self._type(schemas, items, f"{name}.@idx"))
            case "object":
                return self._object(schemas, schema, name)
            case "string":
                return DYN if schema.get("format") in _DYNAMIC_FORMATS else STRING
            case other:
                return _SCALARS.get(str(other), DYN)

    def _object(self, schemas: Mapping[str, Schema], schema: Schema, name: str) -> Type:
        others = schema.get("additionalProperties")
        if isinstance(others, dict) and others:
            return map_of(STRING, self._type(schemas, others, f"{name}.@elem"))
        if not schema.get("properties") or others or schema.get("x-kubernetes-preserve-unknown-fields"):
            return DYN
        self._unread.setdefault(name, (schemas, schema))
        return Type(name)
