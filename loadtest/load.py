"""Measures a server under load: posts one AdmissionReview again and again and checks each answer.

A closed loop, or with ``--rate`` an open loop (``generator``). With ``--fresh`` each review has a new TLS
connection. The first answer is parsed and checked (status, uid, ``allowed``). Every later answer must have
the same body, which the gateway promises. For other servers the same size can be enough.

Locust (``locustfile.py``) cannot take this place: against the floor, which needs 40 us of CPU for a review,
this generator used 34 us and Locust's fast client (gevent) 210 us a review, measured on one machine with two
cores. A generator that needs more CPU than its target measures itself.

``python -m loadtest.load URL REVIEW`` prints a ``measurement.Measurement`` as JSON. Wrong and missing answers
are in its ``errors``; the exit status is 0 whenever something was measured.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit
from uuid import UUID

import orjson
import uvloop

from loadtest.generator import LEAD_S, Generator, Outcomes
from loadtest.http_client import Address, Request, client_tls, post
from loadtest.measurement import Measurement, Stopwatch, percentiles_ms
from loadtest.outcomes import outcome_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadtest.http_client import Answer

HTTPS_PORT: Final = 443
DRAIN_TIMEOUT_S: Final = 10.0
"""How long a window waits for its first answer, and a loop for its last ones: kube-apiserver's default
timeoutSeconds."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL, and the review that is posted to it."""

    url: str
    """``https://HOST:PORT/PATH``. The certificate is not verified."""
    review: bytes
    """JSON of an AdmissionReview."""
    is_exact: bool = True
    """Whether all answers must have the same bytes; else the same size, for patches in a random order."""
    traceparent: str = ""
    """The header of the request; empty if it has none."""
    uids: int = 1
    """Reviews with so many uids are sent in turn; then answers are compared by their size alone."""

    def address(self) -> Callable[[], Address]:
        """Return what returns the server."""
        parts = urlsplit(self.url)
        address = Address(parts.hostname or "", parts.port or HTTPS_PORT, client_tls())
        return lambda: address

    def requests(self) -> list[Request]:
        """Return the requests: of the review, and with other uids of the same length."""
        parts = urlsplit(self.url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        headers = {"Accept": "application/json"}
        if self.traceparent:
            headers["traceparent"] = self.traceparent
        own = orjson.loads(self.review)["request"]["uid"]
        draw = random.Random(1)
        uids = [own, *(str(UUID(int=draw.getrandbits(128))) for _ in range(self.uids - 1))]
        return [
            Request(uid, post(path, parts.netloc, self.review.replace(own.encode(), uid.encode()), headers))
            for uid in uids
        ]

    def answers(self) -> Answers:
        """Return the check of their answers."""
        return ReviewAnswers(self)


class Measurable(Protocol):
    """A server, and what is sent to it."""

    def address(self) -> Callable[[], Address]:
        """Return what returns the server."""

    def requests(self) -> Sequence[Request]:
        """Return the requests, which are sent in turn."""

    def answers(self) -> Answers:
        """Return the check of their answers."""


class Answers(Outcomes[Request]):
    """Checks the answers of a run and counts the wrong ones."""

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()

    def problem(self, request: Request, answer: Answer) -> str:
        """Return what is wrong with *answer*; empty if it is right."""
        raise NotImplementedError

    def judge(self, request: Request, answer: Answer) -> bool:
        """See ``Outcomes``."""
        problem = self.problem(request, answer)
        if problem:
            self.errors[problem] += 1
        return not problem

    def lost(self, _request: Request | None, reason: str) -> None:
        """Count a lost connection."""
        self.errors[f"connection lost: {reason}"] += 1


class ReviewAnswers(Answers):
    """Checks that all answers are that of one AdmissionReview."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self._is_exact = target.is_exact and target.uids == 1
        self._right: bytes | None = None
        """The body of the last right answer."""

    def problem(self, request: Request, answer: Answer) -> str:
        """See ``Answers``."""
        if self._right is None or answer.status != 200:
            outcome, text = outcome_of(answer, request.uid)
            if outcome != "allowed":
                return text if outcome == "lost" else f"{outcome}, {text}"
        elif answer.body != self._right and (self._is_exact or len(answer.body) != len(self._right)):
            return "the body differs from that of the first answer"
        self._right = answer.body
        return ""


async def _until(condition: Callable[[], bool]) -> None:
    """Wait for *condition*, for ``DRAIN_TIMEOUT_S`` at most: no window ends before its first answer."""
    give_up = time.perf_counter() + DRAIN_TIMEOUT_S
    while not condition():
        if time.perf_counter() > give_up:
            return
        await asyncio.sleep(0.001)


async def _ended(loop: Generator[Request]) -> None:
    """Wait until all requests have ended, for ``DRAIN_TIMEOUT_S`` at most."""
    with suppress(TimeoutError):
        await asyncio.wait_for(loop.is_over.wait(), DRAIN_TIMEOUT_S)


async def measure_closed(
    target: Measurable,
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
    stopwatch, answers = Stopwatch(pids), target.answers()
    loop = Generator(target.address(), cycle(target.requests()), answers, is_fresh=is_fresh, are_equal=True)
    await loop.open(connections)
    with loop.sending():
        await asyncio.sleep(warmup_s)
        first = loop.right
        stopwatch.start()
        await asyncio.sleep(window_s)
        await _until(lambda: loop.right > first or bool(answers.errors))
        stopwatch.stop()
        last = loop.right
        loop.stop()
        await _ended(loop)
    await loop.close()
    return Measurement(
        reviews=last - first,
        seconds=stopwatch.seconds,
        latencies_ms=percentiles_ms(loop.latencies_s[first:last]),
        cpu_s=stopwatch.cpu_s,
        errors=dict(answers.errors),
        answered=loop.right,
        warnings=stopwatch.warnings(),
    )


async def measure_open(
    target: Measurable,
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
    stopwatch, answers = Stopwatch(pids), target.answers()
    first = round(warmup_s * rate)
    total = first + max(1, round(window_s * rate))
    requests = islice(cycle(target.requests()), total)
    loop = Generator(target.address(), requests, answers, rate=rate, are_equal=True)
    await loop.open(connections)
    with loop.sending():
        loop.measured_from = loop.due(first)
        await asyncio.sleep(LEAD_S + warmup_s)
        before = min(loop.right, first)  # a late timer loses no answer of the window
        stopwatch.start()
        await asyncio.sleep(max(0.0, loop.due(total) - time.perf_counter()))
        await _until(lambda: loop.right > before or loop.is_over.is_set())
        stopwatch.stop()
        reviews = loop.right - before
        await _ended(loop)
        errors = answers.errors
        missing = total - loop.right - errors.total()
        if missing > 0:
            errors[f"no answer {DRAIN_TIMEOUT_S:g} s after the last review was due"] = missing
    await loop.close()
    return Measurement(
        reviews=reviews,
        seconds=stopwatch.seconds,
        latencies_ms=percentiles_ms(loop.latencies_s),
        cpu_s=stopwatch.cpu_s,
        errors=dict(errors),
        answered=loop.right,
        late_ms=percentiles_ms(loop.late_s),
        warnings=[*stopwatch.warnings(), *late_warnings(loop)],
    )


def late_warnings(loop: Generator[Request]) -> list[str]:
    """Return a warning if the generator's own delay may be most of the measured latency."""
    late, latency = percentiles_ms(loop.late_s), percentiles_ms(loop.latencies_s)
    if not late or not latency or late["p99"] <= latency["p99"] / 2:
        return []
    limit = f"{latency['p99']:.2f} ms"
    return [f"the generator sent reviews late: p99 {late['p99']:.2f} ms; p99 of the latency {limit}"]


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
