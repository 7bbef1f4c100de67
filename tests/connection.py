"""An HTTPS connection to a gateway like those of kube-apiserver, with a strict parser of answers."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, cast

from tests.kit import PATIENCE_S

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping


CloseMode = Literal["close_notify", "FIN", "RST"]
"""How a client ends its connection: with TLS's own message, or with a bare FIN or RST of TCP."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER for a connection that ends with RST: data that is not sent yet is dropped."""


class Server(Protocol):
    """A server on 127.0.0.1, such as a ``GatewayProcess``."""

    @property
    def port(self) -> int:
        """The port that it listens on."""

    @property
    def client_context(self) -> ssl.SSLContext:
        """The TLS context of its clients."""


class NoAnswer(Exception):
    """The connection ended without an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection(asyncio.Protocol):
    """One TLS connection with at most one request in flight."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: asyncio.Future[Answer] | None = None
        self._lost = loop.create_future()

    @classmethod
    async def open(cls, server: Server) -> Connection:
        """Connect.

        Raises:
            OSError: the connection or the handshake fails.
            TimeoutError: neither succeeds nor fails in ``PATIENCE_S``.
        """
        async with asyncio.timeout(PATIENCE_S):
            _, connection = await asyncio.get_running_loop().create_connection(
                cls, "127.0.0.1", server.port, ssl=server.client_context
            )
        return connection

    @property
    def is_open(self) -> bool:
        """Whether another request may be sent: False after the server closed it or announced that."""
        return self._transport is not None

    async def exchange(self, request: bytes) -> Answer:
        """Send *request* and return its answer.

        Raises:
            NoAnswer: the connection was closed first, or the answer is not HTTP.
            TimeoutError: there was no answer in ``PATIENCE_S``.
        """
        if self._transport is None:
            raise NoAnswer("the connection is closed")
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        async with asyncio.timeout(PATIENCE_S):
            answer = await self._waiting
        if answer.headers.get("connection", "").lower() == "close":
            await self.close()
        return answer

    async def close(self) -> None:
        """Close it with close_notify; abort it if the server does not answer that."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
            await asyncio.wait([self._lost], timeout=1.0)
            transport.abort()
        await self._lost

    def abandon(self, mode: CloseMode) -> None:
        """Close it at once, whatever is in flight on it."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        if mode == "close_notify":
            transport.close()
            return
        if mode == "RST":
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, received: bytes) -> None:
        self._received += received
        try:
            answer = _parse(self._received)
        except ValueError as error:
            self._fail(f"no HTTP: {error}")
            return
        if answer is None:
            return
        if self._waiting is None or self._waiting.done() or self._received:
            self._fail("more than one answer")
        else:
            self._waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set_result(None)
        self._fail(f"the connection was closed{f': {exc}' if exc else ''}")

    def _fail(self, text: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(NoAnswer(text))
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()


def _parse(received: bytearray) -> Answer | None:
    """Remove and return the answer at the beginning of *received*; None while it is incomplete.

    Raises:
        ValueError: it is not an HTTP/1.1 answer with a Content-Length.
    """
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    first, *lines = received[:end].decode("ascii").split("\r\n")
    version, status, _ = first.split(" ", 2)
    if version != "HTTP/1.1":
        raise ValueError(first)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    whole = end + 4 + int(headers["content-length"]) if "content-length" in headers else -1
    if whole < end + 4:
        raise ValueError(f"no Content-Length: {first}")
    if len(received) < whole:
        return None
    body = bytes(received[end + 4 : whole])
    del received[:whole]
    return Answer(int(status), headers, body)
