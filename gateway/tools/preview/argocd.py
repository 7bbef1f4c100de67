"""The ``ignoreDifferences`` of Argo CD for what mutating webhooks change of a manifest.

Argo CD compares three ways: the manifest, the manifest that it applied last, and the stored object. A member
that is added to a map is no difference. Neither is an element that is added to a list of a built-in kind
whose elements have a key. A changed value is one, and so is any change of a list without a key. Lists of
custom resources are compared by position.

``managedFieldsManagers`` cannot name what a webhook changes: the API server computes managed fields before it
calls webhooks.

Source: argoproj/argo-cd gitops-engine/pkg/diff/diff.go (ThreeWayDiff), gitops-engine/pkg/utils/json/json.go,
util/argo/normalizers/diff_normalizer.go; k8s.io/apimachinery pkg/util/strategicpatch.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.base import logs
from gateway.base.report_lines import number_of
from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.schemas import GroupVersionKind, UnknownKindError
from gateway.pure.openapi.types import reference
from gateway.tools.offline.changes import as_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gateway.pure.openapi.types import Schema
    from gateway.tools.preview.manifests import Unreadable
    from gateway.tools.preview.model import Previewed
    from gateway.tools.preview.report import Listed, Totals

    Json = dict[str, Any]

_SERVER_METADATA: Final = frozenset(
    {"creationTimestamp", "generation", "managedFields", "namespace", "resourceVersion", "selfLink", "uid"}
)
"""Members of ``metadata`` that Argo CD does not compare, or that no manifest has."""
_NOT_COMPARED: Final = frozenset({"apiVersion", "kind", "status"})
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ATOMIC_IN_PATCHES: Final = frozenset({"claims"})
"""Lists that server-side apply merges by a key, and a strategic merge patch replaces: of
``resources.claims`` of a container."""


_RETAINED: Final = frozenset({"resourceClaims", "volumes"})
"""Lists of a Pod in whose elements Argo CD removes what the manifest does not have (``retainKeys``)."""
_DEFAULTS: Final = {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
"""What the API server adds to such maps itself: to ``strategy`` of a Deployment."""


class _Element(NamedTuple):
    """A step of a path: the elements of a list with one value of their key, ``""`` for the element itself."""

    key: str
    value: object


_Path = tuple["str | int | _Element", ...]
_CLAIM_TEMPLATES: Final = ("spec", "volumeClaimTemplates")
"""The list of a StatefulSet, the only built-in kind that has one, is compared by position."""


class _Lists:
    """How the lists of a kind are compared: *schemas* has its definitions, None for a custom resource."""

    def __init__(self, schemas: Mapping[str, Schema] | None) -> None:
        self._schemas = schemas

    @property
    def is_by_position(self) -> bool:
        return self._schemas is None

    def resolved(self, schema: Schema) -> Schema:
        name = reference(schema)
        return (self._schemas or {}).get(name, {}) if name else schema

    def member(self, schema: Schema, name: str) -> Schema:
        """Return the schema of the member *name* of a map with *schema*."""
        found = self.resolved(schema)
        of_name = (found.get("properties") or {}).get(name)
        if of_name is None:
            others = found.get("additionalProperties")
            return others if isinstance(others, dict) else {}
        declared: Schema = of_name
        return declared

    def retains_keys(self, schema: Schema, path: _Path) -> bool:
        """Whether a member that is added to the map at *path*, with *schema*, is a difference."""
        if schema.get("x-kubernetes-patch-strategy") == "retainKeys":
            return True
        is_element = len(path) > 1 and isinstance(path[-1], _Element)
        return is_element and not self.is_by_position and path[-2] in _RETAINED

    def key(self, schema: Schema, name: str) -> str | None:
        """Return the key of the elements of the list *name*: None without one, ``""`` for a set."""
        if self.is_by_position or name in _ATOMIC_IN_PATCHES:
            return None
        kind = schema.get("x-kubernetes-list-type")
        if kind == "map":
            # A strategic merge patch has one key, the first.
            return str(schema["x-kubernetes-list-map-keys"][0])
        if kind == "set":
            return ""
        if "merge" in str(schema.get("x-kubernetes-patch-strategy", "")).split(","):
            return str(schema.get("x-kubernetes-patch-merge-key", ""))
        return None


def ignore_differences(manifest: Json, stored: Json) -> Json | None:
    """Return the entry of ``ignoreDifferences`` with which Argo CD sees no difference, None without any.

    The entry has ``group``, ``kind``, ``name``, perhaps ``namespace``, and ``jsonPointers`` or
    ``jqPathExpressions`` or both, sorted.

    Args:
        manifest: The object as in Git.
        stored: The object after admission.
    """
    group, _, version = str(manifest.get("apiVersion", "")).rpartition("/")
    kind = str(manifest.get("kind", ""))
    try:
        schemas, name = built_in_schemas().definition(GroupVersionKind(group, version, kind))
        lists, schema = _Lists(schemas), schemas[name]
    except UnknownKindError:
        lists, schema = _Lists(None), {}
    if (group, kind) == ("", "Secret"):
        manifest, stored = _with_data(manifest), _with_data(stored)
    paths = list(_differences(_compared(manifest), _compared(stored), schema, lists, ()))
    pointers = sorted({_pointer(path) for path in paths if not _has_element(path)})
    expressions = sorted({_expression(path) for path in paths if _has_element(path)})
    if not paths:
        return None
    metadata = manifest["metadata"]
    return {
        **({"group": group} if group else {}),
        "kind": kind,
        "name": metadata.get("name", ""),
        **({"namespace": metadata["namespace"]} if metadata.get("namespace") else {}),
        **({"jsonPointers": pointers} if pointers else {}),
        **({"jqPathExpressions": expressions} if expressions else {}),
    }


def _compared(found: Json) -> Json:
    metadata = {name: each for name, each in found["metadata"].items() if name not in _SERVER_METADATA}
    rest = {name: each for name, each in found.items() if name not in _NOT_COMPARED}
    return {**rest, "metadata": metadata}


def _with_data(secret: Json) -> Json:
    """Return *secret* with its ``stringData`` in ``data``, as Argo CD and the API server do."""
    texts = secret.get("stringData")
    if not isinstance(texts, dict):
        return secret
    encoded = {
        name: base64.b64encode(text.encode(errors="surrogatepass")).decode()
        if isinstance(text, str)
        else text
        for name, text in texts.items()
    }
    rest = {name: each for name, each in secret.items() if name != "stringData"}
    return {**rest, "data": {**(secret.get("data") or {}), **encoded}}


def _differences(wanted: Json, found: Json, schema: Schema, lists: _Lists, path: _Path) -> Iterator[_Path]:
    """Yield the paths in which *found* differs from *wanted* for Argo CD."""
    for name, value in wanted.items():
        if value is None and (not lists.is_by_position or found.get(name) is None):
            continue
        at = (*path, name)
        of_member = lists.member(schema, name)
        if name not in found:
            if value not in ({}, [], "") or lists.is_by_position:
                yield at
            continue
        yield from _of_value(value, found[name], of_member, lists, at)


def _of_value(value: object, found: object, schema: Schema, lists: _Lists, path: _Path) -> Iterator[_Path]:
    if value and found in ({}, []) and not lists.is_by_position:
        yield path  # Empty maps and lists of built-in kinds are left out, so that the member is missing.
        return
    match value, found:
        case dict(), dict():
            yield from _differences(value, found, schema, lists, path)
            if lists.retains_keys(schema, path):
                yield from (
                    (*path, name)
                    for name in found
                    if name not in value and found[name] != _DEFAULTS.get(name)
                )
        case list(), list():
            resolved = lists.resolved(schema)
            key = lists.key(resolved, str(path[-1]))
            items: Schema = resolved.get("items") or {}
            if lists.is_by_position or path == _CLAIM_TEMPLATES:
                yield from _by_position(value, found, path)
            elif key is None:
                # Argo CD replaces such a list as a whole.
                if not _is_equal(value, found):
                    yield path
            else:
                yield from _by_key(value, found, key, items, lists, path)
        case _:
            if not _is_equal(value, found):
                yield path


def _by_position(wanted: list[Any], found: list[Any], path: _Path) -> Iterator[_Path]:
    paths = [path]
    if len(wanted) == len(found):
        paths = [
            each
            for index, (value, other) in enumerate(zip(wanted, found, strict=True))
            for each in _of_value(value, other, {}, _Lists(None), (*path, index))
        ]
    # If Argo CD removed an element, those behind it would have other positions.
    yield from (path,) if any(len(each) == len(path) + 1 for each in paths) else paths


def _by_key(
    wanted: list[Any], found: list[Any], key: str, items: Schema, lists: _Lists, path: _Path
) -> Iterator[_Path]:
    values, others = _values(wanted, key), _values(found, key)
    if values is None or others is None:
        if not _is_equal(wanted, found):
            yield path
        return
    by_value, of_wanted = dict(zip(others, found, strict=True)), set(values)
    if [each for each in values if each in by_value] != [each for each in others if each in of_wanted]:
        yield path  # A patch has the order of the elements, too.
        return
    for value, element in zip(values, wanted, strict=True):
        at = (*path, _Element(key, value))
        if value not in by_value:
            yield at
        elif key:
            yield from _of_value(element, by_value[value], items, lists, at)


def _values(elements: list[Any], key: str) -> list[str | int] | None:
    """Return the value of *key* of each of *elements*; None if one has none, or two have the same."""
    found: dict[str | int, None] = {}
    for each in elements:
        value = each.get(key) if key and isinstance(each, dict) else each
        if not isinstance(value, str | int) or value in found:
            return None
        found[value] = None
    return list(found)


def _is_equal(one: object, other: object) -> bool:
    """Whether two JSON values are equal; 1 is 1.0, and not true."""
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(_is_equal(one[name], other[name]) for name in one)
        case list(), list():
            return len(one) == len(other) and all(map(_is_equal, one, other))
        case _:
            return one == other


def _has_element(path: _Path) -> bool:
    return any(isinstance(step, _Element) for step in path)


def _pointer(path: _Path) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def _expression(path: _Path) -> str:
    """Return the jq path of *path*, which selects nothing where a list is missing."""
    parts: list[str] = []
    for step in path:
        match step:
            case _Element(key, value):
                parts.append(f"[]? | select(.{_member(key) if key else ''} == {json.dumps(value)}) | ")
            case int():
                parts.append(f"[{step}]")
            case _:
                parts.append(f".{_member(step)}")
    return "".join(parts).removesuffix(" | ")


def _member(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else json.dumps(name)


class IgnoredDifferences:
    """The part of an Application's ``spec`` with an entry for each object that needs one, as YAML."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._entries: list[Json] = []
        self._rejected = 0

    def add(self, found: Previewed, listed: list[Listed]) -> None:
        """Take an object of the input. What controllers create is in no Application."""
        del listed
        if found.final is None:
            self._rejected += 1
            return
        manifest = found.manifest.object
        entry = ignore_differences(manifest, found.final) if manifest["metadata"].get("name") else None
        if entry is not None:
            self._entries.append(entry)

    def add_unreadable(self, found: Unreadable) -> None:
        """Say on standard error what is no object."""
        logs.print_error(f"{found.place}: {found.message}")

    def end(self, totals: Totals) -> None:
        """Write the entries.

        Without ``RespectIgnoreDifferences`` Argo CD shows no difference and still writes the value of Git.
        """
        del totals
        if self._rejected:
            number = number_of(self._rejected, "object")
            self._write(f"# Without an entry, because admission does not allow it: {number}\n")
        options = {"syncPolicy": {"syncOptions": ["RespectIgnoreDifferences=true"]}} if self._entries else {}
        self._write(as_yaml({"ignoreDifferences": self._entries, **options}))
