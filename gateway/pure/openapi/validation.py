"""Whether an object is valid for its type, and which of its values are atomic.

Source: sigs.k8s.io/structured-merge-diff/v6 typed/validate.go; k8s.io/apiserver
pkg/admission/plugin/policy/mutating/patch/smd.go (findAtomics).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.openapi.elements import NoKeyError, key_of, keys_of
from gateway.pure.openapi.go_text import go_type, printed, syntax
from gateway.pure.openapi.types import Scalar, TypeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.pure.openapi.types import ListType, MapType, TypeRef

    _Errors = Sequence[tuple[str, str]]
    """Paths below the value, each with the text of its error."""

_OK: tuple[()] = ()
_ABSENT: Final = object()
_NO_MAP: Final[dict[str, object]] = {}
_NO_LIST: Final[list[object]] = []


class Validation:
    """The rules for an object: for a patch the strict ones.

    A patch has declared fields only, and no two elements of a list with the same key. The object that it
    changes may have both: its undeclared fields are of a version of the kind that the schema does not know.
    """

    def __init__(self, *, is_patch: bool) -> None:
        self._is_patch = is_patch

    def errors(self, ref: TypeRef, value: object) -> tuple[str, ...]:
        """Return what is wrong with *value*, each as ``.spec.replicas: TEXT``."""
        return tuple(f"{path}: {text}" if path else text for path, text in self._errors(ref, value))

    def _errors(self, ref: TypeRef, value: object) -> _Errors:
        try:
            found = ref.get()
        except TypeNotFoundError as error:
            return [("", str(error))]
        if value is None:
            return _OK
        if isinstance(value, dict) or isinstance(value, list):  # noqa: SIM101 - a union takes longer
            if isinstance(value, dict):
                if found.map:
                    return self._map_errors(found.map, value)
            elif found.list:
                return self._list_errors(found.list, value)
        elif found.scalar and _is_scalar(found.scalar, value):
            return _OK
        if found.map:
            return [("", f"expected map, got &{{{printed(value)}}}")]
        if found.scalar:
            return [("", _SCALAR_ERRORS[found.scalar](value))]
        return [("", f"expected list, got &{{{printed(value)}}}")]

    def _map_errors(self, kind: MapType, value: dict[str, object]) -> _Errors:
        errors: list[tuple[str, str]] = []
        for name, each in value.items():
            field = kind.fields.get(name)
            ref = field.type if field else kind.others
            if ref:
                for path, text in self._errors(ref, each):
                    errors.append((f".{name}{path}", text))
            elif self._is_patch:
                return [*errors, (f".{name}", "field not declared in schema")]
        return errors

    def _list_errors(self, kind: ListType, value: list[object]) -> _Errors:
        errors: list[tuple[str, str]] = []
        seen = set()
        for index, each in enumerate(value):
            place: object = f"[{index}]"
            found = self._errors(kind.element, each)
            # The key of an element that is right counts in a patch only.
            has_key = type(each) is dict and kind.keys and kind.keys[0] in each
            if not kind.is_atomic and (self._is_patch or found or not has_key):
                try:
                    place = key_of(kind, each)
                except NoKeyError as error:
                    return [*errors, ("", f"element {index}: {error}")]
                if place in seen and self._is_patch:
                    errors.append(("", f"duplicate entries for key {place}"))
                seen.add(place)
            errors += [(f"{place}{path}", text) for path, text in found]
        return errors


def _is_scalar(kind: Scalar, value: object) -> bool:
    if kind is Scalar.ANY:
        return True
    if isinstance(value, bool):
        return kind is Scalar.BOOLEAN
    return kind is (Scalar.STRING if isinstance(value, str) else Scalar.NUMERIC)


_SCALAR_ERRORS = {
    Scalar.NUMERIC: lambda value: f"expected numeric (int or float), got {go_type(value)}",
    Scalar.STRING: lambda value: f"expected string, got &value.valueUnstructured{{Value:{syntax(value)}}}",
    Scalar.BOOLEAN: lambda value: f"expected boolean, got &{{{printed(value)}}}",
    Scalar.ANY: lambda value: f"expected any scalar, got &{{{printed(value)}}}",
}


def is_valid(ref: TypeRef, value: object, known: object = None) -> bool:
    """Whether an object that is no patch has no :meth:`Validation.errors`.

    *known* is valid for the same type, and is never changed: parts that *value* shares with it in memory, at
    the same place, are not read again. None if there is no such object.
    """
    try:
        return _is_valid(ref, value, known)
    except (TypeNotFoundError, NoKeyError):
        return False


def _is_valid(ref: TypeRef, value: object, known: object) -> bool:
    found = ref.get()
    if type(value) is dict:
        earlier = known if type(known) is dict else _NO_MAP
        return found.map is not None and _is_valid_map(found.map, value, earlier)
    if type(value) is list:
        before = known if type(known) is list else _NO_LIST
        return found.list is not None and _is_valid_list(found.list, value, before)
    return value is None or (found.scalar is not None and _is_scalar(found.scalar, value))


def _is_valid_map(kind: MapType, value: dict[str, object], known: dict[str, object]) -> bool:
    fields, others = kind.fields, kind.others
    for name, each in value.items():
        if known and each is known.get(name, _ABSENT):
            continue
        field = fields.get(name)
        ref = field.type if field else others
        if ref and type(each) not in ref.scalars and not _is_valid(ref, each, known.get(name)):
            return False
    return True


def _is_valid_list(kind: ListType, value: list[object], known: list[object]) -> bool:
    element, key = kind.element, kind.keys[0] if kind.keys else None
    # Elements that were added at the head or in the middle move those behind them.
    moved = len(value) - len(known)
    for index, each in enumerate(value):
        earlier = known[index] if index < len(known) else _ABSENT
        if each is earlier or (0 <= index - moved < len(known) and each is known[index - moved]):
            continue
        if not _is_valid(element, each, earlier):
            return False
        if not kind.is_atomic and not (type(each) is dict and key in each):
            key_of(kind, each)
    return True


def is_plain(ref: TypeRef, patch: object) -> bool:
    """Whether a patch has no :meth:`Validation.errors` and no :func:`atomics`; false for some such, too."""
    try:
        return _is_plain(ref, patch)
    except (TypeNotFoundError, NoKeyError):
        return False


def _is_plain(ref: TypeRef, value: object) -> bool:
    found = ref.get()
    if type(value) is dict:
        of_map = found.map
        if of_map is None or of_map.is_atomic:
            return False
        for name, each in value.items():
            field = of_map.fields.get(name)
            of_part = field.type if field else of_map.others
            if of_part is None or not (type(each) in of_part.scalars or _is_plain(of_part, each)):
                return False
        return True
    if type(value) is list:
        of_list = found.list
        if (
            of_list is None
            or of_list.is_atomic
            or not all(_is_plain(of_list.element, each) for each in value)
        ):
            return False
        return len(set(keys_of(of_list, value)[0])) == len(value)
    return value is None or (found.scalar is not None and _is_scalar(found.scalar, value))


def atomics(ref: TypeRef, value: object, path: str = "") -> Iterator[str]:
    """Yield the paths of the atomic lists and maps in *value*, which is valid.

    Elements of lists are named by their index. What is below a map's undeclared keys is not looked at.
    """
    kind = ref.get()
    if isinstance(value, dict) and kind.map:
        if kind.map.is_atomic:
            yield path
        for name, each in value.items():
            if name in kind.map.fields:
                yield from atomics(kind.map.fields[name].type, each, f"{path}.{name}")
    elif isinstance(value, list) and kind.list:
        if kind.list.is_atomic:
            yield path
        for index, each in enumerate(value):
            yield from atomics(kind.list.element, each, f"{path}[{index}]")
