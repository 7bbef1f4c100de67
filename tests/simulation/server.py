"""The worker's side of an HTTP/2 connection with one gRPC call: frames in, messages out, and vice versa.

It shares no code with the gateway's own HTTP/2.

Source: RFC 9113 (sections 4.1, 5.2 and 6); gRPC over HTTP/2 (grpc/doc/PROTOCOL-HTTP2.md); limits of
servers on pings (gRFC A8, and the channel arguments that protos/README.md requires of workers).
"""

from __future__ import annotations

import asyncio
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import hpack

if TYPE_CHECKING:
    from collections.abc import Callable

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 0x1
_END_HEADERS: Final = 0x4
_MAX_FRAME_BYTES: Final = 16_384
PING_INTERVAL_S: Final = 29.9
"""Time between pings without an open call; a server counts earlier ones."""
MAX_PING_STRIKES: Final = 2
RESETTING_FRAMES: Final = (_DATA, _HEADERS, _WINDOW_UPDATE)
"""Frames that reset a server's count of pings, as in gRPC's core. gRPC for Go does not count the last."""


class Service(Protocol):
    """The service that gets the call."""

    def called(self, call: ServerCall, path: str) -> None:
        """The gateway calls a method."""

    def received(self, call: ServerCall, message: bytes) -> None:
        """The gateway sends a message."""

    def half_closed(self, call: ServerCall) -> None:
        """The gateway half-closes the call."""

    def ended(self, call: ServerCall) -> None:
        """The gateway ended the call, or the connection is lost. Called once."""

    def pinged_too_often(self, call: ServerCall) -> None:
        """The gateway exceeds a server's limit of pings."""


@lru_cache
def _block(fields: tuple[tuple[str, str], ...]) -> bytes:
    # A new encoder each time, so that no block refers to the dynamic table of an earlier block.
    return hpack.Encoder().encode(fields)


@lru_cache
def _path(block: bytes) -> str:
    fields = dict(hpack.Decoder().decode(block, raw=True))
    assert fields[b":method"] == b"POST"
    assert fields[b"te"] == b"trailers"
    assert fields[b"content-type"] == b"application/grpc"
    return bytes(fields[b":path"]).decode()


class ServerCall:
    """One connection, with its call."""

    def __init__(
        self, service: Service, write: Callable[[bytes], None], hang_up: Callable[[], None], window_bytes: int
    ) -> None:
        self.hang_up = hang_up
        """Closes the connection after all written bytes."""
        self.is_over = False
        self.keeps_window_closed = False
        self._service: Service | None = service
        self._write = write
        self._window_bytes = window_bytes
        self._read_bytes = 0
        """Bytes for which no WINDOW_UPDATE was sent yet."""
        self._input = bytearray()
        self._body = bytearray()
        self._has_preface = self._is_answered = False
        self._now = asyncio.get_running_loop().time
        self._pinged_at = -PING_INTERVAL_S
        self._ping_strikes = 0

    def send_settings(self) -> None:
        """Send SETTINGS, the first frame of every HTTP/2 server."""
        self._frame(_SETTINGS, 0, 0, struct.pack(">HI", 0x4, self._window_bytes))

    # -- called by the worker ---------------------------------------------------------------------

    def respond(self) -> None:
        """Send the response headers."""
        self._is_answered = True
        block = _block(((":status", "200"), ("content-type", "application/grpc")))
        self._frame(_HEADERS, _END_HEADERS, 1, block)

    def send(self, message: bytes) -> None:
        """Send a message."""
        body = struct.pack(">BI", 0, len(message)) + message
        for start in range(0, len(body), _MAX_FRAME_BYTES):
            self._frame(_DATA, 0, 1, body[start : start + _MAX_FRAME_BYTES])

    def end(self, code: int, details: str = "") -> None:
        """End the call with a gRPC status."""
        if self.is_over:
            return
        fields: tuple[tuple[str, str], ...] = (("grpc-status", str(code)), ("grpc-message", details))
        if not self._is_answered:
            fields = ((":status", "200"), ("content-type", "application/grpc"), *fields)
        self._frame(_HEADERS, _END_HEADERS | _END_STREAM, 1, _block(fields))
        self.is_over = True

    def reset(self, error_code: int) -> None:
        """Reset the stream of the call."""
        self._frame(_RESET, 0, 1, struct.pack(">I", error_code))
        self.is_over = True

    def send_goaway(self, last_stream: int) -> None:
        """Send GOAWAY."""
        self._frame(_GOAWAY, 0, 0, struct.pack(">II", last_stream, 0))

    def write(self, raw: bytes) -> None:
        """Write any bytes."""
        self._write(raw)

    def open_window(self) -> None:
        """Open the flow control window."""
        self.keeps_window_closed = False
        self._credit(at_least=1)

    # -- called by the connection -----------------------------------------------------------------

    def received(self, read: bytes) -> None:
        """Process bytes from the connection."""
        self._input += read
        if not self._has_preface:
            if len(self._input) < len(_PREFACE):
                return
            assert self._input.startswith(_PREFACE)
            del self._input[: len(_PREFACE)]
            self._has_preface = True
        while len(self._input) >= 9:
            end = 9 + int.from_bytes(self._input[:3], "big")
            if len(self._input) < end:
                break
            head, body = bytes(self._input[:9]), bytes(self._input[9:end])
            del self._input[:end]
            self._take(head[3], head[4], int.from_bytes(head[5:], "big"), body)

    def closed(self) -> None:
        """The connection is closed."""
        self._end_call()

    def _take(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == _HEADERS:
            assert (flags & _END_HEADERS, stream) == (_END_HEADERS, 1)
            if self._service is not None:
                self._service.called(self, _path(body))
        elif kind == _DATA:
            assert stream == 1
            assert len(body) <= _MAX_FRAME_BYTES
            self._read(body)
            if flags & _END_STREAM and self._service is not None:
                assert not self._body
                self._service.half_closed(self)
        elif kind == _RESET:
            self._end_call()
        elif kind == _PING and not flags & _ACK:
            self._frame(_PING, _ACK, 0, body)
            self._count_ping()
        elif kind == _SETTINGS and not flags & _ACK:
            self._frame(_SETTINGS, _ACK, 0, b"")

    def _count_ping(self) -> None:
        now = self._now()
        if now - self._pinged_at < PING_INTERVAL_S:
            self._ping_strikes += 1
            if self._ping_strikes > MAX_PING_STRIKES and self._service is not None:
                self._service.pinged_too_often(self)
        self._pinged_at = now

    def _read(self, body: bytes) -> None:
        self._read_bytes += len(body)
        assert self._read_bytes <= self._window_bytes, "the gateway sent more than it may"
        # At once, as in gRPC's core: with later updates a worker sends no bytes while it evaluates a call.
        self._credit(at_least=1)
        self._body += body
        while len(self._body) >= 5 and len(self._body) >= (end := 5 + int.from_bytes(self._body[1:5], "big")):
            message = bytes(self._body[5:end])
            del self._body[:end]
            if self._service is not None:
                self._service.received(self, message)

    def _credit(self, at_least: int) -> None:
        if self._read_bytes >= at_least and not self.keeps_window_closed:
            for stream in (0, 1):
                self._frame(_WINDOW_UPDATE, 0, stream, struct.pack(">I", self._read_bytes))
            self._read_bytes = 0

    def _end_call(self) -> None:
        service, self._service = self._service, None
        self.is_over = True
        if service is not None:
            service.ended(self)

    def _frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind in RESETTING_FRAMES:
            self._ping_strikes, self._pinged_at = 0, -PING_INTERVAL_S
        if not self.is_over:
            self._write(len(body).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + body)
