"""JSON Patches as kube-apiserver applies them.

kube-apiserver uses a Go library (evanphx/json-patch v4) whose reading of RFC 6902 is looser in places:
``replace`` of an absent member adds it, ``add`` without a value adds null, indices may be negative or signed,
the text before a pointer's first slash is ignored, ``copy`` of an absent member writes null, ``test`` of an
absent member against null passes. A worker's patch has to mean the same here. Where both readings agree, the
tests compare with ``jsonpatch``, which follows the RFC.

A patch is applied between two other reviews, so its work is bounded: operations, values, copied bytes and
shifted list items. The bounds are kube-apiserver's where it has one, and elsewhere far above the needs of an
object that can be stored.

Source: kubernetes/apiserver plugin/webhook/mutating/dispatcher.go; evanphx/json-patch v4 patch.go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission_gateway_worker.json_patch.diff import (
    MAX_OPERATIONS,
    MAX_PATH_PARTS,
    MAX_SHIFTED,
    Operation,
    same,
)
from admission_gateway_worker.json_patch.repair import repaired
from admission_gateway_worker.json_patch.steps import finish

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

MAX_COPY_BYTES: Final = 3 * 1024 * 1024
"""The size of all ``copy`` operations of one patch, as kube-apiserver sets it (JSONPatchMaxCopyBytes)."""

MAX_VALUES: Final = 500_000
"""Values in a patch, including nested ones. An object of 1.5 MiB, etcd's limit, has a fifth of that."""

MAX_LEVELS: Final = 1024
"""Parts of a path. orjson reads no document that is deeper, so a longer path cannot exist."""

_SHOWN_CHARS: Final = 200
_SPACE: Final = b" \t\r\n"

_STEP_OPERATIONS: Final = 100
"""These take a millisecond or two."""

STEP_BYTES: Final = 4096
"""A patch up to this size is parsed in one step."""

_Container = dict[str, object] | list[object]

_INDEX = re.compile(r"[+-]?[0-9]+\Z")
_ABSENT: Final = object()


class PatchSyntaxError(ValueError):
    """The bytes are not a JSON array of operation objects."""


class PatchConflict(ValueError):
    """An operation does not apply to the document."""


def parse_patch(patch: bytes) -> list[Operation]:
    """Do as :func:`parse_in_steps`, in one step."""
    return finish(parse_in_steps(patch))


def parse_in_steps(patch: bytes) -> Generator[None, None, list[Operation]]:
    """Return the operations of a JSON Patch; empty bytes, ``null`` and ``[]`` give none.

    It yields between steps if *patch* is longer than ``STEP_BYTES``; each step reads it once or twice.

    Raises:
        PatchSyntaxError: not JSON, not an array of objects (a null element fails later, when applied), nested
            too deeply, or an object has two members with the same name.
        PatchConflict: more than ``MAX_VALUES`` values.
    """
    if not patch:
        return []
    if len(patch) > MAX_VALUES and _count_values(patch) > MAX_VALUES:
        raise PatchConflict(f"has more than {MAX_VALUES} values")
    has_steps = len(patch) > STEP_BYTES
    if has_steps:
        yield
    operations, patch = _operations(patch)
    if has_steps:
        yield
    try:
        # orjson reads deeper than it writes, and an audit annotation quotes the patch one level down.
        read = orjson.dumps([operations])[1:-1]
    except TypeError:
        raise PatchSyntaxError("nested too deeply") from None
    if has_steps:
        yield
    # Usually nothing differs.
    if operations and patch != read and _has_lost_members(patch, read):
        # Some libraries take the first of them, some the last, and some a mixture.
        raise PatchSyntaxError("two members of an object have the same name")
    return operations


def _operations(patch: bytes) -> tuple[list[Operation], bytes]:
    """Return the operations of a JSON Patch, and the text from which they were read."""
    try:
        operations = orjson.loads(patch)
    except orjson.JSONDecodeError as error:
        patch = repaired(patch)
        try:
            operations = orjson.loads(patch)
        except orjson.JSONDecodeError:
            raise PatchSyntaxError(f"not JSON: {error}") from None
    if operations is None:
        return [], patch
    if not isinstance(operations, list):
        raise PatchSyntaxError("not a JSON array of operations")
    for index, operation in enumerate(operations):
        if operation is None:
            operations[index] = {}
        elif not isinstance(operation, dict):
            raise PatchSyntaxError(f"operation {index} is not a JSON object")
    return operations, patch


def _has_lost_members(text: bytes, read: bytes) -> bool:
    """Whether the objects in JSON *text* have more members than in *read*, the same value written again."""
    if text.translate(None, _SPACE) == read.translate(None, _SPACE):
        return False
    return without_strings(text).count(b":") != without_strings(read).count(b":")


def _count_values(patch: bytes) -> int:
    """Return an upper bound of the values in *patch*; a closer one where the first exceeds ``MAX_VALUES``."""
    count = _count_signs(patch)
    if count <= MAX_VALUES:
        return count
    return _count_signs(without_strings(patch))


def without_strings(json: bytes) -> bytes:
    """Return *json* without the content of its strings, for example a file in a ConfigMap."""
    plain = json.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(plain.split(b'"')[::2])


def _count_signs(patch: bytes) -> int:
    return patch.count(b",") + patch.count(b"[") + patch.count(b"{")


class Work:
    """The bounded work of a patch so far, and the containers that it has copied."""

    __slots__ = ("_parts", "_shifted", "copied_bytes", "has_moved", "own")

    def __init__(self) -> None:
        self._parts = self._shifted = 0
        self.copied_bytes = 0
        """Bytes of JSON that ``copy`` operations have copied."""
        self.has_moved = False
        """Whether an operation moved or copied a value, perhaps to a deeper level."""
        self.own: set[int] = set()
        """Identities of the containers that were copied, and may be changed. Shared containers exist before,
        so that none of them can get such an identity later."""

    def copy(self, number_bytes: int) -> None:
        """Add bytes that are copied; raise PatchConflict if it is too much."""
        self.copied_bytes += number_bytes
        if self.copied_bytes > MAX_COPY_BYTES:
            raise PatchConflict(f"copies add up to more than {MAX_COPY_BYTES} bytes")

    def shift(self, items: int) -> None:
        """Add items of a list that are moved; raise PatchConflict if it is too much."""
        self._shifted += items
        if self._shifted > MAX_SHIFTED:
            raise PatchConflict(f"items of lists are shifted more than {MAX_SHIFTED} times")

    def tokens(self, path: str) -> list[str]:
        """Return a pointer's parts; the text before the first slash is ignored.

        Raises:
            PatchConflict: it is not a pointer into an object, or there are too many parts.
        """
        number = path.count("/")
        if not number:
            raise PatchConflict(f"path {_shown(path)} does not point into the object")
        if number > MAX_LEVELS:
            raise PatchConflict(f"path {_shown(path)} has more than {MAX_LEVELS} parts")
        self._parts += number
        if self._parts > MAX_PATH_PARTS:
            raise PatchConflict(f"paths have more than {MAX_PATH_PARTS} parts together")
        parts = path.split("/")
        del parts[0]
        if "~" in path:
            return [part.replace("~1", "/").replace("~0", "~") for part in parts]
        return parts


def apply_patch(document: object, operations: Sequence[Operation], work: Work | None = None) -> object:
    """Do as :func:`apply_in_steps`, in one step."""
    if len(operations) > _STEP_OPERATIONS:
        return finish(apply_in_steps(document, operations, work))
    return _apply_step(document, operations, 0, work or Work())


def apply_in_steps(
    document: object, operations: Sequence[Operation], work: Work | None = None
) -> Generator[None, None, object]:
    """Return *document* with *operations* applied in order; yields after each ``_STEP_OPERATIONS`` of them.

    Neither *document* nor *operations* are changed, and the result shares with them what it can: a patch
    copies each container on its paths once. *work* is that of the operations that came before in the same
    patch; a container of *document* that these copied is changed in place.

    Raises:
        PatchConflict: an operation is unknown or malformed, its path does not exist, or the patch exceeds a
            bound; the text names the operation by its position.
        RecursionError: nested deeper than the interpreter allows.
    """
    if len(operations) > MAX_OPERATIONS:
        raise PatchConflict(f"has {len(operations)} operations, and at most {MAX_OPERATIONS} are applied")
    work = work or Work()
    document = _apply_step(document, operations, 0, work)
    for first in range(_STEP_OPERATIONS, len(operations), _STEP_OPERATIONS):
        yield
        document = _apply_step(document, operations, first, work)
    return document


def _apply_step(document: object, operations: Sequence[Operation], first: int, work: Work) -> object:
    """Return the document after one step of *operations*, which begins with that at *first*."""
    if isinstance(document, dict | list):
        document = _own(document, work)
    for index, operation in enumerate(operations[first : first + _STEP_OPERATIONS], first):
        try:
            document = _apply_operation(document, operation, work)
        except (PatchConflict, TypeError) as error:
            raise PatchConflict(f"operation {index}: {error}") from None
    return document


def _apply_operation(document: object, operation: Operation, work: Work) -> object:
    """Return the document after *operation*."""
    match operation.get("op"):
        case "add":
            _add(document, _text(operation, "path"), operation.get("value"), work)
        case "remove":
            _remove(document, _text(operation, "path"), work)
        case "replace":
            document = _replace(document, _text(operation, "path"), operation.get("value"), work)
        case "move":
            work.has_moved = True
            # Removed first: moving a value into its own child then finds no parent, and fails as it must.
            value = _remove(document, _text(operation, "from"), work)
            _add(document, _text(operation, "path"), value, work)
        case "copy":
            work.has_moved = True
            value = _copy(document, _text(operation, "from"), work)
            _add(document, _text(operation, "path"), value, work)
        case "test":
            _test(document, _text(operation, "path"), operation.get("value"), work)
        case op:
            raise PatchConflict(f"unexpected kind: {op[:_SHOWN_CHARS] if isinstance(op, str) else 'unknown'}")
    return document


def _own(container: _Container, work: Work) -> _Container:
    """Return *container* if it may be changed, otherwise a copy."""
    if id(container) not in work.own:
        container = container.copy()
        work.own.add(id(container))
    return container


def _text(operation: Operation, member: str) -> str:
    value = operation.get(member)
    if not isinstance(value, str):
        raise PatchConflict(f"{member!r} is missing or not a string")
    return value


def _shown(text: str) -> str:
    """Return *text* for a message, cut if it is long."""
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}...")


def _add(document: object, path: str, value: object, work: Work) -> None:
    container, token = _locate_own(document, path, work)
    if isinstance(container, dict):
        container[token] = value
    elif token == "-":
        container.append(value)
    else:
        # Negative indices count from one past the end: -1 appends.
        index = _index(token, len(container) + 1, path)
        work.shift(len(container) - index)
        container.insert(index, value)


def _replace(document: object, path: str, value: object, work: Work) -> object:
    if path == "":
        if not isinstance(value, dict | list):
            raise PatchConflict("the whole document can be replaced by an object or an array only")
        return _own(value, work)
    container, token = _locate_own(document, path, work)
    if isinstance(container, dict):
        container[token] = value
    else:
        container[_index(token, len(container), path)] = value
    return document


def _remove(document: object, path: str, work: Work) -> object:
    container, token = _locate_own(document, path, work)
    if isinstance(container, dict):
        value = container.pop(token, _ABSENT)
        if value is _ABSENT:
            raise PatchConflict(f"cannot remove {_shown(path)}: there is no such member")
        return value
    index = _index(token, len(container), path)
    work.shift(len(container) - index - 1)
    return container.pop(index)


def _copy(document: object, source: str, work: Work) -> object:
    container, token = _locate(document, source, work)
    value = _member(container, token, source)
    content = orjson.dumps(None if value is _ABSENT else value)
    work.copy(len(content))
    return orjson.loads(content)


def _test(document: object, path: str, expected: object, work: Work) -> None:
    if path == "":
        value = document
    else:
        container, token = _locate(document, path, work)
        value = _member(container, token, path)
    if not same(None if value is _ABSENT else value, expected):
        raise PatchConflict(f"testing value of {_shown(path)} failed")


def _locate(document: object, path: str, work: Work) -> tuple[_Container, str]:
    """Return the object or array that contains the target of *path*, and the last part of *path*."""
    *parents, last = work.tokens(path)
    node = document
    for token in parents:
        node = _member(node, token, path) if isinstance(node, dict | list) else _ABSENT
    return _container(node, path), last


def _locate_own(document: object, path: str, work: Work) -> tuple[_Container, str]:
    """Do as :func:`_locate`, and return a container that may be changed, as *document* itself."""
    node: Any = _container(document, path)
    *parents, last = work.tokens(path)
    own = work.own
    for token in parents:
        key = token if isinstance(node, dict) else _index(token, len(node), path)
        child = _container(node.get(key) if key is token else node[key], path)
        if id(child) not in own:
            # As _own(), in place of a call of it for each part.
            child = node[key] = child.copy()
            own.add(id(child))
        node = child
    return node, last


def _container(value: object, path: str) -> _Container:
    if isinstance(value, dict) or isinstance(value, list):  # noqa: SIM101 - a union takes three times as long
        return value
    raise PatchConflict(f"path {_shown(path)} leads through something that is missing or not a container")


def _member(container: _Container, token: str, path: str) -> object:
    if isinstance(container, dict):
        return container.get(token, _ABSENT)
    return container[_index(token, len(container), path)]


def _index(token: str, length: int, path: str) -> int:
    """Return *token* as an index from 0 to *length* - 1; negative ones count from *length*.

    The number of digits is bounded before the conversion. Go's Atoi has the range of an int as its bound.
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
