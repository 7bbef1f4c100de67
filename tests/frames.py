"""Valid and invalid HTTP/2 frames as bytes, and a call that reads them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.engine.dispatch.rpc import StreamingCall

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(5, 10)
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, HAS_PRIORITY = 0x4, 0x8, 0x20


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    """Return a frame. Source: RFC 9113, section 4.1."""
    return struct.pack(">HBBBL", len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream) + payload


def _text(text: bytes) -> bytes:
    length = len(text)
    if length < 0x7F:
        return bytes([length]) + text
    encoded, length = bytearray([0x7F]), length - 0x7F
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*encoded, length]) + text


def literal(name: bytes, value: bytes) -> bytes:
    """Return an uncompressed header field, valid or not. Source: RFC 7541, section 6.2.2."""
    return b"\x00" + _text(name) + _text(value)


def block(*fields: tuple[bytes, bytes]) -> bytes:
    """Return a header block."""
    return b"".join(literal(name, value) for name, value in fields)


def headers(*fields: tuple[bytes, bytes], flags: int = END_HEADERS, stream: int = 1) -> bytes:
    """Return a header block in one frame."""
    return frame(HEADERS, block(*fields), flags, stream)


def varint(number: int) -> bytes:
    """Return a number as protobuf encodes it."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def message(content: bytes) -> bytes:
    """Return a gRPC message."""
    return struct.pack(">BI", 0, len(content)) + content


def data(body: bytes, size: int = 16_384, flags: int = 0) -> bytes:
    """Return *body* in DATA frames of *size* bytes."""
    return b"".join(
        frame(DATA, body[begin : begin + size], flags, 1) for begin in range(0, max(len(body), 1), size)
    )


RESPONSE = headers((b":status", b"200"), (b"content-type", b"application/grpc"))


def take(call: StreamingCall, read: bytes) -> list[bytes]:
    """Have *call* process *read* to its end, and return the messages that were complete with it."""
    call.http2.receive(read)
    messages = []
    while call.has_more:
        found = call.next_message()
        if found is not None:
            messages.append(bytes(found))
    return messages
