"""One HTTP/1.1 connection to a server: one request at a time, and limits on the answer.

Every error of the server becomes an :class:`ExchangeError`, and the connection is not used again.

Source: RFC 9112; net/http transport.go of Go, which is the API server's client (retries, at most five interim
answers, no reuse after unsolicited data).
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

import httptools

from gateway.engine.dispatch.https.large_answers import LARGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.engine.dispatch.https.large_answers import LargeAnswerSlot

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""The size of an answer, compressed and unpacked: as much as a worker's message."""
MAX_HEAD_BYTES: Final = 64 * 1024
"""The size of the header fields of an answer, and of the trailer fields of a chunked body."""
MAX_FIELDS: Final = 256
"""Header fields of an answer. Each costs several objects."""
FREE_CHUNKS: Final = 1024
MIN_CHUNK_BYTES: Final = 128
"""Average in an answer with more than ``FREE_CHUNKS`` chunks. A chunk takes as long to parse as hundreds of
bytes: 8 MiB in chunks of one byte would block the event loop for seconds."""
MAX_CHUNK_FRAMING_BYTES: Final = 64
"""Average of a chunk: its size, extensions and line ends."""
MAX_INTERIM: Final = 5
"""Answers such as ``100 Continue`` before the final one."""
_WRITE_BYTES: Final = 64 * 1024
"""Written before the event loop runs other tasks. Encrypting megabytes takes milliseconds."""


class ExchangeError(Exception):
    """There is no usable answer; the text is the reason, in Go's wording if Go has one."""

    def __init__(self, reason: str, *, is_unsent: bool = False, is_unanswered: bool = False) -> None:
        super().__init__(reason)
        self.is_unsent = is_unsent
        """Whether the server cannot have received any of the request."""
        self.is_unanswered = is_unanswered
        """Whether the connection ended before a byte of the answer."""


class AnswerTooLargeError(ExchangeError):
    """The answer exceeds a limit."""


@dataclass(slots=True)
class HttpResponse:
    """A complete answer."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    """By name in lower case; the first of several with one name."""
    body: bytes = b""


class ClientConnection(asyncio.Protocol):
    """A connection. *on_idle_end* is called once if it ends while no request is in progress."""

    def __init__(self, on_idle_end: Callable[[ClientConnection], None]) -> None:
        self.is_reusable = False
        """Whether another request may follow the last answer."""
        self.idle_since = 0.0
        self.has_answered = False
        """Whether it has carried a request before."""
        self._on_idle_end = on_idle_end
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[HttpResponse] | None = None
        self._slot: LargeAnswerSlot | None = None
        """The slot for the answer, if it is large."""
        self._response = HttpResponse(0)
        self._body = bytearray()
        self._drained: asyncio.Future[None] | None = None
        """Set while the write buffer is full."""
        self._interim = 0
        self._fields = self._chunks = 0
        self._head_bytes = self._read_bytes = 0
        self._has_head = self._is_until_closed = False

    async def exchange(self, slot: LargeAnswerSlot, *request: bytes | memoryview) -> HttpResponse:
        """Send *request*, and return the answer. Cancellation ends the connection.

        A large answer waits for *slot*, and keeps it. While the server does not read, no more of *request*
        is copied than fits into the write buffer.

        Raises:
            ExchangeError: there is no answer.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ExchangeError("EOF", is_unsent=True)
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        self._slot, self.is_reusable = slot, False
        self._read_bytes = self._interim = self._chunks = 0
        try:
            is_whole = await self._write(transport, waiter, request)
            response: HttpResponse = await waiter
        except BaseException:
            self.abort()
            raise
        finally:
            self._waiter = self._slot = None
            # An idle connection must not keep the answer in memory.
            self._response = HttpResponse(0)
        self.has_answered = True
        # If the server answered before it read the whole request, it would take the rest for another one.
        if not is_whole or transport.is_closing() or transport.get_write_buffer_size():
            self.is_reusable = False
        return response

    async def _write(
        self,
        transport: asyncio.Transport,
        answered: asyncio.Future[HttpResponse],
        request: Sequence[bytes | memoryview],
    ) -> bool:
        """Write *request*; return False if the server *answered* before all was written."""
        if sum(map(len, request)) <= _WRITE_BYTES:
            transport.write(b"".join(request))
            return True
        for part in request:
            piece = memoryview(part)
            for begin in range(0, len(piece), _WRITE_BYTES):
                if answered.done():
                    return False
                transport.write(piece[begin : begin + _WRITE_BYTES])
                if self._drained is None:
                    await asyncio.sleep(0)
                else:
                    await asyncio.wait((self._drained, answered), return_when=asyncio.FIRST_COMPLETED)
        return True

    @property
    def certificate(self) -> bytes:
        """The server's certificate, DER; empty without TLS, or after the end of the connection."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return (tls.getpeercert(binary_form=True) or b"") if tls is not None else b""

    def abort(self) -> None:
        """Close the connection at once."""
        self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    # -- called by asyncio -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; called again with the TLS transport inside a proxy's tunnel."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse a part of an answer."""
        self._read_bytes += len(data)
        try:
            if self._waiter is None:
                raise ExchangeError("unsolicited answer")
            self._parser.feed_data(data)
            if self._waiter is not None and not self._waiter.done():
                self._check_size()
                if len(self._body) > LARGE_BYTES and not self._slot.try_acquire(self._resume):  # type: ignore[union-attr]
                    self._transport.pause_reading()  # type: ignore[union-attr]
        except httptools.HttpParserUpgrade:
            self._fail(ExchangeError("the server switches to another protocol without a request to do so"))
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self._fail(cause if isinstance(cause, ExchangeError) else ExchangeError(_malformed(error)))
        except httptools.HttpParserError as error:
            self._fail(ExchangeError(_malformed(error)))
        except ExchangeError as error:
            self._fail(error)

    def _resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Stop writing: the buffer is full."""
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Continue to write."""
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def eof_received(self) -> None:
        """Close the connection: the server sends no more."""

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the end of the connection, which may be the end of an answer."""
        waiter = self._waiter
        if waiter is None:
            self.is_reusable = False
            self._on_idle_end(self)
        elif error is None and self._is_until_closed and not waiter.done():
            self.on_message_complete()
            self.is_reusable = False
        else:
            text = "unexpected EOF" if self._read_bytes else "EOF"
            if isinstance(error, ssl.SSLError):
                text = f"tls: {error.reason or error}"
            elif isinstance(error, OSError):
                text = f"read: {(error.strerror or str(error) or 'connection lost').lower()}"
            self._fail(ExchangeError(text, is_unanswered=not self._read_bytes))

    # -- called by the parser --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin an answer."""
        if self._waiter is None or self._waiter.done():
            self.is_reusable = False
            raise ExchangeError("unsolicited answer")
        self._response = HttpResponse(0)
        self._body = bytearray()
        self._head_bytes = self._fields = 0
        self._has_head = self._is_until_closed = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header field; drop a trailer field."""
        self._head_bytes += len(name) + len(value)
        self._fields += 1
        if self._head_bytes > MAX_HEAD_BYTES:
            raise AnswerTooLargeError(f"an answer with more than {MAX_HEAD_BYTES} bytes of headers")
        if self._fields > MAX_FIELDS:
            raise AnswerTooLargeError(f"an answer with more than {MAX_FIELDS} headers")
        if not self._has_head:
            self._response.headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1").strip())

    def on_headers_complete(self) -> None:
        """Determine how the body ends."""
        self._has_head = True
        self._response.status = status = self._parser.get_status_code()
        headers = self._response.headers
        self._is_until_closed = not (
            "content-length" in headers
            or "transfer-encoding" in headers
            or status < 200
            or status in (204, 304)
        )

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self._body += body
        if len(self._body) > MAX_BODY_BYTES:
            raise AnswerTooLargeError(f"an answer with more than {MAX_BODY_BYTES} bytes")

    def on_chunk_header(self) -> None:
        """Count a chunk."""
        self._chunks += 1
        # The last chunk is empty, and the one before may be short.
        if self._chunks > FREE_CHUNKS and len(self._body) < MIN_CHUNK_BYTES * (self._chunks - 2):
            raise ExchangeError(
                f"an answer in over {FREE_CHUNKS} chunks, of less than {MIN_CHUNK_BYTES} bytes on average"
            )

    def on_message_complete(self) -> None:
        """Return the answer to the waiting request, unless it is an interim one."""
        if self._response.status < 200 and self._response.status != 101:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise ExchangeError(f"more than {MAX_INTERIM} answers of status 1xx")
            return
        self._response.body, self._body = bytes(self._body), bytearray()
        self.is_reusable = self._parser.should_keep_alive() and not self._is_until_closed
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(self._response)

    def _check_size(self) -> None:
        if not self._has_head and self._read_bytes > MAX_HEAD_BYTES * (self._interim + 1):
            raise AnswerTooLargeError(f"an answer with more than {MAX_HEAD_BYTES} bytes of headers")
        framing_bytes = self._read_bytes - len(self._body)
        if framing_bytes > MAX_HEAD_BYTES * (self._interim + 2) + MAX_CHUNK_FRAMING_BYTES * self._chunks:
            raise AnswerTooLargeError(f"an answer with {framing_bytes} bytes of headers and chunk extensions")

    def _fail(self, error: ExchangeError) -> None:
        waiter = self._waiter
        self.abort()
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)


def _malformed(error: Exception) -> str:
    return f"malformed HTTP response: {error}"
