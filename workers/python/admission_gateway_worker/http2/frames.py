"""The common part of both ends of an HTTP/2 connection: frames, header blocks, and their bounds.

``hpack`` decodes header blocks. ``h2`` is not used: it stops reading after a GOAWAY, with which servers
announce their shutdown, and a review that came alone cost a worker 1.27 to 1.44 times as much CPU with it
(250 to 1,000 reviews a second, four policies each).

A peer that violates HTTP/2 ends the connection; nothing is raised. Input is processed in steps of at most a
few milliseconds of CPU time, whatever the peer sent. The caller decides when the next step runs.

Source: RFC 9113 (sections 3.4, 4, 5.2, 6 and 7); RFC 7541 (section 4.2).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import hpack
from hpack.exceptions import HPACKError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEAD: Final = struct.Struct(">HBBBL")
"""Length (16 and 8 bits), type, flags, stream (31 bits)."""
MAX_FRAME_BYTES: Final = 16_384
"""The initial SETTINGS_MAX_FRAME_SIZE of both sides."""
MAX_HEADERS_BYTES: Final = 16 * 1024
"""Limit of a header block, and of the fields in it plus 32 bytes for each (RFC 9113, 6.5.2): that of gRPC's
own clients."""
FIRST_WINDOW_BYTES: Final = 65_535
LARGEST_WINDOW_BYTES: Final = 2**31 - 1
"""Also the largest stream number."""
WINDOW_BYTES: Final = 16 * 1024 * 1024
"""Receive window: twice the longest message, so that no message waits for a WINDOW_UPDATE."""

STEP_FRAMES: Final = 64
"""Frames in one step: less than a millisecond."""
MAX_UNPRODUCTIVE_FRAMES: Final = 10_000
"""PING, SETTINGS, small DATA frames and the like in one period, or before a call is answered."""
_MAX_SETTINGS: Final = 32
"""Settings in one frame. RFC 9113 defines six, and extensions a few."""
SMALL_DATA_BYTES: Final = 256
"""Smaller DATA frames count as unproductive."""

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = range(4)
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = range(5, 10)
ENHANCE_YOUR_CALM: Final = 11
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
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(5, 10)
"""Frame types of RFC 9113, section 6."""
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, HAS_PRIORITY = 0x4, 0x8, 0x20
"""Flags."""
ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = range(2, 7)
"""Settings."""

_FRAME_BYTES: Final = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
"""Length of the frame types that have only one."""
_ON_CONNECTION: Final = {PRIORITY: False, RST_STREAM: False, SETTINGS: True, PING: True, GOAWAY: True}
"""Whether a frame of the type belongs to the connection or to a stream; a WINDOW_UPDATE to either."""


class Violation(Exception):
    """The peer violated the protocol, or sent an unusable answer; the text has the reason."""

    def __init__(self, error_code: int, text: str, status: str = "INTERNAL") -> None:
        super().__init__(text)
        self.error_code = error_code
        self.status = status
        """Name of the gRPC status of the call."""

    @property
    def is_misconduct(self) -> bool:
        """Whether the peer violated HTTP/2. Otherwise its answer is unusable."""
        return self.error_code not in (NO_ERROR, CANCEL)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return FRAME_HEAD.pack(len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream) + payload


def number_frame(kind: int, stream: int, number: int) -> bytes:
    """Return a RST_STREAM with an error code, or a WINDOW_UPDATE with an increment."""
    return frame(kind, 0, stream, number.to_bytes(4))


def settings_frame(settings: Mapping[int, int]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HL", *setting) for setting in settings.items()))


class Endpoint:
    """One end of a connection. The caller writes :attr:`output` to the connection after every method."""

    def __init__(self) -> None:
        self.output = bytearray()
        self.is_over = False
        """Whether further input is ignored; the owner may set it."""
        self.is_settled = False
        """Whether the peer's SETTINGS have come."""
        self.has_more = False
        """Whether there may be unprocessed frames."""
        self._input = b""
        self._position = 0
        self._block: bytearray | None = None
        self._block_stream = 0
        self._ends = False
        self._decoder = hpack.Decoder(max_header_list_size=MAX_HEADERS_BYTES)
        self._unproductive_frames = 0
        self._connection_window = self._first_window = FIRST_WINDOW_BYTES
        """What may be sent: on the connection, and at first on a stream."""
        self._max_frame_bytes = MAX_FRAME_BYTES
        self._last_stream = 0
        """The last stream that the peer has opened."""

    @property
    def waiting_bytes(self) -> int:
        """Received bytes of which some are not processed."""
        return len(self._input)

    def begin_period(self) -> None:
        """Count unproductive frames from 0 again; the caller does this periodically."""
        self._unproductive_frames = 0

    def ping(self) -> None:
        """Send a PING frame."""
        self.output += frame(PING, 0, 0, b"alive?  ")

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
                begin = self._position + FRAME_HEAD.size
                if begin > len(received):
                    self.has_more = False
                    break
                high, low, kind, flags, stream = FRAME_HEAD.unpack_from(received, self._position)
                end = begin + (high << 8 | low)
                if end - begin > MAX_FRAME_BYTES:
                    raise Violation(FRAME_SIZE_ERROR, f"invalid HTTP/2: a frame of {end - begin} bytes")
                if end > len(received):
                    self.has_more = False
                    break
                self._position = end
                if (
                    self._take(kind, flags, stream & LARGEST_WINDOW_BYTES, received[begin:end])
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
            self._end()
            self._go_away(violation.error_code, self._last_stream)
            self._violated(violation)

    def _end(self) -> None:
        """Ignore further input, and drop what is not processed."""
        self.is_over = True
        self.has_more = False
        self._input, self._position = b"", 0

    def _go_away(self, error_code: int, last_stream: int = 0) -> None:
        self.output += frame(GOAWAY, 0, 0, struct.pack(">LL", last_stream, error_code))

    # -- of the client or the server --------------------------------------------------------------

    def _take_body(self, flags: int, stream: int, body: bytes, size: int) -> bool:
        """Take a DATA frame without its padding, *size* bytes with it; return whether the step ends."""
        raise NotImplementedError

    def _check_headers(self, stream: int) -> None:
        """Check that a header block may begin on *stream*."""
        raise NotImplementedError

    def _take_block(self, stream: int, fields: Iterable[tuple[bytes, bytes]], *, ends: bool) -> None:
        """Take a header block."""
        raise NotImplementedError

    def _take_reset(self, stream: int, error_code: int) -> None:
        raise NotImplementedError

    def _take_goaway(self, last_stream: int) -> None:
        raise NotImplementedError

    def _take_window(self, stream: int, increment: int) -> None:
        """Take a WINDOW_UPDATE of a stream, or of the connection, 0."""
        raise NotImplementedError

    def _change_first_window(self, change: int) -> None:
        """The peer has changed the window of all streams by *change*."""
        raise NotImplementedError

    def _violated(self, violation: Violation) -> None:
        """The connection was ended for a violation by the peer."""
        raise NotImplementedError

    # -- reading ----------------------------------------------------------------------------------

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> bool:
        """Process a frame; return whether the step should end with it."""
        self._unproductive_frames += 1
        if self._unproductive_frames > MAX_UNPRODUCTIVE_FRAMES:
            raise Violation(ENHANCE_YOUR_CALM, "too many frames without data")
        if not self.is_settled and kind != SETTINGS:
            raise Violation(PROTOCOL_ERROR, "invalid HTTP/2: the first frame is not SETTINGS")
        if self._block is not None and kind != CONTINUATION:
            raise Violation(PROTOCOL_ERROR, "header block not continued")
        if kind == DATA:
            body = _without_padding(payload) if flags & PADDED else payload
            if len(body) >= SMALL_DATA_BYTES:
                self._unproductive_frames -= 1
            return self._take_body(flags, stream, body, len(payload))
        if kind in (HEADERS, CONTINUATION):
            return self._take_headers(kind, flags, stream, payload)
        # Frames of unknown types are ignored.
        if kind < CONTINUATION:
            self._take_control(kind, flags, stream, payload)
        return False

    def _take_control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if len(payload) != _FRAME_BYTES.get(kind, len(payload)):
            raise Violation(FRAME_SIZE_ERROR, f"{_NAMES[kind]} frame with {len(payload)} bytes")
        if _ON_CONNECTION.get(kind, not stream) != (not stream):
            raise Violation(PROTOCOL_ERROR, f"{_NAMES[kind]} frame on stream {stream}")
        if kind == SETTINGS:
            self._take_settings(flags, payload)
        elif kind == PING and not flags & ACK:
            self.output += frame(PING, ACK, 0, payload)
        elif kind == WINDOW_UPDATE:
            increment = int.from_bytes(payload) & LARGEST_WINDOW_BYTES
            if not stream:
                self._connection_window += increment
                self._check_window(self._connection_window)
            self._take_window(stream, increment)
        elif kind == GOAWAY:
            if len(payload) < 8:
                raise Violation(FRAME_SIZE_ERROR, f"GOAWAY frame with {len(payload)} bytes")
            self._take_goaway(int.from_bytes(payload[:4]) & LARGEST_WINDOW_BYTES)
        elif kind == RST_STREAM:
            self._take_reset(stream, int.from_bytes(payload))
        elif kind == PUSH_PROMISE:
            raise Violation(PROTOCOL_ERROR, "PUSH_PROMISE frame, although push is disabled")

    def _take_headers(self, kind: int, flags: int, stream: int, payload: bytes) -> bool:
        if kind == HEADERS:
            self._check_headers(stream)
            self._block = bytearray()
            self._block_stream = stream
            self._ends = bool(flags & END_STREAM)
            if flags & PADDED:
                payload = _without_padding(payload)
            if flags & HAS_PRIORITY:
                payload = payload[5:]
        elif self._block is None or stream != self._block_stream:
            raise Violation(PROTOCOL_ERROR, "HEADERS or CONTINUATION frame out of place")
        assert self._block is not None
        self._block += payload
        if len(self._block) > MAX_HEADERS_BYTES:
            raise Violation(ENHANCE_YOUR_CALM, f"header block of more than {MAX_HEADERS_BYTES} bytes")
        if not flags & END_HEADERS:
            return False
        block, self._block = bytes(self._block), None
        try:
            _check_size_updates(block)
            decoded = self._decoder.decode(block, raw=True)
        except HPACKError as error:
            # The error's text can contain a memory address, which is different each time.
            raise Violation(COMPRESSION_ERROR, f"invalid header block: {type(error).__name__}") from None
        self._take_block(stream, decoded, ends=self._ends)
        return True

    def _take_settings(self, flags: int, payload: bytes) -> None:
        if len(payload) % 6 or (flags & ACK and payload):
            raise Violation(FRAME_SIZE_ERROR, f"SETTINGS frame with {len(payload)} bytes")
        if len(payload) // 6 > _MAX_SETTINGS:
            raise Violation(ENHANCE_YOUR_CALM, f"SETTINGS frame with more than {_MAX_SETTINGS} settings")
        if flags & ACK:
            return
        settings = dict(struct.iter_unpack(">HL", payload))
        window = settings.get(INITIAL_WINDOW_SIZE, self._first_window)
        max_frame_bytes = settings.get(MAX_FRAME_SIZE, self._max_frame_bytes)
        if window > LARGEST_WINDOW_BYTES:
            raise Violation(FLOW_CONTROL_ERROR, "invalid HTTP/2 SETTINGS")
        if not MAX_FRAME_BYTES <= max_frame_bytes < 2**24 or settings.get(ENABLE_PUSH, 0) > 1:
            raise Violation(PROTOCOL_ERROR, "invalid HTTP/2 SETTINGS")
        change, self._first_window = window - self._first_window, window
        self._max_frame_bytes = max_frame_bytes
        self.is_settled = True
        self.output += frame(SETTINGS, ACK, 0)
        self._change_first_window(change)

    def _check_window(self, window: int) -> None:
        if window > LARGEST_WINDOW_BYTES:
            raise Violation(FLOW_CONTROL_ERROR, "flow control window too large")


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
