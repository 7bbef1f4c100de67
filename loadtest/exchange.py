"""One review and its answer: the bytes that go out, whether those that come back are right, a connection.

The first answer is read in full (status, uid, ``allowed``), and every later one has to have the same body,
which is what the gateway promises. So a right answer costs one comparison of bytes.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

import orjson

CONNECT_WITHIN_S: Final = 10.0
HTTPS_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class Target:
    """Whom to ask, and what."""

    url: str
    """``https://HOST:PORT/PATH``. The certificate is not looked at: this measures, it does not trust."""
    review: bytes
    """JSON of an AdmissionReview."""
    allowed: bool = True
    """What ``response.allowed`` has to be."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or HTTPS_PORT

    def request_bytes(self) -> bytes:
        """Return the HTTP request, whole."""
        parts = urlsplit(self.url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        return (
            f"POST {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json\r\nContent-Length: {len(self.review)}\r\n\r\n"
        ).encode() + self.review


class Answers:
    """Judges the answers of a run and counts what is wrong."""

    def __init__(self, target: Target) -> None:
        self.errors: Counter[str] = Counter()
        self.expected: bytes | None = None
        """A whole right answer; None until there was one."""
        self._expected_body = b""
        self._allowed = target.allowed
        self._uid = orjson.loads(target.review)["request"]["uid"]

    def judge(self, received: bytes) -> bool | None:
        """Return whether *received* is right, None while it is not whole; wrong answers are counted."""
        if received == self.expected:
            return True
        head, separator, body = received.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if not separator or len(body) < int(length or 0):
            return None
        problem = self._problem(head, body)
        if problem:
            self.errors[problem] += 1
            return False
        self.expected, self._expected_body = received, body
        return True

    def _problem(self, head: bytes, body: bytes) -> str:
        status = head.partition(b"\r\n")[0].decode("latin-1")
        if not status.startswith("HTTP/1.1 200 "):
            return f"{status}: {body[:200].decode(errors='replace')}"
        if self.expected is not None:
            return "" if body == self._expected_body else "the body differs from that of the first answer"
        try:
            response = orjson.loads(body)["response"]
            uid, allowed = response["uid"], response["allowed"]
        except (ValueError, KeyError, TypeError):
            return f"not an AdmissionReview: {body[:200].decode(errors='replace')}"
        if uid != self._uid:
            return f"expected the uid {self._uid}, found {uid}"
        if allowed is not self._allowed:
            return f"expected allowed: {self._allowed}, found {body[:300].decode(errors='replace')}"
        return ""


class Pace(Protocol):
    """Says when a connection sends its next review."""

    request: bytes
    answers: Answers

    def answered(self, connection: Connection, now: float, *, right: bool) -> None:
        """Go on: *connection* has had a whole answer and is free."""

    def lost(self, connection: Connection, reason: str) -> None:
        """Go on without *connection*."""


class Connection(asyncio.Protocol):
    """One connection that is kept: a review, its answer, the next review when its pace says so."""

    __slots__ = ("_pace", "_partial", "_transport", "busy", "since")

    def __init__(self, pace: Pace) -> None:
        self.busy = False
        """Whether a review was sent that is not answered yet."""
        self.since = 0.0
        """From when the latency of that review counts, on ``time.perf_counter``."""
        self._pace = pace
        self._partial = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; the first review goes out when all are connected."""
        self._transport = transport  # type: ignore[assignment] # uvloop's class derives from none of asyncio's

    def send(self, since: float) -> None:
        """Send the review, whose latency counts from *since*."""
        assert self._transport is not None
        self.busy, self.since = True, since
        self._transport.write(self._pace.request)

    def data_received(self, data: bytes) -> None:
        """Take an answer, or a part of it."""
        now = time.perf_counter()
        pace = self._pace
        received = self._partial + data if self._partial else data
        right = pace.answers.judge(received)
        if right is None:
            self._partial = received
            return
        self._partial = b""
        self.busy = False
        pace.answered(self, now, right=right)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the pace. The connection is not opened again."""
        self._pace.lost(self, f"connection lost: {exc or 'closed by the server'}")

    def close(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()


def client_tls() -> ssl.SSLContext:
    """Return a context that trusts every server."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    return tls


async def connect(target: Target, pace: Pace, count: int) -> list[Connection]:
    """Return *count* connections that have sent nothing yet.

    Raises:
        OSError: the target cannot be connected to.
    """
    tls = client_tls()
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_WITHIN_S):
        made = [
            await loop.create_connection(lambda: Connection(pace), *target.address, ssl=tls)
            for _ in range(count)
        ]
    return [protocol for _, protocol in made]
