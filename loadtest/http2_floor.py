"""A floor with HTTP/2: TLS and the SDK's HTTP/2 server, with nothing behind it.

It is compared with ``loadtest.floor``, which has HTTP/1.1: would HTTP/2 make the front end cheaper for an API
server on loopback? (``python -m tests.e2e.loopback``; docs/loopback.md has the decision.)
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import hpack
import orjson
import uvloop

from admission_gateway_worker.http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, frame
from admission_gateway_worker.http2.server import Http2Server
from gateway.server.process.serve import relax_garbage_collection
from gateway.server.serving.devcert import make_development_certificate
from loadtest.floor import allowing

if TYPE_CHECKING:
    from admission_gateway_worker.http2.server import ServerStream


class _Review:
    """One stream."""

    def __init__(self, connection: _Connection, stream: ServerStream) -> None:
        self._connection, self._stream = connection, stream
        self._body: list[bytes] = []

    def data(self, body: bytes, *, ends: bool) -> bool:
        """Take a part of the body, and answer after the last."""
        self._stream.consumed(len(body))
        self._body.append(body)
        if ends:
            orjson.loads(b"".join(self._body))
            self._connection.answer(self._stream)
        return False

    def reset(self) -> None:
        """Ignore that the client has cancelled the review."""

    def writable(self) -> None:
        """Ignore that all data is written."""


class _Connection(asyncio.Protocol):
    """One connection, without time limits and flow control of what it sends: the least that can answer."""

    _transport: asyncio.Transport

    def __init__(self, answer: bytes) -> None:
        fields = [
            (":status", "200"),
            ("content-type", "application/json"),
            ("content-length", str(len(answer))),
        ]
        self._head, self._answer = hpack.Encoder().encode(fields), answer
        self._http2 = Http2Server(lambda stream, _: _Review(self, stream))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the settings."""
        # uvloop's is none by its type.
        self._transport = cast("asyncio.Transport", transport)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Process *data*, and send the answers to the reviews that are complete."""
        self._http2.receive(data)
        while self._http2.has_more:
            self._http2.advance()
        self._flush()

    def answer(self, stream: ServerStream) -> None:
        """Answer the review on *stream*."""
        output = self._http2.output
        output += frame(HEADERS, END_HEADERS, stream.number, self._head)
        output += frame(DATA, END_STREAM, stream.number, self._answer)
        self._http2.has_worked()
        self._http2.forget(stream)

    def _flush(self) -> None:
        if self._http2.output:
            self._transport.write(bytes(self._http2.output))
            self._http2.output.clear()


async def serve(answer: bytes, state: Path) -> None:
    """Serve until SIGTERM or SIGINT; *state* keeps the certificate."""
    certificate, key = make_development_certificate(state)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(answer), "127.0.0.1", 0, ssl=context)
    relax_garbage_collection()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    port = server.sockets[0].getsockname()[1]
    print(f"serving on https://127.0.0.1:{port}", file=sys.stderr, flush=True)
    await stopping.wait()
    server.close()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Allows every AdmissionReview, over HTTP/2.")
    parser.add_argument("review", type=Path, metavar="REVIEW", help="AdmissionReview whose uid is answered")
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="folder for the certificate")
    arguments = parser.parse_args()
    uvloop.run(serve(allowing(arguments.review.read_bytes()), arguments.state))


if __name__ == "__main__":
    main()
