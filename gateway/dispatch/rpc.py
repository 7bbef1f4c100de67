"""One gRPC call of a streaming method, on an HTTP/2 stream of its own: messages and, in the end, a status.

Whatever a worker answers that gRPC forbids ends the call with a status, and nothing is raised.

Source: gRPC over HTTP/2 (grpc/doc/PROTOCOL-HTTP2.md, with its mapping of HTTP/2 error codes); mapping of HTTP
statuses (grpc/doc/http-grpc-status-mapping.md).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from gateway.dispatch.http2 import CANCEL, NO_ERROR, PROTOCOL_ERROR, Http2Stream, Violation
from gateway.dispatch.verdicts import status_name

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""gRPC's own receive limit of 4 MiB is too small for the update of a large object, which carries it twice."""

_MESSAGE_HEAD: Final = struct.Struct(">BI")
"""Whether the message is compressed, and its length."""

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
    """How a call ended."""

    code: str
    """Name of a gRPC status."""
    details: str


class StreamingCall:
    """The client's side of a call. After every method ``http2.output`` is to be written to the connection."""

    def __init__(self, path: str, authority: str, scheme: str) -> None:
        """Begin the call of the method *path* at *authority*; *scheme* is ``http`` or ``https``."""
        self.status: CallStatus | None = None
        """How the call ended; None while it goes on."""
        self._messages: list[bytes] = []
        self._partial = bytearray()
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

    def send(self, message: bytes) -> None:
        """Send a message."""
        self.http2.send(_MESSAGE_HEAD.pack(0, len(message)) + message)

    def cancel(self) -> None:
        """End the call from this side."""
        self.http2.cancel()
        self._end("CANCELLED", "the stream was closed")

    def receive(self, read: bytes) -> list[bytes]:
        """Take what the connection brought, and return the messages that are complete with it."""
        messages: list[bytes] = []
        self._messages = messages
        self.http2.receive(read)
        return messages

    # -- called by the HTTP/2 stream --------------------------------------------------------------

    def headers(self, fields: Mapping[str, str], *, ends: bool) -> None:
        """Take the worker's headers or trailers."""
        if not self._has_response:
            http_status = fields.get(":status", "")
            if http_status.startswith("1"):
                return
            self._check_response(http_status, fields.get("content-type", ""))
            self._has_response = True
        elif not ends:
            raise Violation(PROTOCOL_ERROR, "headers from the worker where none may be")
        if ends:
            code = fields.get("grpc-status", "")
            number = int(code) if code.isdecimal() and len(code) < 3 else -1
            self._end("OK" if number == 0 else status_name(number), unquote(fields.get("grpc-message", "")))

    def data(self, body: bytes, *, ends: bool) -> None:
        """Take a piece of the worker's messages."""
        if not self._has_response:
            raise Violation(PROTOCOL_ERROR, "data from the worker where none may be")
        partial = self._partial
        partial += body
        while len(partial) >= _MESSAGE_HEAD.size:
            is_compressed, length = _MESSAGE_HEAD.unpack_from(partial)
            if is_compressed:
                raise Violation(CANCEL, "a compressed message, which was not asked for")
            if length > MAX_MESSAGE_BYTES:
                text = f"a message larger than max ({length} vs. {MAX_MESSAGE_BYTES} bytes)"
                raise Violation(CANCEL, text, "RESOURCE_EXHAUSTED")
            end = _MESSAGE_HEAD.size + length
            if len(partial) < end:
                break
            self._messages.append(bytes(partial[_MESSAGE_HEAD.size : end]))
            del partial[:end]
        if ends:
            raise Violation(NO_ERROR, "the worker ended the stream without a status")

    def reset(self, error_code: int | None) -> None:
        """The worker gave the call up."""
        what = (
            "takes no calls on this connection"
            if error_code is None
            else f"reset the stream: error {error_code}"
        )
        self._end(_RESET_STATUSES.get(error_code, "INTERNAL"), f"the worker {what}")

    def violated(self, violation: Violation) -> None:
        """The worker cannot be understood."""
        self._end(violation.status, str(violation))

    def _check_response(self, http_status: str, content_type: str) -> None:
        if http_status != "200":
            text = f"expected HTTP status 200, found {http_status[:3] or 'none'}"
            raise Violation(CANCEL, text, _HTTP_STATUSES.get(http_status, "UNKNOWN"))
        if not content_type.startswith("application/grpc"):
            text = f"expected content-type application/grpc, found {content_type[:100] or 'none'}"
            raise Violation(CANCEL, text, "UNKNOWN")

    def _end(self, code: str, details: str) -> None:
        self.http2.is_over = True
        if self.status is None:
            self.status = CallStatus(code, details)
