"""Random schemas; and random objects of a type, and patches of them, of which most are valid."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from gateway.pure.openapi.types import Scalar

if TYPE_CHECKING:
    from random import Random

    from gateway.pure.openapi.types import ListType, MapType, TypeRef

_TEXTS: Final = ["a", "b", "", "x-y", "TCP", 'q"\n\u2028é']
_NUMBERS: Final = [0, 1, 2, 80, -1, 1.5, 1 << 53]
_ANY: Final = [*_TEXTS, *_NUMBERS, True, None, {}, [], {"a": {"b": 1}}, [1, {"a": 2}], {"b": [1], "c": None}]
_MAX_DEPTH: Final = 10
_SCALARS: Final[list[dict[str, Any]]] = [
    {"type": "string"},
    {"type": "string", "format": "byte"},
    {"type": "string", "format": "date-time"},
    {"type": "integer", "format": "int64"},
    {"type": "number"},
    {"type": "boolean"},
    {"x-kubernetes-int-or-string": True},
    {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"},
    {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.runtime.RawExtension"},
]
NAMED: Final = 5
"""The number of schemas that ``draw_schemas`` returns for ``example.io/v1, Kind=Kind0`` and so on."""


def draw_schemas(source: Random) -> dict[str, Any]:
    """Return ``components.schemas`` of a document; they refer to each other."""
    found: dict[str, Any] = {
        "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
        "io.k8s.apimachinery.pkg.runtime.RawExtension": {"type": "object"},
    }
    for index in range(NAMED):
        schema = _structure(source, 0)
        schema["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
        kind = {"group": "example.io", "version": "v1", "kind": f"Kind{index}"}
        found[f"Named{index}"] = {**schema, "x-kubernetes-group-version-kind": [kind]}
    return found


def _schema(source: Random, depth: int) -> dict[str, Any]:
    choice = source.random()
    if depth > 4 or choice < 0.35:
        return dict(source.choice(_SCALARS))
    if choice < 0.45:
        reference = {"$ref": f"#/components/schemas/Named{source.randrange(NAMED)}"}
        found: dict[str, Any] = {"allOf": [reference]} if source.random() < 0.5 else reference
        return found | _map_type(source) if "allOf" in found else found
    if choice < 0.55:
        return source.choice([{}, {"x-kubernetes-preserve-unknown-fields": True}, {"type": "object"}])
    if choice < 0.65:
        other = source.choice([True, _schema(source, depth + 1)])
        return {"type": "object", "additionalProperties": other, **_map_type(source)}
    return _array(source, depth) if choice < 0.85 else _structure(source, depth)


def _array(source: Random, depth: int) -> dict[str, Any]:
    sort = source.choice([None, "atomic", "set", "map", "map", "patch"])
    if sort == "patch":
        items = _structure(source, depth + 1)
        strategy = {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "a"}
        return {"type": "array", "items": items, **strategy}
    items = dict(source.choice(_SCALARS[:6])) if sort == "set" else _schema(source, depth + 1)
    if sort == "map":
        items = _structure(source, depth + 1)
        default = {"default": "b"} if source.random() < 0.5 else {}
        items["properties"] |= {"a": {"type": "string", **default}, "b": {"type": "integer"}}
    found = {"type": "array", "items": items} | ({"x-kubernetes-list-type": sort} if sort else {})
    return found | ({"x-kubernetes-list-map-keys": ["b", "a"]} if sort == "map" else {})


def _structure(source: Random, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "object",
        "properties": {name: _schema(source, depth + 1) for name in source.sample("abcdef", 4)},
        **_map_type(source),
    }
    if source.random() < 0.2:
        found["x-kubernetes-preserve-unknown-fields"] = True
    if source.random() < 0.1:
        del found["type"]
    return found


def _map_type(source: Random) -> dict[str, str]:
    return source.choice(
        [{}, {}, {}, {"x-kubernetes-map-type": "granular"}, {"x-kubernetes-map-type": "atomic"}]
    )


def draw(source: Random, ref: TypeRef, *, is_patch: bool, depth: int = 0) -> Any:
    """Return a value of the type *ref*, or, rarely, another one. A patch has atomic values rarely."""
    if source.random() < 0.01:
        return copy.deepcopy(source.choice(_ANY))
    kind = ref.get()
    if kind.map and kind.scalar:
        return copy.deepcopy(source.choice(_ANY))
    if depth > _MAX_DEPTH:
        return None
    if kind.map:
        return _map(source, kind.map, is_patch, depth)
    if kind.list:
        return _list(source, kind.list, is_patch, depth)
    match kind.scalar:
        case Scalar.STRING:
            return source.choice(_TEXTS)
        case Scalar.BOOLEAN:
            return source.random() < 0.5
        case Scalar.NUMERIC:
            return source.choice(_NUMBERS)
        case _:
            return source.choice([*_TEXTS, *_NUMBERS])


def _map(source: Random, kind: MapType, is_patch: bool, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    names = list(kind.fields)
    for name in source.sample(names, source.randint(0, min(len(names), 6 - min(depth, 5)))):
        field = kind.fields[name].type
        if not (is_patch and _is_atomic(field) and source.random() < 0.97):
            found[name] = draw(source, field, is_patch=is_patch, depth=depth + 1)
    if kind.others and (not names or source.random() < 0.2):
        for name in source.sample("abcd", source.randint(0, 3)):
            found[name] = draw(source, kind.others, is_patch=is_patch, depth=depth + 1)
    elif is_patch and source.random() < 0.01:
        found["undeclared"] = 1
    return found


def _is_atomic(ref: TypeRef) -> bool:
    kind = ref.get()
    if kind.map and not kind.scalar:
        return kind.map.is_atomic
    return kind.list.is_atomic if kind.list and not kind.scalar else False


def _list(source: Random, kind: ListType, is_patch: bool, depth: int) -> list[Any]:
    found = []
    for _ in range(source.randint(0, 5)):
        value = draw(source, kind.element, is_patch=is_patch, depth=depth + 1)
        element = kind.element.get()
        if kind.keys and element.map and isinstance(value, dict):
            for key in kind.keys:
                if key in element.map.fields and source.random() < 0.9:
                    value[key] = draw(
                        source, element.map.fields[key].type, is_patch=is_patch, depth=depth + 2
                    )
        found.append(value)
    if is_patch and source.random() < 0.95:
        return _without_duplicates(kind, found)
    return found


def _without_duplicates(kind: ListType, values: list[Any]) -> list[Any]:
    def key(value: Any) -> str:
        return repr([value.get(name) for name in kind.keys] if isinstance(value, dict) else value)

    return list({key(value): value for value in values}.values())
