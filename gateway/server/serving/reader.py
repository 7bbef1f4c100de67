"""Bytes to requests: llhttp (``httptools``) parses heads, and this module delimits bodies.

A request goes to the connection when its body is complete. After a request that was refused before its end
the reader stops: it does not know where the next request begins, and guessing is how requests are smuggled.

llhttp itself refuses a repeated or unreadable Content-Length, Content-Length beside Transfer-Encoding,
obs-fold, a space before the colon, and bare CR or LF. Of bodies it gets only those with Content-Length.
Added here: the exact request line, bounds, Host, unsupported HTTP versions, transfer codings other than
chunked, chunks (``gateway.server.serving.chunks``), and Expect.

Source: RFC 9112 sections 2.2, 2.3, 3, 3.2, 5, 6.1, 6.3; RFC 9110 sections 7.8 and 10.1.1.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final, Protocol

import httptools

from gateway.server.serving.chunks import BadChunks, Chunks
from gateway.server.serving.message import Exchange, HttpRequest, Response, Writer, error_response

if TYPE_CHECKING:
    from gateway.server.serving.connection_table import ConnectionTable

logger = logging.getLogger(__name__)

_MAX_FIELDS: Final = 100
"""Fields of a head and its trailer, as in Apache. Each is several objects: 16 KiB of the shortest would
become half a megabyte."""
_MAX_EMPTY_LINES: Final = 2
"""Before a request line. RFC 9112 section 2.2: at least one should be ignored."""
_UNCOUNTED_BYTES: Final = len(b"POST  HTTP/1.1\r\n\r\n")
"""Bytes of a head that do not count: the bound is for the target and the fields."""
_USUAL_HEAD_BYTES: Final = 1024
_REQUEST_LINE: Final = re.compile(rb"[A-Z-]+ [\x21-\x7e]+ HTTP/[0-9]\.[0-9]\r\n")
_HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+;=%-]*)(?::[0-9]*)?")


class RequestSink(Writer, Protocol):
    """The connection, as the reader uses it."""

    is_trusted: bool
    """Whether the client's certificate alone is enough to be let in."""

    def submit(self, exchange: Exchange) -> None:
        """Take a complete request; the last one of the connection has ``keep_alive`` False."""

    def promise_continue(self) -> None:
        """Send ``100 Continue`` when the turn of the request comes."""


class _Stop(Exception):
    """Raised in a callback after a refusal, to end the parsing."""


class RequestReader:
    """Reads the requests of one connection. The parser of a head calls the ``on_…`` methods."""

    def __init__(self, sink: RequestSink, connections: ConnectionTable) -> None:
        self._sink = sink
        self._connections = connections
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        """Between two requests and in a head; None where the next request needs a new one."""
        self.received_at: float | None = None
        """Monotonic seconds at which the request that is being read began; None between two requests."""
        self.exchange: Exchange | None = None
        """The request whose body is being read."""
        self.is_stopped = False
        """Whether all further bytes are ignored."""
        self._target = b""
        """The request's target, so far."""
        self._empty_bytes = 0
        """The bytes of empty lines before the request line."""
        self._line = bytearray()
        """The request line so far, if it did not come in one read or is malformed."""
        self._is_line_exact = False
        self._known_line = self._known_host = b""
        """The valid request line and Host of the request before."""
        self._tail = b""
        """The last three bytes of a head that continues in the next read."""
        self._head_bytes = 0
        self._fields: list[tuple[bytes, bytes]] = []
        self._left_bytes = 0
        """What is left of a body with Content-Length."""
        self._chunks: Chunks | None = None
        """The state of a body in chunks."""
        self._kept = bytearray()
        """What was kept of the body so far."""

    def feed(self, read: memoryview) -> None:
        """Parse the bytes of *read*; they are copied where needed."""
        offset = 0
        while offset < len(read) and not self.is_stopped:
            if self.received_at is None:
                offset = self._begin(read, offset)
            elif self.exchange is None:
                offset = self._read_head(read, offset, self._head_end(read, offset))
            elif self._chunks is not None:
                offset = self._read_chunks(self._chunks, read, offset)
            else:
                offset = self._read_body(read, offset)
        if self._kept:
            self._connections.bytes.hold(self, len(self._kept))

    def refuse(self, refusal: Response) -> None:
        """Answer the request that is being read with *refusal*, and read no further."""
        if self.is_stopped:
            return
        exchange = self.exchange
        if exchange is None:
            received_at = self._connections.clock() if self.received_at is None else self.received_at
            request = HttpRequest(received_at, b"", self._target, {})
            exchange = Exchange(self._sink, request, self._connections.client_checks)
        exchange.refusal = refusal
        exchange.keep_alive = False
        self._submit(exchange)

    def stop(self) -> None:
        """Read no further, and drop the incomplete body."""
        self.is_stopped = True
        self._drop_body()

    def close(self) -> None:
        """Drop parser and sink, whose reference cycles would otherwise wait for the garbage collector."""
        self.stop()
        self.exchange = self._parser = None
        del self._sink

    # -- reading ----------------------------------------------------------------------------------

    def _begin(self, read: memoryview, offset: int) -> int:
        """Begin a request at *offset*, or skip one byte of an empty line; return the next offset."""
        byte = read[offset]
        if byte in b"\r\n" or self._empty_bytes % 2:
            is_expected = byte == b"\r\n"[self._empty_bytes % 2]
            self._empty_bytes += 1
            if not is_expected or self._empty_bytes > 2 * _MAX_EMPTY_LINES:
                self._refuse_bad(
                    f"more than {_MAX_EMPTY_LINES} empty lines, or half of one, before a request"
                )
            return offset + 1
        self._empty_bytes, self._head_bytes = 0, -_UNCOUNTED_BYTES
        self.received_at = self._connections.clock()
        self._fields = []
        self._target = self._tail = b""
        usual = bytes(read[offset : offset + _USUAL_HEAD_BYTES])
        self._is_line_exact = self._known_line != b"" and usual.startswith(self._known_line)
        if not self._is_line_exact and (line := _REQUEST_LINE.match(usual)) is not None:
            self._is_line_exact, self._known_line = True, line[0]
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
        found = usual.find(b"\r\n\r\n")
        end = offset + found + 4 if found >= 0 else self._head_end(read, offset)
        return self._read_head(read, offset, end)

    def _read_head(self, read: memoryview, offset: int, end: int | None) -> int:
        """Read the head from *offset* on, up to its *end* if that is in *read*; return the next offset."""
        bounds, parser = self._connections.bounds, self._parser
        stop = min(end or len(read), offset + bounds.head_bytes - self._head_bytes)
        if not self._is_line_exact and b"\n" not in self._line:
            self._line += read[offset:stop]
        self._head_bytes += stop - offset
        try:
            parser.feed_data(read[offset:stop])  # type: ignore[union-attr] # the head is being read
        except httptools.HttpParserUpgrade:
            pass  # the head is complete, and the bytes after it are a body all the same
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Stop):
                logger.exception("internal error: cannot read a request")
                self.refuse(error_response(500, "internal error"))
        except httptools.HttpParserError as error:
            self._refuse_bad(str(error))
        if self.is_stopped:
            return stop
        if self.exchange is None:
            if stop == end:
                self._refuse_bad("the head is not complete where it ends")
            elif self._head_bytes >= bounds.head_bytes:
                self.refuse(self._head_too_large())
        elif stop != end:
            self._refuse_bad("the head does not end with an empty line")
        elif self._chunks is None and not self._left_bytes:
            self._complete()
        return stop

    def _head_end(self, read: memoryview, offset: int) -> int | None:
        """Return the end of the head that continues at *offset*; None if it does not end in *read*."""
        seam = self._tail + read[offset : offset + 3]
        if (found := seam.find(b"\r\n\r\n")) >= 0:
            return offset + found + 4 - len(self._tail)
        rest = bytes(read[offset:])
        if (found := rest.find(b"\r\n\r\n")) >= 0:
            return offset + found + 4
        self._tail = (self._tail + rest[-3:])[-3:]
        return None

    def _read_body(self, read: memoryview, offset: int) -> int:
        """Read a body with Content-Length from *offset* on; return where it ends."""
        end = min(offset + self._left_bytes, len(read))
        self._left_bytes -= end - offset
        piece = read[offset:end]
        if self._parser is not None:
            self._parser.feed_data(piece)
        if self._left_bytes or self._kept:
            self._keep(piece)
        elif self.exchange.refusal is None:  # type: ignore[union-attr] # the body is being read
            self.exchange.request.body = bytes(piece)  # type: ignore[union-attr]
        if not self._left_bytes:
            self._complete()
        return end

    def _read_chunks(self, chunks: Chunks, read: memoryview, offset: int) -> int:
        """Read a body in *chunks* from *offset* on; return where it ends."""
        try:
            offset, data = chunks.read(read, offset)
        except BadChunks as error:
            self.refuse(error_response(error.status, str(error)))
            return len(read)
        for piece in data:
            self._keep(piece)
        if chunks.body_bytes > self._connections.bounds.body_bytes:
            assert self.exchange is not None
            self.refuse(self.exchange.refusal or self._body_too_large())
        elif chunks.is_complete:
            self._complete()
        return offset

    def _keep(self, piece: memoryview) -> None:
        assert self.exchange is not None
        if self.exchange.refusal is None:
            self._kept += piece

    def _complete(self) -> None:
        """Submit the request, which is complete."""
        exchange = self.exchange
        assert exchange is not None
        request = exchange.request
        if self._kept:
            request.body = bytes(self._kept)
            self._drop_body()
        if self._chunks is not None:
            self._chunks = self._parser = None
        if request.body and not self._connections.bytes.complete(exchange):
            request.body = b""
            self.refuse(self._connections.bytes.refusal())
        else:
            self._submit(exchange)

    # -- called by the parser ---------------------------------------------------------------------

    def on_url(self, piece: bytes) -> None:
        """A *piece* of the request's target."""
        self._target += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field of the head."""
        self._fields.append((name, value))
        if len(self._fields) > _MAX_FIELDS:
            self._stop(error_response(431, f"more than {_MAX_FIELDS} header fields"))

    def on_headers_complete(self) -> None:
        """The head is complete. It may decide the answer already."""
        parser, received_at = self._parser, self.received_at
        assert parser is not None
        assert received_at is not None
        headers = self._join_fields()
        request = HttpRequest(received_at, parser.get_method(), self._target, headers)
        exchange = self.exchange = Exchange(self._sink, request, self._connections.client_checks)
        exchange.keep_alive = parser.should_keep_alive()
        # Without a Connection field only HTTP/1.1 keeps the connection, so the version is known.
        if not exchange.keep_alive or b"connection" in headers or b"transfer-encoding" in headers:
            self._check_framing(exchange, parser.get_http_version())
        if not self._is_line_exact:
            if not _REQUEST_LINE.match(self._line):
                self._stop_bad("expected a method, a target and the version with one space between them")
            self._line.clear()
        host = headers.get(b"host")
        if host is None and parser.get_http_version() == "1.1":
            self._stop_bad("expected exactly one Host header")
        if host is not None and host != self._known_host:
            if not _HOST.fullmatch(host):
                self._stop_bad("expected exactly one Host header, with a host and perhaps a port")
            self._known_host = host
        exchange.refusal = self._connections.service.screen(exchange, is_trusted=self._sink.is_trusted)
        self._left_bytes = int(headers.get(b"content-length", 0))
        if self._left_bytes:
            self._check_length(exchange, self._left_bytes)
        has_body = self._left_bytes > 0
        if b"transfer-encoding" in headers:
            has_body = True
            max_bytes = self._connections.bounds.head_bytes
            self._chunks = Chunks(max_bytes, (max_bytes - self._head_bytes, _MAX_FIELDS - len(self._fields)))
        if b"expect" in headers:
            self._meet_expectation(exchange, is_awaited=has_body and parser.get_http_version() == "1.1")
        if (b"upgrade" in headers or request.method == b"CONNECT") and parser.should_upgrade():
            # A server may ignore Upgrade. llhttp takes what follows the head for another protocol.
            exchange.keep_alive = False
            self._parser = None

    # -- deciding ---------------------------------------------------------------------------------

    def _submit(self, exchange: Exchange) -> None:
        self.exchange = self.received_at = None
        self._drop_body()
        if not exchange.keep_alive:
            self.is_stopped = True
        self._sink.submit(exchange)

    def _drop_body(self) -> None:
        if self._kept:
            self._kept = bytearray()
            self._connections.bytes.drop(self)

    def _check_length(self, exchange: Exchange, body_bytes: int) -> None:
        if body_bytes > self._connections.bounds.body_bytes:
            self._stop(exchange.refusal or self._body_too_large())
        if exchange.refusal is None and not self._connections.bytes.has_room(exchange, body_bytes):
            self._stop(self._connections.bytes.refusal())

    def _stop(self, refusal: Response) -> None:
        self.refuse(refusal)
        raise _Stop

    def _stop_bad(self, reason: str) -> None:
        self._refuse_bad(reason)
        raise _Stop

    def _refuse_bad(self, reason: str) -> None:
        self.refuse(error_response(400, f"bad HTTP: {reason}"))

    def _check_framing(self, exchange: Exchange, version: str) -> None:
        coding = exchange.request.headers.get(b"transfer-encoding")
        if version not in {"1.0", "1.1"}:
            self._stop(error_response(505, f"HTTP/{version} is not supported, expected HTTP/1.1"))
        if version == "1.0":
            exchange.keep_alive = False
            if coding is not None:
                self._stop_bad("Transfer-Encoding in HTTP/1.0")
        if coding is not None and coding.strip().lower() != b"chunked":
            self._stop(error_response(501, "Transfer-Encoding other than chunked is not supported"))

    def _meet_expectation(self, exchange: Exchange, *, is_awaited: bool) -> None:
        """Answer Expect; *is_awaited* is whether the client may wait for that before it sends the body."""
        refusal = exchange.refusal
        if exchange.request.headers[b"expect"].lower() != b"100-continue":
            self._stop(refusal or error_response(417, "Expect: only 100-continue is supported"))
        if refusal is not None:
            self._stop(refusal)  # the client may send the body or not
        if is_awaited:
            self._sink.promise_continue()

    def _join_fields(self) -> dict[bytes, bytes]:
        """Return the fields of the head by lower-case name, repeated ones joined (RFC 9110, 5.3)."""
        headers = {name.lower(): value for name, value in self._fields}
        if len(headers) != len(self._fields):
            headers = {}
            for name, value in self._fields:
                key = name.lower()
                headers[key] = value if key not in headers else b"%b, %b" % (headers[key], value)
        return headers

    def _head_too_large(self) -> Response:
        return error_response(431, f"header block over {self._connections.bounds.head_bytes} bytes")

    def _body_too_large(self) -> Response:
        return error_response(413, f"body over {self._connections.bounds.body_bytes} bytes")
