"""Shared parts of the front end's tests: a raw client, a manual clock, a recording transport."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from gateway.server.serving.connection_table import ConnectionTable
from gateway.server.serving.http_connection import HttpConnection
from gateway.server.serving.listener import Listener
from gateway.server.serving.routes import Router
from tests.kit import PATIENCE_S

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from gateway.pure.core.deadline import Deadline
    from gateway.server.serving.bounds import Bounds
    from gateway.server.serving.message import Exchange, Service
    from gateway.server.serving.tls import ServerCertificate


@dataclass
class Clock:
    """A manual monotonic clock, in seconds."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Application:
    """An application that records its exchanges, and answers at once or on request."""

    holds: bool = False
    raises: Exception | None = None
    seen: list[Exchange] = field(default_factory=list)
    cancelled: list[Exchange] = field(default_factory=list)
    deadlines: list[Deadline] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    withdrawn: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, exchange: Exchange, selection: str, deadline: Deadline) -> Any:
        self.seen.append(exchange)
        self.deadlines.append(deadline)
        self.arrived.set()
        if self.raises is not None:
            raise self.raises
        if not self.holds:
            exchange.respond(200, b"%b:%b" % (selection.encode(), exchange.request.body))
            return None
        return lambda: self._cancel(exchange)

    def _cancel(self, exchange: Exchange) -> None:
        self.cancelled.append(exchange)
        self.withdrawn.set()


PATHS = {"/mutate": "m", "/validate": "v", "/mutate/one": "m1", "/mutate.fail": "mf"}


def ok(body: bytes, extra: bytes = b"") -> bytes:
    """Return the whole answer with status 200."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    return head + extra + b"\r\n" + body


def refused(status: bytes, text: str, extra: bytes = b"") -> bytes:
    """Return the whole answer with *status* (code and phrase) and a JSON error."""
    body = b'{"error":"%b"}' % text.encode().replace(b'"', b'\\"')
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % (status, len(body))
    return head + extra + b"\r\n" + body


CLOSE = b"Connection: close\r\n"
TOO_LARGE = f"413 {HTTPStatus(413).phrase}".encode()
"""Python 3.13 has another phrase than 3.12."""


def post(body: bytes = b"{}", target: bytes = b"/mutate", extra: bytes = b"") -> bytes:
    """Return a request as kube-apiserver writes it."""
    return (
        b"POST %b HTTP/1.1\r\nHost: gateway.policies.svc:443\r\nUser-Agent: kube-apiserver-admission\r\n"
        b"Content-Length: %d\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n"
        b"Accept-Encoding: gzip\r\n%b\r\n%b" % (target, len(body), extra, body)
    )


def chunked(*pieces: bytes, target: bytes = b"/mutate", trailer: bytes = b"") -> bytes:
    """Return a request with a chunked body of *pieces*."""
    head = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" % target
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n" + trailer + b"\r\n"


class RecordingTransport:
    """A transport that records writes and its end, for tests that choose how bytes are split."""

    def __init__(self) -> None:
        self.written = b""
        self.writes = 0
        self.unsent = 0
        self.closed = self.aborted = self.paused = False

    def write(self, payload: bytes) -> None:
        self.written += payload
        self.writes += 1

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.1", 4711) if name == "peername" else None


class Wire:
    """A connection without a socket: bytes in, as they are split, and bytes out."""

    def __init__(
        self, app: Application | None = None, bounds: Bounds | None = None, service: Service | None = None
    ) -> None:
        self.app = app or Application()
        self.clock = Clock()
        self.service = service or Router(self.app, PATHS)
        self.connections = ConnectionTable(self.service, bounds, clock=self.clock, jitter=lambda: 0.5)
        self.connection = HttpConnection(self.connections)
        self.transport = RecordingTransport()
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def feed(self, *pieces: bytes) -> bytes:
        """Give the connection *pieces*, a read each; return all that it has written so far."""
        for piece in pieces:
            for start in range(0, len(piece), 65_536):
                read = piece[start : start + 65_536]
                self.connection.get_buffer(-1)[: len(read)] = read
                self.connection.buffer_updated(len(read))
        return self.transport.written

    def is_closed(self) -> bool:
        """Whether the connection has been ended."""
        return self.transport.closed

    def is_paused(self) -> bool:
        """Whether the connection reads no further for now."""
        return self.transport.paused

    def later(self, seconds: float) -> None:
        """Let *seconds* pass, and the sweep come by."""
        self.clock.now += seconds
        self.connections.sweep()

    def lose(self) -> None:
        """Let the client be gone."""
        self.connection.connection_lost(None)


class RawClient:
    """Bytes over a real connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def send(self, payload: bytes, *, piece_bytes: int | None = None) -> None:
        """Write *payload*, on request in pieces that are TLS records and, mostly, reads of their own."""
        step = piece_bytes or max(len(payload), 1)
        for start in range(0, len(payload), step):
            self.writer.write(payload[start : start + step])
            await self.writer.drain()
            if piece_bytes:
                await asyncio.sleep(0)

    async def receive(self, length: int) -> bytes:
        """Return exactly *length* bytes."""
        return await asyncio.wait_for(self._reader.readexactly(length), PATIENCE_S)

    async def expect(self, answer: bytes) -> None:
        """Assert that the next bytes are *answer*."""
        head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        rest = max(len(answer) - len(head), 0)
        assert head + await self.receive(rest) == answer

    async def rest(self) -> bytes:
        """Return everything up to the end of the connection."""
        return await asyncio.wait_for(self._reader.read(), PATIENCE_S)

    def certificate(self) -> bytes:
        """Return the server's certificate, DER."""
        der: bytes = self.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return der

    async def close(self) -> None:
        """End the connection."""
        self.writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self.writer.wait_closed(), PATIENCE_S)


@contextlib.asynccontextmanager
async def connected(listener: Listener, context: ssl.SSLContext | None) -> AsyncIterator[RawClient]:
    """Connect to *listener*; the connection ends with the block."""
    name = "localhost" if context is not None else None
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", listener.port, ssl=context, server_hostname=name
    )
    client = RawClient(reader, writer)
    try:
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def listening(
    service: Service, tls: ServerCertificate | None, bounds: Bounds | None = None, clock: Clock | None = None
) -> AsyncIterator[Listener]:
    """Serve on a free port of loopback until the end of the block."""
    connections = ConnectionTable(service, bounds, clock=clock) if clock else ConnectionTable(service, bounds)
    listener = Listener("127.0.0.1:0", connections, tls)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.close()


@contextlib.asynccontextmanager
async def serving(
    service: Service,
    certificate: ServerCertificate | None,
    client_tls: ssl.SSLContext | None,
    bounds: Bounds | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[tuple[Listener, RawClient]]:
    """Serve, and connect a client, until the end of the block."""
    async with (
        listening(service, certificate, bounds, clock) as listener,
        connected(listener, client_tls) as client,
    ):
        yield listener, client
