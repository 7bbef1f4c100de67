"""A load generator that costs as little as it can: fixed bytes out, fixed bytes expected back.

Three ways to ask, each in a process of its own, so that its CPU is not counted with anybody's:

- closed loop (here): each connection sends its next review when it has the answer to the last;
- open loop (``--rate``, ``openloop.py``): reviews are due by the clock;
- churn (``--fresh``, ``churn.py``): a closed loop with a new TLS connection for each review.

Every answer is checked, see ``exchange.py``. The CPU of other processes is read at the very start and end of
the measured window (``--watch PID``), so that it can be divided by the reviews answered in between.

``python -m loadtest.load URL REVIEW`` prints a JSON object, see ``measurement.Measurement``. Wrong answers
and too much load are in its ``errors``; the exit status is 0 whenever something was measured.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import time
from array import array
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
import uvloop

from loadtest.churn import measure_fresh
from loadtest.exchange import Answers, Target, connect
from loadtest.measurement import Measurement, Plan, Stopwatch, percentiles_ms
from loadtest.openloop import measure_open

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.exchange import Connection

STALLED_AFTER_S: Final = 30.0
"""A run that counts reviews ends if none was answered for so long: the longest timeoutSeconds."""


class ClosedLoop:
    """Sends on whenever an answer has come."""

    def __init__(self, target: Target) -> None:
        self.request = target.request_bytes()
        self.answers = Answers(target)
        self.latencies_s = array("d")
        """Of every correct answer so far."""
        self.over = asyncio.get_running_loop().create_future()
        """Done when there is nothing more to come."""
        self._connections: list[Connection] = []
        self._to_send = math.inf
        self._to_end = math.inf

    def limit(self, count: int) -> None:
        """End after *count* more answers, those that are under way included."""
        self._to_send = count - sum(connection.busy for connection in self._connections)
        self._to_end = count

    def begin(self, connections: list[Connection]) -> None:
        """Send a review on each of *connections*."""
        self._connections = connections.copy()
        for connection in connections:
            self._send(connection)

    def answered(self, connection: Connection, now: float, *, right: bool) -> None:
        """Count, and send the next."""
        if right:
            self.latencies_s.append(now - connection.since)
        self._send(connection)
        self._ended()

    def lost(self, connection: Connection, reason: str) -> None:
        """Go on without it."""
        if self.over.done():
            return
        self.answers.errors[reason] += 1
        self._connections.remove(connection)
        if connection.busy:
            self._ended()
        if not self._connections:
            self.end()

    def end(self) -> None:
        """Send nothing more."""
        self._to_send = 0
        if not self.over.done():
            self.over.set_result(None)

    def _send(self, connection: Connection) -> None:
        if self._to_send > 0:
            self._to_send -= 1
            connection.send(time.perf_counter())

    def _ended(self) -> None:
        self._to_end -= 1
        if self._to_end <= 0:
            self.end()

    async def counted(self) -> None:
        """Wait until it is over, as long as there is progress."""
        left = math.inf
        while not self.over.done():
            if self._to_end == left:
                self.answers.errors[f"no answer for {STALLED_AFTER_S:g} s"] += 1
                break
            left = self._to_end
            await asyncio.wait({self.over}, timeout=STALLED_AFTER_S)


async def measure(target: Target, plan: Plan) -> Measurement:
    """Return what the connections of *plan* see in a closed loop.

    Raises:
        OSError: the target cannot be connected to, or a process of ``plan.watch`` does not exist.
    """
    stopwatch = Stopwatch(plan.watch)
    pace = ClosedLoop(target)
    connections = await connect(target, pace, plan.connections)
    if plan.warmup_s:
        pace.begin(connections)
        await asyncio.wait({pace.over}, timeout=plan.warmup_s)
    if plan.count is not None:
        pace.limit(plan.count)
    first = len(pace.latencies_s)
    stopwatch.start()
    if not plan.warmup_s:
        pace.begin(connections)
    if plan.count is None:
        await asyncio.wait({pace.over}, timeout=plan.window_s)
    else:
        await pace.counted()
    stopwatch.stop()
    last = len(pace.latencies_s)
    pace.end()
    for connection in connections:
        connection.close()
    return Measurement(
        reviews=last - first,
        seconds=stopwatch.seconds,
        latencies_ms=percentiles_ms(pace.latencies_s[first:last]),
        cpu_s=stopwatch.cpu_s,
        errors=dict(pace.answers.errors),
        doubts=stopwatch.doubts() if last > first else [],
    )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        "loadtest.load", description="Posts one AdmissionReview again and again."
    )
    add = parser.add_argument
    add("url", metavar="URL", help="https://HOST:PORT/PATH")
    add("review", type=Path, metavar="REVIEW", help="an AdmissionReview, JSON")
    add("--connections", type=_whole, default=64, metavar="N")
    add("--warmup", type=float, default=0.5, metavar="SECONDS", help="comes first, is not measured")
    add("--window", type=float, default=3.0, metavar="SECONDS", help="how long to measure")
    add("--count", type=_whole, metavar="N", help="measure so many reviews instead, on all connections")
    add("--watch", type=int, action="append", default=[], metavar="PID", help="measure its CPU")
    add("--rate", type=_rate, metavar="N", help="open loop: so many reviews a second, by the clock")
    add(
        "--backlog",
        type=_whole,
        metavar="N",
        help="open loop: end when more reviews wait for a connection (default: those of one second)",
    )
    add("--fresh", action="store_true", help="a new TLS connection for each review")
    add("--resume", action="store_true", help="with --fresh: resume the TLS session where the server lets it")
    options = parser.parse_args(argv)
    if options.rate and options.fresh:
        parser.error("--rate is an open loop and --fresh a closed one: expected one of them")
    if options.backlog and not options.rate:
        parser.error("--backlog is for an open loop: expected --rate too")
    if options.resume and not options.fresh:
        parser.error("connections that are kept resume nothing: expected --fresh too")
    return options


def _whole(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text}")
    return number


def _rate(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text}")
    return number


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    options = parse(argv)
    plan = Plan(options.connections, options.warmup, options.window, options.count, options.watch)
    try:
        target = Target(options.url, options.review.read_bytes())
        if options.fresh:
            found = measure_fresh(target, plan, resume=options.resume)
        elif options.rate:
            found = uvloop.run(measure_open(target, options.rate, plan, options.backlog))
        else:
            found = uvloop.run(measure(target, plan))
    except OSError as error:
        raise SystemExit(f"loadtest.load: {options.url}: {error}") from None
    for doubt in found.doubts:
        print(f"loadtest.load: {doubt}", file=sys.stderr)
    print(orjson.dumps(asdict(found)).decode())


if __name__ == "__main__":
    main()
