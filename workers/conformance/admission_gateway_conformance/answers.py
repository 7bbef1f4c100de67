"""Comparison and description of answers.

Two answers are equal if they mean the same: all fields are equal, and their patches lead to the same object.
The order of map entries is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
import orjson

from admission_gateway_conformance.rule import Violation
from admission_gateway_worker.json_patch.patch import (
    PatchConflict,
    PatchSyntaxError,
    apply_patch,
    parse_patch,
)
from admission_gateway_worker.pb import worker_pb2 as pb
from gateway.base.text import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

Answer = pb.ReviewResponse | pb.Error

_NAMES: Final = {code.value[0]: code.name for code in grpc.StatusCode}


def code_name(answer: Answer) -> str:
    """Return the name of the gRPC status of *answer*; OK for a response."""
    return _NAMES.get(answer.code, f"code {answer.code}") if isinstance(answer, pb.Error) else "OK"


def kind(answer: Answer) -> str:
    """Return ``allowed``, ``denied`` or the name of the status."""
    if isinstance(answer, pb.Error):
        return code_name(answer)
    return "allowed" if answer.allowed else "denied"


def describe(answer: Answer) -> str:
    """Return a one-line description of *answer*."""
    if isinstance(answer, pb.Error):
        return f"{code_name(answer)} {shown(answer.message)}"
    words = [kind(answer)]
    if not answer.allowed:
        words.append(f"{answer.status.code} {shown(answer.status.message)}")
    if answer.patch:
        words.append(f"a patch of {len(answer.patch)} bytes")
    for count, what in ((len(answer.warnings), "warning"), (len(answer.audit_annotations), "annotation")):
        if count:
            words.append(f"{count} {what}{'s' if count > 1 else ''}")
    return ", ".join(words)


def object_after(answer: pb.ReviewResponse, request: bytes) -> object:
    """Return the object that *answer* makes of the object in *request*; None if *request* has none.

    *request* is the JSON of an AdmissionRequest.

    Raises:
        PatchConflict: the patch does not apply.
        PatchSyntaxError: the patch is not a JSON Patch.
    """
    found = orjson.loads(request).get("object")
    return apply_patch(found, parse_patch(answer.patch)) if answer.patch else found


def difference(found: Answer, expected: Answer, request: bytes) -> tuple[str, str] | None:
    """Compare two answers to *request*, the JSON of an AdmissionRequest.

    Returns the first field that differs, with the value of each answer; None if the answers are equal.
    """
    for (what, one), (_, other) in zip(_parts(found, request), _parts(expected, request), strict=False):
        if one != other:
            return f"{what} {_cut(one, other)}", f"{what} {_cut(other, one)}"
    return None


def expect_same(action: str, found: Answer, expected: Answer, request: bytes) -> None:
    """Raise a Violation if the answer *found* to *request* differs from *expected*."""
    differing = difference(found, expected, request)
    if differing is not None:
        raise Violation(action, *differing)


def expect_kind(action: str, found: Answer, *expected: str) -> None:
    """Raise a Violation unless the kind of *found* is one of *expected*."""
    if kind(found) not in expected:
        raise Violation(action, describe(found), " or ".join(expected))


def _parts(answer: Answer, request: bytes) -> Iterator[tuple[str, object]]:
    yield "", kind(answer)
    if isinstance(answer, pb.Error):
        yield "details", answer.message
        return
    status = answer.status
    yield "code", status.code
    yield "reason", status.reason
    yield "message", status.message
    yield "causes", [f"{cause.field}: {cause.reason}: {cause.message}" for cause in status.causes]
    yield "retry_after_seconds", status.retry_after_seconds
    yield "name", status.name
    yield "group", status.group
    yield "kind", status.kind
    yield "uid", status.uid
    yield "object", _object_text(answer, request)
    yield "warnings", list(answer.warnings)
    yield "auditAnnotations", dict(sorted(answer.audit_annotations.items()))
    yield "parameters_applied", answer.parameters_applied


def _object_text(answer: pb.ReviewResponse, request: bytes) -> str:
    """Return the JSON of the object that *answer* leads to, with sorted keys, or why there is none."""
    try:
        return orjson.dumps(object_after(answer, request), option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONDecodeError:
        return "none, the request is malformed"
    except (PatchConflict, PatchSyntaxError) as error:
        return f"none, the patch does not apply: {error}"


def _cut(value: object, other: object) -> str:
    """Return *value* in one line; of a long text the part around the first difference from *other*."""
    if isinstance(value, str) and isinstance(other, str) and len(value) > 60:
        same = next((i for i, (a, b) in enumerate(zip(value, other, strict=False)) if a != b), len(other))
        start = max(0, same - 20)
        return f"{shown(value[start : start + 70])} (from character {start} on)" if start else shown(value)
    return shown(value)
