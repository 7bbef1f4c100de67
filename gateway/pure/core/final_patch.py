"""The patch that answers a review: from the object as it came to the object that the webhooks leave.

It is checked by applying it once more, by ``jsonpatch`` and to the object parsed anew. The check shares no
code with what derived the patch, nor with what applied the webhooks' patches and what these share in memory,
so it does not repeat an error of theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import jsonpatch
import orjson

from admission_gateway_worker.json_patch.diff import diff, same

if TYPE_CHECKING:
    from gateway.pure.core.review import AdmissionRequest, Json

MAX_FINAL_OPERATIONS: Final = 1000
"""The check of so many takes 10 ms. Instead of more operations, whole members are replaced."""

_OPERATIONS: Final = jsonpatch.JsonPatch.operations
"""The operations alone take 40 us for eight; ``JsonPatch`` makes each of them twice."""


def final_patch(request: AdmissionRequest, final: Json | None) -> bytes:
    """Return the JSON Patch from the object of *request* to *final*; empty if they are equal.

    Raises:
        AssertionError, jsonpatch.JsonPatchException: the patch does not give *final*, which is a bug here.
    """
    operations = diff(request.object, final, MAX_FINAL_OPERATIONS)
    if not operations:
        return b""
    patch = orjson.dumps(operations)
    found = request.fresh_object()
    for operation in orjson.loads(patch):
        found = _OPERATIONS[operation["op"]](operation).apply(found)
    is_right = orjson.dumps(found) == orjson.dumps(final) or same(found, final)
    assert is_right, f"the derived patch does not give the final object: {patch[:1000]!r}"
    return patch
