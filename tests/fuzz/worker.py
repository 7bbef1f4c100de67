"""Valid and nearly valid bytes of a worker: frames, headers, messages and verdicts."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import hpack

from admission_gateway_worker.pb import worker_pb2

if TYPE_CHECKING:
    from tests.fuzz.source import Source

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PUSH_PROMISE, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = (
    *(0, 1, 3, 4, 5, 6, 7, 8, 9),
)
_END_STREAM, _END_HEADERS, _PADDED = 1, 4, 8


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    """Return a frame (RFC 9113, section 4.1). Libraries cannot make invalid frames."""
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


SETTINGS: Final = frame(_SETTINGS, 0, 0, b"")
PING: Final = frame(_PING, 0, 0, b"12345678")
PIECES: Final = [
    *(SETTINGS, PING, frame(_GOAWAY, 0, 0, bytes(4) + bytes(4)), frame(_RST_STREAM, 0, 1, b"\0\0\0\x08")),
    *(
        b"\x00\x00\x00\x00\x05",
        b"\x01\x00\x00\x00\x02",
        b"\x0a\x02\x08\x40",
        b"\x10\x01",
        b"grpc-status",
        b"\x88",
    ),
]

_MUCH: Final = 8 * (b"\0\0\0\x07\xcd" + b"\x7a\xca\x0f" + bytes(1994))
"""Messages of unknown fields that fill a frame."""
_BLOCKS: Final = [
    [(":status", "200"), ("content-type", "application/grpc")],
    [("grpc-status", "0")],
    [("grpc-status", "14"), ("grpc-message", "gone%20%E2%82%AC")],
    [("grpc-status", "99"), ("grpc-message", "%")],
    [(":status", "200"), ("content-type", "application/grpc+proto"), ("grpc-status", "12")],
    [(":status", "103")],
    [(":status", "503")],
    [(":status", "200"), ("content-type", "text/html")],
    [("a" * 300, "b" * 300)],
    [("grpc-status", "9" * 5000)],
]
_ENCODED: Final = [hpack.Encoder().encode(block) for block in _BLOCKS]


class Worker:
    """Makes the bytes of a worker."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.written: list[int] = []
        """Numbers of the slots that it received."""

    def send(self) -> bytes:
        """Return one to four frames, sometimes repeated, damaged, or with trailing bytes."""
        source = self._source
        frames = [self._frame() for _ in range(1 + source.byte() % 4)]
        match source.byte() % 32:
            case 29:
                frames *= 1 + source.below(80)
            case 30:
                frames.append(source.take(source.byte() % 32))
            case 31:
                whole = bytearray(b"".join(frames))
                for _ in range(1 + source.byte() % 3):
                    whole[source.below(len(whole))] = source.byte()
                return bytes(whole)
        return b"".join(frames)

    def _frame(self) -> bytes:
        kind = self._source.byte() % 24
        stream = 1 if not self._source.chance(32) else self._source.byte() % 4
        return self._control(kind, stream) if kind < 7 else self._content(kind, stream)

    def _control(self, kind: int, stream: int) -> bytes:
        source = self._source
        match kind:
            case 0:
                number = source.one_of((0, 1, 100, 16_384, 2**24 - 1, 2**31 - 1, 2**32 - 1))
                return frame(_SETTINGS, source.byte() % 2, 0, struct.pack(">HI", source.byte() % 9, number))
            case 1:
                return frame(_PING, source.byte() % 2, 0, source.take(8).ljust(8))
            case 2:
                window = source.one_of((1, 100, 65_535, 2**31 - 1, 0))
                return frame(_WINDOW_UPDATE, 0, source.byte() % 3, struct.pack(">I", window))
            case 3:
                return frame(_GOAWAY, 0, 0, struct.pack(">II", source.byte() % 3, source.byte() % 14))
            case 4 if source.chance(4):
                return frame(_RST_STREAM, 0, stream, struct.pack(">I", source.byte() % 16))
            case 5 if source.chance(4):
                return frame(_PUSH_PROMISE, _END_HEADERS, 1, struct.pack(">I", 2))
            case _:
                body = source.take(source.byte() % 64)
                return frame(source.byte() % 16, source.byte(), source.byte() % 3, body)

    def _content(self, kind: int, stream: int) -> bytes:
        source = self._source
        match kind:
            case 7:
                return self.headers(source.below(len(_BLOCKS)), stream)
            case 8:
                return frame(_CONTINUATION, _END_HEADERS, stream, source.take(source.byte() % 32))
            case 9:
                return frame(_DATA, 0, stream, self._messages()[: source.below(600)])
            case 10 if source.chance(8):
                return frame(_DATA, _END_STREAM, stream, b"")
            case 11:
                padding = source.byte()
                return frame(_DATA, _PADDED, stream, bytes([padding]) + self._messages() + bytes(padding))
            case 12 if source.chance(8):
                return frame(_DATA, 0, 1, _MUCH) * 5
            case _:
                return frame(_DATA, 0, stream, self._messages())

    def headers(self, block: int, stream: int = 1) -> bytes:
        """Return a block of headers in one frame or in two."""
        source = self._source
        ends = _END_STREAM if block in (1, 2, 3, 4, 9) else 0
        encoded = _ENCODED[block]
        if not source.chance(4):
            return frame(_HEADERS, _END_HEADERS | ends, stream, encoded)
        cut = source.below(len(encoded))
        return frame(_HEADERS, ends, stream, encoded[:cut]) + frame(
            _CONTINUATION, _END_HEADERS, stream, encoded[cut:]
        )

    def _messages(self) -> bytes:
        return b"".join(self._message() for _ in range(1 + self._source.byte() % 3))

    def _message(self) -> bytes:
        source = self._source
        match source.byte() % 16:
            case 13:
                message = source.take(source.byte() % 48)
            case 14:
                return struct.pack(
                    ">BI", source.byte() % 3, source.one_of((0, 5, 1999, 2000, 2001, 2**32 - 1))
                )
            case 15:
                message = bytes(source.below(2100))
            case _:
                message = self._batch().SerializeToString()
        return struct.pack(">BI", 0, len(message)) + message

    def _batch(self) -> worker_pb2.VerdictBatch:
        source = self._source
        verdicts = [self._verdict() for _ in range(source.byte() % 5)]
        return worker_pb2.VerdictBatch(verdicts=verdicts, draining=source.chance(24))

    def _verdict(self) -> dict[str, Any]:
        source = self._source
        number = source.one_of(self.written) if self.written and not source.chance(8) else source.byte()
        verdict: dict[str, Any] = {"id": number * 64 + source.byte() % 5}
        match source.byte() % 8:
            case 0:
                del verdict["id"]
            case 1:
                verdict["error"] = {"code": source.byte() - 100, "message": source.take(8).decode("latin-1")}
            case 2:
                status = {"code": source.below(700), "message": source.take(8).decode("latin-1")}
                verdict["response"] = {"status": status, "warnings": ["w" * source.below(400)]}
            case 3:
                verdict["response"] = {
                    "allowed": True,
                    "patch": source.take(8),
                    "audit_annotations": {"a": "b"},
                }
            case 4:
                verdict["id"] = 2**64 - 1 - source.byte()
            case _:
                verdict["response"] = {"allowed": True}
        return verdict
