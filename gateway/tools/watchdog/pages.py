"""The watchdog's only pages: ``/metrics`` and ``/healthz``, for probes and Prometheus."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_MAX_HEAD_BYTES: Final = 8192
_PATIENCE_S: Final = 5.0
_MAX_CONNECTIONS: Final = 16
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


@asynccontextmanager
async def pages(
    host: str, port: int, metrics: Callable[[], str], is_healthy: Callable[[], bool]
) -> AsyncIterator[int]:
    """Serve the pages on *host* and *port*, and return the port that is used.

    A connection gets one answer. It has five seconds, a head of at most 8 KiB, and there are at most sixteen.

    Raises:
        OSError: the address cannot be used.
    """
    places = asyncio.Semaphore(_MAX_CONNECTIONS)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not places.locked():
                async with places, asyncio.timeout(_PATIENCE_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(_answer_to(head.split(b"\r\n", 1)[0], metrics, is_healthy))
                    await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, host, port, limit=_MAX_HEAD_BYTES)
    async with server:
        yield server.sockets[0].getsockname()[1]


def _answer_to(line: bytes, metrics: Callable[[], str], is_healthy: Callable[[], bool]) -> bytes:
    method, _, rest = line.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    status, text = "404 Not Found", "not found\n"
    if method not in (b"GET", b"HEAD"):
        status, text = "405 Method Not Allowed", "GET only\n"
    elif path == b"/metrics":
        status, text = "200 OK", metrics()
    elif path == b"/healthz":
        is_well = is_healthy()
        status, text = (
            ("200 OK", "ok\n") if is_well else ("503 Service Unavailable", "no look for a minute\n")
        )
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_TEXT}\r\nContent-Length: {len(body)}\r\n"
    head += "Connection: close\r\n\r\n"
    return head.encode() + (b"" if method == b"HEAD" else body)
