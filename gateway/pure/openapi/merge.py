"""The merge of a patch into an object by the type of its kind.

Source: sigs.k8s.io/structured-merge-diff/v6 typed/merge.go, with the rule that the patch wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.pure.openapi.elements import keys_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from gateway.pure.openapi.types import ListType, MapType, TypeRef


_SEVERAL: Final = object()
"""Several elements of one list have this key."""


def merged(ref: TypeRef, live: object, patch: object) -> object:
    """Return *live* with *patch*; both are valid for the type *ref*, and neither is changed.

    The result shares with them what is not merged. Where the sort of value differs, the patch replaces it.
    """
    kind = ref.get()
    if kind.map and (isinstance(patch, dict) or patch is None):
        return _merged_map(kind.map, live if isinstance(live, dict) else {}, patch)
    if kind.list and (isinstance(patch, list) or patch is None):
        return _merged_list(kind.list, live if isinstance(live, list) else [], patch)
    return patch


def _merged_map(kind: MapType, live: dict[str, Any], patch: dict[str, Any] | None) -> object:
    if kind.is_atomic or not live:  # an empty patch stays as empty or null as it is
        return patch
    result = dict(live)
    for name, value in (patch or {}).items():
        field = kind.fields.get(name)
        ref = field.type if field else kind.others
        assert ref, "the patch has declared fields only"
        result[name] = merged(ref, live[name], value) if name in live else value
    return result


def _merged_list(kind: ListType, live: list[object], patch: list[object] | None) -> object:
    if kind.is_atomic or not live:
        return patch
    if not patch:
        return live
    return _zipped(kind, live, patch)


def _zipped(kind: ListType, live: list[object], patch: list[object]) -> list[object]:
    """Return the elements of two lists with keys.

    Elements of both come in the order of the patch; elements of *live* alone keep their places among those
    around them. If several elements of *live* have one key, the element of the patch replaces them all and is
    merged with none.
    """
    of_live, of_patch = keys_of(kind, live, patch)
    one: dict[Hashable, object] = {}
    for key, each in zip(of_live, live, strict=True):
        one[key] = _SEVERAL if key in one else each
    in_patch = set(of_patch)
    done: set[Hashable] = set()
    shared = [key for key in reversed(of_patch) if key in one]
    result: list[object] = []
    i = j = 0
    while i < len(live) or j < len(patch):
        if i < len(live):
            key = of_live[i]
            if key not in in_patch:
                result.append(live[i])
                i += 1
                continue
            if shared and key != shared[-1]:  # it comes, or came, at its place in the patch
                i += 1
                continue
            if key in done or key == of_patch[j]:
                i += 1
        if j < len(patch):
            key = of_patch[j]
            twin = one.get(key, _SEVERAL)
            result.append(patch[j] if twin is _SEVERAL else merged(kind.element, twin, patch[j]))
            done.add(key)
            if shared and shared[-1] == key:
                shared.pop()
            j += 1
    return result
