"""A client of raw frames, and servers with one policy for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import hpack

from admission_gateway_worker import PolicyServer, Review
from admission_gateway_worker.http2.frames import FRAME_HEAD
from admission_gateway_worker.pb import worker_pb2 as pb
from tests import frames as raw

SERVICE = "/admissiongateway.worker.v1.PolicyWorker/"
FIELDS = {
    ":method": "POST",
    ":scheme": "http",
    ":path": SERVICE + "Review",
    "content-type": "application/grpc",
}


class Client:
    """A connection that sends raw frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.decoder = hpack.Decoder()

    def send(self, *sent: bytes) -> None:
        self.writer.write(b"".join(sent))

    def open(self, stream: int = 1, **fields: str) -> None:
        """Open a stream; an underscore in a name of *fields* stands for a hyphen."""
        changed = {name.replace("_", "-"): value for name, value in fields.items()}
        changed = {
            ":" + name if name in ("path", "method") else name: value for name, value in changed.items()
        }
        found = [(name.encode(), value.encode()) for name, value in {**FIELDS, **changed}.items()]
        self.send(raw.headers(*found, stream=stream))

    def fields(self, block: bytes) -> list[tuple[str, str]]:
        return [(str(name), str(value)) for name, value in self.decoder.decode(block)]

    async def frame(self) -> tuple[int, int, bytes]:
        """Return type, stream and payload of the next frame."""
        async with asyncio.timeout(20):
            high, low, kind, _, stream = FRAME_HEAD.unpack(await self.reader.readexactly(9))
            return kind, stream, await self.reader.readexactly(high << 8 | low)

    async def answer(self, stream: int = 1) -> dict[str, str]:
        """Return the fields of the stream's header blocks up to its trailers."""
        fields: dict[str, str] = {}
        while True:
            kind, number, payload = await self.frame()
            if kind == raw.HEADERS:
                fields |= dict(self.fields(payload)) if number == stream else {}
                if number == stream and ("grpc-status" in fields or fields[":status"] != "200"):
                    return fields

    async def ended(self) -> bool:
        """Return whether the server ends the connection, after any output."""
        async with asyncio.timeout(20):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass
            return True


Connect = Callable[[PolicyServer], AbstractAsyncContextManager[Callable[..., Any]]]


def server_of(policy: Callable[[Review], Any] = lambda review: None) -> PolicyServer:
    server = PolicyServer()
    server.policy("policy")(policy)
    return server


def review(stream: int = 1, **fields: Any) -> bytes:
    """Return the message of a Review, which ends its stream."""
    message = pb.ReviewRequest(policy="policy", admission_request=b"{}", **fields).SerializeToString()
    return raw.frame(raw.DATA, raw.message(message), raw.END_STREAM, stream)


def connections(server: PolicyServer) -> Any:
    """Return the open connections of a started server."""
    assert server._serving is not None
    return server._serving._connections
