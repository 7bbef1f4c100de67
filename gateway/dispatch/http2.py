"""The client side of an HTTP/2 connection with one stream: bytes in, bytes out, no socket.

The stream to a worker does not use grpc.aio, which passes every read and write through a completion queue, a
polling thread and a pair of sockets: ten thread switches for a single review, where two suffice. Here a
message is one write of the event loop, and its answer one read. ``hyperframe`` writes frames and ``hpack``
codes header blocks. ``h2``, of the same family, stops reading after a GOAWAY, with which servers announce
their shutdown.

Only the needs of one call are implemented: one stream, number 1, for the life of the connection. A peer that
violates HTTP/2 ends it; nothing is raised.

Input is processed in steps of at most a few milliseconds of CPU time, whatever the peer sent. The caller
decides when the next step runs.

Source: RFC 9113 (sections 3.4, 4, 5.2, 6, 7 and 8); RFC 7541 (section 4.2).
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import hpack
from hpack.exceptions import HPACKError
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_STREAM: Final = 1
_FRAME_HEAD: Final = struct.Struct(">HBBBL")
"""Length (16 and 8 bits), type, flags, stream (31 bits)."""
_MAX_FRAME_BYTES: Final = 16_384
"""The initial SETTINGS_MAX_FRAME_SIZE of both sides."""
_MAX_HEADERS_BYTES: Final = 16 * 1024
"""Limit of a header block, and of the fields in it plus 32 bytes for each (RFC 9113, 6.5.2): that of gRPC's
own clients."""
_FIRST_WINDOW_BYTES: Final = 65_535
_LARGEST_WINDOW_BYTES: Final = 2**31 - 1
WINDOW_BYTES: Final = 16 * 1024 * 1024
"""Receive window: twice the longest message, so that no message waits for a WINDOW_UPDATE."""

STEP_FRAMES: Final = 64
"""Frames in one step: less than a millisecond."""
MAX_UNPRODUCTIVE_FRAMES: Final = 10_000
"""PING, SETTINGS, small DATA frames and the like in one period, or before a call is answered."""
MAX_HEADER_BLOCKS: Final = 10
"""Limit for the connection. A gRPC call has two: the response and its trailers."""
_MAX_SETTINGS: Final = 32
"""Settings in one frame. RFC 9113 defines six, and extensions a few."""
_SMALL_DATA_BYTES: Final = 256
"""Smaller DATA frames count as unproductive."""

NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 3, 6, 8, 11
"""Error codes of RFC 9113, section 7."""

_NAMES: Final = (
    "DATA",
    "HEADERS",
    "PRIORITY",
    "RST_STREAM",
    "SETTINGS",
    "PUSH_PROMISE",
    "PING",
    "GOAWAY",
    "WINDOW_UPDATE",
    "CONTINUATION",
)
_DATA, _HEADERS, _PRIORITY, _RST_STREAM, _SETTINGS = range(5)
_PUSH_PROMISE, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = range(5, 10)
"""Frame types of RFC 9113, section 6."""
_ACK = _END_STREAM = 0x1
_END_HEADERS, _PADDED, _HAS_PRIORITY = 0x4, 0x8, 0x20
"""Flags."""

_FRAME_BYTES: Final = {_PRIORITY: 5, _RST_STREAM: 4, _PING: 8, _WINDOW_UPDATE: 4}
"""Length of the frame types that have only one."""
_STREAMS: Final[dict[int, tuple[int, ...]]] = {
    _RST_STREAM: (_STREAM,),
    _SETTINGS: (0,),
    _PING: (0,),
    _GOAWAY: (0,),
    _WINDOW_UPDATE: (0, _STREAM),
}
"""Streams on which frames of these types are allowed."""


class Violation(Exception):
    """The peer violated the protocol, or sent an unusable answer; the text has the reason."""

    def __init__(self, error_code: int, text: str, status: str = "INTERNAL") -> None:
        super().__init__(text)
        self.error_code = error_code
        self.status = status
        """Name of the gRPC status of the call."""

    @property
    def is_misconduct(self) -> bool:
        """Whether the peer violated HTTP/2; False: its answer is unusable."""
        return self.error_code not in (NO_ERROR, CANCEL)


class Http2Owner(Protocol):
    """Receives the events of the stream. ``headers`` and ``data`` may raise a Violation."""

    def headers(self, fields: Iterable[tuple[bytes, bytes]], *, ends: bool) -> None:
        """Take a block of fields; *ends*: it is the last frame of the stream."""

    def data(self, body: bytes, *, ends: bool) -> bool:
        """Take a part of the body; return whether the step should end with it."""

    def reset(self, error_code: int | None) -> None:
        """The peer reset the stream; None: it did not process the stream at all."""

    def violated(self, violation: Violation) -> None:
        """The connection was ended for a violation by the peer."""


class Http2Stream:
    """The client side. The caller writes :attr:`output` to the connection after every method."""

    def __init__(self, request: Iterable[tuple[str, str]], owner: Http2Owner) -> None:
        """Start a request with the fields *request*; its body follows."""
        self.output = bytearray()
        self.is_over = False
        """Whether further input is ignored; the owner may set it."""
        self.is_settled = False
        """Whether the peer's SETTINGS have come."""
        self.is_leaving = False
        """Whether the peer has sent GOAWAY; this stream stays open."""
        self.has_more = False
        """Whether there may be unprocessed frames."""
        self._owner = owner
        self._input = b""
        self._position = 0
        self._block: bytearray | None = None
        self._ends = False
        self._blocks = 0
        self._decoder = hpack.Decoder(max_header_list_size=_MAX_HEADERS_BYTES)
        self._unacknowledged_bytes = self._unproductive_frames = 0
        self._unsent: deque[memoryview] = deque()
        self._connection_period = self._stream_window = self._first_window = _FIRST_WINDOW_BYTES
        self._max_frame_bytes = _MAX_FRAME_BYTES
        self._is_ending = self._has_ended = False
        settings = {
            SettingsFrame.ENABLE_PUSH: 0,
            SettingsFrame.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
            SettingsFrame.MAX_HEADER_LIST_SIZE: _MAX_HEADERS_BYTES,
        }
        self.output += _PREFACE
        self._write(SettingsFrame(settings=settings))
        self._write(WindowUpdateFrame(0, WINDOW_BYTES - _FIRST_WINDOW_BYTES))
        self._write(HeadersFrame(_STREAM, hpack.Encoder().encode(request), flags=["END_HEADERS"]))

    @property
    def is_blocked(self) -> bool:
        """Whether the peer's flow control blocks output."""
        return bool(self._unsent)

    def send(self, body: bytes) -> None:
        """Send a part of the body as far as flow control allows; the rest follows."""
        self._unsent.append(memoryview(body))
        self._pump()

    def finish_writing(self) -> None:
        """End the body, once all of it is sent."""
        self._is_ending = True
        self._pump()

    def begin_period(self) -> None:
        """Count unproductive frames from 0 again; the caller does this periodically."""
        self._unproductive_frames = 0

    def ping(self) -> None:
        """Send a PING frame."""
        self._write(PingFrame(opaque_data=b"alive?  "))

    def cancel(self) -> None:
        """Cancel the stream, and end the connection."""
        if not self.is_over:
            self.is_over = True
            self.has_more = False
            self._write(RstStreamFrame(_STREAM, CANCEL))
            self._write(GoAwayFrame(0, error_code=NO_ERROR))

    def receive(self, read: bytes) -> None:
        """Add received bytes, which :meth:`advance` processes."""
        if not self.is_over:
            self._input = self._input[self._position :] + read
            self._position = 0
            self.has_more = True

    @property
    def unread_bytes(self) -> int:
        """Received bytes that are not processed."""
        return len(self._input) - self._position

    def advance(self) -> None:
        """Process a step: up to ``STEP_FRAMES`` frames, and at most one header block."""
        received = self._input
        try:
            for _ in range(STEP_FRAMES):
                begin = self._position + _FRAME_HEAD.size
                if begin > len(received):
                    self.has_more = False
                    break
                high, low, kind, flags, stream = _FRAME_HEAD.unpack_from(received, self._position)
                end = begin + (high << 8 | low)
                if end - begin > _MAX_FRAME_BYTES:
                    raise Violation(FRAME_SIZE_ERROR, f"invalid HTTP/2: a frame of {end - begin} bytes")
                if end > len(received):
                    self.has_more = False
                    break
                self._position = end
                if (
                    self._take(kind, flags, stream & _LARGEST_WINDOW_BYTES, received[begin:end])
                    or self.is_over
                ):
                    break
        except Violation as violation:
            self.fail(violation)
        if self.is_over or self._position == len(received):
            self.has_more = False
            self._input, self._position = b"", 0

    def fail(self, violation: Violation) -> None:
        """End the connection for a *violation* by the peer."""
        if not self.is_over:
            self.is_over = True
            self.has_more = False
            self._write(GoAwayFrame(0, error_code=violation.error_code))
            self._owner.violated(violation)

    # -- reading ----------------------------------------------------------------------------------

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> bool:
        """Process a frame; return whether the step should end with it."""
        self._unproductive_frames += 1
        if self._unproductive_frames > MAX_UNPRODUCTIVE_FRAMES:
            raise Violation(ENHANCE_YOUR_CALM, "too many frames without data")
        if not self.is_settled and kind != _SETTINGS:
            raise Violation(PROTOCOL_ERROR, "invalid HTTP/2: the first frame is not SETTINGS")
        if self._block is not None and kind != _CONTINUATION:
            raise Violation(PROTOCOL_ERROR, "header block not continued")
        if kind == _DATA:
            return self._take_data(flags, stream, payload)
        if kind in (_HEADERS, _CONTINUATION):
            return self._take_headers(kind, flags, stream, payload)
        # Frames of unknown types are ignored.
        if kind < _CONTINUATION:
            self._take_control(kind, flags, stream, payload)
        return False

    def _take_control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if len(payload) != _FRAME_BYTES.get(kind, len(payload)):
            raise Violation(FRAME_SIZE_ERROR, f"{_NAMES[kind]} frame with {len(payload)} bytes")
        if stream not in _STREAMS.get(kind, (stream,)):
            raise Violation(PROTOCOL_ERROR, f"{_NAMES[kind]} frame on stream {stream}")
        if kind == _SETTINGS:
            self._take_settings(flags, payload)
        elif kind == _PING and not flags & _ACK:
            self._write(PingFrame(opaque_data=payload, flags=["ACK"]))
        elif kind == _WINDOW_UPDATE:
            self._take_window(stream, int.from_bytes(payload) & _LARGEST_WINDOW_BYTES)
        elif kind == _GOAWAY:
            self._take_goaway(payload)
        elif kind == _RST_STREAM:
            self._owner.reset(int.from_bytes(payload))
        elif kind == _PUSH_PROMISE:
            raise Violation(PROTOCOL_ERROR, "PUSH_PROMISE frame, although push is disabled")

    def _take_data(self, flags: int, stream: int, payload: bytes) -> bool:
        if stream != _STREAM:
            raise Violation(PROTOCOL_ERROR, "DATA frame on another stream")
        self._unacknowledged_bytes += len(payload)
        if self._unacknowledged_bytes > WINDOW_BYTES:
            raise Violation(FLOW_CONTROL_ERROR, "flow control window exceeded")
        if self._unacknowledged_bytes > WINDOW_BYTES // 2:
            for number in (0, _STREAM):
                self._write(WindowUpdateFrame(number, self._unacknowledged_bytes))
            self._unacknowledged_bytes = 0
        if flags & _PADDED:
            payload = _without_padding(payload)
        if len(payload) >= _SMALL_DATA_BYTES:
            self._unproductive_frames -= 1
        return self._owner.data(payload, ends=bool(flags & _END_STREAM))

    def _take_headers(self, kind: int, flags: int, stream: int, payload: bytes) -> bool:
        if stream != _STREAM or (self._block is None and kind == _CONTINUATION):
            raise Violation(PROTOCOL_ERROR, "HEADERS or CONTINUATION frame out of place")
        if self._block is None:
            self._block = bytearray()
            self._ends = bool(flags & _END_STREAM)
            self._blocks += 1
            if self._blocks > MAX_HEADER_BLOCKS:
                raise Violation(ENHANCE_YOUR_CALM, f"more than {MAX_HEADER_BLOCKS} header blocks")
            if flags & _PADDED:
                payload = _without_padding(payload)
            if flags & _HAS_PRIORITY:
                payload = payload[5:]
        self._block += payload
        if len(self._block) > _MAX_HEADERS_BYTES:
            raise Violation(ENHANCE_YOUR_CALM, f"header block of more than {_MAX_HEADERS_BYTES} bytes")
        if not flags & _END_HEADERS:
            return False
        block, self._block = bytes(self._block), None
        try:
            _check_size_updates(block)
            decoded = self._decoder.decode(block, raw=True)
        except HPACKError as error:
            # The error's text can contain a memory address, which is different each time.
            raise Violation(PROTOCOL_ERROR, f"invalid header block: {type(error).__name__}") from None
        self._owner.headers(decoded, ends=self._ends)
        return True

    def _take_goaway(self, payload: bytes) -> None:
        if len(payload) < 8:
            raise Violation(FRAME_SIZE_ERROR, f"GOAWAY frame with {len(payload)} bytes")
        self.is_leaving = True
        if int.from_bytes(payload[:4]) & _LARGEST_WINDOW_BYTES < _STREAM:
            self._owner.reset(None)

    def _take_settings(self, flags: int, payload: bytes) -> None:
        if len(payload) % 6 or (flags & _ACK and payload):
            raise Violation(FRAME_SIZE_ERROR, f"SETTINGS frame with {len(payload)} bytes")
        if len(payload) // 6 > _MAX_SETTINGS:
            raise Violation(ENHANCE_YOUR_CALM, f"SETTINGS frame with more than {_MAX_SETTINGS} settings")
        if flags & _ACK:
            return
        settings = dict(struct.iter_unpack(">HL", payload))
        window = settings.get(SettingsFrame.INITIAL_WINDOW_SIZE, self._first_window)
        max_frame_bytes = settings.get(SettingsFrame.MAX_FRAME_SIZE, self._max_frame_bytes)
        if window > _LARGEST_WINDOW_BYTES or not _MAX_FRAME_BYTES <= max_frame_bytes < 2**24:
            raise Violation(PROTOCOL_ERROR, "invalid HTTP/2 SETTINGS")
        self._stream_window += window - self._first_window
        self._first_window, self._max_frame_bytes = window, max_frame_bytes
        self.is_settled = True
        self._write(SettingsFrame(flags=["ACK"]))
        self._open_windows()

    def _take_window(self, stream: int, increment: int) -> None:
        if not increment or stream not in (0, _STREAM):
            raise Violation(PROTOCOL_ERROR, f"WINDOW_UPDATE frame of {increment} on stream {stream}")
        if stream == 0:
            self._connection_period += increment
        else:
            self._stream_window += increment
        self._open_windows()

    def _open_windows(self) -> None:
        if max(self._connection_period, self._stream_window) > _LARGEST_WINDOW_BYTES:
            raise Violation(FLOW_CONTROL_ERROR, "flow control window too large")
        self._pump()

    # -- writing ----------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Write as much as the peer's windows allow."""
        unsent = self._unsent
        while unsent and not self.is_over:
            piece = unsent[0]
            room = min(self._connection_period, self._stream_window, self._max_frame_bytes, len(piece))
            if room <= 0:
                return
            self.output += _FRAME_HEAD.pack(room >> 8, room & 0xFF, _DATA, 0, _STREAM)
            self.output += piece[:room]
            self._unproductive_frames = max(0, self._unproductive_frames - room // 1024)
            self._connection_period -= room
            self._stream_window -= room
            if room == len(piece):
                unsent.popleft()
            else:
                unsent[0] = piece[room:]
        if self._is_ending and not self._has_ended and not self.is_over:
            self._has_ended = True
            self._write(DataFrame(_STREAM, flags=["END_STREAM"]))

    def _write(self, frame: Frame) -> None:
        self.output += frame.serialize()


def _without_padding(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise Violation(PROTOCOL_ERROR, "frame with more padding than payload")
    return payload[1 : len(payload) - payload[0]]


def _check_size_updates(block: bytes) -> None:
    """Refuse more dynamic table size updates than a block may begin with: each costs as much as a field."""
    position = 0
    for _ in range(2):
        if position < len(block) and block[position] & 0xE0 == 0x20:
            position += hpack.hpack.decode_integer(block[position:], 5)[1]
    if position < len(block) and block[position] & 0xE0 == 0x20:
        raise Violation(PROTOCOL_ERROR, "header block with more than two size updates")
