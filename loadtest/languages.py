"""``python -m loadtest.languages``: what a review costs a worker in each language, beside Python's.

The sample policies of each language run as a program of their own; this process asks them about a Pod of 6 KB
on 127.0.0.1, over a ReviewStream and by unary calls, and checks that every answer is the one that Python's
gave. CPU is of the worker process, see ``loadtest.sdk_client``.

At *low load* one review is out at a time, and each pays for a message both ways and for every sleep and
wake-up of the threads on its way. At *full load* two batches of 16 are out, or as many calls by themselves.
In each round every case is measured for one language after the other, Python's among them, and what counts
is the ratio within the round. A language that is not built here is left out, and named.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, Literal

import orjson
import uvloop
from grpc import aio

from loadtest.launch import BenchError, launched
from loadtest.measurement import cpu_clock
from loadtest.report import markdown_table
from loadtest.reviews import POD
from loadtest.sdk_client import Asked, StreamClient, UnaryClient
from loadtest.sdk_cost import heard
from tests.languages.toolchains import LANGUAGES, PYTHON, named, unready

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.pb import worker_pb2 as pb
    from loadtest.sdk_client import Client
    from tests.languages.toolchains import Language

    Round = Mapping["Case", Mapping[str, float]]
    """Microseconds of CPU of a review, by language."""

GROUP: Final = "languages"
"""What it is called in ``loadtest.bench``."""
POLICIES: Final = ("require-labels", "always-pull-images")
"""One that looks and one that changes something, for which the SDK makes the patch."""
FULL_BATCH: Final = 16
TITLE: Final = "CPU of a worker for a review, by language"
EXPLANATION: Final = """\
In microseconds, user and system, all threads; in brackets in multiples of Python's in the same round. *Low*:
one review at a time; *full*: two batches of 16, or 32 calls. Of the policies `require-labels` only looks at
a Pod of 6 KB, and `always-pull-images` changes it."""

_AWAITS: Final = "held up the event loop for more than 5 ms; it is to await what it waits for\n"
_SAMPLES: Final = r"worker: serving \d+ policies on (\S+:\d+)\n"


@dataclass(frozen=True, slots=True)
class Case:
    """How a worker is asked, and for what."""

    transport: Literal["stream", "unary"]
    load: Literal["low", "full"]
    policy: str

    def __str__(self) -> str:
        return f"{self.transport}, {self.load}, {self.policy}"

    @property
    def asked(self) -> Asked:
        """The same for a client."""
        return Asked((self.policy,), FULL_BATCH, 2) if self.load == "full" else Asked((self.policy,))


CASES: Final = tuple(
    Case(transport, load, policy)
    for transport in ("stream", "unary")
    for load in ("low", "full")
    for policy in POLICIES
)


@dataclass(frozen=True, slots=True)
class Timing:
    """How long everything is measured."""

    rounds: int = 5
    window_s: float = 0.4
    """Each case of each language in each round."""
    warmup_s: float = 2.0
    """Each case of each language at the start: what compiles while it runs does so then."""


@dataclass(frozen=True, slots=True)
class LanguageCosts:
    """What was found."""

    rounds: Sequence[Round]
    """None where Python would have been alone."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Languages that were left out, and why."""

    @property
    def names(self) -> list[str]:
        """The languages that were measured, Python first."""
        return list(self.rounds[0][CASES[0]])

    def us(self, case: Case, name: str) -> float:
        """Return the microseconds of a review: the median of the rounds."""
        return median(round_[case][name] for round_ in self.rounds)

    def times_python(self, case: Case, name: str) -> float:
        """Return the same in multiples of Python's: the median of what the rounds found, each by itself."""
        return median(round_[case][name] / round_[case][PYTHON.name] for round_ in self.rounds)

    def __str__(self) -> str:
        """Return the table: a row for each case, a column for each language."""
        rows = []
        for case in CASES:
            cells = [
                f"{self.us(case, name):.1f}"
                + ("" if name == PYTHON.name else f" ({self.times_python(case, name):.2f})")
                for name in self.names
            ]
            rows.append((str(case), *cells))
        titles = [named(name).title for name in self.names]
        return markdown_table(("worker CPU of a review, us", *titles), rows, left=(0,))


class Worker:
    """The worker of one language, with a client for each way of asking."""

    def __init__(self, name: str, pid: int, channel: aio.Channel, request: bytes) -> None:
        """*request* is the JSON of the AdmissionRequest to ask about."""
        self.name = name
        self._clock = cpu_clock(pid)
        self._clients: dict[str, Client] = {
            "stream": StreamClient(channel, request, self._is_right),
            "unary": UnaryClient(channel, request, self._is_right),
        }
        self._right: pb.ReviewResponse | None = None

    def _is_right(self, response: pb.ReviewResponse) -> bool:
        return self._right is None or response == self._right

    async def answer(self, policy: str) -> pb.ReviewResponse:
        """Return what it says about the request."""
        return await self._clients["unary"].ask(policy)

    async def review_us(self, case: Case, right: pb.ReviewResponse, seconds: float) -> float:
        """Return the CPU of a review in microseconds, every answer being *right*.

        Raises:
            BenchError: one was not, or did not come.
        """
        self._right = right
        try:
            return await self._clients[case.transport].review_us(case.asked, self._clock, seconds)
        except BenchError as error:
            raise BenchError(f"{self.name}: {error}") from None
        except aio.AioRpcError as error:
            raise BenchError(f"{self.name}: {error.code().name}: {error.details()}") from None
        finally:
            self._right = None


def as_measured(log: str) -> str:
    """Return *log* without the lines that leave what is measured as it is.

    An async policy that seemed slow, as any may on a busy machine, is told of and goes on as before; a plain
    one goes on in a thread.
    """
    return "".join(line for line in log.splitlines(keepends=True) if not line.endswith(_AWAITS))


async def run(places: Mapping[str, tuple[str, int]], request: bytes, timing: Timing) -> list[Round]:
    """Measure the workers at *places* in turn; return the rounds.

    Args:
        places: Address and process id of each language's worker; Python's among them.
        request: JSON of an AdmissionRequest that each policy allows.
        timing: For how long.

    Raises:
        BenchError: an answer was another than Python's, or did not come.
    """
    async with AsyncExitStack() as stack:
        workers = []
        for name, (address, pid) in places.items():
            channel = await stack.enter_async_context(aio.insecure_channel(address))
            workers.append(Worker(name, pid, channel, request))
        reference = next(worker for worker in workers if worker.name == PYTHON.name)
        right = {policy: await reference.answer(policy) for policy in POLICIES}
        if not all(response.allowed for response in right.values()):
            raise BenchError(f"a review was not allowed: {right}")
        for worker in workers:
            for case in CASES:
                await worker.review_us(case, right[case.policy], timing.warmup_s)
        rounds: list[Round] = []
        for number in range(timing.rounds):
            # Every other round is backwards, so that a machine that gets slower favours no language.
            order = workers[::-1] if number % 2 else workers
            round_: dict[Case, dict[str, float]] = {}
            for case in CASES:
                found = {
                    worker.name: await worker.review_us(case, right[case.policy], timing.window_s)
                    for worker in order
                }
                round_[case] = {worker.name: found[worker.name] for worker in workers}
            rounds.append(round_)
    return rounds


def request() -> bytes:
    """Return the JSON of the AdmissionRequest that is asked about: one that each policy allows."""
    document = orjson.loads(POD.read_bytes())["request"]
    document["object"]["metadata"]["labels"]["team"] = "web"
    return orjson.dumps(document)


def chosen(languages: Sequence[Language]) -> tuple[list[Language], dict[str, str]]:
    """Return those of *languages* that can be started here, and why the others cannot."""
    missing = {language.name: why for language in languages if (why := unready(language))}
    return [language for language in languages if language.name not in missing], missing


def measure(timing: Timing, languages: Sequence[Language] = LANGUAGES) -> LanguageCosts:
    """Start a worker of each of *languages* that is built, measure all of them, and stop them.

    Python's alone is not measured: there is nothing to compare it with.

    Raises:
        BenchError: a worker did not start, or an answer was wrong or did not come.
        SeemedSlow: Python's worker took a policy for a slow one.
    """
    present, missing = chosen(languages)
    if len(present) < 2:
        return LanguageCosts((), missing)
    with tempfile.TemporaryDirectory(prefix="loadtest-") as folder, ExitStack() as stack:
        logs = {language.name: Path(folder, f"{language.name}.log") for language in present}
        places = {}
        for language in present:
            command = [*language.run, "--listen=127.0.0.1:0", "--grace=0"]
            title = f"the worker in {language.title}"
            child = stack.enter_context(launched(title, command, logs[language.name]))
            places[language.name] = child.says(_SAMPLES), child.pid
        rounds = uvloop.run(run(places, request(), timing))
        stack.close()
        heard(as_measured(logs[PYTHON.name].read_text(errors="replace")))
    return LanguageCosts(rounds, missing)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 1 if an answer was wrong."""
    usual = Timing()
    parser = argparse.ArgumentParser(
        "loadtest.languages", description="Measures the workers of all languages."
    )
    parser.add_argument(
        "--rounds", type=int, default=usual.rounds, metavar="N", help=f"default {usual.rounds}"
    )
    for name, default in (("window", usual.window_s), ("warmup", usual.warmup_s)):
        text = f"for each case of each language; default {default:g}"
        parser.add_argument(f"--{name}", type=float, default=default, metavar="SECONDS", help=text)
    options = parser.parse_args(argv)
    try:
        found = measure(Timing(options.rounds, options.window, options.warmup))
    except BenchError as error:
        print(f"loadtest.languages: {error}", file=sys.stderr)
        return 1
    left_out = [f"{name} was not measured: {why}" for name, why in found.missing.items()]
    print(*([str(found)] if found.rounds else []), *left_out, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
