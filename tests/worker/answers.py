"""Large and expensive answers, by the name of the function that makes one. They are made once.

A message may have up to 8 MiB, the limit of the gateway.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from admission_gateway_worker.pb import worker_pb2
from tests.frames import varint

ROOM = 8 * 1024 * 1024 - 1024
"""Size of an answer whose message stays below the limit."""

Answer = Callable[[], worker_pb2.ReviewResponse | bytes]
ANSWERS: dict[str, Answer] = {}


def answer(make: Answer) -> Answer:
    ANSWERS[make.__name__] = make
    return make


def allowed(**fields: Any) -> worker_pb2.ReviewResponse:
    return worker_pb2.ReviewResponse(allowed=True, **fields)


def denied(**fields: Any) -> worker_pb2.ReviewResponse:
    return worker_pb2.ReviewResponse(status=worker_pb2.Status(code=403, **fields))


def patched(*operations: dict[str, Any]) -> worker_pb2.ReviewResponse:
    return allowed(patch=json.dumps(operations).encode())


def filled(item: bytes, before: bytes = b"[", after: bytes = b"]") -> worker_pb2.ReviewResponse:
    """Return a patch with as many *item* as fit."""
    count = (ROOM - len(before) - len(after)) // (len(item) + 1)
    return allowed(patch=before + b",".join([item] * count) + after)


def written(*pieces: bytes) -> bytes:
    """Return an answer that is assembled from bytes, because protobuf would take too long."""
    return b"".join(pieces)


# -- warnings, annotations, messages ----------------------------------------------------------------


@answer
def empty_warnings() -> worker_pb2.ReviewResponse:
    return allowed(warnings=[""] * (ROOM // 2))


@answer
def short_warnings() -> worker_pb2.ReviewResponse:
    return allowed(warnings=["w"] * (ROOM // 3))


@answer
def long_warning() -> worker_pb2.ReviewResponse:
    return allowed(warnings=["w" * ROOM])


@answer
def long_control_characters() -> worker_pb2.ReviewResponse:
    return allowed(warnings=["w" * (ROOM - 100) + "\n", "read me"])


@answer
def many_annotations() -> bytes:
    entries = (b"\x0a" + varint(len(key)) + key for key in (b"k%d" % number for number in range(500_000)))
    return written(b"\x08\x01", *(b"\x22" + varint(len(entry)) + entry for entry in entries))


@answer
def long_annotation() -> worker_pb2.ReviewResponse:
    return allowed(audit_annotations={"k": "v" * ROOM})


@answer
def bad_annotations() -> worker_pb2.ReviewResponse:
    return allowed(audit_annotations={f"-{number}": "" for number in range(19_000)})


@answer
def long_denial() -> worker_pb2.ReviewResponse:
    return denied(message="\x00" * ROOM)


@answer
def long_reason() -> worker_pb2.ReviewResponse:
    return denied(reason="r" * ROOM)


@answer
def causes() -> bytes:
    status = worker_pb2.Status(code=403, message="no").SerializeToString() + b"\x22\x00" * (ROOM // 2 - 100)
    return written(b"\x12", varint(len(status)), status)


@answer
def denied_with_warnings() -> worker_pb2.ReviewResponse:
    response = denied(message="no")
    response.warnings.extend(["w"] * (ROOM // 3))
    return response


# -- patches ----------------------------------------------------------------------------------------


@answer
def empty_operations() -> worker_pb2.ReviewResponse:
    return filled(b"{}")


@answer
def null_operations() -> worker_pb2.ReviewResponse:
    return filled(b"null")


@answer
def test_operations() -> worker_pb2.ReviewResponse:
    return filled(b'{"op":"test","path":"","value":1}')


@answer
def values() -> worker_pb2.ReviewResponse:
    return filled(b"{}", b'[{"op":"add","path":"/spec/x","value":[', b"]}]")


@answer
def nested_values() -> worker_pb2.ReviewResponse:
    return filled(b"1.5", b'[{"op":"add","path":"/spec/x","value":' + b"[" * 200, b"]" * 200 + b"}]")


@answer
def too_deep() -> worker_pb2.ReviewResponse:
    return allowed(patch=b'[{"op":"add","path":"/spec/x","value":' + b"[" * 600 + b"]" * 600 + b"}]")


@answer
def much_too_deep() -> worker_pb2.ReviewResponse:
    return allowed(patch=b"[" * ROOM)


@answer
def copies() -> worker_pb2.ReviewResponse:
    source = "/metadata/annotations"
    double = [{"op": "copy", "from": source, "path": f"{source}/{number}"} for number in range(64)]
    return patched({"op": "add", "path": source, "value": {"a": "b"}}, *double)


@answer
def many_copies() -> worker_pb2.ReviewResponse:
    text = {"op": "add", "path": "/metadata/annotations", "value": {"a": "b" * 1_000_000}}
    return patched(
        text, *[{"op": "copy", "from": "/metadata/annotations/a", "path": f"/spec/{n}"} for n in range(9000)]
    )


@answer
def inserts_at_the_head() -> worker_pb2.ReviewResponse:
    many = {"op": "add", "path": "/spec/x", "value": [0] * 400_000}
    return patched(many, *[{"op": "add", "path": "/spec/x/0", "value": 0}] * 9000)


@answer
def moves() -> worker_pb2.ReviewResponse:
    many = {"op": "add", "path": "/spec/x", "value": [0] * 400_000}
    return patched(many, *[{"op": "move", "from": "/spec/x/0", "path": "/spec/x/-"}] * 9000)


@answer
def long_path() -> worker_pb2.ReviewResponse:
    return patched({"op": "remove", "path": "/spec/" + "x" * (ROOM - 100)})


@answer
def deep_path() -> worker_pb2.ReviewResponse:
    return patched({"op": "add", "path": "/" * (ROOM - 100), "value": 1})


@answer
def huge_index() -> worker_pb2.ReviewResponse:
    return patched({"op": "add", "path": "/spec/containers/" + "9" * (ROOM - 100), "value": 1})


@answer
def huge_number() -> worker_pb2.ReviewResponse:
    return allowed(patch=b'[{"op":"add","path":"/spec/x","value":' + b"9" * (ROOM - 100) + b"}]")


@answer
def not_a_number() -> worker_pb2.ReviewResponse:
    return allowed(patch=b'[{"op":"add","path":"/spec/x","value":NaN}]')


@answer
def too_large() -> worker_pb2.ReviewResponse:
    return patched({"op": "add", "path": "/spec/x", "value": "x" * (ROOM - 100)})


# -- valid, but unusual -----------------------------------------------------------------------------


@answer
def many_labels() -> worker_pb2.ReviewResponse:
    """Return a valid patch with more changes than the final patch may have."""
    first, last = ({f"l{n}": value for n in range(30_000)} for value in ("v", "w"))
    return patched(
        {"op": "add", "path": "/metadata/labels", "value": first},
        {"op": "replace", "path": "/metadata/labels", "value": last},
    )


@cache
def message(name: str) -> bytes:
    """Return the ReviewResponse of that name."""
    made = ANSWERS[name]()
    return made if isinstance(made, bytes) else made.SerializeToString()
