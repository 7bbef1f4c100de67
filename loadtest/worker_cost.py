"""``python -m loadtest.worker_cost``: the CPU that a worker needs for a review, without a gateway.

Two groups of ``loadtest.bench``:

- ``sdk``: a worker of the Python SDK with policies that read labels, compared with ``orjson.loads`` of the
  same request, which a policy of the same worker measures at the start and the end of each round. A batch of
  16 requests for 4 policies is 64 reviews, which share the cost of each request.
- ``languages``: the sample policies in each language over a stream and with unary calls, compared with
  Python's in the same round. Every answer must equal Python's. Languages that are not built are left out.

At *low load* one request is in flight, and each pays for a message both ways and for the wake-ups of all
threads on its way. At *full load* two batches of 16 requests are in flight, or as many unary calls.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING, Final, Literal

import orjson
import uvloop
from grpc import aio

from loadtest.measurement import cpu_clock
from loadtest.report import markdown_table
from loadtest.reviews import POD
from loadtest.servers import POLICIES as SERVING
from loadtest.servers import BenchError, logged, start
from loadtest.worker import PARSER, PARSES, READING_POLICIES, reading_name
from loadtest.worker_client import Load, StreamClient, UnaryClient
from tests.languages.toolchains import LANGUAGES, PYTHON, named, unready

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission_gateway_worker.pb import worker_pb2 as pb
    from loadtest.worker_client import Client
    from tests.kit import Process
    from tests.languages.toolchains import Language

    Round = Mapping["LanguageCase", Mapping[str, float]]
    """Microseconds of CPU for a review, by language."""

FULL_BATCH: Final = 16
"""Requests in a batch at full load; a gateway with 64 connections sends larger ones."""


def _log_after_start(process: Process) -> str:
    """Return the first line that a worker logged after its start, such as a policy that was judged slow.

    On a busy machine a policy may seem slow, and the worker then runs it in a thread, which has another cost.
    """
    _, *lines = process.log.splitlines()
    return lines[0] if lines else ""


# -- the Python worker ----------------------------------------------------------------------------

MAX_TIMES_PARSE: Final = 2.0
"""CPU of a review at full load with one policy, in multiples of parsing its request."""
ROUNDS: Final = 5
WARMUP_S: Final = 0.05
"""For each case."""


@dataclass(frozen=True, slots=True)
class Case:
    """A load on the Python worker."""

    title: str
    load: Load

    @property
    def policies(self) -> int:
        """Policies for each request."""
        return len(self.load.policies)


_READING: Final = tuple(map(reading_name, range(READING_POLICIES)))
CASES: Final = (
    Case("low load, 1 policy", Load(_READING[:1])),
    Case("low load, 4 policies", Load(_READING)),
    Case("full load, 1 policy", Load(_READING[:1], FULL_BATCH, 2)),
    Case("full load, 4 policies", Load(_READING, FULL_BATCH, 2)),
)
FULL_1: Final = 2
"""Index of the case that is judged."""


@dataclass(frozen=True, slots=True)
class PythonCost:
    """CPU of the Python worker: medians over the rounds."""

    parse_us: float
    """Of parsing a request."""
    review_us: tuple[float, ...]
    """Of a review, by ``CASES``."""
    times_parse: float
    """Full load with one policy in multiples of a parse: the median of the ratios of the rounds."""
    log: str = ""
    """A line that the worker logged meanwhile: its figures are not judged."""

    def __str__(self) -> str:
        """Return the table."""
        costs = [("orjson.loads", self.parse_us, 1)]
        costs += [(case.title, us, case.policies) for case, us in zip(CASES, self.review_us, strict=True)]
        rows = [
            (
                *(title, f"{us:.1f}", f"{us / self.parse_us:.2f}"),
                *(f"{us * policies:.1f}", f"{us * policies / self.parse_us:.2f}"),
            )
            for title, us, policies in costs
        ]
        headings = (
            "worker CPU",
            "review by a policy, us",
            "times the parse",
            "request, us",
            "times the parse",
        )
        return markdown_table(headings, rows, left=(0,))


def summary(rounds: Sequence[tuple[float, Sequence[float]]], log: str = "") -> PythonCost:
    """Return the medians of *rounds*: the cost of a parse and of a review by ``CASES``, in microseconds."""
    parses = [parse_us for parse_us, _ in rounds]
    reviews = zip(*(review_us for _, review_us in rounds), strict=True)
    times_parse = median(review_us[FULL_1] / parse_us for parse_us, review_us in rounds)
    return PythonCost(median(parses), tuple(map(median, reviews)), times_parse, log)


def measure_python(seconds: float) -> PythonCost:
    """Start a worker of the Python SDK, measure it for about *seconds*, and stop it.

    Raises:
        BenchError: the worker did not start, or an answer was wrong or missing.
    """
    with ExitStack() as stack:
        command = (sys.executable, "-m", "loadtest.worker", "--listen=127.0.0.1:0", "--grace=0")
        process = start(stack, *command)
        address = logged("the worker", process, SERVING)
        try:
            rounds = uvloop.run(_python_rounds(address, process.child.pid, seconds))
        except aio.AioRpcError as error:
            raise BenchError(f"the stream broke: {error.code().name}: {error.details()}") from None
        return summary(rounds, _log_after_start(process))


async def _python_rounds(address: str, pid: int, seconds: float) -> list[tuple[float, Sequence[float]]]:
    clock = cpu_clock(pid)
    window_s = seconds / ROUNDS / len(CASES)
    rounds: list[tuple[float, Sequence[float]]] = []
    request = orjson.dumps(orjson.loads(POD.read_bytes())["request"])
    async with aio.insecure_channel(address) as channel:
        client = StreamClient(channel, request)

        async def parse_us() -> float:
            response = await client.review(PARSER)
            return float(response.warnings[0]) / PARSES * 1e6

        for case in CASES:
            await client.review_us(case.load, clock, WARMUP_S)
        for _ in range(ROUNDS):
            before_us = await parse_us()
            review_us = [await client.review_us(case.load, clock, window_s) for case in CASES]
            rounds.append((fmean((before_us, await parse_us())), review_us))
    return rounds


# -- the workers in all languages -------------------------------------------------------------------

POLICIES: Final = ("require-labels", "always-pull-images")
"""One that only reads, and one that changes the object, for which the SDK computes the patch."""
TITLE: Final = "CPU of a worker for a review, by language"
EXPLANATION: Final = """\
In microseconds, user and system time of all threads; in brackets in multiples of Python's in the same round.
*Low*: one review at a time; *full*: two batches of 16, or 32 calls. The policy `require-labels` reads a Pod
of 6 KB, and `always-pull-images` changes it."""


@dataclass(frozen=True, slots=True)
class LanguageCase:
    """A load on the workers in all languages."""

    transport: Literal["stream", "unary"]
    level: Literal["low", "full"]
    policy: str

    def __str__(self) -> str:
        return f"{self.transport}, {self.level}, {self.policy}"

    @property
    def load(self) -> Load:
        """The reviews in flight."""
        return Load((self.policy,), FULL_BATCH, 2) if self.level == "full" else Load((self.policy,))


LANGUAGE_CASES: Final = tuple(
    LanguageCase(transport, level, policy)
    for transport in ("stream", "unary")
    for level in ("low", "full")
    for policy in POLICIES
)


@dataclass(frozen=True, slots=True)
class Timing:
    """Timing of the languages."""

    rounds: int = 5
    window_s: float = 0.4
    """For each case of each language in each round."""
    warmup_s: float = 2.0
    """For each case of each language at the start, for compilers that work at run time."""


QUICK: Final = Timing(rounds=1, window_s=0.2, warmup_s=0.2)


@dataclass(frozen=True, slots=True)
class LanguageCosts:
    """CPU of the workers by language."""

    rounds: Sequence[Round]
    """Empty if only Python could be measured."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Languages that were left out, and why."""
    log: str = ""
    """A line that Python's worker logged meanwhile."""

    @property
    def names(self) -> list[str]:
        """The measured languages, Python first."""
        return list(self.rounds[0][LANGUAGE_CASES[0]])

    def us(self, case: LanguageCase, name: str) -> float:
        """Return the microseconds of a review: the median over the rounds."""
        return median(round_[case][name] for round_ in self.rounds)

    def times_python(self, case: LanguageCase, name: str) -> float:
        """Return the median of the rounds' ratios to Python."""
        return median(round_[case][name] / round_[case][PYTHON.name] for round_ in self.rounds)

    def __str__(self) -> str:
        """Return the table: a row for each case, a column for each language."""
        rows = []
        for case in LANGUAGE_CASES:
            cells = [
                f"{self.us(case, name):.1f}"
                + ("" if name == PYTHON.name else f" ({self.times_python(case, name):.2f})")
                for name in self.names
            ]
            rows.append((str(case), *cells))
        titles = [named(name).title for name in self.names]
        table = markdown_table(("worker CPU of a review, us", *titles), rows, left=(0,))
        return f"{table}\n\nPython's worker logged: {self.log}" if self.log else table


class LanguageWorker:
    """The worker of one language, with a client for each transport."""

    def __init__(self, name: str, pid: int, channel: aio.Channel, request: bytes) -> None:
        """*request* is the JSON of an AdmissionRequest."""
        self.name = name
        self._clock = cpu_clock(pid)
        self._clients: dict[str, Client] = {
            "stream": StreamClient(channel, request, self._is_right),
            "unary": UnaryClient(channel, request, self._is_right),
        }
        self._right: pb.ReviewResponse | None = None

    def _is_right(self, response: pb.ReviewResponse) -> bool:
        return self._right is None or response == self._right

    async def review(self, policy: str) -> pb.ReviewResponse:
        """Return the answer of *policy*."""
        return await self._clients["unary"].review(policy)

    async def review_us(self, case: LanguageCase, right: pb.ReviewResponse, seconds: float) -> float:
        """Return the CPU of a review in microseconds; every answer must equal *right*.

        Raises:
            BenchError: an answer was wrong or missing.
        """
        self._right = right
        try:
            return await self._clients[case.transport].review_us(case.load, self._clock, seconds)
        except BenchError as error:
            raise BenchError(f"{self.name}: {error}") from None
        except aio.AioRpcError as error:
            raise BenchError(f"{self.name}: {error.code().name}: {error.details()}") from None
        finally:
            self._right = None


def measure_languages(timing: Timing, languages: Sequence[Language] = LANGUAGES) -> LanguageCosts:
    """Start a worker of each of *languages* that is built, measure all of them, and stop them.

    Raises:
        BenchError: a worker did not start, or an answer was wrong or missing.
    """
    missing = {language.name: why for language in languages if (why := unready(language))}
    present = [language for language in languages if language.name not in missing]
    if len(present) < 2:
        return LanguageCosts((), missing)
    with ExitStack() as stack:
        processes = {
            language.name: start(stack, *language.run, "--listen=127.0.0.1:0", "--grace=0")
            for language in present
        }
        workers = {
            name: (logged(f"the worker in {name}", process, SERVING), process.child.pid)
            for name, process in processes.items()
        }
        rounds = uvloop.run(_language_rounds(workers, timing))
        return LanguageCosts(rounds, missing, _log_after_start(processes[PYTHON.name]))


async def _language_rounds(addresses: Mapping[str, tuple[str, int]], timing: Timing) -> list[Round]:
    """Measure the workers of *addresses*, address and process id by language, in turn."""
    document = orjson.loads(POD.read_bytes())["request"]
    document["object"]["metadata"]["labels"]["team"] = "web"  # which require-labels requires
    async with AsyncExitStack() as stack:
        workers = []
        for name, (address, pid) in addresses.items():
            channel = await stack.enter_async_context(aio.insecure_channel(address))
            workers.append(LanguageWorker(name, pid, channel, orjson.dumps(document)))
        reference = next(worker for worker in workers if worker.name == PYTHON.name)
        right = {policy: await reference.review(policy) for policy in POLICIES}
        if not all(response.allowed for response in right.values()):
            raise BenchError(f"the review was denied: {right}")
        for worker in workers:
            for case in LANGUAGE_CASES:
                await worker.review_us(case, right[case.policy], timing.warmup_s)
        rounds: list[Round] = []
        for number in range(timing.rounds):
            # Odd rounds reverse the order, so that a machine that becomes slower favours no language.
            order = workers[::-1] if number % 2 else workers
            round_: dict[LanguageCase, dict[str, float]] = {}
            for case in LANGUAGE_CASES:
                found = {
                    worker.name: await worker.review_us(case, right[case.policy], timing.window_s)
                    for worker in order
                }
                round_[case] = {worker.name: found[worker.name] for worker in workers}
            rounds.append(round_)
    return rounds


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 1 if an answer was wrong."""
    usual = Timing()
    parser = argparse.ArgumentParser(
        "loadtest.worker_cost", description="Measures workers without a gateway."
    )
    add = parser.add_argument
    add("--seconds", type=float, default=8.0, metavar="S", help="for the Python worker; default 8")
    add(
        "--rounds",
        type=int,
        default=usual.rounds,
        metavar="N",
        help=f"of the languages; default {usual.rounds}",
    )
    for name, default in (("window", usual.window_s), ("warmup", usual.warmup_s)):
        text = f"for each case of each language; default {default:g}"
        add(f"--{name}", type=float, default=default, metavar="SECONDS", help=text)
    options = parser.parse_args(argv)
    try:
        python = measure_python(options.seconds)
        languages = measure_languages(Timing(options.rounds, options.window, options.warmup))
    except BenchError as error:
        print(f"loadtest.worker_cost: {error}", file=sys.stderr)
        return 1
    print(python, *([languages] if languages.rounds else []), sep="\n\n")
    for name, why in languages.missing.items():
        print(f"{name} was not measured: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
