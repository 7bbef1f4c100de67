"""Requests, their one answer each, and the bytes of an answer.

Knows neither sockets nor parsers: ``gateway.serving.protocol`` makes requests and writes answers,
``gateway.serving.routes`` and ``gateway.serving.admin`` decide them. Answers carry no Date and no Server
header, so that the same review gives the same bytes.

Source: RFC 9110 (semantics), RFC 9112 (HTTP/1.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

import orjson

if TYPE_CHECKING:
    from gateway.core.deadline import Deadline

Cancel = Callable[[], object]
"""Called at most once, when the client went away before the answer."""

JSON = b"application/json"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
REVIEWED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
"""What nearly every answer is: to be completed with the length of the body, and the body."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer before it is bytes. ``headers`` are whole lines, each ending in CRLF."""

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
    """Return the answer that has kube-apiserver send the request again in a second, on a new connection."""
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


FAREWELL = encode(unavailable("this replica is about to stop, try again"), close=True, head_only=False)
"""Sent on an idle connection before a replica that leaves, or has no room for others, closes it: an answer to
the request that may be on its way, which would otherwise be lost. Go's client takes it for that (net/http
transport.go, readLoop), and with nothing on its way for the end of the connection (RFC 9112, 9.2)."""


class Replier(Protocol):
    """What a request needs of its connection."""

    trusted: bool

    def reply(self, request: HttpRequest, response: Response) -> None:
        """Write *response*, in the order of requests."""

    def reply_ok(self, request: HttpRequest, body: bytes) -> None:
        """Write *body* as JSON with status 200."""


class Tally(Protocol):
    """Something that counts the requests in flight."""

    in_flight: int


class Holder(Protocol):
    """Something that counts the bytes of bodies that are complete and not answered."""

    complete_bytes: int


class HttpRequest:
    """One request, complete with its body, and the way to answer it.

    The first call of ``respond`` or ``reply`` counts and all others are ignored, also those
    that come after the client has gone.
    """

    __slots__ = (
        "_connection",
        "begun_at",
        "body",
        "budget_s",
        "deadline",
        "fails_open",
        "headers",
        "held_bytes",
        "holder",
        "judgement",
        "keep_alive",
        "method",
        "received_at",
        "refusal",
        "selected",
        "tally",
        "target",
        "trusted",
    )

    deadline: Deadline
    """By which the answer has to be given; set when the request is complete."""

    def __init__(self, connection: Replier, received_at: float) -> None:
        self._connection: Replier | None = connection
        self.trusted = connection.trusted
        """Whether the connection's client certificate is one that is let in."""
        self.judgement = 0
        """How often clients had been judged anew when it began."""
        self.received_at = received_at
        """Monotonic seconds at which the first byte came."""
        self.method = b""
        self.target = b""
        self.headers: dict[bytes, bytes] = {}
        """By lower-case name; the values of a repeated one are joined with a comma and a space."""
        self.body = b""
        self.keep_alive = True
        self.refusal: Response | None = None
        """The answer, where the head alone decides it; the body is then read but not kept."""
        self.selected: Any = None
        """What the router's paths hold for the target; its type is the application's."""
        self.fails_open = False
        """Whether only webhooks with failurePolicy Ignore decide it, so that it is refused before others."""
        self.budget_s = inf
        """Seconds for the review, counted from ``received_at``; endless where it is none."""
        self.begun_at = received_at
        """Monotonic seconds at which its turn came."""
        self.tally: Tally | None = None
        self.holder: Holder | None = None
        self.held_bytes = 0
        """What ``holder`` counts for this request."""

    def __repr__(self) -> str:
        return f"<HttpRequest {self.method.decode('latin-1')} {self.target[:200].decode('latin-1')}>"

    @property
    def is_open(self) -> bool:
        """Whether an answer is still wanted."""
        return self._connection is not None

    def respond(self, status: int, body: bytes, headers: bytes = b"", content_type: bytes = JSON) -> None:
        """Answer the request.

        Args:
            status: HTTP status code.
            body: The whole body, JSON unless *content_type* says otherwise.
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

    def release(self) -> Replier | None:
        """Take the request out of flight; return its connection if it was still to be answered."""
        connection = self._connection
        if connection is not None:
            self._connection = None
            if self.tally is not None:
                self.tally.in_flight -= 1
            if self.holder is not None:
                self.holder.complete_bytes -= self.held_bytes
        return connection


class Service(Protocol):
    """What answers the requests of a listener: the routes of reviews, or those of the admin port."""

    draining: bool
    """While True every answer ends its connection."""

    def is_trusted_certificate(self, certificate: dict[str, Any] | None) -> bool:
        """Whether a client's verified *certificate* (as ``ssl.SSLSocket.getpeercert``) alone lets it in."""

    def screen(self, request: HttpRequest) -> Response | None:
        """Return the refusal that the head of *request* earns, None to read its body."""

    def authenticate(self, request: HttpRequest) -> Response | None:
        """Return the refusal of a client that is not let in; ``screen`` does so, too."""

    def answer(self, request: HttpRequest) -> Cancel | None:
        """Answer *request* now or later; return what withdraws it. Raises nothing."""
