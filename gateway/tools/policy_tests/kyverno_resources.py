"""The objects in files of a test of Kyverno, and how objects after changes are compared with them.

Source: github.com/kyverno/kyverno cmd/cli/kubectl-kyverno resource/{tidy,labels,resource}.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.json_patch.diff import same
from gateway.config.merge.load import documents_in
from gateway.engine.object_review import DEFAULT_NAMESPACE, built_in_resource
from gateway.tools.offline.changes import changes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gateway.engine.object_review import Json
    from gateway.tools.policy_tests.kyverno_test import Row

_MAPS: Final = frozenset(("annotations", "labels", "matchLabels", "nodeSelector", "data", "stringData"))
"""Fields that Kyverno reads as an empty mapping if they are null."""
_GENERATED: Final = "generate.kyverno.io/"


def objects_in(paths: Sequence[Path]) -> tuple[list[Json], str]:
    """Return the objects in *paths*, each once, and the first problem; the files without one are read."""
    found: dict[tuple[object, ...], Json] = {}
    first = ""
    for document in documents_in(paths):
        for problem in document.problems.errors():
            first = first or f"resources: {problem}"
        if document.content is None:
            continue
        made = _object(document.content)
        if made is None:
            place = document.place
            first = first or f"resources: {place}: found no object with apiVersion, kind and metadata"
            continue
        key = _key(made)
        found.setdefault(key if key[-1] else (id(made),), made)
    return list(found.values()), first


def _object(content: Mapping[str, Any]) -> Json | None:
    """Return the object *content*, with a namespace unless its kind has none; None if it is no object."""
    version, kind = content.get("apiVersion"), content.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return None
    try:
        made: Json = _with_maps(content)
    except RecursionError:
        return None
    metadata = made.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        return None
    resource = built_in_resource(version.rpartition("/")[0], kind)
    if not metadata.get("namespace") and (resource is None or resource.is_namespaced):
        metadata["namespace"] = DEFAULT_NAMESPACE
    return made


def _with_maps(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a copy of *value* in which the mappings of ``_MAPS`` are not null."""
    if isinstance(value, dict):
        return {key: {} if each is None and key in _MAPS else _with_maps(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_maps(each) for each in value]
    return value


def compared(file: Path, row: Row, final: Json | None) -> tuple[bool, list[str]]:
    """Return whether *file* has what *final* is compared with, and lines about differences.

    Without it the row is skipped, whatever its result, unless it fails on missing objects.
    """
    wanted, problem = objects_in([file])
    if problem:
        return True, [f"patchedResources: {problem}"]
    key = None if final is None else _key(final)
    one = next((each for each in wanted if _key(each) == key), None)
    if one is None:
        missing = f"patchedResources: the object after all changes is not in {file.name}"
        return row.fails_on_missing, [missing] if row.fails_on_missing else []
    before, after = without_empty(one), without_empty(final)
    if same(before, after):
        return True, []
    about = f"patchedResources: the object after all changes differs from that in {file.name}"
    return True, [about, *(f"  {line}" for line in changes(before, after))]


def _key(found: Mapping[str, Any]) -> tuple[str, ...]:
    metadata = found["metadata"]
    named = (str(metadata.get(name) or "") for name in ("namespace", "name"))
    return found["apiVersion"], found["kind"], *named


def without_empty(found: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return *found* without null, empty mappings and lists, and labels of generated objects."""
    if isinstance(found, dict):
        items = ((key, without_empty(each)) for key, each in found.items() if not key.startswith(_GENERATED))
        return {key: each for key, each in items if each is not None} or None
    if isinstance(found, list):
        return [each for each in map(without_empty, found) if each is not None] or None
    return found
