"""Parses worker messages with bounds on the number of their parts and on the time of each step.

A message of 8 MiB can contain four million warnings, causes of a denial or unknown fields: seconds of work
and gigabytes of objects for the event loop. Large messages are therefore divided at their verdicts, and a
large verdict is scanned first: which field has how many bytes. All functions run in steps, between which the
loop can do other work.

Source: the encoding of Protocol Buffers (protobuf.dev/programming-guides/encoding); the worker contract
(protos/README.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from admission_gateway_worker.pb import worker_pb2

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

MAX_PARTS: Final = 20_000
"""Warnings, audit annotations and causes of one answer. A user sees a twentieth of that at most."""

MAX_FIELDS: Final = 100_000
"""Fields in all parts of one answer, including unknown ones. A part has at most three."""

MAX_VERDICTS: Final = 100_000
"""Verdicts in one message."""

WHOLE_BYTES: Final = 64 * 1024
"""Messages up to this size are parsed at once: two milliseconds at worst."""

_STEP_FIELDS: Final = 500
"""Fields that one step scans: half a millisecond."""

# Field numbers.
_VERDICTS: Final = worker_pb2.VerdictBatch.VERDICTS_FIELD_NUMBER
_RESPONSE: Final = worker_pb2.Verdict.RESPONSE_FIELD_NUMBER
_ERROR: Final = worker_pb2.Verdict.ERROR_FIELD_NUMBER
_STATUS: Final = worker_pb2.ReviewResponse.STATUS_FIELD_NUMBER
_ANNOTATIONS: Final = worker_pb2.ReviewResponse.AUDIT_ANNOTATIONS_FIELD_NUMBER
_CAUSES: Final = worker_pb2.Status.CAUSES_FIELD_NUMBER

_RESOURCE_EXHAUSTED: Final = 8


class TooManyPartsError(DecodeError):
    """An answer that allows the request has more than ``MAX_PARTS`` parts."""


def pieces(message: bytes | bytearray) -> Iterator[bytes | bytearray | memoryview]:
    """Yield *message*, a VerdictBatch, as several smaller ones of equal meaning.

    An empty piece marks a step without a result. An answer with more than ``MAX_PARTS`` parts is replaced by
    an error; a denial keeps its first parts, because no later part can revoke it.

    Raises:
        DecodeError: *message* is not a VerdictBatch, or has more than ``MAX_VERDICTS`` verdicts.
    """
    if len(message) <= WHOLE_BYTES:
        yield message
        return
    view, begin = memoryview(message), 0
    for count, (number, start, content, end) in enumerate(_fields(message, 0, len(message)), 1):
        if count > MAX_VERDICTS:
            raise DecodeError(f"more than {MAX_VERDICTS} verdicts in a message")
        if number == _VERDICTS and end - content > WHOLE_BYTES:
            if begin < start:
                yield view[begin:start]
            verdict = yield from _shortened_verdict(message, content, end)
            short = None if verdict is None else worker_pb2.VerdictBatch(verdicts=[verdict])
            yield view[start:end] if short is None else short.SerializeToString()
            begin = end
        elif end - begin > WHOLE_BYTES:
            yield view[begin:end]
            begin = end
        elif not count % _STEP_FIELDS:
            yield b""
    if begin < len(message):
        yield view[begin:]


def read_response(message: bytes) -> Generator[bytes, None, worker_pb2.ReviewResponse]:
    """Return the answer in *message*; a denial with more than ``MAX_PARTS`` parts keeps the first ones.

    Yields after each step.

    Raises:
        TooManyPartsError: the answer allows the request, and has more parts.
        DecodeError: *message* is not a ReviewResponse.
    """
    shortened = None if len(message) <= WHOLE_BYTES else (yield from _shortened(message, 0, len(message)))
    return worker_pb2.ReviewResponse.FromString(message) if shortened is None else shortened


def _shortened_verdict(
    message: bytes | bytearray, begin: int, end: int
) -> Generator[bytes, None, worker_pb2.Verdict | None]:
    """Return the replacement of a verdict with too many parts; None if it needs none."""
    view = memoryview(message)
    answers: list[tuple[int, int]] = []
    rest: list[memoryview] = []
    inner = 0
    for count, (number, start, content, stop) in enumerate(_fields(message, begin, end)):
        if number == _ERROR:
            inner += yield from _count(message, content, stop)
        if count + inner >= MAX_PARTS:
            raise DecodeError(f"more than {MAX_PARTS} parts in a verdict")
        if number == _RESPONSE:
            answers.append((content, stop))
        else:
            rest.append(view[start:stop])
        if not count % _STEP_FIELDS:
            yield b""
    verdict = worker_pb2.Verdict()
    try:
        if len(answers) == 1:
            response = yield from _shortened(message, *answers[0])
        else:
            # Repeated occurrences of the field are merged.
            joined = b"".join(view[content:stop] for content, stop in answers)
            response = yield from _shortened(joined, 0, len(joined))
        if response is None:
            return None
        verdict.MergeFromString(b"".join(rest))
        verdict.response.CopyFrom(response)
    except TooManyPartsError as error:
        verdict.MergeFromString(b"".join(rest))
        verdict.error.code = _RESOURCE_EXHAUSTED
        verdict.error.message = str(error)
    return verdict


def _shortened(
    message: bytes | bytearray, begin: int, end: int
) -> Generator[bytes, None, worker_pb2.ReviewResponse | None]:
    """Return the first parts of an answer with too many; None if it has not too many."""
    view = memoryview(message)
    parts = inside = 0
    for number, start, content, stop in _fields(message, begin, end):
        parts += 1
        if number == _ANNOTATIONS:
            inside += yield from _count(message, content, stop)
        if parts > MAX_PARTS or inside > MAX_FIELDS:
            return _beginning(view[begin:start], view[:0])
        if number == _STATUS:
            for within, inner, text, last in _fields(message, content, stop):
                parts += 1
                if within == _CAUSES:
                    inside += yield from _count(message, text, last)
                if parts > MAX_PARTS or inside > MAX_FIELDS:
                    return _beginning(view[begin:start], view[content:inner])
                if not parts % _STEP_FIELDS:
                    yield b""
        if not parts % _STEP_FIELDS:
            yield b""
    return None


def _count(message: bytes | bytearray, begin: int, end: int) -> Generator[bytes, None, int]:
    """Return the number of fields, at most ``MAX_FIELDS`` plus one."""
    count = 0
    for count, _ in enumerate(_fields(message, begin, end), 1):
        if count > MAX_FIELDS:
            break
        if not count % _STEP_FIELDS:
            yield b""
    return count


def _beginning(answer: memoryview, status: memoryview) -> worker_pb2.ReviewResponse:
    response = worker_pb2.ReviewResponse.FromString(answer)  # type: ignore[arg-type] # a buffer will do
    if response.allowed:
        raise TooManyPartsError(f"an answer with more than {MAX_PARTS} warnings and annotations")
    response.status.MergeFromString(status)  # type: ignore[arg-type]
    return response


def _fields(message: bytes | bytearray, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield each field: its number, its start, the start of its content, and its end.

    A field without a length, such as a number, has no content: it ends where that would start.
    """
    while position < end:
        start = position
        tag, position = _varint(message, position, end)
        match tag & 7:
            case 2:
                length, content = _varint(message, position, end)
                position = content + length
            case 0:
                content = position = _varint(message, position, end)[1]
            case 1:
                content = position = position + 8
            case 5:
                content = position = position + 4
            case kind:
                raise DecodeError(f"unsupported wire type {kind}")
        if position > end or tag >> 32:
            raise DecodeError("a field that exceeds its message")
        yield tag >> 3, start, content, position


def _varint(message: bytes | bytearray, position: int, end: int) -> tuple[int, int]:
    """Return a varint and its end."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= end:
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DecodeError("a varint that does not end")
