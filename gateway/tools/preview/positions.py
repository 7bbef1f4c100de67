"""Values in objects by their paths, and the same path in the document from which an object was made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.config.yaml.field_paths import FieldPath


def value_at(found: object, path: Sequence[str | int]) -> object:
    """Return the value at *path* in *found*; None if there is none."""
    for part in path:
        if isinstance(found, dict):
            found = found.get(part)
        elif isinstance(found, list) and isinstance(part, int) and part < len(found):
            found = found[part]
        else:
            return None
    return found


def common_path(path: FieldPath, seen: object, source: object) -> FieldPath:
    """Return the path in *source* of the value at *path* in *seen*, as far as both have it.

    *seen* was made from *source*, and may have further items in its lists: items that have a name are the
    same if their names are equal.
    """
    found: list[str | int] = []
    for each in path:
        # A JSON Pointer does not tell an index from a key.
        part = str(each) if isinstance(source, dict) else _index_in(seen, each)
        if isinstance(part, int):
            if not isinstance(seen, list) or not isinstance(source, list) or part >= len(seen):
                break
            index = _index_of(seen, part, source)
            if index is None:
                break
            seen, source = seen[part], source[index]
            found.append(index)
        else:
            if not isinstance(source, dict) or part not in source:
                break
            seen = seen.get(part) if isinstance(seen, dict) else None
            source = source[part]
            found.append(part)
    return tuple(found)


def _index_in(found: object, part: str | int) -> str | int:
    """Return the index of the item that *part* names: ``name=main``, or several fields with commas."""
    if isinstance(part, int) or not isinstance(found, list) or "=" not in part:
        return part
    wanted = dict(each.partition("=")[::2] for each in part.split(","))
    for index, item in enumerate(found):
        fields = item if isinstance(item, dict) else {}
        # The protocol of a port may be left out.
        if all(str(fields.get(name, value)) == value for name, value in wanted.items()) and fields:
            return index
    return part


def _index_of(seen: list[object], index: int, source: list[object]) -> int | None:
    name = _name_of(seen[index])
    if name is None:
        return index if index < len(source) else None
    return next((number for number, one in enumerate(source) if _name_of(one) == name), None)


_NAMES: Final = ("name", "mountPath", "containerPort", "ip", "key")
"""The members that tell items of lists apart, as in merge keys of Kubernetes' kinds."""


def _name_of(item: object) -> tuple[str, object] | None:
    if isinstance(item, dict):
        found: Mapping[str, object] = item
        return next(((name, found[name]) for name in _NAMES if name in found), None)
    return None
