"""The patch that answers a review: from the object as it came to the object that the webhooks leave.

It is checked by applying it once more, to the object parsed anew and by the letter of RFC 6902. The check
shares no code with what derived the patch, nor with what applied the webhooks' patches and what these share
in memory, so it does not repeat an error of theirs. tests/properties compares it with ``jsonpatch``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.core.diff import diff, same

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.core.review import AdmissionRequest, Json

MAX_FINAL_OPERATIONS: Final = 1000
"""Instead of more operations, whole members are replaced."""


def final_patch(request: AdmissionRequest, final: Json | None) -> bytes:
    """Return the JSON Patch from the object of *request* to *final*; empty if they are equal.

    Raises:
        AssertionError, LookupError, ValueError: the patch does not give *final*, which is a bug here.
    """
    operations = diff(request.object, final, MAX_FINAL_OPERATIONS)
    if not operations:
        return b""
    patch = orjson.dumps(operations)
    found = apply_strictly(request.fresh_object(), orjson.loads(patch))
    is_right = orjson.dumps(found) == orjson.dumps(final) or same(found, final)
    assert is_right, f"the derived patch does not give the final object: {patch[:1000]!r}"
    return patch


def apply_strictly(document: Any, operations: Iterable[Json]) -> Any:  # noqa: ANN401 - JSON of any type
    """Return *document* after ``add``, ``remove`` and ``replace``; both may be changed.

    Raises:
        AssertionError, LookupError, ValueError: an operation is another one, or does not apply.
    """
    for operation in operations:
        op, path = operation["op"], str(operation["path"])
        assert op in ("add", "remove", "replace")
        if path == "":
            assert op == "replace"
            document = operation["value"]
            continue
        start, *parents, last = path.split("/")
        assert start == ""
        node = document
        for token in parents:
            node = node[_index(token, len(node))] if type(node) is list else node[_unescaped(token)]
        if type(node) is list:
            index = _index(last, len(node) + (op == "add"))
            if op == "add":
                node.insert(index, operation["value"])
            elif op == "replace":
                node[index] = operation["value"]
            else:
                del node[index]
        else:
            name = _unescaped(last)
            assert (name in node) is (op != "add")
            if op == "remove":
                del node[name]
            else:
                node[name] = operation["value"]
    return document


def _index(token: str, length: int) -> int:
    index = int(token)
    assert token == str(index)
    assert 0 <= index < length
    return index


def _unescaped(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")
