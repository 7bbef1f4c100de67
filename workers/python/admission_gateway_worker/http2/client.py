"""The client side of an HTTP/2 connection with one stream: bytes in, bytes out, no socket.

The stream to a worker does not use grpc.aio, which passes every read and write through a completion queue, a
polling thread and a pair of sockets: ten thread switches for a single review, where two suffice. Here a
message is one write of the event loop, and its answer one read. ``loadtest.stream_control`` compares both
with the same batches of four calls on one stream: CPU of 37 us instead of 117 for a batch with one in flight,
154 instead of 339 at 500 batches a second, and 21 instead of 65 with 16 in flight (one machine, Python 3.11).

Only the needs of one call are implemented: one stream, number 1, for the life of the connection.

Source: RFC 9113 (sections 3.4, 5.2 and 8).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import hpack

from admission_gateway_worker.http2 import frames
from admission_gateway_worker.http2.frames import (
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FIRST_WINDOW_BYTES,
    FLOW_CONTROL_ERROR,
    FRAME_HEAD,
    HEADERS,
    NO_ERROR,
    PREFACE,
    PROTOCOL_ERROR,
    RST_STREAM,
    WINDOW_BYTES,
    WINDOW_UPDATE,
    Endpoint,
    Violation,
    frame,
    number_frame,
    settings_frame,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_STREAM: Final = 1
MAX_HEADER_BLOCKS: Final = 10
"""Limit for the connection. A gRPC call has two: the response and its trailers."""


class Http2Owner(Protocol):
    """Receives the events of the stream. ``headers`` and ``data`` may raise a Violation."""

    def headers(self, fields: Iterable[tuple[bytes, bytes]], *, ends: bool) -> None:
        """Take a block of fields. With *ends* it is the last frame of the stream."""

    def data(self, body: bytes, *, ends: bool) -> bool:
        """Take a part of the body; return whether the step should end with it."""

    def reset(self, error_code: int | None) -> None:
        """The peer reset the stream. *error_code* is None if it did not process the stream at all."""

    def violated(self, violation: Violation) -> None:
        """The connection was ended for a violation by the peer."""


class Http2Stream(Endpoint):
    """The client side. The caller writes :attr:`output` to the connection after every method."""

    def __init__(self, request: Iterable[tuple[str, str]], owner: Http2Owner) -> None:
        """Start a request with the fields *request*; its body follows."""
        super().__init__()
        self.is_leaving = False
        """Whether the peer has sent GOAWAY; this stream stays open."""
        self._owner = owner
        self._blocks = 0
        self._unacknowledged_bytes = 0
        self._unsent: deque[bytes | memoryview] = deque()
        self._unsent_bytes = 0
        self._stream_window = FIRST_WINDOW_BYTES
        self._is_ending = self._has_ended = False
        settings = {
            frames.ENABLE_PUSH: 0,
            frames.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
            frames.MAX_HEADER_LIST_SIZE: frames.MAX_HEADERS_BYTES,
        }
        self.output += PREFACE
        self.output += settings_frame(settings)
        self.output += number_frame(WINDOW_UPDATE, 0, WINDOW_BYTES - FIRST_WINDOW_BYTES)
        self.output += frame(HEADERS, END_HEADERS, _STREAM, hpack.Encoder().encode(request))

    @property
    def is_blocked(self) -> bool:
        """Whether the peer's flow control blocks output."""
        return self._unsent_bytes > 0

    def send(self, *parts: bytes) -> None:
        """Send *parts* of the body, one after another, as far as flow control allows; the rest follows."""
        self._unsent += parts
        self._unsent_bytes += sum(map(len, parts))
        self._pump()

    def finish_writing(self) -> None:
        """End the body, once all of it is sent."""
        self._is_ending = True
        self._pump()

    def cancel(self) -> None:
        """Cancel the stream, and end the connection."""
        if not self.is_over:
            self._end()
            self.output += number_frame(RST_STREAM, _STREAM, CANCEL)
            self._go_away(NO_ERROR)

    # -- called by the endpoint -------------------------------------------------------------------

    def _take_body(self, flags: int, stream: int, body: bytes, size: int) -> bool:
        if stream != _STREAM:
            raise Violation(PROTOCOL_ERROR, "DATA frame on another stream")
        self._unacknowledged_bytes += size
        if self._unacknowledged_bytes > WINDOW_BYTES:
            raise Violation(FLOW_CONTROL_ERROR, "flow control window exceeded")
        if self._unacknowledged_bytes > WINDOW_BYTES // 2:
            for number in (0, _STREAM):
                self.output += number_frame(WINDOW_UPDATE, number, self._unacknowledged_bytes)
            self._unacknowledged_bytes = 0
        return self._owner.data(body, ends=bool(flags & END_STREAM))

    def _check_headers(self, stream: int) -> None:
        if stream != _STREAM:
            raise Violation(PROTOCOL_ERROR, "HEADERS or CONTINUATION frame out of place")
        self._blocks += 1
        if self._blocks > MAX_HEADER_BLOCKS:
            raise Violation(ENHANCE_YOUR_CALM, f"more than {MAX_HEADER_BLOCKS} header blocks")

    def _take_block(self, stream: int, fields: Iterable[tuple[bytes, bytes]], *, ends: bool) -> None:
        self._owner.headers(fields, ends=ends)

    def _take_reset(self, stream: int, error_code: int) -> None:
        if stream != _STREAM:
            raise Violation(PROTOCOL_ERROR, f"RST_STREAM frame on stream {stream}")
        self._owner.reset(error_code)

    def _take_goaway(self, last_stream: int) -> None:
        self.is_leaving = True
        if last_stream < _STREAM:
            self._owner.reset(None)

    def _take_window(self, stream: int, increment: int) -> None:
        if not increment or stream not in (0, _STREAM):
            raise Violation(PROTOCOL_ERROR, f"WINDOW_UPDATE frame of {increment} on stream {stream}")
        self._change_first_window(increment if stream else 0)

    def _change_first_window(self, change: int) -> None:
        self._stream_window += change
        self._check_window(self._stream_window)
        self._pump()

    def _violated(self, violation: Violation) -> None:
        self._owner.violated(violation)

    # -- writing ----------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Write as much as the peer's windows allow, in frames as long as it allows."""
        room = min(self._unsent_bytes, self._connection_window, self._stream_window)
        if room > 0 and not self.is_over:
            self._unsent_bytes -= room
            self._connection_window -= room
            self._stream_window -= room
            self._unproductive_frames = max(0, self._unproductive_frames - room // 1024)
            written: list[bytes | bytearray | memoryview] = [self.output]
            while room:
                size = min(room, self._max_frame_bytes)
                room -= size
                written.append(FRAME_HEAD.pack(size >> 8, size & 0xFF, DATA, 0, _STREAM))
                self._take_unsent(size, written)
            # Each part is copied once, here: a write of each would cost more for usual messages.
            self.output = bytearray().join(written)
        if self._is_ending and not self._unsent_bytes and not self._has_ended and not self.is_over:
            self._has_ended = True
            self.output += frame(DATA, END_STREAM, _STREAM)

    def _take_unsent(self, size: int, written: list[bytes | bytearray | memoryview]) -> None:
        """Move *size* unsent bytes to *written*."""
        unsent = self._unsent
        while size:
            part = unsent.popleft()
            if len(part) > size:
                view = memoryview(part)
                unsent.appendleft(view[size:])
                part = view[:size]
            size -= len(part)
            written.append(part)
