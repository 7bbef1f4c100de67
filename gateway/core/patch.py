"""JSON Patches as kube-apiserver applies them, through ``jsonpatch``.

kube-apiserver uses a Go library (evanphx/json-patch v4) whose reading of RFC 6902 is looser in places:
``replace`` of an absent member adds it, ``add`` without a value adds null, indices may be negative or
signed, text before a pointer's first slash does not count, ``copy`` of an absent member writes null, ``test``
passes on an absent member against null. A worker's patch must mean here what it would mean there, so each
operation is first put in the words that both libraries read alike, against the document as it is at that
point, and then applied by ``jsonpatch``.

Source: kubernetes/apiserver plugin/webhook/mutating/dispatcher.go; evanphx/json-patch v4 patch.go.
"""

from __future__ import annotations

import re
from typing import Final

import jsonpatch
import jsonpointer
import orjson

from gateway.core.diff import Operation, escape, same

MAX_COPY_BYTES: Final = 3 * 1024 * 1024
"""What all ``copy`` operations of one patch may add up to, as kube-apiserver sets it
(JSONPatchMaxCopyBytes)."""

MAX_OPERATIONS: Final = 10_000
"""What kube-apiserver allows a user's own JSON Patch. A worker's is not bounded there, but it is applied here
between two other reviews, and an insert at the head of a long list takes as long as the list is."""

_INDEX = re.compile(r"[+-]?[0-9]+\Z")
_ABSENT: Final = object()


class PatchSyntaxError(ValueError):
    """The bytes are not a JSON array of operation objects."""


class PatchConflict(ValueError):
    """An operation does not apply to the document."""


def parse_patch(patch: bytes) -> list[Operation]:
    """Return the operations of a JSON Patch; empty bytes, ``null`` and ``[]`` give none.

    Raises:
        PatchSyntaxError: not JSON, not an array of objects (a null element fails later, when applied), or
            nested too deeply.
    """
    if not patch:
        return []
    try:
        operations = orjson.loads(patch)
    except orjson.JSONDecodeError as error:
        raise PatchSyntaxError(f"not JSON: {error}") from None
    if operations is None:
        return []
    if not isinstance(operations, list):
        raise PatchSyntaxError("not a JSON array of operations")
    for index, operation in enumerate(operations):
        if operation is not None and not isinstance(operation, dict):
            raise PatchSyntaxError(f"operation {index} is not a JSON object")
    try:
        # orjson reads deeper than it writes, and an audit annotation quotes the patch one level down.
        orjson.dumps([operations])
    except TypeError:
        raise PatchSyntaxError("nested too deeply") from None
    return [operation or {} for operation in operations]


def apply_patch(document: object, operations: list[Operation]) -> object:
    """Return *document* with *operations* applied in order.

    The document is changed in place and must not be used any more when this raises; values of the
    operations become part of it.

    Raises:
        PatchConflict: an operation is unknown or malformed, or its path does not exist; the text names the
            operation by its position.
        RecursionError: nested deeper than the interpreter allows.
    """
    if len(operations) > MAX_OPERATIONS:
        raise PatchConflict(f"has {len(operations)} operations, and at most {MAX_OPERATIONS} are applied")
    copied_bytes = 0
    for index, operation in enumerate(operations):
        try:
            document, copied = _apply_operation(document, operation)
        except (
            PatchConflict,
            jsonpatch.JsonPatchException,
            jsonpointer.JsonPointerException,
            TypeError,
        ) as error:
            raise PatchConflict(f"operation {index}: {error}") from None
        copied_bytes += copied
        if copied_bytes > MAX_COPY_BYTES:
            raise PatchConflict(f"operation {index}: copies add up to more than {MAX_COPY_BYTES} bytes")
    return document


def _apply_operation(document: object, operation: Operation) -> tuple[object, int]:
    """Return the document after *operation*, and how many bytes it copied."""
    copied_bytes = 0
    match operation.get("op"):
        case "add":
            _add(document, _text(operation, "path"), operation.get("value"))
        case "remove":
            _remove(document, _text(operation, "path"))
        case "replace":
            document = _replace(document, _text(operation, "path"), operation.get("value"))
        case "move":
            # First out, then in: moving a value into its own child finds no parent, as it must.
            value = _remove(document, _text(operation, "from"))
            _add(document, _text(operation, "path"), value)
        case "copy":
            value, copied_bytes = _copy(document, _text(operation, "from"))
            _add(document, _text(operation, "path"), value)
        case "test":
            _test(document, _text(operation, "path"), operation.get("value"))
        case op:
            raise PatchConflict(f"unexpected kind: {op if isinstance(op, str) else 'unknown'}")
    return document, copied_bytes


def _text(operation: Operation, member: str) -> str:
    value = operation.get(member)
    if not isinstance(value, str):
        raise PatchConflict(f"{member!r} is missing or not a string")
    return value


def _add(document: object, path: str, value: object) -> None:
    container, token = _locate(document, path)
    if isinstance(container, list) and token != "-":
        # Counted from one past the end: -1 is where an item would be appended.
        token = str(_index(token, len(container) + 1, path))
    _apply(jsonpatch.AddOperation, container, token, value)


def _replace(document: object, path: str, value: object) -> object:
    if path == "":
        if not isinstance(value, dict | list):
            raise PatchConflict("the whole document can be replaced by an object or an array only")
        return value
    container, token = _locate(document, path)
    if isinstance(container, dict):
        # Sets or overwrites, which for a member is what `add` does.
        _apply(jsonpatch.AddOperation, container, token, value)
    else:
        _apply(jsonpatch.ReplaceOperation, container, str(_index(token, len(container), path)), value)
    return document


def _remove(document: object, path: str) -> object:
    container, token = _locate(document, path)
    value = _member(container, token, path)
    if value is _ABSENT:
        raise PatchConflict(f"cannot remove {path!r}: there is no such member")
    if isinstance(container, list):
        token = str(_index(token, len(container), path))
    _apply(jsonpatch.RemoveOperation, container, token)
    return value


def _copy(document: object, source: str) -> tuple[object, int]:
    container, token = _locate(document, source)
    value = _member(container, token, source)
    content = orjson.dumps(None if value is _ABSENT else value)
    return orjson.loads(content), len(content)


def _test(document: object, path: str, expected: object) -> None:
    if path == "":
        value = document
    else:
        container, token = _locate(document, path)
        value = _member(container, token, path)
    if not same(None if value is _ABSENT else value, expected):
        raise PatchConflict(f"testing value of {path!r} failed")


def _apply(
    kind: type[jsonpatch.PatchOperation],
    container: dict[str, object] | list[object],
    token: str,
    value: object = None,
) -> None:
    # Applied to the container itself: the way to it was walked as kube-apiserver walks it.
    kind({"op": kind.__name__, "path": f"/{escape(token)}", "value": value}).apply(container)


def _tokens(path: str) -> list[str]:
    """Return a pointer's parts; what stands before the first slash does not count."""
    parts = path.split("/")[1:]
    if not parts:
        raise PatchConflict(f"path {path!r} does not point into the object")
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


def _locate(document: object, path: str) -> tuple[dict[str, object] | list[object], str]:
    """Return the object or array that holds what *path* points at, and the last part of the path."""
    *parents, last = _tokens(path)
    node = document
    for token in parents:
        node = _member(node, token, path) if isinstance(node, dict | list) else _ABSENT
    if not isinstance(node, dict | list):
        raise PatchConflict(f"path {path!r} leads through something that is missing or not a container")
    return node, last


def _member(container: dict[str, object] | list[object], token: str, path: str) -> object:
    if isinstance(container, dict):
        return container.get(token, _ABSENT)
    return container[_index(token, len(container), path)]


def _index(token: str, length: int, path: str) -> int:
    """Return *token* as an index from 0 to *length* - 1; negative ones count from *length*.

    The digits are bounded before they are converted, as Go's Atoi does by the size of an int.
    """
    if not _INDEX.match(token) or len(token) > 20:
        raise PatchConflict(f"path {path!r}: {token!r} is not an array index")
    index = int(token)
    if index < 0:
        index += length
    if not 0 <= index < length:
        raise PatchConflict(f"path {path!r}: index {token} is out of range, the array has {length} items")
    return index
