"""The messages of a gRPC call, each with a head of five bytes, and the codes of its status.

Source: grpc/doc/PROTOCOL-HTTP2.md; google/rpc/code.proto.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from admission_gateway_worker.http2.frames import CANCEL, Violation

MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""gRPC's default of 4 MiB is too small for the update of a large object, which contains the object twice."""

_COPIED_BYTES: Final = 64 * 1024
_MESSAGE_HEAD: Final = struct.Struct(">BI")
"""Whether the message is compressed, and its length."""


def message_head(length: int) -> bytes:
    """Return the head of a message of *length* bytes."""
    return _MESSAGE_HEAD.pack(0, length)


def with_head(message: bytes) -> bytes:
    """Return *message* with its head."""
    return message_head(len(message)) + message


class MessageReader:
    """Takes the body of a stream and returns its messages."""

    __slots__ = ("_wanted_bytes", "partial")

    def __init__(self) -> None:
        self.partial = bytearray()
        """The body; the caller appends to it."""
        self._wanted_bytes = _MESSAGE_HEAD.size
        """Bytes that ``partial`` must have for the next step: the head of a message, or all of it."""

    @property
    def has_more(self) -> bool:
        """Whether :meth:`take` has something to do."""
        return len(self.partial) >= self._wanted_bytes

    def take(self) -> bytes | bytearray | None:
        """Return the message at the start of the body; None if it is not complete.

        Raises:
            Violation: the message is compressed or too large.
        """
        partial, head_bytes = self.partial, _MESSAGE_HEAD.size
        if len(partial) < head_bytes:
            return None
        is_compressed, length = _MESSAGE_HEAD.unpack_from(partial)
        if is_compressed:
            raise Violation(CANCEL, "compressed message, although no encoding was accepted")
        if length > MAX_MESSAGE_BYTES:
            text = f"message larger than max ({length} vs. {MAX_MESSAGE_BYTES} bytes)"
            raise Violation(CANCEL, text, "RESOURCE_EXHAUSTED")
        end = head_bytes + length
        if len(partial) < end:
            self._wanted_bytes = end
            return None
        self._wanted_bytes = head_bytes
        if length < _COPIED_BYTES:
            message = bytes(partial[head_bytes:end])
            del partial[:end]
            return message
        # A large message is passed on without a copy, which takes milliseconds.
        self.partial = partial[end:]
        del partial[end:]
        del partial[:head_bytes]
        return partial

    def discard(self) -> None:
        """Discard the body."""
        self.partial.clear()
        self._wanted_bytes = _MESSAGE_HEAD.size


class StatusCode(IntEnum):
    """Number and name of each status."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16
