"""``python -m loadtest.sdk_cost``: what a review costs a worker of the Python SDK, in parses of its request.

A worker process serves policies that read ``metadata.labels``; this process sends it batches over a
ReviewStream on 127.0.0.1 and checks every verdict. A *review* is what the SDK calls one: a policy asked about
a request, so a batch of 16 requests for 4 policies has 64. CPU is of the worker process, user and system, all
threads, divided by the reviews answered meanwhile.

What it is compared with is ``orjson.loads`` of the same request, timed in the same worker by a policy that
does nothing else, at the start and the end of each round.

At *low load* one request is out at a time, and each pays for a message both ways and for every sleep and
wake-up of the threads on its way. At *full load* two batches of 16 requests are out, so that the worker never
waits. The target is for full load. Exit status 0 if it is met, 1 if not or if an answer was wrong.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

import orjson
import uvloop
from grpc import aio

from gateway.pb import worker_pb2 as pb
from loadtest.measurement import cpu_clock
from loadtest.sdk_worker import PARSER, PARSES, POLICIES, labels_name
from loadtest.servers import ROOT, START_WITHIN_S, STOP_WITHIN_S, BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

REVIEW: Final = ROOT / "loadtest" / "corpus" / "pod-create-6kb.json"
METHOD: Final = "/admissiongateway.worker.v1.PolicyWorker/ReviewStream"

MAX_TIMES_PARSE: Final = 2.0
"""CPU of a review at full load, in multiples of what parsing its request costs."""
FULL_BATCH: Final = 16
"""Requests in a batch at full load: a gateway with 64 connections gathers that many and more."""
ROUNDS: Final = 5
POLL_S: Final = 0.02
HEAD: Final = """\
| worker CPU            | review, us | times the parse | request, us |
| --------------------- | ---------: | --------------: | ----------: |"""
WARMUP_S: Final = 0.2
ANSWER_WITHIN_S: Final = 10.0
"""Also the timeout of the calls."""


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
    def reviews(self) -> int:
        """Reviews in a batch."""
        return self.requests * self.policies


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
    """``full_4_us`` in multiples of ``parse_us``: the median of what the rounds found, each by itself."""

    @property
    def is_met(self) -> bool:
        """Whether the target is."""
        return self.times_parse <= MAX_TIMES_PARSE

    def __str__(self) -> str:
        """Return the table and the line of the target."""
        costs = (self.low_1_us, self.low_4_us, self.full_1_us, self.full_4_us)
        rows = [
            ("orjson.loads", self.parse_us, 1),
            *((c.title, us, c.policies) for c, us in zip(CASES, costs, strict=True)),
        ]
        lines = [
            f"| {title:<21} | {us:10.1f} | {us / self.parse_us:15.2f} | {us * policies:11.1f} |"
            for title, us, policies in rows
        ]
        target = (
            f"{'pass' if self.is_met else 'FAIL'}: a review in batches of {FULL_BATCH} requests for "
            f"{POLICIES} policies: {self.times_parse:.2f} times parsing its request "
            f"(at most {MAX_TIMES_PARSE:g})"
        )
        return "\n".join((HEAD, *lines, "", target))


class Client:
    """A gateway's side of one stream, without its cost."""

    def __init__(self, channel: aio.Channel, request: bytes) -> None:
        self._call: Any = channel.stream_stream(METHOD)()
        self._request = request
        self._last_id = 0

    async def parse_us(self) -> float:
        """Return the CPU that one parse takes in the worker."""
        await self._call.write(self._batch(1, [PARSER]))
        [verdict] = await self._verdicts()
        return float(verdict.response.warnings[0]) / PARSES * 1e6

    async def review_us(self, case: Case, clock: int, seconds: float) -> float:
        """Return the CPU by *clock* of each review of *case* within *seconds*."""
        policies = [labels_name(number) for number in range(case.policies)]
        wanted = answered = 0
        started, end = time.clock_gettime(clock), time.monotonic() + seconds
        while (is_open := time.monotonic() < end) or answered < wanted:
            while is_open and wanted - answered <= case.reviews * (case.batches - 1):
                await self._call.write(self._batch(case.requests, policies))
                wanted += case.reviews
            answered += len(await self._verdicts())
        return (time.clock_gettime(clock) - started) / answered * 1e6

    def _batch(self, requests: int, policies: Sequence[str]) -> bytes:
        batch = pb.ReviewBatch()
        for payload in range(requests):
            batch.payloads.add(admission_request=self._request)
            for policy in policies:
                self._last_id += 1
                timeout_ms = int(ANSWER_WITHIN_S * 1000)
                batch.calls.add(id=self._last_id, payload=payload, policy=policy, timeout_millis=timeout_ms)
        return batch.SerializeToString()

    async def _verdicts(self) -> Sequence[pb.Verdict]:
        message = await self._call.read()
        if not isinstance(message, bytes):
            raise BenchError(f"the worker ended the stream: {await self._call.code()}")
        verdicts = pb.VerdictBatch.FromString(message).verdicts
        for verdict in verdicts:
            if not verdict.response.allowed:
                raise BenchError(f"a review was not allowed: {verdict}")
        return verdicts


async def run(address: str, pid: int, request: bytes, seconds: float) -> SdkCost:
    """Measure the worker that serves at *address* for about *seconds*.

    Args:
        address: HOST:PORT.
        pid: its process.
        request: JSON of an AdmissionRequest with labels.
        seconds: for all cases and rounds together.

    Raises:
        BenchError: an answer was wrong, or the worker ended the stream.
    """
    clock = cpu_clock(pid)
    window_s = seconds / ROUNDS / len(CASES)
    rounds = []
    async with aio.insecure_channel(address) as channel:
        client = Client(channel, request)
        for case in CASES:
            await client.review_us(case, clock, WARMUP_S / len(CASES))
        for _ in range(ROUNDS):
            before_us = await client.parse_us()
            costs_us = [await client.review_us(case, clock, window_s) for case in CASES]
            rounds.append((fmean((before_us, await client.parse_us())), *costs_us))
    return summary(rounds)


def summary(rounds: Sequence[Sequence[float]]) -> SdkCost:
    """Return the medians of *rounds*; each has what a parse took and what ``CASES`` did, in microseconds."""
    parse_us, low_1_us, low_4_us, full_1_us, full_4_us = map(median, zip(*rounds, strict=True))
    times_parse = median(found[-1] / found[0] for found in rounds)
    return SdkCost(parse_us, low_1_us, low_4_us, full_1_us, full_4_us, times_parse)


@contextmanager
def worker(folder: Path) -> Iterator[tuple[str, int]]:
    """Start the worker and give its address and process id; stop it in the end. *folder* is for its log.

    Raises:
        BenchError: it did not start, or it logged something: then it was not doing what is measured.
    """
    log = folder / "worker.log"
    leash = [sys.executable, "-m", "gateway.process.leash", str(os.getpid())]
    command = [sys.executable, "-m", "loadtest.sdk_worker", "--listen=127.0.0.1:0", "--grace=0"]
    with log.open("wb") as output:
        child = subprocess.Popen([*leash, *command], cwd=ROOT, stdin=subprocess.DEVNULL, stderr=output)
    try:
        yield _address(child, log), child.pid
    finally:
        child.terminate()
        try:
            child.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    _, _, said = log.read_text(errors="replace").partition("\n")
    if said:
        raise BenchError(f"the worker logged what it should not have to: {said[-2000:]}")


def _address(child: subprocess.Popen[bytes], log: Path) -> str:
    give_up = time.monotonic() + START_WITHIN_S
    while time.monotonic() < give_up:
        text = log.read_text(errors="replace")
        found = re.search(r"policies on (\S+:\d+)\n", text)
        if found is not None:
            return found[1]
        if child.poll() is not None:
            raise BenchError(f"the worker ended with status {child.returncode}:\n{text[-2000:]}")
        time.sleep(POLL_S)
    raise BenchError(f"the worker does not serve after {START_WITHIN_S:g} s")


def measure(seconds: float) -> SdkCost:
    """Start a worker, measure it for about *seconds*, and stop it.

    Raises:
        BenchError: it did not start, an answer was wrong, or a policy held it up.
    """
    request = orjson.dumps(orjson.loads(REVIEW.read_bytes())["request"])
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
    print(cost)
    return 0 if cost.is_met else 1


if __name__ == "__main__":
    sys.exit(main())
