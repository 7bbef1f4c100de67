"""JSON Patches of mutations, applied as by the API server and with its messages.

``admission_gateway_worker.json_patch`` applies the operations, like those of webhooks. Two rules differ: a
``test`` that fails makes the whole mutation void, and a ``test`` for null finds empty objects and arrays,
while one without a value finds null.

Source: k8s.io/apiserver pkg/admission/plugin/policy/mutating/patch/json_patch.go; evanphx/json-patch v4
patch.go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from admission_gateway_worker.json_patch.diff import MAX_OPERATIONS
from admission_gateway_worker.json_patch.patch import (
    MAX_LEVELS,
    PatchConflict,
    Work,
    apply_patch,
)
from gateway.pure.admission_policies.values import PatchError, Room, check_type_names, json_value
from gateway.pure.cel.meter import count_steps
from gateway.pure.cel.values import ESCAPES, Struct, quoted

if TYPE_CHECKING:
    from gateway.pure.core.review import Json

    Operation = dict[str, Any]

_MISSING: Final = "missing value"
_BAD_INDEX: Final = "invalid index referenced"
_JSON_ESCAPES: Final = frozenset('bfnrtu\\"')
_INDEX: Final = re.compile(r"[+-]?[0-9]+")
MAX_PATH_CHARS: Final = 64 * 1024
"""The length of a path, which is read several times, and which messages quote."""
_PATH_CHARACTER: Final = 100
"""Steps to read a character of a path."""
_MEMBER: Final = 10
"""Bytes of a member beside its name and value, and of a value that is missing, which is null."""
_KINDS: Final = frozenset({"add", "remove", "replace", "move", "copy", "test"})


class _TestFailedError(Exception):
    """A ``test`` found another value."""


def operations_of(value: object) -> tuple[list[Operation], int]:
    """Return the operations in *value*, a list of ``JSONPatch``, and the bytes of their paths and values.

    Raises:
        PatchError: a value has no JSON form, or a name in it is wrong, or the values are too large together.
        CostExceeded: the values have too many parts.
    """
    if not isinstance(value, list):
        raise PatchError("type mismatch: JSONPatchType.expression should evaluate to array")
    found: list[Operation] = []
    room = Room("JSON Patch")
    taken = 0
    for each in value:
        if not isinstance(each, Struct):
            raise PatchError("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
        fields = each.fields
        operation: Operation = {"op": fields.get("op", ""), "path": fields.get("path", "")}
        if fields.get("from"):
            operation["from"] = fields["from"]
        _check_size(operation["path"])
        _check_size(operation.get("from", ""))
        taken += len(operation["path"]) + _MEMBER
        if "value" in fields:
            taken += room.take(fields["value"])
            if isinstance(fields["value"], Struct):
                check_type_names(fields["value"])
            try:
                operation["value"] = json_value(fields["value"])
            except PatchError as error:
                problem = "JSONPath valueExpression evaluated to a type that could not marshal to JSON"
                raise PatchError(f"{problem}: {error}") from None
            _check_json(operation["value"])
        found.append(operation)
    return found, taken


def _check_size(path: str) -> None:
    """Count the characters of *path* in steps.

    Raises:
        PatchError: it has too many characters or parts.
        CostExceeded: there are too many steps.
    """
    if len(path) > MAX_PATH_CHARS:
        found = f"has {len(path)} characters, and at most {MAX_PATH_CHARS} are allowed"
    elif path.count("/") > MAX_LEVELS:
        found = f"has {path.count('/')} parts, and at most {MAX_LEVELS} are allowed"
    else:
        count_steps(len(path) * _PATH_CHARACTER)
        return
    raise PatchError(f"JSON Patch: a path {found}")


def _check_json(value: object) -> None:
    try:
        orjson.dumps(value)
    except TypeError as error:
        raise PatchError(f"JSON Patch: a value has no JSON form: {error}") from None


def apply(document: Json, operations: list[Operation]) -> Json:
    """Return *document* after *operations*; *document* itself if a ``test`` fails. It is not changed.

    Raises:
        PatchError: an operation does not apply.
    """
    if len(operations) > MAX_OPERATIONS:
        found = f"has {len(operations)} operations, and at most {MAX_OPERATIONS} are applied"
        raise PatchError(f"JSON Patch: {found}")
    work = Work()
    current = document
    try:
        for operation in operations:
            current = _applied(current, operation, work)
    except _TestFailedError:
        return document
    if not isinstance(current, dict):
        raise PatchError("JSON Patch: it leaves an array where the object was")
    return current


def _applied(document: Json, operation: Operation, work: Work) -> Json:
    kind, path = operation["op"], operation["path"]
    if problem := _unreadable(operation):
        raise PatchError(f"JSON Patch: {problem}")
    if kind in ("move", "copy") and _unreadable_path(operation):
        raise _error(document, operation, "")
    value = operation.get("value")
    if kind == "test" and value is None and (found := _member(document, path)) is not _NO_PLACE:
        if found in (({}, []) if "value" in operation else (None, _ABSENT)):
            return document
        raise _TestFailedError
    if kind == "replace" and path == "" and not isinstance(value, dict | list):
        raise PatchError("JSON Patch: replace operation value must be object or array: %!w(<nil>)")
    source = operation.get("from", "") if kind == "move" and id(document) in work.own else ""
    moved = _part(_parent(document, source), _parts(source)[-1]) if "/" in source else _ABSENT
    try:
        return cast("Json", apply_patch(document, [operation], work))
    except PatchConflict as error:
        if moved is not _ABSENT:
            # It has been removed already when it is found that there is no place for it.
            apply_patch(document, [{"op": "add", "path": source, "value": moved}], work)
        raise _error(document, operation, str(error).partition(": ")[2]) from None


def _unreadable(operation: Operation) -> str:
    """Return the message about an operation that the API server's library cannot read, or "".

    The path of a move or copy is read after the value at ``from``, see :func:`_error`.
    """
    kind, source = operation["op"], operation.get("from")
    if _escape(kind) or kind not in _KINDS:
        return f"Unexpected kind: {'unknown' if _escape(kind) else kind}"
    if kind not in ("move", "copy"):
        return _unreadable_path(operation)
    if source is None:
        return f"{kind} operation failed to decode from: operation, missing from field: {_MISSING}"
    problem = _escape(source)
    return f"{kind} operation failed to decode from: {problem}" if problem else ""


def _unreadable_path(operation: Operation) -> str:
    kind, problem = operation["op"], _escape(operation["path"])
    cause = problem if kind in ("replace", "move", "test") else _MISSING
    return f"{kind} operation failed to decode path: {cause}" if problem else ""


def _escape(text: str) -> str:
    """Return the problem of *text* as JSON, or "".

    The API server quotes texts as Go does, with escapes that JSON does not know.
    """
    if text.isprintable():
        return ""
    escapes = (ESCAPES.get(each, quoted(each)[1:3])[1] for each in text if not each.isprintable())
    wrong = next((each for each in escapes if each not in _JSON_ESCAPES), None)
    return f"invalid character '{wrong}' in string escape code" if wrong else ""


_ABSENT: Final = object()
_NO_PLACE: Final = object()


def _parts(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _parent(document: object, path: str) -> object:
    """Return the object or array that the last part of *path* is in, or None."""
    *parents, _ = _parts(path) or [""]
    found = document if "/" in path else None
    for part in parents:
        found = _part(found, part)
    return found if isinstance(found, dict | list) else None


def _part(container: object, key: str) -> object:
    if isinstance(container, dict):
        return container.get(key, _ABSENT)
    if isinstance(container, list) and _INDEX.fullmatch(key) and len(key) <= 20:
        index = int(key)
        if -len(container) <= index < len(container):
            return container[index]
    return _ABSENT


def _member(document: object, path: str) -> object:
    """Return the value at *path*, ``_ABSENT`` for a member that its object lacks, or ``_NO_PLACE``."""
    parent = _parent(document, path)
    if parent is None or _index_problem(parent, path):
        return _NO_PLACE
    return _part(parent, _parts(path)[-1])


def _error(document: Json, operation: Operation, cause: str) -> Exception:
    """Return the exception for *operation*, which does not apply to *document* because of *cause*."""
    kind, path = operation["op"], operation["path"]
    target: str = operation["from"] if kind in ("move", "copy") else path
    parent = _parent(document, target)
    at = f"for path: '{path}'"
    if kind == "test":
        if path == "":
            return _TestFailedError()
        if parent is None:
            return _failed(f"test operation does not apply: is missing path: {path}: {_MISSING}")
        problem = _index_problem(parent, path)
        return _failed(f"error in test {at}: {problem}") if problem else _TestFailedError()
    key = (_parts(target) or [""])[-1]
    if parent is None:
        shown = {"add": f'path: "{path}"', "remove": f'path: "{path}"', "replace": f"path: {path}"}
        what = shown.get(kind, f"from path: {target}")
        return _failed(f"{kind} operation does not apply: doc is missing {what}: {_MISSING}")
    if kind in ("move", "copy"):
        return _transfer_error(document, operation, cause)
    if kind == "replace":
        return _failed(f"replace operation does not apply: doc is missing key: {path}: {_MISSING}")
    if kind == "remove":
        problem = _index_problem(parent, path) or f"Unable to remove nonexistent key: {key}: {_MISSING}"
        return _failed(f"error in remove {at}: {problem}")
    return _failed(_add_problem(document, operation) or cause)


def _transfer_error(document: Json, operation: Operation, cause: str) -> PatchError:
    """Return the exception for a move or copy, whose ``from`` leads to an object or array of *document*."""
    kind, path, source = operation["op"], operation["path"], operation["from"]
    parent, key = _parent(document, source), _parts(source)[-1]
    if problem := _index_problem(parent, source):
        named = f"path: '{key}'" if kind == "move" else f"from: '{source}'"
        return _failed(f"error in {kind} for {named}: {problem}")
    if kind == "move" and isinstance(parent, dict) and key not in parent:
        problem = f"Unable to remove nonexistent key: {key}: {_MISSING}"
        return _failed(f"error in move for path: '{key}': {problem}")
    if problem := _unreadable_path(operation):
        return _failed(problem)
    if kind == "move":
        removal: Operation = {"op": "remove", "path": source}
        document = cast("Json", apply_patch(document, [removal]))
    if _parent(document, path) is None:
        problem = f"doc is missing destination path: {path}"
        return _failed(f"{kind} operation does not apply: {problem}: {_MISSING}")
    return _failed(_add_problem(document, operation) or cause)


def _failed(message: str) -> PatchError:
    return PatchError(f"JSON Patch: {message}")


def _add_problem(document: Json, operation: Operation) -> str:
    kind, path = operation["op"], operation["path"]
    parent, key = _parent(document, path), _parts(path)[-1]
    length = len(parent) + 1 if isinstance(parent, list) else 0
    problem = _index_problem(parent, path, length)
    if not problem:
        return ""
    if problem.startswith("strconv"):
        problem = f"value was not a proper array index: '{key}': {problem}"
    if kind == "copy":
        return f"error while adding value during copy: {problem}"
    return f"error in {kind} for path: '{path}': {problem}"


def _index_problem(container: object, path: str, length: int | None = None) -> str:
    """Return why *path* ends in no index of *container*, or "" if it does, or that is not an array."""
    key = _parts(path)[-1]
    if not isinstance(container, list):
        return ""
    if not _INDEX.fullmatch(key):
        return f"strconv.Atoi: parsing {quoted(key)}: invalid syntax"
    index = int(key)
    if not -(1 << 63) <= index < 1 << 63:
        return f"strconv.Atoi: parsing {quoted(key)}: value out of range"
    length = len(container) if length is None else length
    return "" if -length <= index < length else f"Unable to access invalid index: {index}: {_BAD_INDEX}"
