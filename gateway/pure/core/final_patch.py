"""The patch that answers a review: from the object as it came to the object that the webhooks leave.

Every patch is checked: it is read back from its JSON, and applied once more by code of this module alone, so
that the check does not repeat an error of what derived the patch or of what applied the webhooks' patches.
For a sample of the reviews, and for large ones, ``jsonpatch`` applies it to the object parsed anew. That also
finds an error in what the objects share in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import jsonpatch
import orjson

from admission_gateway_worker.json_patch.diff import diff, same
from gateway.pure.core.call import MAX_KEPT_BYTES

if TYPE_CHECKING:
    from gateway.pure.core.review import AdmissionRequest, Json

MAX_FINAL_OPERATIONS: Final = 1000
"""The check of so many takes 10 ms. Instead of more operations, whole members are replaced."""

SAMPLE = 64
"""One of so many reviews is checked by ``jsonpatch``, chosen by its uid. The tests set it to 1."""

_OPERATIONS: Final = jsonpatch.JsonPatch.operations
"""The operations alone take 40 us for eight; ``JsonPatch`` makes each of them twice."""

_ERRORS: Final = (AssertionError, AttributeError, LookupError, TypeError, ValueError)
_ABSENT: Final = object()


def final_patch(request: AdmissionRequest, final: Json | None) -> bytes:
    """Return the JSON Patch from the object of *request* to *final*; empty if they are equal.

    Raises:
        AssertionError: the patch does not give *final*, which is a bug here.
    """
    before = request.object
    operations = diff(before, final, MAX_FINAL_OPERATIONS)
    if not operations:
        return b""
    patch = orjson.dumps(operations)
    try:
        _check(request, orjson.loads(patch), before, final)
    except (*_ERRORS, jsonpatch.JsonPatchException) as error:
        shown = f"{patch[:1000]!r}: {type(error).__name__}: {error}"
        raise AssertionError(f"the derived patch does not give the final object: {shown}") from error
    return patch


def _check(
    request: AdmissionRequest, operations: list[Json], before: Json | None, final: Json | None
) -> None:
    is_large = len(request.json) > MAX_KEPT_BYTES
    assert is_large or _is_same(_applied(before, operations), final)
    if is_large or crc32(request.uid.encode()) % SAMPLE == 0:
        found = request.fresh_object()
        for operation in operations:
            found = _OPERATIONS[operation["op"]](operation).apply(found)
        assert orjson.dumps(found) == orjson.dumps(final) or same(found, final)


def _applied(document: object, operations: list[Json]) -> object:
    """Return *document* after *operations*, which ``diff`` made. It is not changed.

    Raises:
        AssertionError, KeyError and others: an operation does not apply.
    """
    held: list[Any] = [document]
    copied: set[int] = set()
    for operation in operations:
        container: Any = held
        key: Any = 0
        for part in operation["path"].split("/")[1:]:
            child = container[key]
            if id(child) not in copied:
                child = container[key] = child.copy()
                copied.add(id(child))
            container = child
            if type(child) is list:
                key = int(part)
            else:
                key = part.replace("~1", "/").replace("~0", "~") if "~" in part else part
        kind = operation["op"]
        if kind == "remove":
            del container[key]
        elif kind == "add" and type(container) is list:
            assert 0 <= key <= len(container)
            container.insert(key, operation["value"])
        else:
            assert kind in ("add", "replace")
            if kind == "replace":
                container[key]  # it has to be there
            container[key] = operation["value"]
    return held[0]


def _is_same(left: Any, right: Any) -> bool:  # noqa: ANN401 - any JSON
    """Whether two JSON values are equal; fast where they are one value in memory."""
    kind = type(left)
    if kind is not type(right):
        return False
    if kind is dict:
        if len(left) != len(right):
            return False
        for key, value in left.items():
            other = right.get(key, _ABSENT)
            if other is not value:
                # A text equals nothing but a text.
                is_equal = value == other if type(value) is str else _is_same(value, other)
                if not is_equal:
                    return False
        return True
    if kind is list:
        if len(left) != len(right):
            return False
        return all(one is other or _is_same(one, other) for one, other in zip(left, right, strict=True))
    return bool(left == right)
