"""The HTTP client of the load generator: one request, the check of its answers, connections that are kept.

The first answer is parsed and checked (status, uid, ``allowed``). Every later answer must have the same body,
which the gateway promises, so that the check of a right answer is one comparison of bytes. For other servers
the same size can be enough.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections import Counter
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit
from uuid import UUID

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECT_TIMEOUT_S: Final = 10.0
HTTPS_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class Target:
    """A URL, and the review that is posted to it."""

    url: str
    """``https://HOST:PORT/PATH``. The certificate is not verified."""
    review: bytes
    """JSON of an AdmissionReview."""
    allowed: bool = True
    """The expected ``response.allowed``."""
    is_exact: bool = True
    """Whether all answers must have the same bytes; else the same size, for patches in a random order."""

    traceparent: str = ""
    """The header of the request; empty if it has none."""
    uids: int = 1
    """Reviews with so many uids are sent in turn; then answers are compared by their size alone."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or HTTPS_PORT

    def all_uids(self) -> list[str]:
        """Return the uids of the reviews: that of the review, and others of the same length."""
        draw = random.Random(1)
        others = [str(UUID(int=draw.getrandbits(128))) for _ in range(self.uids - 1)]
        return [orjson.loads(self.review)["request"]["uid"], *others]

    def requests(self) -> Iterator[bytes]:
        """Return the HTTP requests, without end."""
        uids = [uid.encode() for uid in self.all_uids()]
        return cycle([self._request(self.review.replace(uids[0], uid)) for uid in uids])

    def _request(self, review: bytes) -> bytes:
        parts = urlsplit(self.url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        trace = f"traceparent: {self.traceparent}\r\n" if self.traceparent else ""
        return (
            f"POST {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json\r\n{trace}Content-Length: {len(review)}\r\n\r\n"
        ).encode() + review


class Answers:
    """Checks the answers of a run and counts the wrong ones."""

    def __init__(self, target: Target) -> None:
        self.errors: Counter[str] = Counter()
        self.expected: bytes | None = None
        """A whole right answer; None before the first."""
        self._expected_body = b""
        self._allowed = target.allowed
        self._is_exact = target.is_exact and target.uids == 1
        self._uids = target.all_uids()

    def check(self, received: bytes) -> bool | None:
        """Return whether *received* is right, or None while it is incomplete. Wrong answers are counted."""
        if received == self.expected:
            return True
        head, separator, body = received.partition(b"\r\n\r\n")
        if not separator:
            return None
        whole = whole_body(head.lower(), body)
        if whole is None:
            return None
        problem = self._problem(head, whole)
        if problem:
            self.errors[problem] += 1
            return False
        self.expected, self._expected_body = received, whole
        return True

    def _problem(self, head: bytes, body: bytes) -> str:
        status = head.partition(b"\r\n")[0].decode("latin-1")
        if not status.startswith("HTTP/1.1 200 "):
            return f"{status}: {body[:200].decode(errors='replace')}"
        if self.expected is not None:
            is_same = body == self._expected_body or (
                not self._is_exact and len(body) == len(self._expected_body)
            )
            return "" if is_same else "the body differs from that of the first answer"
        try:
            response = orjson.loads(body)["response"]
            uid, allowed = response["uid"], response["allowed"]
        except (ValueError, KeyError, TypeError):
            return f"not an AdmissionReview: {body[:200].decode(errors='replace')}"
        if uid not in self._uids:
            return f"expected the uid {self._uids[0]}, found {uid}"
        if allowed is not self._allowed:
            return f"expected allowed: {self._allowed}, found {body[:300].decode(errors='replace')}"
        return ""


def whole_body(head: bytes, received: bytes) -> bytes | None:
    """Return the body of a response, without the chunks' framing; None if *received* is incomplete.

    Args:
        head: The status line and the header, in lower case.
        received: What follows them.

    Source: RFC 9112, sections 6.3 and 7.1; no server here sends trailers.
    """
    if b"\r\ntransfer-encoding: chunked" not in head:
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        return received if len(received) >= int(length or 0) else None
    chunks: list[bytes] = []
    while True:
        size, separator, received = received.partition(b"\r\n")
        end = int(size, 16) if separator else 0
        if not separator or len(received) < end + 2:
            return None
        if not end:
            return b"".join(chunks)
        chunks.append(received[:end])
        received = received[end + 2 :]


class Schedule(Protocol):
    """Decides when a connection sends its next review: a closed or an open loop."""

    requests: Iterator[bytes]
    """Without end."""
    answers: Answers

    def on_answer(self, connection: Connection, now: float, *, is_right: bool) -> None:
        """*connection* has received a whole answer and is free."""

    def on_lost(self, connection: Connection, reason: str) -> None:
        """*connection* was closed, but not by ``Connection.close``."""


class Connection(asyncio.Protocol):
    """One TLS connection with at most one review in flight."""

    __slots__ = ("_partial", "_schedule", "_transport", "is_busy", "since")

    def __init__(self, schedule: Schedule) -> None:
        self.is_busy = False
        """Whether a review is in flight."""
        self.since = 0.0
        """The start of that review's latency, on ``time.perf_counter``."""
        self._schedule = schedule
        self._partial = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport. The schedule sends the first review."""
        self._transport = transport  # type: ignore[assignment] # uvloop's class derives from none of asyncio's

    def send(self, since: float) -> None:
        """Send the review. Its latency counts from *since*."""
        assert self._transport is not None
        self.is_busy, self.since = True, since
        self._transport.write(next(self._schedule.requests))

    def data_received(self, data: bytes) -> None:
        """Receive an answer, or a part of it."""
        now = time.perf_counter()
        schedule = self._schedule
        received = self._partial + data if self._partial else data
        is_right = schedule.answers.check(received)
        if is_right is None:
            self._partial = received
            return
        self._partial = b""
        self.is_busy = False
        schedule.on_answer(self, now, is_right=is_right)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the schedule, unless this side closed the connection."""
        if self._transport is not None:
            self._schedule.on_lost(self, f"connection lost: {exc or 'closed by the server'}")

    def close(self) -> None:
        """Close the connection with close_notify."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()


def client_tls() -> ssl.SSLContext:
    """Return a TLS context that does not verify the server."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    return tls


async def connect(target: Target, schedule: Schedule, tls: ssl.SSLContext) -> Connection:
    """Return a new connection to *target*.

    Raises:
        OSError: the connection fails.
        TimeoutError: the connection is not established within ``CONNECT_TIMEOUT_S``.
    """
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(schedule), *target.address, ssl=tls
        )
    return connection
