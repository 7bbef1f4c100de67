"""A load generator that costs as little as it can: fixed bytes out, fixed bytes expected back.

Closed loop: each connection sends its next review when it has the answer to the last. A process of its own,
so that its CPU is not counted with anybody's. The first answer is read in full (status, uid, ``allowed``),
and every later one has to have the same body, which is what the gateway promises.

The CPU of other processes is read at the very start and end of the measured window (``--watch PID``), so that
it can be divided by the reviews answered in between.

``python -m loadtest.load URL REVIEW`` prints a JSON object, see ``Measurement``.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import ssl
import time
from array import array
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import orjson
import uvloop

if TYPE_CHECKING:
    from collections.abc import Sequence

CONNECT_WITHIN_S: Final = 10.0
HTTPS_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run found in its measured window."""

    reviews: int
    """Answered correctly."""
    seconds: float
    latencies_ms: dict[str, float]
    """By ``p50``, ``p90``, ``p99`` and ``max``; empty without reviews."""
    cpu_s: dict[str, float]
    """By process id, and the generator's own as ``load``."""
    errors: dict[str, int]
    """What went wrong and how often, in the warm-up too."""


@dataclass(frozen=True, slots=True)
class Target:
    """Whom to ask, and what."""

    url: str
    """``https://HOST:PORT/PATH``. The certificate is not looked at: this measures, it does not trust."""
    review: bytes
    """JSON of an AdmissionReview."""
    allowed: bool = True
    """What ``response.allowed`` has to be."""

    def request_bytes(self) -> bytes:
        """Return the HTTP request, whole."""
        parts = urlsplit(self.url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        return (
            f"POST {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json\r\nContent-Length: {len(self.review)}\r\n\r\n"
        ).encode() + self.review


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of *ordered* that at least *share* of them do not exceed (nearest rank)."""
    rank = max(1, -int(-share * len(ordered) // 1))
    return ordered[rank - 1]


def cpu_clock(pid: int) -> int:
    """Return the clock of the CPU time of process *pid*: all threads, user and system, ended ones included.

    Raises:
        ProcessLookupError: there is no such process.

    Source: clock_getcpuclockid(3).
    """
    clock = ctypes.c_int()
    if ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)) != 0:
        raise ProcessLookupError(f"no process {pid}")
    return clock.value


class Run:
    """What all connections of a run share."""

    def __init__(self, target: Target) -> None:
        self.request = target.request_bytes()
        self.latencies_s = array("d")
        """Of every correct answer so far."""
        self.errors: Counter[str] = Counter()
        self.expected: bytes | None = None
        """The whole first answer."""
        self.is_over = False
        self._expected_body = b""
        self._allowed = target.allowed
        self._uid = orjson.loads(target.review)["request"]["uid"]

    def check(self, head: bytes, body: bytes) -> None:
        """Judge an answer that is not the expected one byte for byte."""
        problem = self._problem(head, body)
        if problem:
            self.errors[problem] += 1
        elif self.expected is None:
            self.expected, self._expected_body = head + body, body

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


class Connection(asyncio.Protocol):
    """One connection: a review, its answer, the next review."""

    __slots__ = ("_latencies_s", "_partial", "_run", "_sent", "_transport")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._latencies_s = run.latencies_s
        self._partial = b""
        self._sent = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; the first review goes out when all are connected."""
        self._transport = transport  # type: ignore[assignment] # uvloop's class derives from none of asyncio's

    def send(self) -> None:
        """Send the review."""
        assert self._transport is not None
        self._sent = time.perf_counter()
        self._transport.write(self._run.request)

    def data_received(self, data: bytes) -> None:
        """Take an answer, or a part of it, and go on."""
        run = self._run
        now = time.perf_counter()
        if data != run.expected or self._partial:
            self._partial += data
            if not self._complete():
                return
        self._latencies_s.append(now - self._sent)
        if not run.is_over:
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it, unless this side ended it. The connection is not opened again."""
        if not self._run.is_over:
            self._run.errors[f"connection lost: {exc or 'closed by the server'}"] += 1

    def close(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _complete(self) -> bool:
        """Whether a whole answer is there; a wrong one is counted and not timed."""
        head, separator, body = self._partial.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if not separator or len(body) < int(length or 0):
            return False
        self._partial = b""
        wrong = self._run.errors.total()
        self._run.check(head + separator, body)
        if self._run.errors.total() == wrong:
            return True
        if not self._run.is_over:
            self.send()
        return False


async def measure(
    target: Target, connections: int, warmup_s: float, window_s: float, watch: Sequence[int] = ()
) -> Measurement:
    """Return what *connections* clients in a closed loop see in *window_s* seconds after *warmup_s*.

    Raises:
        OSError: the target cannot be connected to, or a process of *watch* does not exist.
    """
    clocks = {str(pid): cpu_clock(pid) for pid in watch} | {"load": time.CLOCK_PROCESS_CPUTIME_ID}
    run = Run(target)
    clients = await _connect(target, run, connections)
    for client in clients:
        client.send()
    await asyncio.sleep(warmup_s)
    first, began, before = len(run.latencies_s), time.perf_counter(), _read(clocks)
    await asyncio.sleep(window_s)
    after, ended, last = _read(clocks), time.perf_counter(), len(run.latencies_s)
    run.is_over = True
    for client in clients:
        client.close()
    ordered = sorted(run.latencies_s[first:last])
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0} if ordered else {}
    return Measurement(
        reviews=last - first,
        seconds=ended - began,
        latencies_ms={name: percentile(ordered, share) * 1000 for name, share in shares.items()},
        cpu_s={name: after[name] - before[name] for name in clocks},
        errors=dict(run.errors),
    )


def _read(clocks: dict[str, int]) -> dict[str, float]:
    return {name: time.clock_gettime(clock) for name, clock in clocks.items()}


async def _connect(target: Target, run: Run, connections: int) -> list[Connection]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    parts = urlsplit(target.url)
    host, port = parts.hostname or "", parts.port or HTTPS_PORT
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_WITHIN_S):
        made = [
            await loop.create_connection(lambda: Connection(run), host, port, ssl=tls)
            for _ in range(connections)
        ]
    return [protocol for _, protocol in made]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description="Posts one AdmissionReview again and again, in a closed loop."
    )
    parser.add_argument("url", metavar="URL", help="https://HOST:PORT/PATH")
    parser.add_argument("review", type=Path, metavar="REVIEW", help="an AdmissionReview, JSON")
    parser.add_argument("--connections", type=int, default=64, metavar="N")
    parser.add_argument("--warmup", type=float, default=0.5, metavar="SECONDS")
    parser.add_argument("--window", type=float, default=3.0, metavar="SECONDS", help="how long to measure")
    parser.add_argument(
        "--watch", type=int, action="append", default=[], metavar="PID", help="measure its CPU"
    )
    arguments = parser.parse_args()
    target = Target(arguments.url, arguments.review.read_bytes())
    try:
        found = uvloop.run(
            measure(target, arguments.connections, arguments.warmup, arguments.window, arguments.watch)
        )
    except OSError as error:
        raise SystemExit(f"loadtest.load: {arguments.url}: {error}") from None
    print(orjson.dumps(asdict(found)).decode())


if __name__ == "__main__":
    main()
