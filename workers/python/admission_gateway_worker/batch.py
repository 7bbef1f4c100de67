"""Reads a ReviewBatch; the items of a long one are counted in its bytes before objects are made of them.

An empty payload takes two bytes of a message and a hundred as an object, so that one message of the greatest
length would take gigabytes.

Source: protos/README.md, section Bounds of a worker; protobuf.dev, section Encoding.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from admission_gateway_worker.parameters import MAX_ID
from admission_gateway_worker.pb import worker_pb2 as pb

MAX_PAYLOADS: Final = 4096
MAX_CALLS: Final = 8192
"""Twice the limit of calls in flight: those above it are refused one by one, which takes time too."""
MAX_CANCELLED: Final = 4096
MAX_FIELDS: Final = 65_536
"""Fields of a message, those of later versions of the contract included: counting them takes 15 ms."""

_BOUNDS: Final = {
    1: ("payloads", MAX_PAYLOADS),
    2: ("calls", MAX_CALLS),
    3: ("cancelled ids", MAX_CANCELLED),
    4: ("parameters", MAX_ID),
}
_LEAST_BOUND: Final = min(bound for _, bound in _BOUNDS.values())
_UNCOUNTED_BYTES: Final = 2 * MAX_FIELDS
"""Length up to which the items are counted after they are parsed, since they take a few MB at most. Counting
them before costs 7 % of parsing the Pods of a usual batch."""
_VARINT, _FIXED_64, _BYTES, _GROUP, _GROUP_END, _FIXED_32 = range(6)
_MAX_VARINT_BYTES: Final = 10
_CONTINUED: Final = bytes(range(0x80, 0x100))


class ProtocolViolation(Exception):
    """The gateway violated the contract, and the stream cannot continue."""


def read_batch(message: bytes) -> pb.ReviewBatch:
    """Return the batch in *message*.

    Raises:
        ProtocolViolation: it is not a ReviewBatch, or has too many items.
    """
    if len(message) > _UNCOUNTED_BYTES:
        _count(message)
    try:
        batch = pb.ReviewBatch.FromString(message)
    except DecodeError as problem:
        raise ProtocolViolation(f"not a ReviewBatch: {problem}") from None
    found = (len(batch.payloads), len(batch.calls), len(batch.cancelled), len(batch.parameters))
    if max(found) > _LEAST_BOUND:
        for (field, (_, bound)), count in zip(_BOUNDS.items(), found, strict=True):
            if count > bound:
                raise _too_many(field)
    return batch


def _too_many(field: int) -> ProtocolViolation:
    name, bound = _BOUNDS[field]
    return ProtocolViolation(f"a batch has more than {bound} {name}")


def _count(message: bytes) -> None:
    """Count the fields of a message.

    Raises:
        ProtocolViolation: there are too many, or the message is malformed.
    """
    left = {field: bound for field, (_, bound) in _BOUNDS.items()}
    fields, position, end = MAX_FIELDS, 0, len(message)
    while position < end:
        tag, position = _varint(message, position)
        field, kind = tag >> 3, tag & 7
        count = 1
        if kind == _BYTES:
            length, position = _varint(message, position)
            if field == 3:  # packed
                if length > MAX_CANCELLED * _MAX_VARINT_BYTES:
                    raise _too_many(field)
                count = len(message[position : position + length].translate(None, _CONTINUED))
            position += length
        elif kind == _VARINT:
            _, position = _varint(message, position)
        elif kind in (_FIXED_32, _FIXED_64):
            position += 4 if kind == _FIXED_32 else 8
        elif kind not in (_GROUP, _GROUP_END):
            raise ProtocolViolation(f"not a ReviewBatch: a field of the wire type {kind}")
        fields -= 1
        if field in left:
            left[field] -= count
            if left[field] < 0:
                raise _too_many(field)
        if fields < 0:
            raise ProtocolViolation(f"a batch has more than {MAX_FIELDS} fields")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the number at *position*, and the position after it."""
    value = shift = 0
    for byte in message[position : position + _MAX_VARINT_BYTES]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ProtocolViolation("not a ReviewBatch: a number without an end")
