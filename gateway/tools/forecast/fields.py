"""The fields that a version of Kubernetes knows of an object of its own kinds.

The schemas that come with the gateway are those of 1.37. ``fields.txt`` has what other versions add and
remove. It is made by ``python -m tests.forecast.history`` from the objects with all fields in
k8s.io/api testdata.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.base.text import did_you_mean
from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.schemas import UnknownKindError
from gateway.pure.openapi.types import reference
from gateway.pure.workloads.defaults import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.pure.core.review import Json
    from gateway.pure.openapi.types import Schema

FIELDS_FILE: Final = Path(__file__).with_name("fields.txt")
OLDEST: Final = 33
NEWEST: Final = 37
"""The minor versions whose fields are known."""
MAX_FIELDS: Final = 20
"""Of one object that are told."""
_UNTYPED: Final = ("JSONSchemaProps", "RawExtension", "FieldsV1", "JSON")


class UnknownField(NamedTuple):
    """A field of an object that a version does not know, and drops."""

    path: str
    reason: str


def unknown_fields(found: Json, minor: int) -> Iterator[UnknownField]:
    """Yield the fields of *found* that Kubernetes 1.*minor* does not know, at most ``MAX_FIELDS``.

    Nothing if the fields of that version are not known, or its kind is not a built-in one.
    """
    if not OLDEST <= minor <= NEWEST:
        return
    try:
        schemas, name = built_in_schemas().definition(kind_of(found))
    except UnknownKindError:
        return
    count = 0
    waiting: list[tuple[str, str, Any]] = [(name, "", found)]
    while waiting:
        name, path, value = waiting.pop()
        if not isinstance(value, dict):
            continue
        declared = schemas[name].get("properties") or {}
        for field, part in value.items():
            reason = "" if part is None else _why_unknown(name, field, minor, declared)
            if reason:
                yield UnknownField(f"{path}.{field}".lstrip("."), reason)
                count += 1
                if count == MAX_FIELDS:
                    return
        waiting += [
            (child, f"{path}{suffix}", part)
            for child, suffix, part in reversed(list(children_of(schemas, name, value)))
            if not _why_unknown(name, suffix[1:].partition("[")[0], minor, declared)
        ]


def _why_unknown(name: str, field: str, minor: int, declared: Mapping[str, Any]) -> str:
    for is_added, at in _history().get(".".join((*name.split(".")[-3:], field)), ()):
        if is_added and minor < at:
            return f"1.{at} adds it"
        if not is_added and minor >= at:
            return f"1.{at} removed it"
    known_otherwise = f"{'.'.join(name.split('.')[-3:])}.{field}" in _history()
    if field in declared or known_otherwise:
        return ""
    return f"1.{minor} has no such field{did_you_mean(field, declared)}"


def children_of(schemas: Mapping[str, Schema], name: str, found: Json) -> Iterator[tuple[str, str, Any]]:
    """Yield type, path from *found*, and value of each part of *found* that has a type.

    *found* is of the type *name*.
    """
    for field, schema in (schemas[name].get("properties") or {}).items():
        if field in found:
            yield from _typed(schemas, schema, f".{field}", found[field])


def _typed(
    schemas: Mapping[str, Schema], schema: Schema, path: str, value: object
) -> Iterator[tuple[str, str, Any]]:
    if name := reference(schema):
        if name.rpartition(".")[2] not in _UNTYPED and schemas[name].get("properties"):
            yield name, path, value
    elif isinstance(others := schema.get("additionalProperties"), dict) and isinstance(value, dict):
        for key, each in value.items():
            yield from _typed(schemas, others, f"{path}[{key}]", each)
    elif isinstance(items := schema.get("items"), dict) and isinstance(value, list):
        for index, each in enumerate(value):
            yield from _typed(schemas, items, f"{path}[{index}]", each)


@cache
def _history() -> Mapping[str, tuple[tuple[bool, int], ...]]:
    """Return the versions that add or remove a field, by GROUP.VERSION.TYPE.FIELD."""
    found: dict[str, tuple[tuple[bool, int], ...]] = {}
    for line in FIELDS_FILE.read_text(encoding="utf-8").splitlines():
        field, change = line.split()
        found[field] = (*found.get(field, ()), (change[0] == "+", int(change[1:])))
    return found
