"""The defaults that the API server applies to built-in kinds when it decodes an object.

An admission webhook sees an object with them: with quantities in their usual notation, ``stringData`` of a
Secret in ``data``, and the empty structures that Go writes. What the schemas of the kinds declare is read
from them; the rest is in ``default_values`` and ``default_rules``.

Two things differ from an API server: a field that it does not know, which it drops, stays; ``timeAdded`` of a
device taint, which is the present time, is not set. The API server writes ``clusterIP``, node ports and other
allocated values later.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.schemas import GroupVersionKind, UnknownKindError
from gateway.pure.openapi.types import reference
from gateway.pure.workloads.default_rules import RULES
from gateway.pure.workloads.default_values import IF_ABSENT, IF_EMPTY
from gateway.pure.workloads.quantities import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.pure.core.review import Json
    from gateway.pure.openapi.types import Schema

NEWEST: Final = 37
"""The newest minor version of Kubernetes 1 whose defaults are known."""
OLDEST: Final = 33
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_UNTYPED: Final = ("JSONSchemaProps", "RawExtension", "FieldsV1", "JSON")
_OMITTED_IF_EMPTY: Final = frozenset(
    {
        "ConfigMapEnvSource.name",
        "ConfigMapKeySelector.name",
        "ConfigMapProjection.name",
        "ConfigMapVolumeSource.name",
        "LocalObjectReference.name",
        "ReplicationControllerSpec.minReadySeconds",
        "SecretEnvSource.name",
        "SecretKeySelector.name",
        "SecretProjection.name",
    }
)
"""Fields with a declared default that Go leaves out because it is empty."""


class _Shape(NamedTuple):
    """What a field holds: objects of the type *name*, quantities if that is empty, in lists or maps."""

    name: str
    around: tuple[type, ...] = ()
    """Outermost first."""
    is_rounded: bool = False
    """Quantities of resources of a Pod, a claim or a Node."""


class _Type(NamedTuple):
    shapes: Mapping[str, _Shape]
    """Of the fields that hold objects or quantities."""
    declared: Mapping[str, Any]
    if_absent: Mapping[str, Any]
    if_empty: Mapping[str, Any]
    rule: Callable[[Json, int], None] | None


def with_defaults(found: Json, kubernetes: int = NEWEST) -> Json:
    """Return *found* with the defaults of Kubernetes 1.*kubernetes*, as a new object.

    An object of a kind that is not built in, or of a version that 1.37 does not have, is returned as it is.
    """
    kind = kind_of(found)
    try:
        _, name = built_in_schemas().definition(kind)
    except UnknownKindError:
        return found
    made = _copied(name, found)
    _fill(name, made, min(max(kubernetes, OLDEST), NEWEST))
    return made


def kind_of(found: Json) -> GroupVersionKind:
    """Return what ``apiVersion`` and ``kind`` of *found* say; a part that is missing is empty."""
    api_version, kind = found.get("apiVersion"), found.get("kind")
    group, _, version = (api_version if isinstance(api_version, str) else "").rpartition("/")
    return GroupVersionKind(group, version, kind if isinstance(kind, str) else "")


def _copied(name: str, found: Json) -> Json:
    """Return a copy of *found*, an object of the type *name*, without null in its fields.

    Its parts are copied too, as far as they have a type.
    """
    shapes = _type(name).shapes
    made = {}
    for field, value in found.items():
        if value is not None:
            made[field] = value if field not in shapes else _copied_part(shapes[field], value, 0)
    return made


def _copied_part(shape: _Shape, value: Any, depth: int) -> Any:  # noqa: ANN401 # JSON
    if depth < len(shape.around):
        match value:
            case dict():
                return {name: _copied_part(shape, each, depth + 1) for name, each in value.items()}
            case list():
                return [_copied_part(shape, each, depth + 1) for each in value]
    elif isinstance(value, dict) and shape.name:
        return _copied(shape.name, value)
    return value


def _fill(name: str, made: Json, minor: int) -> None:
    """Give *made*, an object of the type *name* that nobody else has, its defaults, then its parts theirs."""
    known = _type(name)
    for field, value in known.declared.items():
        if field not in made or (value and made[field] == ""):
            made[field] = _fresh(value)
    for field, value in known.if_absent.items():
        if field not in made:
            made[field] = _fresh(value)
    for field, value in known.if_empty.items():
        if not made.get(field):
            made[field] = _fresh(value)
    if known.rule is not None:
        known.rule(made, minor)
    for field, shape in known.shapes.items():
        if field in made:
            made[field] = _filled_part(shape, made[field], minor, 0)


def _filled_part(shape: _Shape, value: Any, minor: int, depth: int) -> Any:  # noqa: ANN401 # JSON
    if depth < len(shape.around):
        match value:
            case dict():
                for name, each in value.items():
                    value[name] = _filled_part(shape, each, minor, depth + 1)
            case list():
                value[:] = [_filled_part(shape, each, minor, depth + 1) for each in value]
    elif not shape.name:
        return canonical(value, rounded=shape.is_rounded)
    elif isinstance(value, dict):
        _fill(shape.name, value, minor)
    return value


def _fresh(value: Any) -> Any:  # noqa: ANN401 # JSON
    """Return a copy of *value*, a default."""
    match value:
        case dict():
            return {name: _fresh(each) for name, each in value.items()}
        case list():
            return list(value)
    return value


@cache
def _type(name: str) -> _Type:
    schemas, _ = built_in_schemas().definition(GroupVersionKind("", "v1", "Pod"))
    shapes: dict[str, _Shape] = {}
    declared: dict[str, Any] = {}
    *_, group, version, own = name.split(".")
    for field, schema in (schemas[name].get("properties") or {}).items():
        shape = _shape(schemas, schema)
        if shape is not None:
            shapes[field] = shape._replace(is_rounded=group == "core" and shape == _Shape("", (dict,)))
        if "default" in schema and f"{own}.{field}" not in _OMITTED_IF_EMPTY and shape != _Shape(""):
            declared[field] = schema["default"]
    of_group, of_version = f"{group}.{own}", f"{group}.{version}.{own}"
    absent, empty = IF_ABSENT.get(of_group, {}), IF_EMPTY.get(of_group, {})
    declared = {
        field: value for field, value in declared.items() if field not in (absent.keys() | empty.keys())
    }
    return _Type(shapes, declared, absent, empty, RULES.get(of_version))


def _shape(schemas: Mapping[str, Schema], schema: Schema, *around: type) -> _Shape | None:
    """Return the shape of a field with *schema*; None if it holds neither objects nor quantities."""
    name = reference(schema)
    if name == _QUANTITY:
        return _Shape("", around)
    if name:
        is_typed = name.rpartition(".")[2] not in _UNTYPED and schemas[name].get("properties")
        return _Shape(name, around) if is_typed else None
    others, items = schema.get("additionalProperties"), schema.get("items")
    if isinstance(others, dict):
        return _shape(schemas, others, *around, dict)
    if isinstance(items, dict):
        return _shape(schemas, items, *around, list)
    return None
