"""JSON Patches against a document, from an input's bytes: most of them nearly valid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.json_patch.diff import escape
from tests.fuzz.documents import SPLICES, dumped, spliced, value

if TYPE_CHECKING:
    from tests.fuzz.source import Source

_NAMES: Final = [
    *(
        "metadata",
        "labels",
        "spec",
        "replicas",
        "containers",
        "name",
        "a",
        "b",
        "-",
        "0",
        "1",
        "-1",
        "+1",
        "01",
    ),
    *("", "~", "a/b", "9" * 30, "99", "\u00e9", "status", "team"),
]
_KINDS: Final = ("add", "replace", "remove", "copy", "move", "test", "add", "replace", "Add", None)


def patch_for(source: Source, held: Any) -> bytes:
    """Return the bytes of a valid or invalid JSON Patch against *held*."""
    operations: list[Any] = [_operation(source, held) for _ in range(source.byte() % 6)]
    match source.byte() % 16:
        case 14:
            # The same again and again: copies of copies, lists that grow.
            operations *= 1 + source.below(40)
        case 15:
            operations.append(value(source, _NAMES))
    return spliced(source, dumped(operations))


def _operation(source: Source, held: Any) -> dict[str, Any]:
    kind = source.one_of(_KINDS)
    operation: dict[str, Any] = {"op": kind, "path": _path(source, held)}
    if kind in ("copy", "move") or source.chance(16):
        operation["from"] = _path(source, held)
    if kind in ("add", "replace", "test") or source.chance(16):
        operation["value"] = _at(held, operation["path"]) if source.chance(8) else value(source, _NAMES)
    if source.chance(32):
        del operation[source.one_of(list(operation))]
    return operation


def _path(source: Source, held: Any) -> str:
    """Return a pointer to a value in *held*, or to a missing neighbour."""
    if source.chance(32):
        return (source.take(source.byte() % 12) + source.one_of(SPLICES)[:20]).decode("latin-1")
    path, place = "", held
    for _ in range(source.byte() % 6):
        if not isinstance(place, dict | list) or not place:
            break
        if isinstance(place, dict):
            token = source.one_of(list(place))
            place = place[token]
        else:
            index = source.below(len(place))
            token, place = str(index), place[index]
        path += f"/{escape(token)}"
    return f"{path}/{escape(source.one_of(_NAMES))}" if source.chance(2) or not path else path


def _at(held: Any, path: str) -> Any:
    for part in path.split("/")[1:]:
        token = part.replace("~1", "/").replace("~0", "~")
        if isinstance(held, dict) and token in held:
            held = held[token]
        elif isinstance(held, list) and token.isdecimal() and len(token) < 5 and int(token) < len(held):
            held = held[int(token)]
        else:
            return None
    return held
