"""A load generator that uses little CPU: it posts one AdmissionReview again and again and checks each answer.

- Closed loop: each connection sends its next review as soon as it has the answer to the last. With
  ``--fresh`` each review has a new TLS connection.
- Open loop (``--rate``): reviews are due by the clock, and latency counts from the moment at which a review
  was due. A server that stalls is therefore slow for all reviews that were due meanwhile, as it would be for
  an API server, and not only for those in flight (coordinated omission).

Locust (``locustfile.py``) cannot take this place: against the floor, which needs 40 us of CPU for a review,
this generator used 34 us and Locust's fast client (gevent) 210 us a review, measured on one machine with two
cores. A generator that needs more CPU than its target measures itself.

``python -m loadtest.load URL REVIEW`` prints a ``measurement.Measurement`` as JSON. Wrong and missing answers
are in its ``errors``; the exit status is 0 whenever something was measured.

Source: Gil Tene, "How NOT to Measure Latency", for coordinated omission; timerfd_create(2).
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import math
import os
import sys
import time
from array import array
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
import uvloop

from loadtest.http_client import Answers, Target, client_tls, connect
from loadtest.measurement import Measurement, Stopwatch, percentiles_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loadtest.http_client import Connection

MIN_TICK_S: Final = 0.0002
"""Shortest time between two wake-ups of an open loop; shorter ones would cost more CPU than the reviews."""
LEAD_S: Final = 0.01
"""From the last handshake to the first review of an open loop."""
DRAIN_TIMEOUT_S: Final = 10.0
"""How long a window waits for its first answer, and an open loop for its last ones: kube-apiserver's default
timeoutSeconds."""


async def _until(condition: Callable[[], bool]) -> None:
    """Wait for *condition*, for ``DRAIN_TIMEOUT_S`` at most: no window ends before its first answer."""
    give_up = time.perf_counter() + DRAIN_TIMEOUT_S
    while not condition():
        if time.perf_counter() > give_up:
            return
        await asyncio.sleep(0.001)


class ClosedLoop:
    """Each connection sends its next review when it has the answer to the last."""

    def __init__(self, target: Target, *, is_fresh: bool) -> None:
        """With *is_fresh* each review has a new connection, and its latency includes the handshake."""
        self.requests = target.requests()
        self.answers = Answers(target)
        self.latencies_s = array("d")
        """Of every right answer so far."""
        self._target = target
        self._is_fresh = is_fresh
        self._tls = client_tls()
        self._is_over = False
        self._connections: set[Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()

    async def open(self, connections: int) -> None:
        """Connect, and send the first review on each connection."""
        for _ in range(connections):
            self._connections.add(await connect(self._target, self, self._tls))
        for connection in self._connections:
            connection.send(time.perf_counter())

    def on_answer(self, connection: Connection, now: float, *, is_right: bool) -> None:
        """Count the answer and send the next review."""
        if is_right:
            self.latencies_s.append(now - connection.since)
        if self._is_over:
            return
        if not self._is_fresh:
            connection.send(time.perf_counter())
            return
        connection.close()
        self._connections.discard(connection)
        task = asyncio.get_running_loop().create_task(self._replace())
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _replace(self) -> None:
        began = time.perf_counter()
        try:
            connection = await connect(self._target, self, self._tls)
        except (OSError, TimeoutError) as error:
            self.answers.errors[f"connection failed: {error}"] += 1
            return
        self._connections.add(connection)
        connection.send(began)

    def on_lost(self, connection: Connection, reason: str) -> None:
        """Count the error and continue with the other connections."""
        if not self._is_over:
            self.answers.errors[reason] += 1
            self._connections.discard(connection)

    def close(self) -> None:
        """Send no more reviews and close the connections."""
        self._is_over = True
        for task in self._connecting:
            task.cancel()
        for connection in self._connections:
            connection.close()


async def measure_closed(
    target: Target,
    connections: int,
    warmup_s: float,
    window_s: float,
    pids: Sequence[int] = (),
    *,
    is_fresh: bool = False,
) -> Measurement:
    """Return the figures of a closed loop over *connections*.

    Raises:
        OSError: the connection fails, or a process of *pids* does not exist.
    """
    stopwatch = Stopwatch(pids)
    loop = ClosedLoop(target, is_fresh=is_fresh)
    await loop.open(connections)
    await asyncio.sleep(warmup_s)
    first = len(loop.latencies_s)
    stopwatch.start()
    await asyncio.sleep(window_s)
    await _until(lambda: len(loop.latencies_s) > first or bool(loop.answers.errors))
    stopwatch.stop()
    last = len(loop.latencies_s)
    loop.close()
    return Measurement(
        reviews=last - first,
        seconds=stopwatch.seconds,
        latencies_ms=percentiles_ms(loop.latencies_s[first:last]),
        cpu_s=stopwatch.cpu_s,
        errors=dict(loop.answers.errors),
        warnings=stopwatch.warnings(),
    )


class OpenLoop:
    """A schedule: review *i* is due at ``start + i / rate``. A due review waits until a connection is free.

    The waiting reviews need no queue: they are the numbers between the next to send and the next to be due.
    """

    def __init__(self, target: Target, rate: float, warmup_s: float, window_s: float) -> None:
        """Plan *rate* reviews a second."""
        self.requests = target.requests()
        self.answers = Answers(target)
        self.is_over = asyncio.Event()
        """Set when all reviews are answered, or no connection is left."""
        self.reviews = 0
        """Right answers so far."""
        self.latencies_s = array("d")
        """Of right answers to reviews that were due in the window."""
        self.late_s = array("d")
        """How late reviews were sent for which a connection was free, in the window."""
        self._rate = rate
        self.first = round(warmup_s * rate)
        """The number of the first review of the window."""
        self._total = self.first + max(1, round(window_s * rate))
        self._sent = self._answered = 0
        self._idle: deque[Connection] = deque()  # in turn, so that no connection reaches the idle timeout
        self._connections: set[Connection] = set()
        self._start = 0.0

    @property
    def window_s(self) -> float:
        """Length of the window."""
        return (self._total - self.first) / self._rate

    @property
    def tick_s(self) -> float:
        """Time between two calls of ``tick``."""
        return max(MIN_TICK_S, 1 / self._rate)

    def begin(self, connections: Sequence[Connection], start: float) -> None:
        """Use *connections*. The first review is due at *start*, on ``time.perf_counter``."""
        self._idle.extend(connections)
        self._connections.update(connections)
        self._start = start

    def tick(self) -> None:
        """Send the reviews that are due, as far as connections are free."""
        now = time.perf_counter()
        while self._idle and self._sent < self._total and self._due(self._sent) <= now:
            if self._sent >= self.first:
                self.late_s.append(time.perf_counter() - self._due(self._sent))
            self._send(self._idle.popleft())

    def on_answer(self, connection: Connection, now: float, *, is_right: bool) -> None:
        """Count the answer and send the review that has waited longest, if any."""
        self._answered += 1
        self.reviews += is_right
        if is_right and connection.since >= self._due(self.first):
            self.latencies_s.append(now - connection.since)
        # While other connections are idle no review waits: the next tick sends what is due by then.
        if not self._idle and self._sent < self._total and self._due(self._sent) <= now:
            self._send(connection)
            return
        self._idle.append(connection)
        if self._answered == self._total:
            self.is_over.set()

    def on_lost(self, connection: Connection, reason: str) -> None:
        """Count the error and continue with the other connections."""
        self.answers.errors[reason] += 1
        self._connections.discard(connection)
        if not connection.is_busy:
            self._idle.remove(connection)
        if not self._connections:
            self.is_over.set()

    def close(self) -> None:
        """Close the connections. Reviews without an answer are errors."""
        missing = self._total - self._answered
        if missing:
            self.answers.errors[f"no answer {DRAIN_TIMEOUT_S:g} s after the last review was due"] = missing
        for connection in self._connections:
            connection.close()

    def _due(self, number: int) -> float:
        return self._start + number / self._rate

    def _send(self, connection: Connection) -> None:
        connection.send(self._due(self._sent))
        self._sent += 1

    def warnings(self) -> list[str]:
        """Return a warning if the generator's own delay may be most of the measured latency."""
        late, latency = percentiles_ms(self.late_s), percentiles_ms(self.latencies_s)
        if not late or not latency or late["p99"] <= latency["p99"] / 2:
            return []
        limit = f"{latency['p99']:.2f} ms"
        return [f"the generator sent reviews late: p99 {late['p99']:.2f} ms; p99 of the latency {limit}"]


async def measure_open(
    target: Target,
    rate: float,
    connections: int,
    warmup_s: float,
    window_s: float,
    pids: Sequence[int] = (),
) -> Measurement:
    """Return the figures of an open loop of *rate* reviews a second over *connections*.

    Raises:
        OSError: the connection fails, or a process of *pids* does not exist.
    """
    stopwatch = Stopwatch(pids)
    loop = OpenLoop(target, rate, warmup_s, window_s)
    tls = client_tls()
    opened = [await connect(target, loop, tls) for _ in range(connections)]
    start = time.perf_counter() + LEAD_S
    loop.begin(opened, start)
    with ticking(loop.tick, start, loop.tick_s):
        await asyncio.sleep(LEAD_S + warmup_s)
        before = min(loop.reviews, loop.first)  # a late timer loses no answer of the window
        stopwatch.start()
        await asyncio.sleep(max(0.0, start + warmup_s + loop.window_s - time.perf_counter()))
        await _until(lambda: loop.reviews > before or loop.is_over.is_set())
        stopwatch.stop()
        reviews = loop.reviews - before
        with suppress(TimeoutError):
            await asyncio.wait_for(loop.is_over.wait(), DRAIN_TIMEOUT_S)
    loop.close()
    return Measurement(
        reviews=reviews,
        seconds=stopwatch.seconds,
        latencies_ms=percentiles_ms(loop.latencies_s),
        cpu_s=stopwatch.cpu_s,
        errors=dict(loop.answers.errors),
        late_ms=percentiles_ms(loop.late_s),
        warnings=[*stopwatch.warnings(), *loop.warnings()],
    )


class _Interval(ctypes.Structure):
    """struct itimerspec."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


_NS: Final = 1_000_000_000
_ABSOLUTE: Final = 1
"""TFD_TIMER_ABSTIME."""


@contextmanager
def ticking(callback: Callable[[], None], first: float, interval_s: float) -> Iterator[None]:
    """Call *callback* at *first*, on ``time.perf_counter``, and every *interval_s* from then.

    A timer of the kernel (timerfd), because uvloop's timers count milliseconds and are late by half of one on
    average, which would be most of the latency of a fast server. Times are rounded up: a tick before a review
    is due could not send it. Missed ticks are not repeated.

    Raises:
        OSError: the kernel refuses the timer.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    # On Linux this is the clock of perf_counter.
    timer = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    if timer < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    setting = _Interval(*divmod(math.ceil(interval_s * _NS), _NS), *divmod(math.ceil(first * _NS), _NS))

    def tick() -> None:
        with suppress(BlockingIOError):
            os.read(timer, 8)
        callback()

    loop = asyncio.get_running_loop()
    try:
        if libc.timerfd_settime(timer, _ABSOLUTE, ctypes.byref(setting), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        loop.add_reader(timer, tick)
        yield
    finally:
        loop.remove_reader(timer)
        os.close(timer)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        "loadtest.load", description="Posts one AdmissionReview again and again."
    )
    add = parser.add_argument
    add("url", metavar="URL", help="https://HOST:PORT/PATH")
    add("review", type=Path, metavar="REVIEW", help="file with an AdmissionReview, JSON")
    add("--connections", type=int, default=64, metavar="N", help="default 64; one review at a time on each")
    add("--warmup", type=float, default=0.5, metavar="SECONDS", help="before the window, not measured")
    add("--window", type=float, default=3.0, metavar="SECONDS", help="how long to measure")
    add("--watch", type=int, action="append", default=[], metavar="PID", help="measure the CPU of a process")
    add("--rate", type=float, metavar="N", help="open loop of N reviews a second")
    add("--inexact", action="store_true", help="answers must have the same size, not the same bytes")
    add("--traceparent", default="", metavar="TEXT", help="a header of all reviews")
    add("--uids", type=int, default=1, metavar="N", help="reviews with N uids in turn; implies --inexact")
    add("--fresh", action="store_true", help="closed loop with a new TLS connection for each review")
    options = parser.parse_args(argv)
    if options.rate and options.fresh:
        parser.error("--rate is an open loop and --fresh a closed loop: expected one of them")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    options = parse(argv)
    window = (options.connections, options.warmup, options.window, options.watch)
    try:
        review, is_exact = options.review.read_bytes(), not options.inexact
        target = Target(
            options.url, review, is_exact=is_exact, traceparent=options.traceparent, uids=options.uids
        )
        if options.rate:
            found = uvloop.run(measure_open(target, options.rate, *window))
        else:
            found = uvloop.run(measure_closed(target, *window, is_fresh=options.fresh))
    except OSError as error:
        raise SystemExit(f"loadtest.load: {options.url}: {error}") from None
    for warning in found.warnings:
        print(f"loadtest.load: {warning}", file=sys.stderr)
    print(orjson.dumps(asdict(found)).decode())


if __name__ == "__main__":
    main()
