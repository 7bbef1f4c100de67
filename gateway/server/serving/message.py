"""Parsed requests, requests in flight, and the bytes of answers.

``gateway.server.serving.reader`` makes requests, ``gateway.server.serving.http_connection`` writes answers,
``gateway.server.serving.routes`` and ``gateway.server.serving.admin`` decide them. Answers have no Date and
no Server header, so that the same review gives the same bytes.

Source: RFC 9110 (semantics), RFC 9112 (HTTP/1.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import orjson

if TYPE_CHECKING:
    from asyncio import BaseTransport

Cancel = Callable[[], object]
"""Called at most once, when the client has disconnected before the answer."""

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
REVIEWED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
"""The format of nearly every answer: the length of the body, and the body."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. ``headers`` are whole lines, each ending in CRLF."""

    status: int
    body: bytes
    headers: bytes = b""
    content_type: bytes = JSON
    close: bool = False
    """Whether the connection ends with this answer."""


def error_response(status: int, text: str, *, headers: bytes = b"", close: bool = False) -> Response:
    """Return an answer whose body is ``{"error": text}``."""
    return Response(status, orjson.dumps({"error": text}), headers, close=close)


def unavailable(text: str) -> Response:
    """Return the answer upon which kube-apiserver sends the request again in a second, on a new
    connection.
    """
    return error_response(503, text, headers=b"Retry-After: 1\r\n", close=True)


def encode(response: Response, *, close: bool, head_only: bool) -> bytes:
    """Return the bytes of *response*; with *head_only* (a HEAD request) without its body."""
    status_line = _STATUS_LINES.get(response.status) or b"HTTP/1.1 %d \r\n" % response.status
    return b"%bContent-Type: %b\r\nContent-Length: %d\r\n%b%b\r\n%b" % (
        status_line,
        response.content_type,
        len(response.body),
        response.headers,
        b"Connection: close\r\n" if close else b"",
        b"" if head_only else response.body,
    )


CLOSING_IDLE = encode(unavailable("this replica is about to stop, try again"), close=True, head_only=False)
"""Sent on an idle connection before a draining or full replica closes it. A request may be on its way to the
replica and would be lost: Go's client takes this for the answer to it (net/http transport.go, readLoop), and
otherwise for the end of the connection (RFC 9112, 9.2)."""


class HttpRequest:
    """One parsed request."""

    __slots__ = ("body", "headers", "method", "received_at", "target")

    def __init__(self, received_at: float, method: bytes, target: bytes, headers: dict[bytes, bytes]) -> None:
        self.received_at = received_at
        """Monotonic seconds at which the first byte came."""
        self.method = method
        self.target = target
        self.headers = headers
        """By lower-case name; the values of a repeated header are joined with a comma and a space."""
        self.body = b""

    def __repr__(self) -> str:
        return f"<HttpRequest {self.method.decode('latin-1')} {self.target[:200].decode('latin-1')}>"


class Route(NamedTuple):
    """What the head of a request decides. All requests with the same target share one."""

    budget_s: float
    """Seconds for the answer, counted from the request's first byte; infinite where there is no limit."""
    fails_open: bool
    """Whether all webhooks that decide have failurePolicy Ignore: such requests are refused before others."""


UNLIMITED = Route(inf, fails_open=False)


class Writer(Protocol):
    """The connection of an exchange, which writes the answer."""

    def reply(self, exchange: Exchange, response: Response) -> None:
        """Write *response*, in the order of requests."""

    def reply_ok(self, exchange: Exchange, body: bytes) -> None:
        """Write *body* as JSON with status 200."""


class RequestCounter(Protocol):
    """Counts the requests in flight."""

    in_flight: int


class ByteCounter(Protocol):
    """Counts the bytes of complete request bodies that are not answered yet."""

    complete_bytes: int


class Exchange:
    """A request in flight, and the way to answer it.

    The first call of ``respond`` or ``reply`` counts. All others are ignored, also those after the client has
    disconnected.
    """

    __slots__ = (
        "_connection",
        "app",
        "byte_counter",
        "client_checks",
        "counted_bytes",
        "keep_alive",
        "refusal",
        "request",
        "request_counter",
        "route",
        "selection",
    )

    def __init__(self, connection: Writer, request: HttpRequest, client_checks: int) -> None:
        self._connection: Writer | None = connection
        self.request = request
        self.client_checks = client_checks
        """How often all clients had been checked again when the head of the request was read."""
        self.keep_alive = False
        """Whether the connection may take another request after this one."""
        self.refusal: Response | None = None
        """The answer, where the head alone decides it; the body is then read but not kept."""
        self.route = UNLIMITED
        self.selection: Any = None
        """The webhooks that the request's path selects, for ``app``."""
        self.app: Any = None
        """The application of the configuration that ``selection`` belongs to."""
        self.request_counter: RequestCounter | None = None
        self.byte_counter: ByteCounter | None = None
        self.counted_bytes = 0
        """The part of ``byte_counter.complete_bytes`` that is this request's."""

    def __repr__(self) -> str:
        return f"<Exchange of {self.request!r}>"

    @property
    def is_open(self) -> bool:
        """Whether the request is still to be answered."""
        return self._connection is not None

    def respond(self, status: int, body: bytes, headers: bytes = b"", content_type: bytes = JSON) -> None:
        """Answer the request.

        Args:
            status: HTTP status code.
            body: The whole body, JSON unless *content_type* is another type.
            headers: Further header lines, each ending in CRLF.
            content_type: Value of the Content-Type header.
        """
        connection = self.release()
        if connection is not None:
            if status == 200 and not headers and content_type is JSON:
                connection.reply_ok(self, body)
            else:
                connection.reply(self, Response(status, body, headers, content_type))

    def reply(self, response: Response) -> None:
        """Answer the request with a ready-made *response*."""
        connection = self.release()
        if connection is not None:
            connection.reply(self, response)

    def release(self) -> Writer | None:
        """Take the request out of flight; return its connection if it was still to be answered."""
        connection = self._connection
        if connection is not None:
            self._connection = None
            if self.request_counter is not None:
                self.request_counter.in_flight -= 1
            if self.byte_counter is not None:
                self.byte_counter.complete_bytes -= self.counted_bytes
        return connection


class Service(Protocol):
    """Answers the requests of a listener: the routes of reviews, or those of the admin port."""

    draining: bool
    """While True every answer ends its connection."""

    def is_trusted_client(self, certificate: dict[str, Any] | None, transport: BaseTransport) -> bool:
        """Whether a client needs no credentials.

        Args:
            certificate: Its verified certificate, see ``ssl.SSLSocket.getpeercert``, or None.
            transport: That of its connection.
        """

    def screen(self, exchange: Exchange, *, is_trusted: bool) -> Response | None:
        """Return the refusal if the head of the request is refused; None to read the body.

        *is_trusted* is whether :meth:`is_trusted_client` lets the client in.
        """

    def authenticate(self, request: HttpRequest, *, is_trusted: bool) -> Response | None:
        """Return the refusal of a client that is not let in; part of ``screen``."""

    def answer(self, exchange: Exchange, now: float) -> Cancel | None:
        """Answer the request now or later; return a function that cancels it. Raises nothing.

        *now* is in monotonic seconds, when the turn of the request has come.
        """
