"""The HTTP client of all loads: TLS connections with one request at a time, and a parser of answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT_TIMEOUT_S: Final = 60.0
CloseMode = Literal["close_notify", "FIN", "RST"]
"""How a client ends its connection: with TLS's own message, or with a bare FIN or RST of TCP."""
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER for a connection that ends with RST: data that is not sent yet is dropped."""


class Address(NamedTuple):
    """A server."""

    host: str
    port: int
    tls: ssl.SSLContext


class Departure(NamedTuple):
    """A client leaves while its request is in flight."""

    after_s: float
    """From the last byte that it sends."""
    mode: CloseMode


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request."""

    uid: str
    """Of the review."""
    data: bytes
    """The bytes that are sent."""
    leaves: Departure | None = None


R = TypeVar("R", bound=Request)


def post(target: str, host: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a POST of JSON."""
    fields = {"Host": host, "Content-Type": "application/json", **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {target} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Answer(NamedTuple):
    """A whole HTTP answer."""

    head: bytes
    """The status line and the header."""
    body: bytes

    @property
    def status_line(self) -> str:
        """The first line."""
        return self.head.partition(b"\r\n")[0].decode("latin-1")

    @property
    def status(self) -> int:
        """The status code."""
        return int(self.head[9:12])

    def header(self, name: bytes) -> bytes:
        """Return the first field *name*, both in lower case; empty if there is none."""
        return self.head.lower().partition(b"\r\n%b:" % name)[2].partition(b"\r\n")[0].strip()


def parse(received: bytes) -> Answer | None:
    """Return the answer that *received* is, without the framing of chunks; None while it is incomplete.

    Raises:
        ValueError: it is not one HTTP/1.1 answer with its length.

    Source: RFC 9112, sections 6.3 and 7.1; no server here sends trailers.
    """
    head, separator, rest = received.partition(b"\r\n\r\n")
    if not separator:
        return None
    answer = Answer(head, b"")
    if not head.startswith(b"HTTP/1.1 ") or not head[9:12].isdigit():
        raise ValueError(answer.status_line)
    body: bytes | None
    if length := answer.header(b"content-length"):
        end = int(length)
        body, rest = (rest[:end], rest[end:]) if len(rest) >= end else (None, b"")
    elif answer.header(b"transfer-encoding") == b"chunked":
        body, rest = _joined(rest)
    else:
        raise ValueError(f"neither Content-Length nor chunks: {answer.status_line}")
    if rest:
        raise ValueError(f"more than one answer: {rest[:100]!r} follows")
    return None if body is None else Answer(head, body)


def _joined(received: bytes) -> tuple[bytes | None, bytes]:
    """Return the body in the chunks *received*, None while it is incomplete, and what follows them."""
    chunks: list[bytes] = []
    while True:
        size, separator, received = received.partition(b"\r\n")
        end = int(size, 16) if separator else 0
        if not separator or len(received) < end + 2:
            return None, b""
        if not end:
            return b"".join(chunks), received[2:]
        chunks.append(received[:end])
        received = received[end + 2 :]


class Owner(Protocol[R]):
    """Uses a connection."""

    def on_received(self, connection: Connection[R], received: bytes) -> bool:
        """Return whether *received*, all bytes since the last answer, are a whole answer."""

    def on_lost(self, connection: Connection[R], reason: str) -> None:
        """Called when *connection* has ended. Either side may have closed it."""


class Connection(asyncio.Protocol, Generic[R]):
    """A TLS connection with at most one request in flight."""

    __slots__ = ("_owner", "_partial", "_transport", "is_open", "request", "since")

    def __init__(self, owner: Owner[R]) -> None:
        self.is_open = False
        """Whether a request may be sent: neither side has closed it."""
        self.request: R | None = None
        """In flight."""
        self.since = 0.0
        """The start of that request's latency, on ``time.perf_counter``."""
        self._owner = owner
        self._partial = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport. The owner sends the first request."""
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def send(self, request: R, since: float) -> None:
        """Send *request*. Its latency counts from *since*."""
        self.request, self.since = request, since
        self._transport.write(request.data)

    def data_received(self, data: bytes) -> None:
        """Receive an answer, or a part of it."""
        received = self._partial + data if self._partial else data
        self._partial = b"" if self._owner.on_received(self, received) else received

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner."""
        self._owner.on_lost(self, f"the connection was closed{f': {exc}' if exc else ''}")

    def close(self, mode: CloseMode = "close_notify") -> None:
        """Close it, whatever is in flight on it."""
        if not self.is_open:
            return
        self.is_open = False
        if mode == "close_notify":
            self._transport.close()
            return
        if mode == "RST":
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    def abort(self) -> None:
        """End it, if the server does not answer a close_notify."""
        self._transport.abort()


def client_tls() -> ssl.SSLContext:
    """Return a TLS context that does not verify the server."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    return tls


async def connect(address: Address, owner: Owner[R]) -> Connection[R]:
    """Return a new connection.

    Raises:
        OSError: the connection or the handshake fails.
        TimeoutError: neither succeeds nor fails within ``CONNECT_TIMEOUT_S``.
    """
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(owner), address.host, address.port, ssl=address.tls
        )
    return connection
