"""Bytes to requests: llhttp (``httptools``) reads heads, and bodies are delimited here.

A request goes to the sink when its body is complete. Once something was refused without being read to its
end, the reader is deaf: where the next request would begin is not known, and guessing is how requests are
smuggled.

llhttp itself refuses a repeated or unreadable Content-Length, Content-Length beside Transfer-Encoding,
obs-fold, a space before the colon, and bare CR or LF. Of a body it is told only how one with Content-Length
passes. Added here: the request line to the byte, bounds, Host, the HTTP versions that are not supported,
transfer codings other than chunked, chunks (``gateway.serving.chunks``), and Expect.

Source: RFC 9112 sections 2.2, 2.3, 3, 3.2, 5, 6.1, 6.3; RFC 9110 sections 7.8 and 10.1.1.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final, Protocol

import httptools

from gateway.serving.chunks import BadChunks, Chunks
from gateway.serving.message import HttpRequest, Replier, Response, error_response

if TYPE_CHECKING:
    from gateway.serving.connection_table import ConnectionTable

logger = logging.getLogger(__name__)

_MOST_FIELDS: Final = 100
"""Of a head and its trailer, as in Apache. Each is several objects: 16 KiB of the shortest would become half
a megabyte."""
_MOST_EMPTY_LINES: Final = 2
"""Before a request line. RFC 9112 section 2.2 wants one to be ignored."""
_UNCOUNTED_BYTES: Final = len(b"POST  HTTP/1.1\r\n\r\n")
"""Of a head: the bound is for the target and the fields."""
_USUAL_HEAD_BYTES: Final = 1024
_REQUEST_LINE: Final = re.compile(rb"[A-Z-]+ [\x21-\x7e]+ HTTP/[0-9]\.[0-9]\r\n")
_HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+;=%-]*)(?::[0-9]*)?")


class RequestSink(Replier, Protocol):
    """What the reader needs of its connection."""

    def submit(self, request: HttpRequest) -> None:
        """Take *request*; the last one of the connection has ``keep_alive`` False."""

    def promise_continue(self) -> None:
        """Tell the client, when its turn comes, that the body of its request will be read."""


class _Stop(Exception):
    """Raised in a callback once a refusal has been decided, so that the parser leaves the rest."""


class RequestReader:
    """Reads the requests of one connection. Its ``on_…`` methods are called by the parser of a head."""

    def __init__(self, sink: RequestSink, connections: ConnectionTable) -> None:
        self._sink = sink
        self._connections = connections
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        """Between two requests and in a head; None once it is of no use."""
        self.request: HttpRequest | None = None
        """The one that has begun and is not complete."""
        self.deaf = False
        """Whether no further byte of the client's counts."""
        self._empty_bytes = 0
        """Of empty lines before the request line."""
        self._line = bytearray()
        """The request line so far, where it did not come in one read or is malformed."""
        self._is_in_head = self._is_line_exact = False
        self._known_line = self._known_host = b""
        """Those of the request before, which were in order."""
        self._tail = b""
        """The last three bytes of a head that goes on in the next read."""
        self._head_bytes = 0
        self._fields: list[tuple[bytes, bytes]] = []
        self._left_bytes = 0
        """Of a body with Content-Length."""
        self._chunks: Chunks | None = None
        """Of a body in chunks."""
        self._kept = bytearray()
        """Of the body."""

    def feed(self, read: memoryview) -> None:
        """Take the bytes of *read*, which are not kept."""
        offset = 0
        while offset < len(read) and not self.deaf:
            if self.request is None:
                offset = self._begin(read, offset)
            elif self._is_in_head:
                offset = self._read_head(read, offset, self._head_end(read, offset))
            elif self._chunks is not None:
                offset = self._read_chunks(self._chunks, read, offset)
            else:
                offset = self._read_body(read, offset)
        if self._kept:
            self._connections.bytes.hold(self, len(self._kept))

    def refuse(self, refusal: Response) -> None:
        """Answer what is being read with *refusal*, and read no further."""
        if self.deaf:
            return
        request = self.request or HttpRequest(self._sink, self._connections.clock())
        request.refusal = refusal
        request.keep_alive = False
        self._submit(request)

    def stop(self) -> None:
        """Read no further, and let go of what has come of a body."""
        self.deaf = True
        self._let_go()

    def close(self) -> None:
        """Let go of parser and sink, which hold the reader in cycles that would wait for the collector."""
        self.stop()
        self.request = self._parser = None
        del self._sink

    # -- reading ----------------------------------------------------------------------------------

    def _begin(self, read: memoryview, offset: int) -> int:
        """Begin a request at *offset*, or skip a byte of an empty line before it; return the next offset."""
        byte = read[offset]
        if byte in b"\r\n" or self._empty_bytes % 2:
            is_expected = byte == b"\r\n"[self._empty_bytes % 2]
            self._empty_bytes += 1
            if not is_expected or self._empty_bytes > 2 * _MOST_EMPTY_LINES:
                self._refuse_bad(
                    f"more than {_MOST_EMPTY_LINES} empty lines, or half of one, before a request"
                )
            return offset + 1
        self._empty_bytes, self._head_bytes = 0, -_UNCOUNTED_BYTES
        self.request = HttpRequest(self._sink, self._connections.clock())
        self.request.judgement = self._connections.judgements
        self._fields = []
        self._tail = b""
        self._is_in_head = True
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
        """Read the head from *offset* on, up to its *end* where that is in *read*; return the next offset."""
        bounds, parser = self._connections.bounds, self._parser
        stop = min(end or len(read), offset + bounds.head_bytes - self._head_bytes)
        if not self._is_line_exact and b"\n" not in self._line:
            self._line += read[offset:stop]
        self._head_bytes += stop - offset
        try:
            parser.feed_data(read[offset:stop])  # type: ignore[union-attr] # the head is being read
        except httptools.HttpParserUpgrade:
            pass  # the head is complete, and what follows is a body all the same
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Stop):
                logger.exception("a request could not be read: internal error")
                self.refuse(error_response(500, "internal error"))
        except httptools.HttpParserError as error:
            self._refuse_bad(str(error))
        if self.deaf:
            return stop
        if self._is_in_head:
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
        """Return where the head ends that goes on at *offset*, if it ends in *read*."""
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
        elif self.request.refusal is None:  # type: ignore[union-attr] # the body is being read
            self.request.body = bytes(piece)  # type: ignore[union-attr]
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
            assert self.request is not None
            self.refuse(self.request.refusal or self._body_too_large())
        elif chunks.is_complete:
            self._complete()
        return offset

    def _keep(self, piece: memoryview) -> None:
        assert self.request is not None
        if self.request.refusal is None:
            self._kept += piece

    def _complete(self) -> None:
        """Submit the request, of which everything is there."""
        request = self.request
        assert request is not None
        if self._kept:
            request.body = bytes(self._kept)
            self._let_go()
        if self._chunks is not None:
            self._chunks = self._parser = None
        if request.body and not self._connections.bytes.complete(request):
            request.body = b""
            self.refuse(self._connections.bytes.refusal())
        else:
            self._submit(request)

    # -- called by the parser ---------------------------------------------------------------------

    def on_url(self, piece: bytes) -> None:
        """A *piece* of the request's target."""
        assert self.request is not None
        self.request.target += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field of the head."""
        self._fields.append((name, value))
        if len(self._fields) > _MOST_FIELDS:
            self._stop(error_response(431, f"more than {_MOST_FIELDS} header fields"))

    def on_headers_complete(self) -> None:
        """The head is complete: everything that it alone decides is decided here."""
        request, parser = self.request, self._parser
        assert request is not None
        assert parser is not None
        self._is_in_head = False
        headers = request.headers = self._join_fields()
        request.method = parser.get_method()
        request.keep_alive = parser.should_keep_alive()
        # Without a Connection field only HTTP/1.1 keeps the connection, so its version need not be asked.
        if not request.keep_alive or b"connection" in headers or b"transfer-encoding" in headers:
            self._check_framing(request, parser.get_http_version())
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
        request.refusal = self._connections.service.screen(request)
        self._left_bytes = int(headers.get(b"content-length", 0))
        if self._left_bytes:
            self._check_length(request, self._left_bytes)
        has_body = self._left_bytes > 0
        if b"transfer-encoding" in headers:
            has_body = True
            most_bytes = self._connections.bounds.head_bytes
            self._chunks = Chunks(
                most_bytes, (most_bytes - self._head_bytes, _MOST_FIELDS - len(self._fields))
            )
        if b"expect" in headers:
            self._meet_expectation(request, is_awaited=has_body and parser.get_http_version() == "1.1")
        if (b"upgrade" in headers or request.method == b"CONNECT") and parser.should_upgrade():
            # A server may ignore Upgrade. llhttp takes what follows the head for another protocol.
            request.keep_alive = False
            self._parser = None

    # -- deciding ---------------------------------------------------------------------------------

    def _submit(self, request: HttpRequest) -> None:
        self.request = None
        self._let_go()
        if not request.keep_alive:
            self.deaf = True
        self._sink.submit(request)

    def _let_go(self) -> None:
        if self._kept:
            self._kept = bytearray()
            self._connections.bytes.drop(self)

    def _check_length(self, request: HttpRequest, body_bytes: int) -> None:
        if body_bytes > self._connections.bounds.body_bytes:
            self._stop(request.refusal or self._body_too_large())
        if request.refusal is None and not self._connections.bytes.has_room(request, body_bytes):
            self._stop(self._connections.bytes.refusal())

    def _stop(self, refusal: Response) -> None:
        self.refuse(refusal)
        raise _Stop

    def _stop_bad(self, reason: str) -> None:
        self._refuse_bad(reason)
        raise _Stop

    def _refuse_bad(self, reason: str) -> None:
        self.refuse(error_response(400, f"bad HTTP: {reason}"))

    def _check_framing(self, request: HttpRequest, version: str) -> None:
        coding = request.headers.get(b"transfer-encoding")
        if version not in {"1.0", "1.1"}:
            self._stop(error_response(505, f"HTTP/{version} is not spoken here, expected HTTP/1.1"))
        if version == "1.0":
            request.keep_alive = False
            if coding is not None:
                self._stop_bad("Transfer-Encoding in HTTP/1.0")
        if coding is not None and coding.strip().lower() != b"chunked":
            self._stop(error_response(501, "Transfer-Encoding other than chunked is not understood"))

    def _meet_expectation(self, request: HttpRequest, *, is_awaited: bool) -> None:
        """Answer Expect; *is_awaited* says whether the client may wait with its body for that."""
        if request.headers[b"expect"].lower() != b"100-continue":
            self._stop(request.refusal or error_response(417, "Expect: only 100-continue can be met"))
        if request.refusal is not None:
            self._stop(request.refusal)  # whether the client sends the body after it is the client's choice
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
