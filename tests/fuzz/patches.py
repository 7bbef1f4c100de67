"""The patch pipeline: a worker's answer to a verdict, its patch applied, and the final patch.

An input makes an object, of a recorded review or of its own bytes, and a patch against it. Two
libraries apply the gateway's own patch; one of them also applies a worker's patch if it accepts it.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final

import jsonpatch
import jsonpointer
import orjson

from admission_gateway_worker.json_patch import diff as differences
from admission_gateway_worker.json_patch import patch
from admission_gateway_worker.json_patch.diff import diff, same
from admission_gateway_worker.json_patch.patch import (
    PatchConflict,
    PatchSyntaxError,
    apply_patch,
    parse_patch,
)
from admission_gateway_worker.pb import worker_pb2
from gateway.base.errors import ReviewError
from gateway.engine.dispatch.verdicts import verdict_of
from gateway.pure.core import call, final_patch
from gateway.pure.core.decision import decide
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.matching import Selection
from gateway.pure.core.response import encode
from gateway.pure.core.review import decode
from gateway.pure.core.verdict import Allowed, Failed, FailureReason
from tests.core.build import body, document, webhook
from tests.fuzz.documents import RECORDED, edited, value, words_of
from tests.fuzz.laws import Faults, bounded
from tests.fuzz.operations import patch_for
from tests.fuzz.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MODULES: Final = (
    "workers/python/admission_gateway_worker/json_patch/patch.py",
    "workers/python/admission_gateway_worker/json_patch/diff.py",
    "gateway/pure/core/call.py",
    "gateway/engine/dispatch/verdicts.py",
)
MAX_BYTES: Final = 512
WORDS: Final = [
    *(
        b'[{"op":"',
        b'"add"',
        b'"remove"',
        b'"replace"',
        b'"copy"',
        b'"move"',
        b'"test"',
        b'"path":"/',
        b'"from":"/',
    ),
    *(
        b'"value":',
        b"}]",
        b"},{",
        b"/-",
        b"/-1",
        b"/0",
        b"~0",
        b"~1",
        b"/metadata/labels",
        b"null",
        b'""',
        b"[[[[",
    ),
]
_SMALL: Final[list[Any]] = [
    {
        "metadata": {"name": "w", "labels": {"a": "b", "a/b": "~"}},
        "spec": {"items": [1, [2, 3], {"a": None}, 4]},
    },
    {"a": [1, 2, 3, 4, 5], "b": [{"name": "x"}, {"name": "y"}, {"name": "z"}], "spec": [[], [[]], [0, -0.0]]},
    {"metadata": {}, "0": {"-": [True, 1, 1.0], "": {"": []}}, "spec": "a"},
]
_LARGE: Final = [held for held in (orjson.loads(each)["request"].get("object") for each in RECORDED) if held]
_TEXTS: Final = [list(map(orjson.dumps, documents)) for documents in (_SMALL, _LARGE)]
_KEYS: Final = words_of(*_SMALL, *_LARGE)
_WEBHOOK: Final = webhook(reinvocation_policy="Never", failure_policy="Ignore")
_PATCHING: Final = {
    FailureReason.PATCH_INVALID,
    FailureReason.PATCH_INAPPLICABLE,
    FailureReason.PATCH_REFUSED,
    FailureReason.PATCH_FORBIDDEN,
}
_LOW: Final = {"MAX_OPERATIONS": 6, "MAX_SHIFTED": 12, "MAX_PATH_PARTS": 18}
_BOUNDS: Final[Sequence[tuple[Any, Mapping[str, int]]]] = [
    (differences, _LOW),
    (patch, {**_LOW, "MAX_COPY_BYTES": 1000, "MAX_VALUES": 100}),
    (final_patch, {"MAX_FINAL_OPERATIONS": _LOW["MAX_OPERATIONS"]}),
    (call, {"MAX_GROWTH_BYTES": 1500}),
]
_faults = Faults()


def run(data: bytes) -> None:
    source = Source(data)
    with _faults, bounded(_BOUNDS if source.chance(2) else ()):
        _run(source)


def _run(source: Source) -> None:
    held: Any = orjson.loads(source.one_of(_TEXTS[source.chance(3)]))
    if source.chance(2):
        held = edited(source, held, _KEYS)
    if source.chance(8):
        held = {"spec": value(source, _KEYS)}
    if not isinstance(held, dict):
        return
    patch = source.rest() if source.chance(4) else patch_for(source, held)
    try:
        original = orjson.dumps(held)
        request = decode(body(document(object=held)))
    except (ReviewError, TypeError):
        return  # too deep for orjson
    after = _applied(original, patch)
    answer = worker_pb2.ReviewResponse(allowed=True, patch=patch).SerializeToString()
    verdict = verdict_of(worker_pb2.ReviewResponse.FromString(answer))
    assert isinstance(verdict, Allowed)
    evaluation = Evaluation(Selection("mutate", [_WEBHOOK]), request, None)
    (call,) = evaluation.start()
    evaluation.receive(call, verdict)
    assert evaluation.done
    (outcome,) = evaluation.outcomes
    response = orjson.loads(encode(request.api_version, request.uid, decide(evaluation, "Request")))[
        "response"
    ]
    assert response["allowed"] is True
    if isinstance(outcome.verdict, Failed):
        assert outcome.verdict.reason in _PATCHING
        assert len(outcome.verdict.cause) < 2000
        if outcome.verdict.reason is not FailureReason.PATCH_REFUSED:
            assert after is None or "more than" in outcome.verdict.cause or "nests" in outcome.verdict.cause
        assert "patch" not in response
        assert same(evaluation.final_object, held)
    else:
        assert after is not None, "applied to a review, and not to its object"
        assert same(evaluation.final_object, after)
        _check_final(original, after, response.get("patch"))


def _applied(original: bytes, patch: bytes) -> Any:
    """Return the object that the core's patch functions return; None if they refuse the patch."""
    try:
        operations = parse_patch(patch)
        after = apply_patch(orjson.loads(original), parse_patch(patch))
    except (PatchSyntaxError, PatchConflict, RecursionError):
        return None
    if not isinstance(after, dict):
        return None
    _check_against_jsonpatch(original, operations, after)
    return after


def _check_against_jsonpatch(original: bytes, operations: list[dict[str, Any]], after: Any) -> None:
    """If the strict library applies the patch too, its result is the same."""
    for operation in operations:
        # The API server differs from the library for the whole document and for the operation test.
        if operation.get("op") == "test" or "" in (operation.get("path"), operation.get("from")):
            return
    try:
        theirs = jsonpatch.apply_patch(orjson.loads(original), operations, in_place=True)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError, ValueError):
        return
    assert same(theirs, after)


def _check_final(original: bytes, after: Any, encoded: str | None) -> None:
    held = orjson.loads(original)
    written = b64decode(encoded) if encoded is not None else b"[]"
    operations = orjson.loads(written)
    assert bool(operations) is not same(held, after)
    assert {operation["op"] for operation in operations} <= {"add", "remove", "replace"}
    assert same(operations, orjson.loads(orjson.dumps(diff(held, after, final_patch.MAX_FINAL_OPERATIONS))))
    assert same(apply_patch(orjson.loads(original), orjson.loads(written)), after)
    assert same(jsonpatch.apply_patch(orjson.loads(original), operations, in_place=True), after)
    back = orjson.loads(orjson.dumps(diff(after, held)))
    assert same(apply_patch(after, back), held)


def seeds() -> Iterator[bytes]:
    yield b""
    for kind in range(10):
        for number in range(3):
            for path in ([0], [1, 0, 0], [2, 0, 1, 0], [3, 1, 0, 2, 1]):
                yield bytes(
                    [kind % 2, 0, number, 0, 0, 0, 2, kind, 0, *path, 11, 2, 1, 1, kind, 0, *path, 1, 1]
                )
            yield bytes(
                [kind % 2, 2, 5 * kind, 1, 3, 1, 2, 3, 4, 5, 6, 7, 1, 0, 0, 1, kind, 5, 4, 3, 2, 1, 14, 39]
            )
    for operation in (
        b'[{"op":"copy","from":"/spec","path":"/spec/a"}]',
        b'[{"op":"test","path":"/metadata/name","value":"w"},{"op":"add","path":"/spec/items/-1","value":[]}]',
        b'[{"op":"replace","path":"","value":{"a":1}}]',
        b'[{"op":"replace","path":"/a","value":[9,4]}]',
        b'[{"op":"move","from":"/metadata/labels/a~1b","path":"/spec/items/+1"}]',
        b"[null]",
    ):
        for number in range(3):
            yield bytes([number % 2, 0, number, 0, 0, 3]) + operation
