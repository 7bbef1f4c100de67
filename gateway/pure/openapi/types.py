"""The types of structured merge: which values a field may have, and how two values of it are merged.

Source: k8s.io/kube-openapi pkg/schemaconv; sigs.k8s.io/structured-merge-diff/v6 schema/elements.go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    Schema = Mapping[str, Any]
    """A schema of an OpenAPI v3 document, as JSON."""


class TypeNotFoundError(ValueError):
    """A schema refers to one that its document does not have."""


class Scalar(Enum):
    """The scalars that a type takes."""

    NUMERIC = "numeric"
    STRING = "string"
    BOOLEAN = "boolean"
    ANY = "any"


_NO_SCALARS: Final[frozenset[type]] = frozenset()
_PYTHON_TYPES: Final[Mapping[Scalar | None, frozenset[type]]] = {
    Scalar.NUMERIC: frozenset({int, float}),
    Scalar.STRING: frozenset({str}),
    Scalar.BOOLEAN: frozenset({bool}),
    Scalar.ANY: frozenset({str, int, float, bool}),
}


@dataclass(frozen=True, slots=True)
class ListType:
    """A list: one that is atomic replaces another; others are merged by their elements.

    *keys* are the fields by which elements that are maps are told apart; without them the list is a set.
    """

    element: TypeRef
    is_atomic: bool
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MapType:
    """A map or a structure: its declared fields, and the type of all others, None if it has no others."""

    fields: Mapping[str, Field]
    others: TypeRef | None
    is_atomic: bool


@dataclass(frozen=True, slots=True)
class Field:
    """A declared field: its type, and the value of a list element's key that the element omits."""

    type: TypeRef
    default: object


@dataclass(frozen=True, slots=True)
class Type:
    """The values that a field may have: at most one sort of scalar, of list and of map."""

    map: MapType | None = None
    scalar: Scalar | None = None
    list: ListType | None = None


Facts = dict[str, tuple[object, object]]
"""What was found out about an object: by the name of the fact, the last object that it holds for, and the
type of that. After a patch it holds for every part that both objects share in memory, at the same place."""


class TypeRef:
    """The type of a field, read from its schema when it is first needed: schemas refer to themselves."""

    __slots__ = ("_preserves_unknown", "_schema", "_type", "_types", "scalars")

    def __init__(self, types: Types, schema: Schema, *, preserves_unknown: bool) -> None:
        self._types = types
        self._schema = schema
        self._preserves_unknown = preserves_unknown
        self._type: Type | None = None
        self.scalars: frozenset[type] = _NO_SCALARS
        """The Python types of the scalars that the type takes; empty before it is read."""

    def get(self) -> Type:
        """Return the type.

        Raises:
            TypeNotFoundError: the document does not have it.
        """
        if self._type is None:
            self._type = self._types.read(self._schema, preserves_unknown=self._preserves_unknown)
            self.scalars = _PYTHON_TYPES.get(self._type.scalar, _NO_SCALARS)
        return self._type


_SCALARS: Final = {"integer": Scalar.NUMERIC, "number": Scalar.NUMERIC, "boolean": Scalar.BOOLEAN}
_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"
_MAP_TYPE: Final = "x-kubernetes-map-type"
_ANY: Final[Schema] = {}
_UNTYPED: Final[Schema] = {"x-kubernetes-list-type": "atomic", _MAP_TYPE: "atomic"}
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_RAW_EXTENSION: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"


class Types:
    """The types of one document: *schemas* is its ``components.schemas``."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self.schemas: Final = schemas
        self._named: dict[str, Type] = {}

    def named(self, name: str) -> Type:
        """Return the type of the definition *name*.

        Raises:
            TypeNotFoundError: the document does not have it.
        """
        if name not in self._named:
            self._named[name] = self._definition(name)
        return self._named[name]

    def _definition(self, name: str) -> Type:
        if name == _QUANTITY:
            return Type(scalar=Scalar.ANY)
        if name == _RAW_EXTENSION:
            return self._inline(_UNTYPED, preserves_unknown=False)
        schema = self.schemas.get(name)
        if schema is None or "$ref" in schema:
            raise TypeNotFoundError(f"schema error: no type found matching: {name}")
        return self._inline(schema, preserves_unknown=False)

    def read(self, schema: Schema, *, preserves_unknown: bool) -> Type:
        """Return the type of a field with *schema*: a reference, or a type of its own.

        *preserves_unknown* says that a schema around it in the same definition keeps undeclared fields.

        Raises:
            TypeNotFoundError: the document does not have it.
        """
        name = reference(schema)
        if not name:
            return self._inline(schema, preserves_unknown=preserves_unknown)
        found = self.named(name)
        if _MAP_TYPE not in schema:
            return found
        if not found.map:
            raise TypeNotFoundError(f"schema error: no type found matching: {name}")
        return replace(found, map=replace(found.map, is_atomic=schema[_MAP_TYPE] == "atomic"))

    def _inline(self, schema: Schema, *, preserves_unknown: bool) -> Type:
        preserves_unknown = preserves_unknown or schema.get(_PRESERVES) is True
        match schema.get("type", ""):
            case "object":
                return Type(map=self._map(schema, preserves_unknown))
            case "array":
                return Type(list=self._list(schema, preserves_unknown))
            case "":
                return Type(
                    self._map(schema, preserves_unknown), Scalar.ANY, self._list(schema, preserves_unknown)
                )
            case "string":
                return Type(scalar=Scalar.STRING if schema.get("format", "") in ("", "byte") else Scalar.ANY)
            case other:
                return Type(scalar=_SCALARS.get(other, Scalar.ANY))

    def _map(self, schema: Schema, preserves_unknown: bool) -> MapType:
        fields = schema.get("properties") or {}
        match schema.get("additionalProperties"):
            case dict() as found:
                others: TypeRef | None = self.field(found, preserves_unknown=preserves_unknown)
            case None if fields and not preserves_unknown:
                others = None
            case found:
                others = None if found is False else self.field(_ANY)
        return MapType(
            {
                name: Field(self.field(each, preserves_unknown=preserves_unknown), each.get("default"))
                for name, each in fields.items()
            },
            others,
            schema.get(_MAP_TYPE) == "atomic",
        )

    def _list(self, schema: Schema, preserves_unknown: bool) -> ListType:
        items = schema.get("items")
        element = self.field(
            _UNTYPED if items is None else items, preserves_unknown=preserves_unknown and items is not None
        )
        return ListType(element, *_merged_by(schema))

    def field(self, schema: Schema, *, preserves_unknown: bool = False) -> TypeRef:
        """Return the type of a field with *schema*, to be read when it is needed."""
        return TypeRef(self, schema, preserves_unknown=preserves_unknown)


def reference(schema: Schema) -> str:
    """Return the name of the definition that *schema* refers to, itself or as the only part of ``allOf``."""
    match schema:
        case {"$ref": str() as path} | {"allOf": [{"$ref": str() as path}]}:
            return path.rpartition("/")[2]
    return ""


def _merged_by(schema: Schema) -> tuple[bool, tuple[str, ...]]:
    """Return whether lists with *schema* are atomic, and the keys of their elements."""
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return False, ()
        case "map":
            return False, tuple(schema.get("x-kubernetes-list-map-keys") or ())
        case None if schema.get("x-kubernetes-patch-strategy") in ("merge", "merge,retainKeys"):
            key = schema.get("x-kubernetes-patch-merge-key")
            return False, (key,) if key else ()
        case _:
            return True, ()
