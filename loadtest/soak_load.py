"""The clients of the soak with faults: a closed loop over TLS in which some leave before they are answered.

``python -m loadtest.soak_load URL`` prints a JSON object a line: ``{"ended": N}`` after each of ``--steps``
equal parts of the reviews, and in the end a ``Tally``.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import struct
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import orjson
import uvloop

from loadtest.exchange import CONNECT_WITHIN_S, HTTPS_PORT, client_tls
from loadtest.soak_mix import Requests, planned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loadtest.soak_mix import Goodbye, Kind, Planned

ANSWER_WITHIN_S: Final = 35.0
"""Longer than any review may take."""
MOST_CHARS: Final = 120
"""Of an answer that is wrong, to show what it is."""
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER for a connection that is to end with RST: what is not sent is dropped."""


@dataclass(slots=True)
class Tally:
    """What the clients saw, by kind."""

    sent: Counter[str] = field(default_factory=Counter)
    """To the last byte."""
    answered: Counter[str] = field(default_factory=Counter)
    """Rightly."""
    left: Counter[str] = field(default_factory=Counter)
    """By the client, after the last byte and before the answer."""
    broken_off: Counter[str] = field(default_factory=Counter)
    """Before the last byte."""
    refused: Counter[str] = field(default_factory=Counter)
    """With 503, at once: time or room was short. As good an answer as any, if there are few."""
    goodbyes: Counter[str] = field(default_factory=Counter)
    """How clients left."""
    wrong: Counter[str] = field(default_factory=Counter)
    """Answers that are not as planned and reviews without one, by what was found."""
    connections: int = 0
    handshakes_failed: int = 0

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Tally:
        """Return what was printed as *document*."""
        tally = cls()
        for name, found in document.items():
            setattr(tally, name, Counter(found) if isinstance(found, dict) else found)
        return tally

    @property
    def ended(self) -> int:
        """How many reviews are over."""
        counts = (self.answered, self.left, self.broken_off, self.refused, self.wrong)
        return sum(count.total() for count in counts)


class Connection(asyncio.Protocol):
    """One connection: a request out, an answer in."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_open = False
        self._received = b""
        self._answer: asyncio.Future[tuple[bytes, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over."""
        self.transport = transport  # type: ignore[assignment] # uvloop's class derives from none of asyncio's
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """Take an answer, or a part of it."""
        received = self._received = self._received + data if self._received else data
        head, separator, body = received.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if separator and len(body) >= int(length or 0):
            self._received = b""
            if b"\r\nconnection: close" in head.lower():
                self.is_open = False
            if self._answer is not None and not self._answer.done():
                self._answer.set_result((head, body))

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever waits is told."""
        self.is_open = False
        self.transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(f"connection lost: {exc or 'closed by the gateway'}"))

    def send(self, request: bytes) -> asyncio.Future[tuple[bytes, bytes]]:
        """Send *request*, and return a future for head and body of the answer."""
        self._answer = asyncio.get_running_loop().create_future()
        if self.transport is None:
            self._answer.set_exception(ConnectionError("connection lost: closed between two reviews"))
        else:
            self.transport.write(request)
        return self._answer

    def leave(self, goodbye: Goodbye) -> None:
        """End the connection from this side; nobody is told any more."""
        self._answer = None
        self.is_open = False
        if self.transport is None:
            return
        if goodbye == "close_notify":
            self.transport.close()
            return
        if goodbye == "RST":
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.transport.abort()


class Clients:
    """All clients of a run; each takes the next review of the plan when it is done with the last."""

    def __init__(self, url: str, plan: Sequence[int], *, steps: int, limit_s: float) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname or "", parts.port or HTTPS_PORT
        self._requests = Requests(parts.netloc)
        seed, count = plan
        self._reviews = planned(seed, count)
        self._step = max(1, -(-count // steps))
        self._give_up = time.monotonic() + limit_s
        self._tls = client_tls()
        self.tally = Tally()

    async def run(self, clients: int) -> None:
        """Send all reviews of the plan, or those until the limit, and see each to its end."""
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._client())

    async def _client(self) -> None:
        connection: Connection | None = None
        for review in self._reviews:
            if connection is None or not connection.is_open:
                connection = await self._connect()
            if connection is None:
                self.tally.wrong["cannot connect"] += 1
            else:
                await self._review(connection, review)
            if self.tally.ended % self._step == 0:
                print(f'{{"ended": {self.tally.ended}}}', flush=True)
            if time.monotonic() > self._give_up:
                break
        if connection is not None:
            connection.leave("close_notify")

    async def _connect(self) -> Connection | None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                _, connection = await loop.create_connection(Connection, *self._address, ssl=self._tls)
        except (OSError, TimeoutError):
            self.tally.handshakes_failed += 1
            return None
        self.tally.connections += 1
        return connection

    async def _review(self, connection: Connection, review: Planned) -> None:
        kind, tally = review.kind, self.tally
        answer = connection.send(self._requests(review))
        if kind.leaves != "within":
            tally.sent[kind.name] += 1
        if kind.leaves:
            await asyncio.wait([answer], timeout=review.pause_s)
            if not answer.done():
                connection.leave(review.goodbye)
                tally.goodbyes[review.goodbye] += 1
                (tally.broken_off if kind.leaves == "within" else tally.left)[kind.name] += 1
                return
        try:
            head, body = await asyncio.wait_for(answer, ANSWER_WITHIN_S)
        except (ConnectionError, TimeoutError) as error:
            connection.leave("FIN")
            tally.wrong[f"{kind.name}: {error or 'no answer'}"] += 1
            return
        if head.startswith(b"HTTP/1.1 503 "):
            tally.refused[kind.name] += 1
            return
        problem = "an answer to half a request" if kind.leaves == "within" else wrong(review, head, body)
        if problem:
            tally.wrong[f"{kind.name}: {problem}"] += 1
        else:
            tally.answered[kind.name] += 1


def wrong(review: Planned, head: bytes, body: bytes) -> str:
    """Return what is wrong with the answer to *review*, empty if it is as planned."""
    kind: Kind = review.kind
    if not head.startswith(b"HTTP/1.1 200 "):
        status = head.partition(b"\r\n")[0].decode("latin-1")
        return f"{status}: {body[:MOST_CHARS].decode(errors='replace')}"
    try:
        response: dict[str, Any] = orjson.loads(body)["response"]
        found = response["uid"], response["allowed"], response.get("status", {}).get("code", 0)
    except (ValueError, KeyError, TypeError):
        return f"not an AdmissionReview: {body[:MOST_CHARS].decode(errors='replace')}"
    if found[0] != review.uid:
        return "the answer to another review"
    if found[1:] != (kind.allowed, kind.code) or not any(text in body for text in kind.tells):
        text = response.get("status", {}).get("message", "")
        return f"allowed: {found[1]}, code {found[2]}: {text[:MOST_CHARS]!r}"
    return ""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser("loadtest.soak_load", description="Reviews, some of which are left.")
    parser.add_argument("url", metavar="URL", help="https://HOST:PORT")
    parser.add_argument("--count", type=int, default=1000, metavar="N", help="reviews")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--clients", type=int, default=128, metavar="N")
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="how often progress is printed")
    parser.add_argument("--limit", type=float, default=600.0, metavar="SECONDS", help="begin none after it")
    options = parser.parse_args(argv)
    clients = Clients(options.url, (options.seed, options.count), steps=options.steps, limit_s=options.limit)
    uvloop.run(clients.run(options.clients))
    sys.stdout.write(orjson.dumps(clients.tally).decode() + "\n")


if __name__ == "__main__":
    main()
