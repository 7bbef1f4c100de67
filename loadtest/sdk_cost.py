"""``python -m loadtest.sdk_cost``: what a review costs a worker of the Python SDK, in parses of its request.

A worker process serves policies that read ``metadata.labels``; this process sends it batches over a
ReviewStream on 127.0.0.1 and checks every verdict. A *review* is what the SDK calls one: a policy asked about
a request, so a batch of 16 requests for 4 policies has 64, which share what a request costs. CPU is of the
worker process, user and system, all threads, divided by the reviews answered meanwhile.

What it is compared with is ``orjson.loads`` of the same request, timed in the same worker by a policy that
does nothing else, at the start and the end of each round.

At *low load* one request is out at a time, and each pays for a message both ways and for every sleep and
wake-up of the threads on its way. At *full load* two batches of 16 requests are out, so that the worker never
waits. The target is for full load and one policy, where each review pays for a request of its own. Exit
status 0 if it is met, 1 if not or if an answer was wrong.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

import orjson
import uvloop
from grpc import aio

from loadtest.launch import BenchError, launched
from loadtest.measurement import cpu_clock
from loadtest.reviews import POD
from loadtest.sdk_client import Asked, StreamClient
from loadtest.sdk_worker import PARSER, PARSES, POLICIES, labels_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_TIMES_PARSE: Final = 2.0
"""CPU of a review at full load, in multiples of what parsing its request costs."""
FULL_BATCH: Final = 16
"""Requests in a batch at full load: a gateway with 64 connections gathers that many and more."""
ROUNDS: Final = 5
HEAD: Final = """\
| worker CPU            | review by a policy, us | times the parse | request, us | times the parse |
| --------------------- | ---------------------: | --------------: | ----------: | --------------: |"""
WARMUP_S: Final = 0.2
_SLOW: Final = re.compile(r'worker: policy "[^"\n]*" held up the event loop [^\n]*')


class SeemedSlow(BenchError):
    """The worker took a policy for a slow one, and from then on did not do what is measured."""


@dataclass(frozen=True, slots=True)
class Case:
    """How the worker is asked."""

    title: str
    requests: int
    """In a batch."""
    policies: int
    """Asked about each request."""
    batches: int
    """Out at a time."""

    @property
    def asked(self) -> Asked:
        """The same for a client."""
        return Asked(tuple(map(labels_name, range(self.policies))), self.requests, self.batches)


LOW_1: Final = Case("low load, 1 policy", 1, 1, 1)
LOW_4: Final = Case("low load, 4 policies", 1, POLICIES, 1)
FULL_1: Final = Case("full load, 1 policy", FULL_BATCH, 1, 2)
FULL_4: Final = Case("full load, 4 policies", FULL_BATCH, POLICIES, 2)
CASES: Final = (LOW_1, LOW_4, FULL_1, FULL_4)


@dataclass(frozen=True, slots=True)
class SdkCost:
    """CPU of the worker in microseconds a review, and of parsing a request: medians over the rounds."""

    parse_us: float
    low_1_us: float
    low_4_us: float
    full_1_us: float
    full_4_us: float
    times_parse: float
    """``full_1_us`` in multiples of ``parse_us``: the median of what the rounds found, each by itself."""

    @property
    def is_met(self) -> bool:
        """Whether the target is."""
        return self.times_parse <= MAX_TIMES_PARSE

    def __str__(self) -> str:
        """Return the table."""
        costs = (self.low_1_us, self.low_4_us, self.full_1_us, self.full_4_us)
        rows = [
            ("orjson.loads", self.parse_us, 1),
            *((c.title, us, c.policies) for c, us in zip(CASES, costs, strict=True)),
        ]
        lines = [
            f"| {title:<21} | {us:22.1f} | {us / self.parse_us:15.2f} | {us * policies:11.1f} "
            f"| {us * policies / self.parse_us:15.2f} |"
            for title, us, policies in rows
        ]
        return "\n".join((HEAD, *lines))

    @property
    def verdict(self) -> str:
        """The line of the target."""
        return (
            f"{'pass' if self.is_met else 'FAIL'}: a review in batches of {FULL_BATCH} requests for one "
            f"policy: {self.times_parse:.2f} times parsing its request (at most {MAX_TIMES_PARSE:g})"
        )


async def run(address: str, pid: int, request: bytes, seconds: float) -> SdkCost:
    """Measure the worker that serves at *address* for about *seconds*.

    Args:
        address: HOST:PORT.
        pid: its process.
        request: JSON of an AdmissionRequest with labels.
        seconds: for all cases and rounds together.

    Raises:
        BenchError: an answer was wrong or did not come, or the worker ended the stream.
    """
    clock = cpu_clock(pid)
    window_s = seconds / ROUNDS / len(CASES)
    rounds = []
    async with aio.insecure_channel(address) as channel:
        client = StreamClient(channel, request)
        for case in CASES:
            await client.review_us(case.asked, clock, WARMUP_S / len(CASES))
        for _ in range(ROUNDS):
            before_us = await _parse_us(client)
            costs_us = [await client.review_us(case.asked, clock, window_s) for case in CASES]
            rounds.append((fmean((before_us, await _parse_us(client))), *costs_us))
    return summary(rounds)


async def _parse_us(client: StreamClient) -> float:
    """Return the CPU that one parse takes in the worker."""
    response = await client.ask(PARSER)
    return float(response.warnings[0]) / PARSES * 1e6


def summary(rounds: Sequence[Sequence[float]]) -> SdkCost:
    """Return the medians of *rounds*; each has what a parse took and what ``CASES`` did, in microseconds."""
    parse_us, low_1_us, low_4_us, full_1_us, full_4_us = map(median, zip(*rounds, strict=True))
    full_1 = 1 + CASES.index(FULL_1)
    times_parse = median(found[full_1] / found[0] for found in rounds)
    return SdkCost(parse_us, low_1_us, low_4_us, full_1_us, full_4_us, times_parse)


@contextmanager
def worker(folder: Path) -> Iterator[tuple[str, int]]:
    """Start the worker and give its address and process id; stop it in the end. *folder* is for its log.

    Raises:
        SeemedSlow: it logged that a policy was, and nothing else.
        BenchError: it did not start, or it logged something else: then it was not doing what is measured.
    """
    log = folder / "worker.log"
    command = [sys.executable, "-m", "loadtest.sdk_worker", "--listen=127.0.0.1:0", "--grace=0"]
    with launched("the worker", command, log) as child:
        yield child.says(r"policies on (\S+:\d+)\n"), child.pid
        # Before it is stopped: it may then say that it cuts a stream off whose end has not reached it yet.
        heard(log.read_text(errors="replace"))


def heard(log: str) -> None:
    """Check that a worker said in *log* where it serves, in the first line, and nothing else.

    Raises:
        SeemedSlow: it said that a policy was slow, and nothing else.
        BenchError: it said something else.
    """
    _, *said = log.splitlines()
    if said and all(map(_SLOW.fullmatch, said)):
        raise SeemedSlow(said[0])
    if said:
        raise BenchError(f"the worker logged what it should not have to: {chr(10).join(said)[-2000:]}")


def measure(seconds: float) -> SdkCost:
    """Start a worker, measure it for about *seconds*, and stop it.

    Raises:
        SeemedSlow: a policy held it up.
        BenchError: it did not start, or an answer was wrong or did not come.
    """
    request = orjson.dumps(orjson.loads(POD.read_bytes())["request"])
    with (
        tempfile.TemporaryDirectory(prefix="loadtest-") as folder,
        worker(Path(folder)) as (address, pid),
    ):
        try:
            return uvloop.run(run(address, pid, request, seconds))
        except aio.AioRpcError as error:
            raise BenchError(
                f"the stream to the worker broke: {error.code().name}: {error.details()}"
            ) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser("loadtest.sdk_cost", description="Measures a worker of the Python SDK.")
    parser.add_argument("--seconds", type=float, default=8.0, metavar="S", help="for all; default 8")
    try:
        cost = measure(parser.parse_args(argv).seconds)
    except BenchError as error:
        print(f"loadtest.sdk_cost: {error}", file=sys.stderr)
        return 1
    print(cost, cost.verdict, sep="\n\n")
    return 0 if cost.is_met else 1


if __name__ == "__main__":
    sys.exit(main())
