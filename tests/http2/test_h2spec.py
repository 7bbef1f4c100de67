"""h2spec, a program with tests of HTTP/2 and HPACK, against the server side; skipped if it is not installed.

``go install github.com/summerwind/h2spec/cmd/h2spec@latest`` installs it.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from typing import TYPE_CHECKING

import pytest
import uvloop

from admission_gateway_worker.http2.fields import encode
from admission_gateway_worker.http2.server import Http2Server, ServerStream

if TYPE_CHECKING:
    from collections.abc import Mapping

H2SPEC = shutil.which("h2spec")

EXPECTED = {
    "Sends HEADERS frame that depend on itself": "RFC 9113 has no priorities",
    "Sends PRIORITY frame that depend on itself": "RFC 9113 has no priorities",
    'Sends a HEADERS frame with the "content-length" header field which does not equal': "gRPC has none",
}
"""Beginnings of the tests that may fail, with the reason."""


class Page:
    """Answers a request with a short page."""

    def __init__(self, stream: ServerStream, _: Mapping[str, str]) -> None:
        self.stream = stream

    def data(self, body: bytes, *, ends: bool) -> bool:
        self.stream.consumed(len(body))
        if ends:
            self.stream.send_headers(encode((b":status", b"200")))
            self.stream.send(b"page")
            self.stream.end(encode((b"a", b"b")))
        return False

    def reset(self) -> None:
        pass

    def writable(self) -> None:
        pass


class Connection(asyncio.Protocol):
    """Joins a connection and the server side."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert hasattr(transport, "write")
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.http2 = Http2Server(Page)
        self.write()

    def data_received(self, data: bytes) -> None:
        self.http2.receive(data)
        while self.http2.has_more:
            self.http2.advance()
        self.write()

    def write(self) -> None:
        self.transport.write(bytes(self.http2.output))
        self.http2.output.clear()
        if self.http2.is_over:
            self.transport.close()


@pytest.mark.skipif(H2SPEC is None, reason="h2spec is not installed")
@pytest.mark.slow
def test_the_server_side_passes_h2spec() -> None:
    async def scenario() -> str:
        server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        assert H2SPEC is not None
        process = await asyncio.create_subprocess_exec(
            *(H2SPEC, "-h", "127.0.0.1", "-p", str(port), "-o", "1"), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        server.close()
        return output.decode()

    output = uvloop.run(scenario())
    failures = output.partition("Failures:")[2]
    failed = set(re.findall(r"\u00d7 \d+: (.*)", failures))
    assert "tests, " in output
    assert [text for text in failed if not text.startswith(tuple(EXPECTED))] == []
