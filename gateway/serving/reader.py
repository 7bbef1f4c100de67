"""Bytes to requests: llhttp (``httptools``) with the bounds and refusals that it leaves to others.

A request goes to the sink when its body is complete. Once something was refused without being read to its
end, the reader is deaf: where the next request would begin is not known, and guessing is how requests are
smuggled.

llhttp itself refuses a repeated or unreadable Content-Length, Content-Length beside Transfer-Encoding,
obs-fold, a space before the colon, bare CR or LF, and malformed chunks. Added here: bounds, Host, the HTTP
versions that are not spoken, transfer codings other than chunked, and Expect.

Source: RFC 9112 sections 2.3, 3.2, 5, 6.1, 6.3; RFC 9110 sections 7.8 and 10.1.1.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import httptools

from gateway.serving.message import HttpRequest, Replier, Response, error_response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.serving.connections import Connections

logger = logging.getLogger(__name__)

_MOST_FIELDS = 100
"""Of a head, as in Apache. Each is several objects: 16 KiB of the shortest would become half a megabyte."""


class RequestSink(Replier, Protocol):
    """What the reader needs of its connection."""

    def submit(self, request: HttpRequest) -> None:
        """Take *request*; the last one of the connection has ``keep_alive`` False."""

    def promise_continue(self) -> None:
        """Tell the client, when its turn comes, that the body of its request will be read."""


class _Stop(Exception):
    """Raised in a callback once a refusal has been decided, so that the parser leaves the rest."""


class _BodyOnly:
    """Callbacks for a second parser that sees just the body of a request, see ``_decline_upgrade``."""

    def __init__(self, reader: RequestReader) -> None:
        self._reader = reader
        self.on_body = reader.on_body
        self.on_message_complete = reader.on_message_complete

    def on_message_begin(self) -> None:
        """The body's own message, or what the client has sent after it: the connection ends before that."""
        if self._reader.deaf:
            raise _Stop


class RequestReader:
    """Reads the requests of one connection. Its ``on_…`` methods are called by the parser."""

    def __init__(self, sink: RequestSink, connections: Connections) -> None:
        self._sink = sink
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._feed = self._parser.feed_data
        self.request: HttpRequest | None = None
        """The one that has begun and is not complete."""
        self.deaf = False
        """Whether no further byte of the client's counts."""
        self._upgraded: HttpRequest | None = None
        self._parts: list[bytes] = []
        """Of the body, by the read in progress."""
        self._kept = bytearray()
        """Of the body, by the reads before: in one piece, or chunks of a byte would take fifty."""
        self._fields: list[tuple[bytes, bytes]] = []
        self._body_bytes = 0
        self._stalled_bytes = 0
        """Read since anything was completed, the read in progress included."""
        self._carried = False
        """Whether the request began in a read that does not count in ``_stalled_bytes`` any more."""
        self._in_head = self._progressed = False

    def feed(self, read: memoryview) -> None:
        """Take the bytes of *read*, which are not kept."""
        self._progressed = False
        self._stalled_bytes += len(read)
        upgraded_at = None
        try:
            self._feed(read)
        except httptools.HttpParserUpgrade as upgrade:
            upgraded_at = upgrade.args[0]
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Stop):
                logger.exception("a request could not be read: a fault of the gateway")
                self.refuse(error_response(500, "internal error"))
        except httptools.HttpParserError as error:
            self.refuse(error_response(400, f"bad HTTP: {error}"))
        if upgraded_at is not None:  # not above, where errors of the second parser would not be told apart
            self._decline_upgrade(read[upgraded_at:])
        if self._parts:
            self._keep()
        # llhttp bounds neither a header field nor a chunk extension.
        if self._progressed or self.request is None:
            self._stalled_bytes = 0
            self._carried = self.request is not None
        elif self._stalled_bytes > self._connections.bounds.head_bytes:
            self.refuse(self._head_too_large())

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
        self.request = self._upgraded = None
        del self._parser, self._feed, self._sink

    # -- called by the parser ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        if self.deaf:
            raise _Stop
        self.request = HttpRequest(self._sink, self._connections.clock())
        self._fields = []
        self._in_head = True
        self._body_bytes = 0

    def on_url(self, piece: bytes) -> None:
        """A *piece* of the request's target."""
        assert self.request is not None
        self.request.target += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field of the head, or of the trailer: nothing may depend on the latter."""
        if self._in_head:
            self._fields.append((name, value))
            if len(self._fields) > _MOST_FIELDS:
                self._stop(error_response(431, f"more than {_MOST_FIELDS} header fields"))

    def on_headers_complete(self) -> None:
        """The head is complete: everything that it alone decides is decided here."""
        self._in_head = False
        self._progressed = True
        request, parser, bounds = self.request, self._parser, self._connections.bounds
        assert request is not None
        headers = request.headers = self._join_fields()
        request.method = parser.get_method()
        request.keep_alive = parser.should_keep_alive()
        may_be_large = (
            self._carried or self._stalled_bytes > bounds.head_bytes
        )  # so that few have to be counted
        if may_be_large and self._count_head(request) > bounds.head_bytes:
            self._stop(self._head_too_large())
        # Without a Connection field only HTTP/1.1 keeps the connection, so its version need not be asked.
        if not request.keep_alive or b"connection" in headers or b"transfer-encoding" in headers:
            self._check_framing(request)
        host = headers.get(b"host")
        if (host is None and parser.get_http_version() == "1.1") or (host is not None and b"," in host):
            self._stop(error_response(400, "bad HTTP: expected exactly one Host header"))
        request.refusal = self._connections.service.screen(request)
        if b"content-length" in headers:
            self._check_length(request, int(headers[b"content-length"]))
        if b"expect" in headers:
            self._meet_expectation(request)
        if (b"upgrade" in headers or request.method == b"CONNECT") and parser.should_upgrade():
            request.keep_alive = False
            if _framing(headers):
                self._upgraded, self.request = request, None

    def on_body(self, piece: bytes) -> None:
        """A *piece* of the body, without any framing."""
        request = self.request
        assert request is not None
        self._progressed = True
        self._body_bytes += len(piece)
        if self._body_bytes > self._connections.bounds.body_bytes:
            self._stop(request.refusal or self._body_too_large())
        if request.refusal is None:
            self._parts.append(piece)

    def on_message_complete(self) -> None:
        """The request is complete, unless it is one whose body follows an ignored Upgrade."""
        self._progressed = True
        request = self.request
        if request is not None:
            request.body = b"".join((self._kept, *self._parts) if self._kept else self._parts)
            self._let_go()
            if request.body and not self._connections.bytes.complete(request):
                request.body = b""
                self.refuse(self._connections.bytes.refusal())
            else:
                self._submit(request)

    # -- deciding ---------------------------------------------------------------------------------

    def _submit(self, request: HttpRequest) -> None:
        self.request = None
        self._let_go()
        if not request.keep_alive:
            self.deaf = True
        self._sink.submit(request)

    def _keep(self) -> None:
        self._kept += b"".join(self._parts)
        self._parts.clear()
        self._connections.bytes.hold(self, len(self._kept))

    def _let_go(self) -> None:
        self._parts.clear()
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

    def _check_framing(self, request: HttpRequest) -> None:
        version = self._parser.get_http_version()
        coding = request.headers.get(b"transfer-encoding")
        if version not in {"1.0", "1.1"}:
            self._stop(error_response(505, f"HTTP/{version} is not spoken here, expected HTTP/1.1"))
        if version == "1.0":
            request.keep_alive = False
            if coding is not None:
                self._stop(error_response(400, "bad HTTP: Transfer-Encoding in HTTP/1.0"))
        if coding is not None and coding.strip().lower() != b"chunked":
            self._stop(error_response(501, "Transfer-Encoding other than chunked is not understood"))

    def _meet_expectation(self, request: HttpRequest) -> None:
        if request.headers[b"expect"].lower() != b"100-continue":
            self._stop(request.refusal or error_response(417, "Expect: only 100-continue can be met"))
        if request.refusal is not None:
            self._stop(request.refusal)  # whether the client sends the body after it is the client's choice
        if _framing(request.headers) and self._parser.get_http_version() == "1.1":
            self._sink.promise_continue()

    def _decline_upgrade(self, rest: memoryview) -> None:
        # A server may ignore Upgrade. llhttp then takes what follows the head for another protocol, so a
        # second parser is told the framing alone, and sees the body.
        if self._upgraded is None:
            return
        self.request, self._upgraded = self._upgraded, None
        self._parser = httptools.HttpRequestParser(_BodyOnly(self))
        self._feed = self._parser.feed_data
        self._feed(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % _framing(self.request.headers))
        self.feed(rest)

    def _join_fields(self) -> dict[bytes, bytes]:
        """Return the fields of the head by lower-case name, repeated ones joined (RFC 9110, 5.3)."""
        headers = {name.lower(): value for name, value in self._fields}
        if len(headers) != len(self._fields):
            headers = {}
            for name, value in self._fields:
                key = name.lower()
                headers[key] = value if key not in headers else b"%b, %b" % (headers[key], value)
        return headers

    def _count_head(self, request: HttpRequest) -> int:
        # For each field a colon, a space and CRLF besides.
        return len(request.target) + sum(len(name) + len(value) + 4 for name, value in self._fields)

    def _head_too_large(self) -> Response:
        return error_response(431, f"header block over {self._connections.bounds.head_bytes} bytes")

    def _body_too_large(self) -> Response:
        return error_response(413, f"body over {self._connections.bounds.body_bytes} bytes")


def _framing(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the header line that says how long the body is, empty where there is none."""
    if b"transfer-encoding" in headers:
        return b"Transfer-Encoding: chunked"
    length = headers.get(b"content-length", b"0")
    return b"Content-Length: " + length if int(length) else b""
