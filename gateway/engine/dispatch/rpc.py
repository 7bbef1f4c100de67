"""One gRPC call of a streaming method on its own HTTP/2 stream: messages and, at the end, a status.

An answer that violates gRPC ends the call with a status; nothing is raised.

Source: gRPC over HTTP/2 (grpc/doc/PROTOCOL-HTTP2.md, with its mapping of HTTP/2 error codes); mapping of HTTP
statuses (grpc/doc/http-grpc-status-mapping.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from admission_gateway_worker.http2.client import Http2Stream
from admission_gateway_worker.http2.fields import RESPONSE, TRAILERS, read_fields
from admission_gateway_worker.http2.frames import CANCEL, NO_ERROR, PROTOCOL_ERROR, Violation
from admission_gateway_worker.http2.messages import MessageReader, message_head
from gateway.engine.dispatch.verdicts import one_line, status_name

if TYPE_CHECKING:
    from collections.abc import Iterable

_RESET_STATUSES: Final = {
    None: "UNAVAILABLE",
    7: "UNAVAILABLE",  # REFUSED_STREAM
    8: "CANCELLED",  # CANCEL
    11: "RESOURCE_EXHAUSTED",  # ENHANCE_YOUR_CALM
    12: "PERMISSION_DENIED",  # INADEQUATE_SECURITY
}
_HTTP_STATUSES: Final = {
    "400": "INTERNAL",
    "401": "UNAUTHENTICATED",
    "403": "PERMISSION_DENIED",
    "404": "UNIMPLEMENTED",
    "429": "UNAVAILABLE",
    "502": "UNAVAILABLE",
    "503": "UNAVAILABLE",
    "504": "UNAVAILABLE",
}


@dataclass(frozen=True, slots=True)
class CallStatus:
    """The status of a call."""

    code: str
    """Name of a gRPC status."""
    details: str
    is_misconduct: bool = field(default=False, compare=False)
    """Whether the worker violated the protocol, so that it is banned for a while."""


class StreamingCall:
    """The client side of a call. The caller writes ``http2.output`` to the connection after every method."""

    def __init__(self, path: str, authority: str, scheme: str) -> None:
        """Start a call of the method *path* at *authority*; *scheme* is ``http`` or ``https``."""
        self.status: CallStatus | None = None
        """None while the call is open."""
        self._reader = MessageReader()
        self._has_response = False
        fields = {
            ":method": "POST",
            ":scheme": scheme,
            ":path": path,
            ":authority": authority,
            "te": "trailers",
            "content-type": "application/grpc",
            "user-agent": "admission-gateway",
        }
        self.http2 = Http2Stream(fields.items(), self)

    def send(self, *message: bytes) -> None:
        """Send a message, which may be in several parts."""
        self.http2.send(message_head(sum(map(len, message))), *message)

    def cancel(self) -> None:
        """End the call from this side."""
        self.http2.cancel()
        self._reader.discard()
        self._end(CallStatus("CANCELLED", "the stream was closed"))

    @property
    def has_more(self) -> bool:
        """Whether :meth:`next_message` may have input to process."""
        return self.http2.has_more or self._reader.has_more

    def next_message(self) -> bytes | bytearray | None:
        """Process one step of the input, and return a message if that completes one."""
        if not self._reader.has_more:
            self.http2.advance()
        try:
            return self._reader.take()
        except Violation as violation:
            self.fail(violation)
            return None

    def fail(self, violation: Violation) -> None:
        """End the call for a *violation* by the worker."""
        self._reader.discard()
        self.http2.fail(violation)

    # -- called by the HTTP/2 stream --------------------------------------------------------------

    def headers(self, fields: Iterable[tuple[bytes, bytes]], *, ends: bool) -> None:
        """Take a block of headers or trailers."""
        if self._has_response and not ends:
            raise Violation(PROTOCOL_ERROR, "HEADERS frame out of place")
        found = read_fields(fields, TRAILERS if self._has_response else RESPONSE)
        if not self._has_response:
            http_status = found[":status"]
            if http_status.startswith("1"):
                if ends:
                    raise Violation(PROTOCOL_ERROR, "informational response that ends the stream")
                return
            self._check_response(http_status, found.get("content-type", ""))
            self._has_response = True
        if ends:
            code = found.get("grpc-status", "")
            number = int(code) if code.isdecimal() and len(code) < 3 else -1
            details = one_line(unquote(found.get("grpc-message", "")))
            self._end(CallStatus("OK" if number == 0 else status_name(number), details))

    def data(self, body: bytes, *, ends: bool) -> bool:
        """Take DATA; return whether a message, or its head, is complete."""
        if not self._has_response:
            raise Violation(PROTOCOL_ERROR, "DATA frame out of place")
        self._reader.partial += body
        if ends:
            raise Violation(NO_ERROR, "the worker ended the stream without a status")
        return self._reader.has_more

    def reset(self, error_code: int | None) -> None:
        """The worker ended the call with RST_STREAM, or with a GOAWAY that excludes it (None)."""
        text = (
            "the worker accepts no calls on this connection"
            if error_code is None
            else f"the worker reset the stream: error {error_code}"
        )
        self._end(CallStatus(_RESET_STATUSES.get(error_code, "INTERNAL"), text))

    def violated(self, violation: Violation) -> None:
        """The worker violated the protocol."""
        self._end(CallStatus(violation.status, str(violation), violation.is_misconduct))

    def _check_response(self, http_status: str, content_type: str) -> None:
        if http_status != "200":
            text = f"expected HTTP status 200, found {http_status}"
            raise Violation(CANCEL, text, _HTTP_STATUSES.get(http_status, "UNKNOWN"))
        if not content_type.startswith("application/grpc"):
            text = f"expected content-type application/grpc, found {content_type[:100] or 'none'}"
            raise Violation(CANCEL, text, "UNKNOWN")

    def _end(self, status: CallStatus) -> None:
        self.http2.is_over = True
        if self.status is None:
            self.status = status
