"""An HTTP/2 connection with one stream on it, the client's side: bytes in, bytes out, and no socket.

The long-lived stream to a worker does not go through grpc.aio, whose every read and write is handed through a
completion queue, a polling thread and a pair of sockets: ten changes of thread for a review that travels
alone, where two will do. Here a message is one write of the event loop that has the review, and its answer
one read. ``hyperframe`` and ``hpack`` know the formats; ``h2``, of the same family, cannot go on reading
after a GOAWAY, which is how servers announce that they are leaving.

Only what one call needs is there: one stream, number 1, for as long as the connection lives. A peer that does
what HTTP/2 forbids ends it, and nothing is raised.

Source: RFC 9113 (sections 3.4, 4, 5.2, 6 and 7).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import hpack
from hpack.exceptions import HPACKError
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_STREAM: Final = 1
_FRAME_HEAD_BYTES: Final = 9
_MAX_FRAME_BYTES: Final = 16_384
"""What may be sent to a peer, and is taken from one, that has not said otherwise."""
_MAX_HEADERS_BYTES: Final = 64 * 1024
_FIRST_WINDOW_BYTES: Final = 65_535
_LARGEST_WINDOW_BYTES: Final = 2**31 - 1
WINDOW_BYTES: Final = 16 * 1024 * 1024
"""What the peer may send before it is told to go on: twice the longest message, so that none is held up."""

MAX_FRAMES_FOR_NOTHING: Final = 10_000
"""Pings, settings and the like that may come while no data goes to and fro, before it is a flood."""

NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 3, 6, 8, 11
"""Error codes of RFC 9113, section 7."""


class Violation(Exception):
    """The peer did what it must not, or what cannot be used; the text says what."""

    def __init__(self, error_code: int, text: str, status: str = "INTERNAL") -> None:
        super().__init__(text)
        self.error_code = error_code
        self.status = status
        """Name of the gRPC status in which the call ends."""


class Http2Owner(Protocol):
    """Whom the stream reports to. ``headers`` and ``data`` may raise a Violation."""

    def headers(self, fields: Mapping[str, str], *, ends: bool) -> None:
        """Take a block of fields; *ends*: the peer sends nothing after it."""

    def data(self, body: bytes, *, ends: bool) -> None:
        """Take a piece of the body."""

    def reset(self, error_code: int | None) -> None:
        """The peer gave the stream up; None: it has not even looked at it."""

    def violated(self, violation: Violation) -> None:
        """The peer cannot be understood, and was told so."""


class Http2Stream:
    """The client's side. After every method, :attr:`output` holds what is to be written to the connection."""

    def __init__(self, request: Iterable[tuple[str, str]], owner: Http2Owner) -> None:
        """Begin with the fields of the *request*, whose body is to follow."""
        self.output = bytearray()
        self.is_over = False
        """Whether anything that still comes is ignored; the owner may say so."""
        self.is_settled = False
        """Whether the peer has introduced itself as one that speaks HTTP/2."""
        self.is_leaving = False
        """Whether the peer takes no further streams on this connection; this one goes on."""
        self._owner = owner
        self._input = bytearray()
        self._block: bytearray | None = None
        self._ends = False
        self._decoder = hpack.Decoder(max_header_list_size=_MAX_HEADERS_BYTES)
        self._unacknowledged_bytes = self._frames_for_nothing = 0
        self._unsent: deque[memoryview] = deque()
        self._connection_window = self._stream_window = self._first_window = _FIRST_WINDOW_BYTES
        self._max_frame_bytes = _MAX_FRAME_BYTES
        self._is_ending = self._has_ended = False
        self._taken: Mapping[type[Frame], Callable[..., None]] = {
            DataFrame: self._take_data,
            SettingsFrame: self._take_settings,
            PingFrame: self._take_ping,
            WindowUpdateFrame: self._take_window,
            HeadersFrame: self._take_headers,
            ContinuationFrame: self._take_headers,
            RstStreamFrame: self._take_reset,
            GoAwayFrame: self._take_goaway,
            PushPromiseFrame: self._take_promise,
        }
        settings = {SettingsFrame.ENABLE_PUSH: 0, SettingsFrame.INITIAL_WINDOW_SIZE: WINDOW_BYTES}
        self.output += _PREFACE
        self._write(SettingsFrame(settings=settings))
        self._write(WindowUpdateFrame(0, WINDOW_BYTES - _FIRST_WINDOW_BYTES))
        self._write(HeadersFrame(_STREAM, hpack.Encoder().encode(request), flags=["END_HEADERS"]))

    @property
    def is_blocked(self) -> bool:
        """Whether the peer's flow control holds something back."""
        return bool(self._unsent)

    def send(self, body: bytes) -> None:
        """Send a piece of the body, as far as the peer lets it, the rest as soon as it does."""
        self._unsent.append(memoryview(body))
        self._pump()

    def finish_writing(self) -> None:
        """End the body, once all of it is sent."""
        self._is_ending = True
        self._pump()

    def forgive(self) -> None:
        """Count anew what comes for nothing; to be called now and then, so that only a flood counts."""
        self._frames_for_nothing = 0

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._write(PingFrame(opaque_data=b"alive?  "))

    def cancel(self) -> None:
        """Give the stream up, and the connection with it."""
        if not self.is_over:
            self.is_over = True
            self._write(RstStreamFrame(_STREAM, CANCEL))
            self._write(GoAwayFrame(0, error_code=NO_ERROR))

    def receive(self, read: bytes) -> None:
        """Take what the connection brought."""
        if self._input:
            self._input += read
            read = bytes(self._input)
            self._input.clear()
        view, position = memoryview(read), 0
        try:
            while not self.is_over and len(view) - position >= _FRAME_HEAD_BYTES:
                body = position + _FRAME_HEAD_BYTES
                frame, length = Frame.parse_frame_header(view[position:body])
                if length > _MAX_FRAME_BYTES:
                    raise Violation(
                        FRAME_SIZE_ERROR, f"what the worker sent is no HTTP/2: {length} bytes a frame"
                    )
                if len(view) - body < length:
                    break
                position = body + length
                frame.parse_body(view[body:position])
                self._take(frame)
        except HyperframeError as error:
            self._end(Violation(PROTOCOL_ERROR, f"what the worker sent is no HTTP/2: {error}"))
        except Violation as violation:
            self._end(violation)
        if not self.is_over:
            self._input += view[position:]

    # -- reading ----------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        if not self.is_settled and type(frame) is not SettingsFrame:
            raise Violation(PROTOCOL_ERROR, "what the worker sent is no HTTP/2: no SETTINGS")
        self._frames_for_nothing += 1
        if self._frames_for_nothing > MAX_FRAMES_FOR_NOTHING:
            raise Violation(ENHANCE_YOUR_CALM, "a flood of frames from the worker")
        if self._block is not None and type(frame) is not ContinuationFrame:
            raise Violation(PROTOCOL_ERROR, "headers of the worker's that do not end")
        take = self._taken.get(type(frame))
        if take is not None:
            take(frame)

    def _take_data(self, frame: DataFrame) -> None:
        if frame.stream_id != _STREAM:
            raise Violation(PROTOCOL_ERROR, "data from the worker where none may be")
        if frame.data:
            self._frames_for_nothing = 0
        self._unacknowledged_bytes += frame.flow_controlled_length
        if self._unacknowledged_bytes > WINDOW_BYTES:
            raise Violation(FLOW_CONTROL_ERROR, "more data from the worker than it may send")
        if self._unacknowledged_bytes > WINDOW_BYTES // 2:
            for stream in (0, _STREAM):
                self._write(WindowUpdateFrame(stream, self._unacknowledged_bytes))
            self._unacknowledged_bytes = 0
        self._owner.data(frame.data, ends="END_STREAM" in frame.flags)

    def _take_headers(self, frame: HeadersFrame | ContinuationFrame) -> None:
        if frame.stream_id != _STREAM or (self._block is None and type(frame) is ContinuationFrame):
            raise Violation(PROTOCOL_ERROR, "headers from the worker where none may be")
        if self._block is None:
            self._block = bytearray()
            self._ends = "END_STREAM" in frame.flags
        self._block += frame.data
        if len(self._block) > _MAX_HEADERS_BYTES:
            raise Violation(
                PROTOCOL_ERROR, f"more than {_MAX_HEADERS_BYTES} bytes of headers from the worker"
            )
        if "END_HEADERS" in frame.flags:
            block, self._block = bytes(self._block), None
            try:
                decoded = self._decoder.decode(block, raw=True)
            except HPACKError as error:
                # Its text can hold a memory address: the same answer would read differently each time.
                raise Violation(
                    PROTOCOL_ERROR, f"headers of the worker's that cannot be read: {type(error).__name__}"
                ) from None
            fields = {
                bytes(name).decode("latin-1"): bytes(value).decode("latin-1") for name, value in decoded
            }
            self._owner.headers(fields, ends=self._ends)

    def _take_reset(self, frame: RstStreamFrame) -> None:
        if frame.stream_id == _STREAM:
            self._owner.reset(frame.error_code)

    def _take_goaway(self, frame: GoAwayFrame) -> None:
        self.is_leaving = True
        if frame.last_stream_id < _STREAM:
            self._owner.reset(None)

    def _take_promise(self, _: PushPromiseFrame) -> None:
        raise Violation(PROTOCOL_ERROR, "a push from the worker, which was forbidden")

    def _take_ping(self, frame: PingFrame) -> None:
        if "ACK" not in frame.flags:
            self._write(PingFrame(opaque_data=frame.opaque_data, flags=["ACK"]))

    def _take_settings(self, frame: SettingsFrame) -> None:
        if "ACK" in frame.flags:
            return
        settings = frame.settings
        window = settings.get(SettingsFrame.INITIAL_WINDOW_SIZE, self._first_window)
        max_frame_bytes = settings.get(SettingsFrame.MAX_FRAME_SIZE, self._max_frame_bytes)
        if window > _LARGEST_WINDOW_BYTES or not _MAX_FRAME_BYTES <= max_frame_bytes < 2**24:
            raise Violation(PROTOCOL_ERROR, "settings of the worker's that may not be")
        self._stream_window += window - self._first_window
        self._first_window, self._max_frame_bytes = window, max_frame_bytes
        self.is_settled = True
        self._write(SettingsFrame(flags=["ACK"]))
        self._pump()

    def _take_window(self, frame: WindowUpdateFrame) -> None:
        if frame.stream_id == 0:
            self._connection_window += frame.window_increment
        elif frame.stream_id == _STREAM:
            self._stream_window += frame.window_increment
        if max(self._connection_window, self._stream_window) > _LARGEST_WINDOW_BYTES:
            raise Violation(FLOW_CONTROL_ERROR, "a window of the worker's that is too large")
        self._pump()

    # -- writing ----------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Write what the peer's windows have room for."""
        unsent = self._unsent
        while unsent and not self.is_over:
            piece = unsent[0]
            room = min(self._connection_window, self._stream_window, self._max_frame_bytes, len(piece))
            if room <= 0:
                return
            self._write(DataFrame(_STREAM, piece[:room]))  # type: ignore[arg-type] # it is only joined
            self._frames_for_nothing = 0
            self._connection_window -= room
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

    def _end(self, violation: Violation) -> None:
        self.is_over = True
        self._write(GoAwayFrame(0, error_code=violation.error_code))
        self._owner.violated(violation)
