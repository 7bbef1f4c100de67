"""What the kit uses of ``grpc.aio.Channel``, on the running event loop: gRPC's own has threads and a clock.

Each call has a connection of its own.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import grpc

from admission_gateway_conformance.target import Target, find_target
from admission_gateway_worker.http2.client import Http2Stream
from gateway.engine.dispatch.rpc import StreamingCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Metadata = grpc.aio.Metadata


class WholeText(StreamingCall):
    """A call whose status has the text of the worker as it came."""

    text = ""

    def headers(self, fields: Iterable[tuple[bytes, bytes]], *, ends: bool) -> None:
        block = list(fields)
        self.text = unquote(dict(block).get(b"grpc-message", b"").decode())
        super().headers(block, ends=ends)


class Call(asyncio.Protocol):
    """A call of a method, with the interface of ``grpc.aio.StreamStreamCall``."""

    def __init__(
        self, path: str, method: str, *first: bytes, metadata: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Begin the call at the socket *path*; *first* is the message of a method that takes one."""
        self._rpc = WholeText(method, "localhost", "http")
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method,
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
            "user-agent": "grpc-tests",
        }
        self.http2 = self._rpc.http2 = Http2Stream([*fields.items(), *metadata], self._rpc)
        self._messages: asyncio.Queue[bytes] = asyncio.Queue()
        self._transport: asyncio.Transport | None = None
        self.ended = asyncio.Event()
        self.lost = asyncio.Event()
        for message in first:
            self._rpc.send(message)
            self.http2.finish_writing()
        self._connecting = asyncio.get_running_loop().create_task(self._connect(path))

    async def _connect(self, path: str) -> None:
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: self, path)
        except OSError:
            self.connection_lost(None)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.http2.receive(data)
        while self._rpc.has_more:
            message = self._rpc.next_message()
            if message is not None:
                self._messages.put_nowait(bytes(message))
        self.flush()
        if self._rpc.status is not None:
            self.ended.set()

    def connection_lost(self, _: Exception | None) -> None:
        self.lost.set()
        self._transport = None
        if self._rpc.status is None:
            self._rpc.reset(None)
        self.ended.set()

    def flush(self) -> None:
        if self._transport is not None:
            output, self.http2.output = self.http2.output, bytearray()
            self._transport.write(output)

    async def write(self, message: bytes) -> None:
        await asyncio.wait([self._connecting])
        if self.ended.is_set():
            raise asyncio.InvalidStateError("the call has ended")
        self._rpc.send(message)
        self.flush()

    async def done_writing(self) -> None:
        await asyncio.wait([self._connecting])
        if self.ended.is_set():
            raise asyncio.InvalidStateError("the call has ended")
        self.http2.finish_writing()
        self.flush()

    async def read(self) -> Any:
        """Return the next message, or ``grpc.aio.EOF`` at the end."""
        reading = asyncio.ensure_future(self._messages.get())
        ending = asyncio.ensure_future(self.ended.wait())
        try:
            await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else grpc.aio.EOF
        finally:
            reading.cancel()
            ending.cancel()

    async def code(self) -> grpc.StatusCode:
        await self.ended.wait()
        assert self._rpc.status is not None
        return grpc.StatusCode[self._rpc.status.code]

    async def details(self) -> str:
        await self.ended.wait()
        assert self._rpc.status is not None
        return self._rpc.text or self._rpc.status.details

    def cancel(self) -> None:
        self._connecting.cancel()
        if self._rpc.status is None:
            self._rpc.cancel()
            self.flush()
        if self._transport is not None:
            self._transport.close()
        self.ended.set()


class Channel:
    """The calls of a worker at a unix socket, with the interface of ``grpc.aio.Channel``."""

    def __init__(self, path: str, keepalive_s: float) -> None:
        self._keepalive_s = keepalive_s
        self._calls: list[Call] = []
        self._start = partial(Call, path)

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()

    def unary_unary(self, method: str) -> Any:
        return partial(self._unary, method)

    def unary_stream(self, method: str) -> Any:
        return partial(self._call, method)

    stream_stream = unary_stream

    def _call(self, method: str, *first: bytes, metadata: Sequence[tuple[str, str]] = ()) -> Call:
        call = self._start(method, *first, metadata=metadata)
        self._calls.append(call)
        return call

    async def _unary(
        self,
        method: str,
        message: bytes,
        *,
        timeout: float | None,  # noqa: ASYNC109 - as of gRPC
        metadata: Sequence[tuple[str, str]],
    ) -> bytes:
        sent = [] if timeout is None else [("grpc-timeout", f"{round(timeout * 1000)}m")]
        call = self._call(method, message, metadata=[*sent, *metadata])
        code, details = grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"
        try:
            async with asyncio.timeout(timeout):
                answer = await call.read()
                await call.ended.wait()
            code, details = await call.code(), await call.details()
            if code is grpc.StatusCode.OK and isinstance(answer, bytes):
                return answer
        except TimeoutError:
            pass
        finally:
            call.cancel()
            self._calls.remove(call)
        raise grpc.aio.AioRpcError(code, Metadata(), Metadata(), details)

    async def channel_ready(self) -> None:
        """Connect: the method is not served, and the connection stays open."""
        await self._call("/").ended.wait()

    async def wait_for_state_change(self, _: grpc.ChannelConnectivity) -> None:
        """Send pings until the connection is lost."""
        [idle] = self._calls
        while not idle.lost.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._keepalive_s):
                    await idle.lost.wait()
            idle.http2.ping()
            idle.flush()


class LocalTarget(Target):
    """The address of a worker on the running event loop."""

    def open_channel(self, keepalive_ms: int = 0) -> Any:
        return Channel(self.dialer.address.removeprefix("unix:"), keepalive_ms / 1000)


async def find_local_target(address: str) -> LocalTarget:
    """Return the target at *address*, once it accepts a connection."""
    found = await find_target(address, None)
    return LocalTarget(found.dialer, found.tls)
