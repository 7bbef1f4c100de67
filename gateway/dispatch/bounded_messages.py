"""Worker messages from their bytes, with bounds on how many parts they have and how long each step takes.

A message of 8 MiB can hold four million warnings, causes of a denial or unknown fields, which would be
seconds of work and gigabytes of objects for the event loop. Large messages are divided at the verdicts in
them, and of a large verdict the outline is read first: which field has how many bytes. Everything here goes
in steps, so that others can go on in between.

Source: the encoding of Protocol Buffers (protobuf.dev/programming-guides/encoding); the worker contract
(protos/README.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from gateway.pb import worker_pb2

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

MAX_PARTS: Final = 20_000
"""Warnings, audit annotations and causes of one answer. A user is shown a twentieth of that at most."""

MAX_FIELDS: Final = 100_000
"""Fields in all parts of one answer, unknown ones included. A part has three at most."""

MAX_VERDICTS: Final = 100_000
"""Verdicts in one message."""

WHOLE_BYTES: Final = 64 * 1024
"""What has no more than this is parsed as it is: a millisecond or two at worst."""

_STEP_FIELDS: Final = 500
"""Of an outline, half a millisecond."""

# Field numbers.
_VERDICTS: Final = worker_pb2.VerdictBatch.VERDICTS_FIELD_NUMBER
_RESPONSE: Final = worker_pb2.Verdict.RESPONSE_FIELD_NUMBER
_ERROR: Final = worker_pb2.Verdict.ERROR_FIELD_NUMBER
_STATUS: Final = worker_pb2.ReviewResponse.STATUS_FIELD_NUMBER
_ANNOTATIONS: Final = worker_pb2.ReviewResponse.AUDIT_ANNOTATIONS_FIELD_NUMBER
_CAUSES: Final = worker_pb2.Status.CAUSES_FIELD_NUMBER

_RESOURCE_EXHAUSTED: Final = 8


class TooManyPartsError(DecodeError):
    """An answer that allows the request and has more than ``MAX_PARTS`` parts."""


def pieces(message: bytes | bytearray) -> Iterator[bytes | bytearray | memoryview]:
    """Yield *message*, a VerdictBatch, as several that together say the same, less what is too much to read.

    An empty piece is a step that made none. An answer with more than ``MAX_PARTS`` parts becomes an error in
    its place. A denial stays one, with the first of its parts: nothing that it says besides takes it back.

    Raises:
        DecodeError: *message* is no VerdictBatch, or has more than ``MAX_VERDICTS`` verdicts.
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
    """Return the answer in *message*; of a denial with more than ``MAX_PARTS`` parts the first ones.

    Yields nothing of interest, after each step.

    Raises:
        TooManyPartsError: it allows the request, and has more.
        DecodeError: *message* is no ReviewResponse.
    """
    shortened = None if len(message) <= WHOLE_BYTES else (yield from _shortened(message, 0, len(message)))
    return worker_pb2.ReviewResponse.FromString(message) if shortened is None else shortened


def _shortened_verdict(
    message: bytes | bytearray, begin: int, end: int
) -> Generator[bytes, None, worker_pb2.Verdict | None]:
    """Return what takes the place of a verdict with too many parts; None if it may stay."""
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
            # Said more than once they count as one, made of all.
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
    """Return an answer with too many parts as far as it is read; None if it is to be read as a whole."""
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
    """Return how many fields there are, or one more than ``MAX_FIELDS``."""
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
    """Yield each field: its number, where it begins, where its content begins, and where it ends.

    What has no length of its own, such as a number, ends where its content begins.
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
                raise DecodeError(f"wire type {kind}, which nobody has used for long")
        if position > end or tag >> 32:
            raise DecodeError("a field that does not end where its message does")
        yield tag >> 3, start, content, position


def _varint(message: bytes | bytearray, position: int, end: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= end:
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DecodeError("a number without an end")
