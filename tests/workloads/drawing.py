"""Random objects of the built-in kinds, that an API server can decode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.types import reference

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from gateway.pure.openapi.schemas import GroupVersionKind

_MAX_DEPTH: Final = 12
_TEXTS: Final = ("a", "b", "x-1")
_QUANTITIES: Final = (
    "1",
    "0.5",
    "1500m",
    "100u",
    "1Gi",
    "1536Mi",
    "1.5Gi",
    "2e3",
    "1E",
    "64Mi",
    "1000k",
    "0",
)
_OF_FIELD: Final[Mapping[str, tuple[Any, ...]]] = {
    "image": ("nginx", "nginx:latest", "r.io:5000/nginx", "nginx:1", "nginx@sha256:" + "0" * 64, "Not Valid"),
    "reference": ("nginx", "nginx:1"),
    "type": ("RollingUpdate", "OnDelete", "LoadBalancer", "NodePort", "ClusterIP", "Container", "a"),
    "sessionAffinity": ("None", "ClientIP"),
    "kind": ("User", "Group", "ServiceAccount"),
    "terminationGracePeriodSeconds": (-1, 5),
    "allocationMode": ("All", "ExactCount"),
}
"""Values by the name of a field that rules depend on."""
_OF_FORMAT: Final = {
    "byte": "aGk=",
    "date-time": "2026-01-02T03:04:05Z",
    "int-or-string": "25%",
}


def draw(source: Random, kind: GroupVersionKind) -> dict[str, Any]:
    """Return an object of *kind* with some of its fields, none of which is empty."""
    schemas, name = built_in_schemas().definition(kind)
    made: dict[str, Any] = _structure(source, schemas, name, 0)
    group = f"{kind.group}/" if kind.group else ""
    return {**made, "apiVersion": f"{group}{kind.version}", "kind": kind.kind}


def _structure(source: Random, schemas: Mapping[str, Any], name: str, depth: int) -> Any:
    properties: Mapping[str, Any] = schemas[name].get("properties") or {}
    share = source.choice((0.1, 0.3, 0.6)) if len(properties) > 4 else 0.7
    made = {}
    for field, schema in properties.items():
        if field not in _NOT_DRAWN and source.random() < share:
            value = _value(source, schemas, schema, field, depth + 1)
            if value not in (None, {}, []):
                made[field] = value
    return made


def _value(source: Random, schemas: Mapping[str, Any], schema: Any, field: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return None
    if name := reference(schema):
        short = name.rpartition(".")[2]
        if short in _WRITTEN:
            return source.choice(_WRITTEN[short])
        return _structure(source, schemas, name, depth) if schemas[name].get("properties") else None
    if isinstance(others := schema.get("additionalProperties"), dict):
        return {
            key: _value(source, schemas, others, "", depth + 1)
            for key in ("a", "cpu")[: source.randint(1, 2)]
        }
    if isinstance(items := schema.get("items"), dict):
        made = [_value(source, schemas, items, field, depth + 1) for _ in range(source.randint(1, 2))]
        return [each for each in made if each is not None]
    if schema.get("format") in _OF_FORMAT:
        return _OF_FORMAT[schema["format"]]
    return _scalar(source, schema, field)


def _scalar(source: Random, schema: Any, field: str) -> Any:
    match schema.get("type"):
        case "boolean":
            return True
        case "integer" | "number":
            return source.choice(_OF_FIELD.get(field, (1, 2, 80)))
        case "string":
            return source.choice(_OF_FIELD.get(field, _TEXTS))
    return None


_NOT_DRAWN: Final = frozenset({"managedFields", "deletionTimestamp", "creationTimestamp", "openAPIV3Schema"})
_WRITTEN: Final[Mapping[str, tuple[Any, ...]]] = {
    "Quantity": _QUANTITIES,
    "IntOrString": (1, "25%", "http"),
    "Time": ("2026-01-02T03:04:05Z",),
    "MicroTime": ("2026-01-02T03:04:05.000006Z",),
    "RawExtension": ({"a": {"b": 1}},),
    "FieldsV1": ({},),
}
"""Values of types that have a notation of their own."""
