"""The server side of an HTTP/2 connection: bytes in, bytes out, no socket.

Each stream is a request, whose owner gets its body and sends the response. Bounds: ``MAX_STREAMS``; frames
without an answer, by ``MAX_UNPRODUCTIVE_FRAMES``; the unread body of a stream, by its window; output, by
``OUTPUT_BYTES``: more data waits in its stream until the caller has written the output and calls ``pump``.

Source: RFC 9113 (sections 3.4, 5, 6.8 and 8.1).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from admission_gateway_worker.http2 import frames
from admission_gateway_worker.http2.fields import REQUEST, TRAILERS, read_fields
from admission_gateway_worker.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW_BYTES,
    FLOW_CONTROL_ERROR,
    FRAME_HEAD,
    HEADERS,
    LARGEST_WINDOW_BYTES,
    MAX_FRAME_BYTES,
    NO_ERROR,
    PREFACE,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    RST_STREAM,
    STREAM_CLOSED,
    WINDOW_BYTES,
    WINDOW_UPDATE,
    Endpoint,
    Violation,
    frame,
    number_frame,
    settings_frame,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MAX_STREAMS: Final = 4096
"""Open streams of a connection: as many as calls in flight on a stream."""
OUTPUT_BYTES: Final = 256 * 1024
"""Output above which data waits."""
_SENT_FRAME_BYTES: Final = 64 * 1024
"""Limit of a DATA frame besides the client's, which can be 16 MiB, so that streams take turns."""
_PRODUCTIVE_FRAMES: Final = 100
"""Frames that a client may send for each answer besides those of the answered request."""


class StreamOwner(Protocol):
    """Receives the events of a request."""

    def data(self, body: bytes, *, ends: bool) -> bool:
        """Take a part of the body; return whether the step should end with it."""

    def reset(self) -> None:
        """The client cancelled the request, or violated the protocol; nothing can be sent."""

    def writable(self) -> None:
        """All data is written, of which some had to wait."""


class ServerStream:
    """One request. Its methods do nothing after its end."""

    __slots__ = (
        "_connection",
        "_trailers",
        "_unread_bytes",
        "_updated",
        "has_ended",
        "has_waited",
        "is_open",
        "number",
        "owner",
        "unsent",
        "window",
    )

    def __init__(self, connection: Http2Server, number: int, window: int) -> None:
        self.owner: StreamOwner | None = None
        """None before it is accepted, and after its end, so that there is no reference cycle."""
        self.number = number
        self.window = window
        """Bytes that the client's flow control allows."""
        self.unsent: deque[memoryview] = deque()
        self.has_waited = False
        """Whether the owner is to be notified when all data is written."""
        self.is_open = True
        """Whether something can be sent."""
        self.has_ended = False
        """Whether the client has sent all of the request."""
        self._connection = connection
        self._trailers: bytes | None = None
        self._unread_bytes = self._updated = 0

    @property
    def is_blocked(self) -> bool:
        """Whether data waits for the client's flow control, or for room in the output."""
        return bool(self.unsent)

    def send_headers(self, block: bytes) -> None:
        """Begin the response with the fields of *block*."""
        if self.is_open:
            self._connection.output += frame(HEADERS, END_HEADERS, self.number, block)

    def send(self, body: bytes) -> None:
        """Send a part of the body, as soon as there is room."""
        if self.is_open and self._trailers is None:
            connection = self._connection
            if not self.unsent and connection.has_room(len(body), self.window):
                connection.write_frame(self, body)
                connection.has_worked()
                return
            self.unsent.append(memoryview(body))
            connection.unsent_bytes += len(body)
            if len(self.unsent) == 1 and self.window > 0:
                connection.add_writer(self)
            self.has_waited = bool(self.unsent)

    def end(self, block: bytes) -> None:
        """End the response with *block*, which are its headers if it has none yet, after its body."""
        if self.is_open and self._trailers is None:
            self._trailers = block
            if not self.unsent:
                self.write_trailers()

    def write_trailers(self) -> None:
        """Write the end of the response, if it is complete."""
        if self._trailers is not None and self.is_open:
            connection = self._connection
            connection.output += frame(HEADERS, END_HEADERS | END_STREAM, self.number, self._trailers)
            connection.has_worked()
            if not self.has_ended:
                # The rest of the request is not needed (RFC 9113, section 8.1).
                connection.output += number_frame(RST_STREAM, self.number, NO_ERROR)
            connection.forget(self)

    def arrived(self, size: int) -> None:
        """Count *size* bytes of the request against the window.

        Raises:
            Violation: the client exceeds it.
        """
        self._unread_bytes += size
        if self._unread_bytes + self._updated > WINDOW_BYTES:
            raise Violation(FLOW_CONTROL_ERROR, "flow control window exceeded")

    def consumed(self, size: int) -> None:
        """Let the client send *size* bytes more, now or when that is worth a frame."""
        self._unread_bytes -= size
        self._updated += size
        # A quarter: with half of it, a message of the greatest length might not fit into the rest.
        if self._updated > WINDOW_BYTES // 4 and self.is_open and not self.has_ended:
            self._connection.output += number_frame(WINDOW_UPDATE, self.number, self._updated)
            self._updated = 0


class Http2Server(Endpoint):
    """The server side. The caller writes :attr:`output` to the connection after every method."""

    def __init__(self, accept: Callable[[ServerStream, Mapping[str, str]], StreamOwner]) -> None:
        """*accept* gets each request with its header fields, and returns its owner."""
        super().__init__()
        self.streams: dict[int, ServerStream] = {}
        self.is_paused = False
        """Whether data waits, because the client does not read; set by the caller."""
        self.unsent_bytes = 0
        """Data that waits in all streams."""
        self._accept = accept
        self._has_preface = False
        self._unacknowledged_bytes = 0
        self._writers: deque[ServerStream] = deque()
        """Streams with data that their own windows allow; also some that have ended, or are there twice."""
        self._is_pumping = False
        settings = {
            frames.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            frames.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
            frames.MAX_HEADER_LIST_SIZE: frames.MAX_HEADERS_BYTES,
        }
        self.output += settings_frame(settings)
        self.output += number_frame(WINDOW_UPDATE, 0, WINDOW_BYTES - FIRST_WINDOW_BYTES)

    def announce_shutdown(self) -> None:
        """Announce the shutdown to the client; streams that it opens nevertheless are served."""
        if not self.is_over:
            self._go_away(NO_ERROR, LARGEST_WINDOW_BYTES)

    def close(self) -> None:
        """Send the number of the last served stream, and ignore further input. Streams stay as they are."""
        if not self.is_over:
            self._go_away(NO_ERROR, self._last_stream)
            self.is_over = True
            self.has_more = False

    def advance(self) -> None:
        """Process a step, see ``Endpoint``."""
        if not self._has_preface:
            if not PREFACE.startswith(self._input[: len(PREFACE)]):
                self.fail(Violation(PROTOCOL_ERROR, "no HTTP/2 preface"))
                return
            if len(self._input) < len(PREFACE):
                self.has_more = False
                return
            self._position = len(PREFACE)
            self._has_preface = True
        super().advance()

    def has_worked(self) -> None:
        """An answer was sent: the frames that led to it were not wasted."""
        self._unproductive_frames = max(0, self._unproductive_frames - _PRODUCTIVE_FRAMES)

    def forget(self, stream: ServerStream) -> None:
        """Remove a stream that has ended."""
        stream.is_open = False
        stream.owner = None
        self.unsent_bytes -= sum(map(len, stream.unsent))
        stream.unsent.clear()
        self.streams.pop(stream.number, None)

    # -- called by the endpoint -------------------------------------------------------------------

    def _take_body(self, flags: int, stream: int, body: bytes, size: int) -> bool:
        # The connection's window is acknowledged at once: it is shared, so a request whose owner does not
        # read must not stop the others. The streams' windows and the owner bound what is stored.
        self._unacknowledged_bytes += size
        if self._unacknowledged_bytes > WINDOW_BYTES // 2:
            self.output += number_frame(WINDOW_UPDATE, 0, self._unacknowledged_bytes)
            self._unacknowledged_bytes = 0
        found = self._find(DATA, stream)
        if found is None or found.has_ended:
            self._reset(stream, STREAM_CLOSED)
            return False
        try:
            found.arrived(size)
        except Violation as violation:
            self._reset(stream, violation.error_code)
            return False
        if size > len(body):
            found.consumed(size - len(body))
        found.has_ended = bool(flags & END_STREAM)
        assert found.owner is not None
        return found.owner.data(body, ends=found.has_ended)

    def _check_headers(self, stream: int) -> None:
        found = self.streams.get(stream)
        if found is not None:
            if found.has_ended:
                raise Violation(STREAM_CLOSED, f"HEADERS frame on stream {stream} after its end")
        elif not stream & 1:
            raise Violation(PROTOCOL_ERROR, f"HEADERS frame on stream {stream}")
        elif stream <= self._last_stream:
            raise Violation(STREAM_CLOSED, f"HEADERS frame on stream {stream}, which is closed")

    def _take_block(self, stream: int, fields: Iterable[tuple[bytes, bytes]], *, ends: bool) -> None:
        found = self.streams.get(stream)
        try:
            if found is None:
                self._last_stream = stream
                self._open(stream, read_fields(fields, REQUEST), ends=ends)
                return
            read_fields(fields, TRAILERS)
            if not ends:
                raise Violation(PROTOCOL_ERROR, "trailers that do not end the stream")
        except Violation as violation:
            self._reset(stream, violation.error_code)
            return
        found.has_ended = True
        assert found.owner is not None
        found.owner.data(b"", ends=True)

    def _open(self, stream: int, fields: Mapping[str, str], *, ends: bool) -> None:
        if len(self.streams) >= MAX_STREAMS:
            self._reset(stream, REFUSED_STREAM)
            return
        opened = self.streams[stream] = ServerStream(self, stream, self._first_window)
        opened.has_ended = ends
        owner = self._accept(opened, fields)
        if opened.is_open:
            opened.owner = owner
            if ends:
                owner.data(b"", ends=True)

    def _take_reset(self, stream: int, error_code: int) -> None:
        found = self._find(RST_STREAM, stream)
        if found is not None:
            self._drop(found)

    def _take_goaway(self, last_stream: int) -> None:
        """The client opens no further streams; it closes the connection itself."""

    def _take_window(self, stream: int, increment: int) -> None:
        if not increment and not stream:
            raise Violation(PROTOCOL_ERROR, "WINDOW_UPDATE frame of 0")
        if stream:
            found = self._find(WINDOW_UPDATE, stream)
            if found is None:
                return
            if not increment or found.window + increment > LARGEST_WINDOW_BYTES:
                self._reset(stream, FLOW_CONTROL_ERROR if increment else PROTOCOL_ERROR)
                return
            self._open_window(found, increment)
        self.pump()

    def _change_first_window(self, change: int) -> None:
        if change:
            self._unproductive_frames += len(self.streams) // 8  # which take as long as so many frames
            for stream in self.streams.values():
                self._check_window(stream.window + change)
                self._open_window(stream, change)
            self.pump()

    def _violated(self, violation: Violation) -> None:
        for stream in list(self.streams.values()):
            self._drop(stream)

    def _find(self, kind: int, stream: int) -> ServerStream | None:
        """Return an open stream; None if it is closed."""
        found = self.streams.get(stream)
        if found is None and (not stream & 1 or stream > self._last_stream):
            raise Violation(PROTOCOL_ERROR, f"frame of type {kind} on stream {stream}, which is not open")
        return found

    def _reset(self, stream: int, error_code: int) -> None:
        """Reset a stream for an error of the client."""
        self.output += number_frame(RST_STREAM, stream, error_code)
        found = self.streams.get(stream)
        if found is not None:
            self._drop(found)

    def _drop(self, stream: ServerStream) -> None:
        owner = stream.owner
        self.forget(stream)
        if owner is not None:
            owner.reset()

    # -- writing ----------------------------------------------------------------------------------

    def add_writer(self, stream: ServerStream) -> None:
        """Write data of *stream*, which had none."""
        self._append_writer(stream)
        self.pump()

    def has_room(self, size: int, window: int) -> bool:
        """Whether *size* bytes of a stream with this *window* fit into a frame, and no other stream waits."""
        return (
            size <= window
            and size <= self._connection_window
            and size <= MAX_FRAME_BYTES
            and not self._writers
            and not self.is_paused
            and len(self.output) < OUTPUT_BYTES
        )

    def write_frame(self, stream: ServerStream, data: bytes | memoryview) -> None:
        """Write *data*, which the windows allow, as a frame of *stream*."""
        size = len(data)
        self.output += FRAME_HEAD.pack(size >> 8, size & 0xFF, DATA, 0, stream.number)
        self.output += data
        self._connection_window -= size
        stream.window -= size

    def _open_window(self, stream: ServerStream, increment: int) -> None:
        was_open = stream.window > 0
        stream.window += increment
        if stream.unsent and not was_open and stream.window > 0:
            self._append_writer(stream)

    def _append_writer(self, stream: ServerStream) -> None:
        writers = self._writers
        writers.append(stream)
        if len(writers) > 2 * MAX_STREAMS:
            # While the connection's window is closed, a client can open and cancel streams without end.
            waiting = dict.fromkeys(writer for writer in writers if writer.is_open)
            writers.clear()
            writers.extend(waiting)

    def pump(self) -> None:
        """Write as much as windows and output allow, a frame of each stream in turn."""
        if self._is_pumping:
            return  # called by an owner, and the outer call continues
        self._is_pumping = True
        writers = self._writers
        while writers and len(self.output) < OUTPUT_BYTES and not self.is_paused:
            if self._connection_window <= 0:
                break
            stream = writers.popleft()
            if stream.unsent and stream.window > 0:
                self._write_piece(stream)
            if stream.unsent:
                if stream.window > 0:
                    writers.append(stream)
                continue
            stream.write_trailers()
            if stream.has_waited and stream.owner is not None:
                stream.has_waited = False
                stream.owner.writable()
        self._is_pumping = False

    def _write_piece(self, stream: ServerStream) -> None:
        piece = stream.unsent[0]
        room = min(
            *(self._connection_window, stream.window, self._max_frame_bytes),
            *(len(piece), _SENT_FRAME_BYTES),
        )
        self.write_frame(stream, piece[:room])
        self.unsent_bytes -= room
        if room == len(piece):
            stream.unsent.popleft()
            self.has_worked()
        else:
            stream.unsent[0] = piece[room:]
