"""Worker messages from their bytes, with a bound on how many parts one answer has.

A message of 8 MiB can hold four million warnings or causes of a denial, which would be seconds of work and
gigabytes of objects for the event loop. Only large messages are looked at before they are parsed, and of
these only the outline: which field has how many bytes.

Source: the encoding of Protocol Buffers (protobuf.dev/programming-guides/encoding); the worker contract
(protos/README.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from gateway.pb import worker_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PARTS: Final = 20_000
"""Warnings, audit annotations and causes of one answer. A user is shown a twentieth of that at most."""

MAX_VERDICTS: Final = 100_000
"""Verdicts in one message."""

_UNSEEN_BYTES: Final = 64 * 1024
"""What has no more than this is parsed as it is."""

# Field numbers.
_VERDICTS: Final = worker_pb2.VerdictBatch.VERDICTS_FIELD_NUMBER
_RESPONSE: Final = worker_pb2.Verdict.RESPONSE_FIELD_NUMBER
_STATUS: Final = worker_pb2.ReviewResponse.STATUS_FIELD_NUMBER

_RESOURCE_EXHAUSTED: Final = 8

UNREADABLE: Final = b"\xff"


class TooManyPartsError(DecodeError):
    """An answer that allows the request and has more than ``MAX_PARTS`` parts."""


def bounded(message: bytes) -> bytes:
    """Return *message*, a VerdictBatch, without what would be too much to read.

    An answer with more than ``MAX_PARTS`` parts is an error in its place. A denial stays one, with the first
    of its parts: nothing that it says besides takes it back. What has more than ``MAX_VERDICTS`` verdicts, or
    is no VerdictBatch, becomes something that nobody takes for one. Never raises.
    """
    if len(message) <= _UNSEEN_BYTES:
        return message
    try:
        return _bounded(message)
    except DecodeError:
        return UNREADABLE


def _bounded(message: bytes) -> bytes:
    kept: list[bytes] = []
    begin = 0
    for count, (number, start, content, end) in enumerate(_fields(message, 0, len(message))):
        if count == MAX_VERDICTS:
            raise DecodeError(f"more than {MAX_VERDICTS} verdicts in a message")
        if number == _VERDICTS and end - content > _UNSEEN_BYTES:
            verdict = _shortened_verdict(message, content, end)
            if verdict is not None:
                batch = worker_pb2.VerdictBatch(verdicts=[verdict])
                kept += [message[begin:start], batch.SerializeToString()]
                begin = end
    return b"".join([*kept, message[begin:]]) if kept else message


def read_response(message: bytes) -> worker_pb2.ReviewResponse:
    """Return the answer in *message*; of a denial with more than ``MAX_PARTS`` parts the first ones.

    Raises:
        TooManyPartsError: it allows the request, and has more.
        DecodeError: *message* is no ReviewResponse.
    """
    shortened = None if len(message) <= _UNSEEN_BYTES else _shortened(message)
    return worker_pb2.ReviewResponse.FromString(message) if shortened is None else shortened


def _shortened_verdict(message: bytes, begin: int, end: int) -> worker_pb2.Verdict | None:
    """Return what takes the place of a verdict with too many parts; None if it may stay."""
    answer: list[bytes] = []
    rest: list[bytes] = []
    for count, (number, start, content, stop) in enumerate(_fields(message, begin, end)):
        if count == MAX_PARTS:
            raise DecodeError(f"more than {MAX_PARTS} parts in a verdict")
        # Said more than once they count as one, made of all.
        if number == _RESPONSE:
            answer.append(message[content:stop])
        else:
            rest.append(message[start:stop])
    verdict = worker_pb2.Verdict()
    try:
        response = _shortened(b"".join(answer))
        if response is None:
            return None
        verdict.MergeFromString(b"".join(rest))
        verdict.response.CopyFrom(response)
    except TooManyPartsError as error:
        verdict.MergeFromString(b"".join(rest))
        verdict.error.code = _RESOURCE_EXHAUSTED
        verdict.error.message = str(error)
    return verdict


def _shortened(answer: bytes) -> worker_pb2.ReviewResponse | None:
    """Return an answer with too many parts as far as it is read; None if it is to be read as a whole."""
    count = 0
    for number, start, content, end in _fields(answer, 0, len(answer)):
        count += 1
        if count > MAX_PARTS:
            return _beginning(answer[:start], b"")
        if number == _STATUS:
            for _, inner, _, _ in _fields(answer, content, end):
                count += 1
                if count > MAX_PARTS:
                    return _beginning(answer[:start], answer[content:inner])
    return None


def _beginning(answer: bytes, status: bytes) -> worker_pb2.ReviewResponse:
    response = worker_pb2.ReviewResponse.FromString(answer)
    if response.allowed:
        raise TooManyPartsError(f"an answer with more than {MAX_PARTS} warnings and annotations")
    response.status.MergeFromString(status)
    return response


def _fields(message: bytes, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
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


def _varint(message: bytes, position: int, end: int) -> tuple[int, int]:
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
