"""A strict reader of HTTP answers, and h11's reading of requests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import h11

from gateway.server.serving.message import CONTINUE

if TYPE_CHECKING:
    from collections.abc import Iterator

_ANSWER: Final = re.compile(
    rb"HTTP/1\.1 ([0-9]{3}) [A-Za-z ]+\r\n"
    rb"Content-Type: application/json\r\nContent-Length: ([0-9]+)\r\n((?:[A-Za-z-]+: [^\r\n]+\r\n)*)\r\n"
)


def answers(written: bytes) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Yield status, further header lines and body of each answer; the body is None after HEAD."""
    at = 0
    while at < len(written):
        if written.startswith(CONTINUE, at):
            at += len(CONTINUE)
            yield 100, b"", None
            continue
        head = _ANSWER.match(written, at)
        assert head is not None, written[at : at + 200]
        at, length = head.end(), int(head[2])
        body = written[at : at + length]
        # Bodies are JSON, so that they cannot be confused with the next answer.
        if not length or body[:5] == b"HTTP/" or not body:
            yield int(head[1]), head[3], None
            continue
        assert len(body) == length
        at += length
        yield int(head[1]), head[3], body


def by_h11(stream: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Return method, target and body of the requests in *stream*, up to the first invalid one."""
    found: list[tuple[bytes, bytes, bytes]] = []
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=20_000)
    request, body = None, b""
    try:
        server.receive_data(stream)
        while True:
            event = server.next_event()
            if isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                found.append((bytes(request.method), bytes(request.target), body))
                server.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
                server.send(h11.EndOfMessage())
                server.start_next_cycle()
            else:
                return found
    except (h11.RemoteProtocolError, h11.LocalProtocolError):
        return found
