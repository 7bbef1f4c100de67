"""JSON Patches as kube-apiserver applies them, through ``jsonpatch``.

kube-apiserver uses a Go library (evanphx/json-patch v4) whose reading of RFC 6902 is looser in places:
``replace`` of an absent member adds it, ``add`` without a value adds null, indices may be negative or
signed, text before a pointer's first slash does not count, ``copy`` of an absent member writes null, ``test``
passes on an absent member against null. A worker's patch must mean here what it would mean there, so each
operation is first put in the words that both libraries read alike, against the document as it is at that
point, and then applied by ``jsonpatch``.

A patch is applied between two other reviews, so what it may ask for is bounded: operations, values, what is
copied and what lists are shifted by. The bounds are kube-apiserver's where it has one, and elsewhere far
above what an object that can be stored has any use for.

Source: kubernetes/apiserver plugin/webhook/mutating/dispatcher.go; evanphx/json-patch v4 patch.go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import jsonpatch
import jsonpointer
import orjson

from gateway.core.diff import MAX_OPERATIONS, MAX_PATH_PARTS, MAX_SHIFTED, Operation, escape, same
from gateway.core.reading import repaired
from gateway.work_queue import finish

if TYPE_CHECKING:
    from collections.abc import Generator

MAX_COPY_BYTES: Final = 3 * 1024 * 1024
"""What all ``copy`` operations of one patch may add up to, as kube-apiserver sets it
(JSONPatchMaxCopyBytes)."""

MAX_VALUES: Final = 500_000
"""Values in a patch, nested ones included. An object of the 1.5 MiB that etcd takes has a fifth of that."""

MAX_LEVELS: Final = 1024
"""Parts of a path. orjson reads nothing that is deeper, so that a longer one leads nowhere."""

_SHOWN_CHARS: Final = 200
_SPACE: Final = b" \t\r\n"

_STEP_OPERATIONS: Final = 100
"""A millisecond or two."""

_INDEX = re.compile(r"[+-]?[0-9]+\Z")
_ABSENT: Final = object()


class PatchSyntaxError(ValueError):
    """The bytes are not a JSON array of operation objects."""


class PatchConflict(ValueError):
    """An operation does not apply to the document."""


def parse_patch(patch: bytes) -> list[Operation]:
    """As :func:`parse_in_steps`, in one step."""
    return finish(parse_in_steps(patch))


def parse_in_steps(patch: bytes) -> Generator[None, None, list[Operation]]:
    """Return the operations of a JSON Patch; empty bytes, ``null`` and ``[]`` give none.

    It yields between steps, in each of which *patch* is read once or twice.

    Raises:
        PatchSyntaxError: not JSON, not an array of objects (a null element fails later, when applied), nested
            too deeply, or with two members of one name in an object.
        PatchConflict: more than ``MAX_VALUES`` values.
    """
    if not patch:
        return []
    if _count_values(patch) > MAX_VALUES:
        raise PatchConflict(f"has more than {MAX_VALUES} values")
    yield
    try:
        operations = orjson.loads(patch)
    except orjson.JSONDecodeError as error:
        patch = repaired(patch)
        try:
            operations = orjson.loads(patch)
        except orjson.JSONDecodeError:
            raise PatchSyntaxError(f"not JSON: {error}") from None
    if operations is None:
        return []
    if not isinstance(operations, list):
        raise PatchSyntaxError("not a JSON array of operations")
    yield
    for index, operation in enumerate(operations):
        if operation is not None and not isinstance(operation, dict):
            raise PatchSyntaxError(f"operation {index} is not a JSON object")
    try:
        # orjson reads deeper than it writes, and an audit annotation quotes the patch one level down.
        read = orjson.dumps([operations])
    except TypeError:
        raise PatchSyntaxError("nested too deeply") from None
    yield
    if _has_lost_members(patch, read[1:-1]):
        # Libraries take the first of them, the last or a mixture.
        raise PatchSyntaxError("two members of an object have the same name")
    return [operation or {} for operation in operations]


def _has_lost_members(text: bytes, read: bytes) -> bool:
    """Whether JSON *text* has more members of objects than what was *read* of it, written again."""
    # Most often only white space differs. Without it, equal texts have the same members.
    if text.translate(None, _SPACE) == read.translate(None, _SPACE):
        return False
    return _outside_texts(text).count(b":") != _outside_texts(read).count(b":")


def _count_values(patch: bytes) -> int:
    """Return about how many values *patch* holds, never fewer; exactly enough where that may be too many."""
    count = _count_signs(patch)
    if count <= MAX_VALUES:
        return count
    return _count_signs(_outside_texts(patch))


def _outside_texts(patch: bytes) -> bytes:
    """Return *patch* without what stands in its texts, such as the commas of a file in a ConfigMap."""
    plain = patch.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(plain.split(b'"')[::2])


def _count_signs(patch: bytes) -> int:
    return patch.count(b",") + patch.count(b"[") + patch.count(b"{")


class _Work:
    """What the operations of a patch have cost so far, each kind bounded."""

    __slots__ = ("_copied_bytes", "_parts", "_shifted")

    def __init__(self) -> None:
        self._copied_bytes = self._parts = self._shifted = 0

    def copy(self, number_bytes: int) -> None:
        self._copied_bytes += number_bytes
        if self._copied_bytes > MAX_COPY_BYTES:
            raise PatchConflict(f"copies add up to more than {MAX_COPY_BYTES} bytes")

    def shift(self, items: int) -> None:
        self._shifted += items
        if self._shifted > MAX_SHIFTED:
            raise PatchConflict(f"items of lists are shifted more than {MAX_SHIFTED} times")

    def tokens(self, path: str) -> list[str]:
        """Return a pointer's parts; what stands before the first slash does not count."""
        number = path.count("/")
        if not number:
            raise PatchConflict(f"path {_shown(path)} does not point into the object")
        if number > MAX_LEVELS:
            raise PatchConflict(f"path {_shown(path)} has more than {MAX_LEVELS} parts")
        self._parts += number
        if self._parts > MAX_PATH_PARTS:
            raise PatchConflict(f"paths have more than {MAX_PATH_PARTS} parts together")
        parts = path.split("/")[1:]
        return [part.replace("~1", "/").replace("~0", "~") if "~" in part else part for part in parts]


def apply_patch(document: object, operations: list[Operation]) -> object:
    """As :func:`apply_in_steps`, in one step."""
    return finish(apply_in_steps(document, operations))


def apply_in_steps(document: object, operations: list[Operation]) -> Generator[None, None, object]:
    """Return *document* with *operations* applied in order; yields after each ``_STEP_OPERATIONS`` of them.

    The document is changed in place and must not be used any more when this raises; values of the
    operations become part of it.

    Raises:
        PatchConflict: an operation is unknown or malformed, its path does not exist, or the patch asks for
            more than is done for one; the text names the operation by its position.
        RecursionError: nested deeper than the interpreter allows.
    """
    if len(operations) > MAX_OPERATIONS:
        raise PatchConflict(f"has {len(operations)} operations, and at most {MAX_OPERATIONS} are applied")
    work = _Work()
    for index, operation in enumerate(operations):
        if index and not index % _STEP_OPERATIONS:
            yield
        try:
            document = _apply_operation(document, operation, work)
        except (
            PatchConflict,
            jsonpatch.JsonPatchException,
            jsonpointer.JsonPointerException,
            TypeError,
        ) as error:
            raise PatchConflict(f"operation {index}: {error}") from None
    return document


def _apply_operation(document: object, operation: Operation, work: _Work) -> object:
    """Return the document after *operation*."""
    match operation.get("op"):
        case "add":
            _add(document, _text(operation, "path"), operation.get("value"), work)
        case "remove":
            _remove(document, _text(operation, "path"), work)
        case "replace":
            document = _replace(document, _text(operation, "path"), operation.get("value"), work)
        case "move":
            # First out, then in: moving a value into its own child finds no parent, as it must.
            value = _remove(document, _text(operation, "from"), work)
            _add(document, _text(operation, "path"), value, work)
        case "copy":
            value = _copy(document, _text(operation, "from"), work)
            _add(document, _text(operation, "path"), value, work)
        case "test":
            _test(document, _text(operation, "path"), operation.get("value"), work)
        case op:
            raise PatchConflict(f"unexpected kind: {op[:_SHOWN_CHARS] if isinstance(op, str) else 'unknown'}")
    return document


def _text(operation: Operation, member: str) -> str:
    value = operation.get(member)
    if not isinstance(value, str):
        raise PatchConflict(f"{member!r} is missing or not a string")
    return value


def _shown(text: str) -> str:
    """Return *text* for a message, which a user is to read."""
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}...")


def _add(document: object, path: str, value: object, work: _Work) -> None:
    container, token = _locate(document, path, work)
    if isinstance(container, list) and token != "-":
        # Counted from one past the end: -1 is where an item would be appended.
        index = _index(token, len(container) + 1, path)
        work.shift(len(container) - index)
        token = str(index)
    _apply(jsonpatch.AddOperation, container, token)
    _put(container, token, value)


def _replace(document: object, path: str, value: object, work: _Work) -> object:
    if path == "":
        if not isinstance(value, dict | list):
            raise PatchConflict("the whole document can be replaced by an object or an array only")
        return value
    container, token = _locate(document, path, work)
    if isinstance(container, dict):
        # Sets or overwrites, which for a member is what `add` does.
        _apply(jsonpatch.AddOperation, container, token)
    else:
        token = str(_index(token, len(container), path))
        _apply(jsonpatch.ReplaceOperation, container, token)
    _put(container, token, value)
    return document


def _remove(document: object, path: str, work: _Work) -> object:
    container, token = _locate(document, path, work)
    value = _member(container, token, path)
    if value is _ABSENT:
        raise PatchConflict(f"cannot remove {_shown(path)}: there is no such member")
    if isinstance(container, list):
        index = _index(token, len(container), path)
        work.shift(len(container) - index - 1)
        token = str(index)
    _apply(jsonpatch.RemoveOperation, container, token)
    return value


def _copy(document: object, source: str, work: _Work) -> object:
    container, token = _locate(document, source, work)
    value = _member(container, token, source)
    content = orjson.dumps(None if value is _ABSENT else value)
    work.copy(len(content))
    return orjson.loads(content)


def _test(document: object, path: str, expected: object, work: _Work) -> None:
    if path == "":
        value = document
    else:
        container, token = _locate(document, path, work)
        value = _member(container, token, path)
    if not same(None if value is _ABSENT else value, expected):
        raise PatchConflict(f"testing value of {_shown(path)} failed")


def _apply(
    kind: type[jsonpatch.PatchOperation], container: dict[str, object] | list[object], token: str
) -> None:
    # Applied to the container itself: the way to it was walked as kube-apiserver walks it.
    kind({"op": kind.__name__, "path": f"/{escape(token)}", "value": None}).apply(container)


def _put(container: dict[str, object] | list[object], token: str, value: object) -> None:
    """Put *value* where an operation has made room. The library itself would copy it, item by item."""
    if isinstance(container, dict):
        container[token] = value
    else:
        container[-1 if token == "-" else int(token)] = value


def _locate(document: object, path: str, work: _Work) -> tuple[dict[str, object] | list[object], str]:
    """Return the object or array that holds what *path* points at, and the last part of the path."""
    *parents, last = work.tokens(path)
    node = document
    for token in parents:
        node = _member(node, token, path) if isinstance(node, dict | list) else _ABSENT
    if not isinstance(node, dict | list):
        raise PatchConflict(f"path {_shown(path)} leads through something that is missing or not a container")
    return node, last


def _member(container: dict[str, object] | list[object], token: str, path: str) -> object:
    if isinstance(container, dict):
        return container.get(token, _ABSENT)
    return container[_index(token, len(container), path)]


def _index(token: str, length: int, path: str) -> int:
    """Return *token* as an index from 0 to *length* - 1; negative ones count from *length*.

    The digits are bounded before they are converted, as Go's Atoi does by the size of an int.
    """
    if len(token) > 20 or not _INDEX.match(token):
        raise PatchConflict(f"path {_shown(path)}: {_shown(token)} is not an array index")
    index = int(token)
    if index < 0:
        index += length
    if not 0 <= index < length:
        raise PatchConflict(
            f"path {_shown(path)}: index {token} is out of range, the array has {length} items"
        )
    return index
