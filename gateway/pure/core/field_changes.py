"""What differs between two objects, field by field, as Kubernetes means it and not as a JSON Patch has it.

An element of a list is named by its merge key, so that an element before it does not move it. Elements of
lists without such a key are named by their content: two webhooks that append each their own element change
two things. ``null``, an empty list and an empty map of labels are the same as no field, quantities are equal
by value, and the order of lists with keys means nothing. The exception are init containers, which start in
order.

The keys are those of the built-in kinds, by the name of the field; lists of other names are told apart by
``name``, as most lists of custom resources are.

Source: k8s.io/api core/v1 types.go (patchMergeKey, listMapKey); k8s.io/apimachinery pkg/api/equality.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import orjson

from admission_gateway_worker.json_patch.diff import same
from admission_gateway_worker.quantity import MalformedQuantity, compare, parse
from admission_gateway_worker.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_CHANGES: Final = 1000
"""Fields that one comparison finds; it ends there. A sidecar with all its volumes has about a hundred."""
MAX_LEVELS: Final = 64
"""Levels that are compared field by field. Deeper values are compared as a whole."""
MAX_COMPARED: Final = 10_000
"""Members and elements of both objects that are compared one by one, some 50 ms. A Pod with a sidecar has a
few hundred. What is left is compared as a whole."""
MAX_SHOWN: Final = 80
"""Characters of a value in a line."""

_KEYS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "ports": (("containerPort", "protocol"), ("port", "protocol")),
    "volumeMounts": (("mountPath",),),
    "volumeDevices": (("devicePath",),),
    "hostAliases": (("ip",),),
    "topologySpreadConstraints": (("topologyKey", "whenUnsatisfiable"),),
    "conditions": (("type",),),
    "ownerReferences": (("uid",),),
}
_NAME: Final = ("name",)
_KEY_DEFAULTS: Final = {"protocol": "TCP"}
_IN_ORDER: Final = "initContainers"

_MAPS: Final = frozenset(
    {"annotations", "binaryData", "data", "labels", "matchLabels", "nodeSelector", "parameters", "stringData"}
)
_MAPS_OF_QUANTITIES: Final = frozenset(
    {"allocatable", "capacity", "default", "defaultRequest", "hard", "limits", "max", "min", "overhead"}
    | {"requests"}
)
_QUANTITIES: Final = frozenset({"divisor", "sizeLimit"})
_MAX_QUANTITY_CHARS: Final = 64


class Element(NamedTuple):
    """The step of a path to an element of a list."""

    key: str
    """Names and values of its key fields; without a key, its JSON."""
    has_key: bool
    """Whether a key names it, and not its content."""


ORDER: Final = Element("order", has_key=True)
"""The last step of a path to the order of a list."""

WHOLE: Final = Element("as a whole", has_key=True)
"""The last step of a path to a value that is too large, or too deep, to be compared field by field."""

Path: TypeAlias = "tuple[str | Element, ...]"


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = _Absent()
"""The value of a field that is not there."""


class FieldChange(NamedTuple):
    """One field that differs, or one element of a list without keys. Values are JSON, or ``ABSENT``."""

    path: Path
    before: object
    after: object

    def line(self, *, with_values: bool = True) -> str:
        """Return the path, and what it was and is, in one line."""
        where = path_text(self.path)
        if not with_values:
            return where
        return f"{where}: {value_text(self.before)} becomes {value_text(self.after)}"


def path_text(path: Path) -> str:
    """Return *path* for people, such as ``spec.containers[name=app].image``.

    The contents of elements without a key are not in it.
    """
    return _joined(path, "[{}]")


def general_path(path: Path) -> str:
    """Return *path* without the keys of elements: ``spec.containers[*].image``. Few objects differ in it."""
    return _joined(path, "[*]")


def value_text(value: object) -> str:
    """Return *value*, JSON or ``ABSENT``, in a few characters."""
    if value is ABSENT:
        return repr(value)
    try:
        return printable(orjson.dumps(value).decode(), MAX_SHOWN)
    except TypeError:
        return "a deep value"


def field_changes(before: object, after: object) -> list[FieldChange]:
    """Return what differs between two objects, at most ``MAX_CHANGES``, in the order of the names of fields.

    The work is that of reading both a few times, also of hostile ones. Parts that both share in memory are
    not read.
    """
    found: list[FieldChange] = []
    for change in _Comparison().changes((), before, after):
        found.append(change)
        if len(found) >= MAX_CHANGES:
            break
    return found


def _joined(path: Path, element: str) -> str:
    text = ""
    for step in path:
        if isinstance(step, Element) and step in (ORDER, WHOLE):
            text += f" ({step.key})"
        elif isinstance(step, Element):
            text += element.format(printable(step.key, MAX_SHOWN)) if step.has_key else "[*]"
        elif step.replace("_", "a").replace("-", "a").isalnum():
            text += f".{step}" if text else step
        else:
            text += f"[{orjson.dumps(printable(step, MAX_SHOWN)).decode()}]"
    return text or "the whole object"


class _Comparison:
    """One comparison, with a bound of its work."""

    def __init__(self) -> None:
        self._left = MAX_COMPARED

    def changes(self, path: Path, before: Any, after: Any) -> Iterator[FieldChange]:  # noqa: ANN401 - any JSON
        """Yield what differs at *path*."""
        kind = type(before)
        if before is after:
            return
        if kind is type(after) and (kind is dict or kind is list):
            self._left -= len(before) + len(after)
            if len(path) >= MAX_LEVELS or self._left < 0:
                if not same(before, after):
                    yield FieldChange((*path, WHOLE), before, after)
            elif kind is dict:
                for name in _differing(before, after):
                    place = (*path, name)
                    yield from self.changes(place, before.get(name, ABSENT), after.get(name, ABSENT))
            else:
                yield from self._of_lists(path, before, after)
        elif _is_whole(before) and _is_whole(after):
            is_nothing = _is_nothing(path, before), _is_nothing(path, after)
            if not all(is_nothing) and (any(is_nothing) or not _are_equal(path, before, after)):
                yield FieldChange(
                    path, ABSENT if is_nothing[0] else before, ABSENT if is_nothing[1] else after
                )
        else:
            for leaf, value in _leaves(path, before):
                yield FieldChange(leaf, value, ABSENT)
            for leaf, value in _leaves(path, after):
                yield FieldChange(leaf, ABSENT, value)

    def _of_lists(self, path: Path, before: list[Any], after: list[Any]) -> Iterator[FieldChange]:
        keyed = _keyed(path, before, after)
        if keyed is not None:
            old, new = keyed
            for key in dict.fromkeys((*old, *new)):
                place = (*path, Element(key, has_key=True))
                yield from self.changes(place, old.get(key, ABSENT), new.get(key, ABSENT))
            if path and path[-1] == _IN_ORDER:
                kept = [key for key in old if key in new], [key for key in new if key in old]
                if kept[0] != kept[1]:
                    yield FieldChange((*path, ORDER), *kept)
            return
        olds, news = _contents(before), _contents(after)
        gone, come = Counter(olds) - Counter(news), Counter(news) - Counter(olds)
        items = dict(zip((*olds, *news), (*before, *after), strict=True))
        for content in gone.elements():
            yield FieldChange((*path, Element(content, has_key=False)), items[content], ABSENT)
        for content in come.elements():
            yield FieldChange((*path, Element(content, has_key=False)), ABSENT, items[content])
        if not gone and not come and olds != news:
            yield FieldChange((*path, ORDER), before, after)


def _differing(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the names of members that may differ, sorted."""
    found = [name for name, value in before.items() if name not in after or not _is_same(value, after[name])]
    found += [name for name in after if name not in before]
    return sorted(found)


def _is_same(before: object, after: object) -> bool:
    if before is after:
        return True
    kind = type(before)
    if kind is not type(after) or before != after:
        return False
    # Containers are equal to Python also where 1 became true.
    return kind is str or same(before, after)


def _is_whole(value: object) -> bool:
    """Whether *value* has no fields or elements."""
    return not (isinstance(value, dict | list) and value)


def _is_nothing(path: Path, value: object) -> bool:
    if value is ABSENT or value is None:
        return True
    return value == [] or (value == {} and bool(path) and path[-1] in _MAPS | _MAPS_OF_QUANTITIES)


def _are_equal(path: Path, before: object, after: object) -> bool:
    if same(before, after):
        return True
    if not (path and path[-1] in _QUANTITIES) and not (len(path) > 1 and path[-2] in _MAPS_OF_QUANTITIES):
        return False
    texts = [str(one) for one in (before, after) if type(one) in (str, int, float)]
    if len(texts) < 2 or max(map(len, texts)) > _MAX_QUANTITY_CHARS:
        return False
    try:
        return compare(*map(parse, texts)) == 0
    except MalformedQuantity:
        return False


def _leaves(path: Path, value: Any) -> Iterator[tuple[Path, object]]:  # noqa: ANN401 - any JSON
    """Yield the fields in *value* with their paths."""
    if _is_whole(value):
        if not _is_nothing(path, value):
            yield path, value
    elif len(path) >= MAX_LEVELS or len(value) > MAX_COMPARED:
        yield (*path, WHOLE), value
    elif isinstance(value, dict):
        for name in sorted(value):
            yield from _leaves((*path, name), value[name])
    else:
        keyed = _keyed(path, value)
        if keyed is None:
            for content, item in zip(_contents(value), value, strict=True):
                yield (*path, Element(content, has_key=False)), item
        else:
            (by_key,) = keyed
            for key, item in by_key.items():
                yield from _leaves((*path, Element(key, has_key=True)), item)


def _contents(items: Sequence[object]) -> list[str]:
    return [orjson.dumps(item, option=orjson.OPT_SORT_KEYS).decode() for item in items]


def _keyed(path: Path, *lists: list[Any]) -> tuple[dict[str, Any], ...] | None:
    """Return the elements of *lists* by key. None if any has no key, or a key twice."""
    name = path[-1] if path else ""
    for fields in (*_KEYS.get(name if isinstance(name, str) else "", ()), _NAME):
        found = tuple(_by_key(fields, items) for items in lists)
        if all(one is not None for one in found):
            return tuple(one for one in found if one is not None)
    return None


def _by_key(fields: tuple[str, ...], items: list[Any]) -> dict[str, Any] | None:
    found = {}
    for item in items:
        if type(item) is not dict:
            return None
        values = [item.get(name, _KEY_DEFAULTS.get(name)) for name in fields]
        if not all(type(value) in (str, int) for value in values):
            return None
        found[",".join(f"{name}={value}" for name, value in zip(fields, values, strict=True))] = item
    return found if len(found) == len(items) else None
