"""One behaviour, as a row: a pool, workers with faults, reviews, and what has to come of them.

Times are seconds from the first review, in virtual time. Between equal workers the first one is called, and a
message takes a millisecond, so that the result of a row is exact.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gateway.pure.core.verdict import Allowed, Failed
from tests.simulation.faults import begin_fault
from tests.waiting import until
from tests.world import SimulatedWorld, simulate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gateway.engine.dispatch.pool import Pool
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.verdict import Verdict
    from tests.simulation.scripted import ScriptedWorker

BY_NAME: Final = "pool.test:1"
BOTH: Final = ("Stream", "Unary")


@dataclass(frozen=True)
class W:
    """A worker, and its faults: when, which one of ``tests.simulation.faults``, and for how many seconds."""

    faults: tuple[tuple[float, str, float], ...] = ()
    override: dict[str, Any] = field(default_factory=dict)
    """Members that replace those of each *every*th script."""
    every: int = 1
    health: bool = False
    streams: bool = True
    replaced: tuple[tuple[float, dict[str, Any]], ...] = ()
    """When another worker, with this override, takes its place."""


def reviews(count: int, every_s: float = 0.103, first_s: float = 0.0) -> list[float]:
    """The times of *count* reviews.

    None is that of a check of the gateway, ten of which are a second: their order would be no fact.
    """
    return [first_s + number * every_s for number in range(count)]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A behaviour. Only what is not None is compared."""

    what: str
    """The behaviour, as a sentence."""
    workers: Sequence[W]
    transports: Sequence[str] = BOTH
    pool: dict[str, Any] = field(default_factory=dict)
    """Settings of the pool."""
    scripts: Sequence[dict[str, Any]] = ({},)
    """The webhooks of each review: the script of the policy and the fields of the webhook."""
    at: Iterable[float] = (0.0,)
    """When reviews begin."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of all reviews, such as ``budget_s``."""
    members: Sequence[tuple[float, tuple[int, ...] | None]] = ()
    """When the name of the pool gets the addresses of which workers, the first at the beginning; None if its
    look-up fails. Without it the pool has the addresses of all workers."""
    targets: Sequence[tuple[float, tuple[int, ...]]] = ()
    """When a new configuration has which workers."""
    called: str | None = None
    """For each review in turn: the numbers of the workers that got its calls, in this order, and its verdicts
    (a: allowed, d: denied, f: failed). N equal results in a row are ``N*RESULT``."""
    ms: Sequence[int] | None = None
    """The milliseconds that each review takes, to ten, once for those in a row that take the same."""
    causes: Sequence[str] = ()
    """Patterns of the HTTP codes and causes of failures, each once, in the order in which they come."""
    codes: Mapping[str, int] | None = None
    """The metric of calls by their gRPC status."""
    retries: int | None = None
    hedges: int | None = None
    states: Sequence[tuple[float, str]] = ()
    """The states of all endpoints at some times."""
    streams: tuple[int, ...] | None = None
    """How many streams each worker has seen at the end."""
    cancelled: tuple[int, ...] | None = None
    """How many cancelled calls each worker was notified of."""


@dataclass(frozen=True)
class Result:
    """What came of one review."""

    called: str
    verdicts: tuple[Verdict, ...]
    ms: int


class Run:
    """One run of a row with a transport."""

    def __init__(self, row: Row, transport: str, world: SimulatedWorld) -> None:
        self.row, self._transport, self._world = row, transport, world
        self.workers = [
            world.start_worker(override=one.override, every=one.every, health=one.health, streams=one.streams)
            for one in row.workers
        ]
        self.names = {worker.address: str(number) for number, worker in enumerate(self.workers, 1)}
        self.states: list[tuple[float, str]] = []
        self.results: dict[int, Result] = {}
        self._questions: dict[int, int] = {}

    async def live(self) -> None:
        """Begin the reviews and the faults at their times, and wait for the end of all."""
        row, world, loop = self.row, self._world, self._world.loop
        if row.members:
            self._move(row.members[0][1])
            pool = await world.add_pool(BY_NAME, **self._settings)
        else:
            wanted = row.targets[0][1] if row.targets else range(1, len(self.workers) + 1)
            pool = await self._configure(wanted)
        await pool.wait_until_ready(30.0)
        await asyncio.sleep(1.0)
        begin = loop.time()
        times = list(row.at)
        for number, at in enumerate(times):
            loop.call_at(begin + at, self._review, number)
        for worker, one in zip(self.workers, row.workers, strict=True):
            for at, kind, lasting_s in one.faults:
                loop.call_at(begin + at, begin_fault, worker, kind, lasting_s)
            for at, override in one.replaced:
                loop.call_at(begin + at, self._replace, worker, override)
        for at, members in row.members[1:]:
            loop.call_at(begin + at, self._move, members)
        for at, _ in row.states:
            loop.call_at(begin + at, self._note_states, at)
        for at, wanted in row.targets[1:]:
            await asyncio.sleep(begin + at - loop.time())
            await self._configure(wanted)
        await asyncio.sleep(max(0.0, begin + max(times) - loop.time()))
        await until(lambda: len(self.results) == len(times), "all reviews are answered")
        await until(lambda: len(self.states) == len(row.states), "all states are noted")
        # For notices that follow an answer, such as that of a cancelled call.
        await asyncio.sleep(0.1)
        self.retries, self.hedges = (
            getattr(world.metrics.pool("pool"), name) for name in ("retries", "hedges")
        )

    @property
    def _settings(self) -> dict[str, Any]:
        return {"transport": self._transport, **self.row.pool}

    async def _configure(self, wanted: Iterable[int]) -> Pool:
        targets = (self.workers[number - 1].target for number in wanted)
        return await self._world.add_pool(*targets, **self._settings)

    def _move(self, members: tuple[int, ...] | None) -> None:
        found = None if members is None else [self.workers[number - 1].address for number in members]
        self._world.network.names["pool.test"] = found

    def _replace(self, worker: ScriptedWorker, override: dict[str, Any]) -> None:
        worker.crash(delivers_written=True)
        worker.override = override
        worker.restart()

    def _note_states(self, at: float) -> None:
        endpoints = self._world.pools["pool"].endpoints
        self.states.append((at, " ".join(endpoint.state for endpoint in endpoints)))

    def _review(self, number: int) -> None:
        begin, uid = self._world.loop.time(), f"r{number}"

        def done(evaluation: Evaluation) -> None:
            ms = round((self._world.loop.time() - begin) * 100) * 10
            verdicts = tuple(
                outcome.call.verdict
                for outcome in evaluation.outcomes
                if outcome.call is not None and outcome.call.verdict is not None
            )
            self.results[number] = Result("", verdicts, ms)

        self._world.start(list(self.row.scripts), done, uid=uid, **self.row.options)

    # -- what came of it ------------------------------------------------------------------------------

    @property
    def called(self) -> str:
        """As ``Row.called``."""
        by_review: dict[str, str] = {}
        for question in self._world.stage.questions:
            by_review[question.uid] = by_review.get(question.uid, "") + self.names[question.address]
        found = (
            by_review.get(f"r{number}", "") + "".join(map(_letter, self.results[number].verdicts))
            for number in range(len(self.results))
        )
        return " ".join(f"{count}*{result}" if count > 1 else result for result, count in _in_a_row(found))

    @property
    def ms(self) -> list[int]:
        """As ``Row.ms``."""
        return [ms for ms, _ in _in_a_row(self.results[number].ms for number in range(len(self.results)))]

    @property
    def causes(self) -> list[str]:
        """As ``Row.causes``."""
        found = (
            f"{verdict.code} {verdict.cause}"
            for number in range(len(self.results))
            for verdict in self.results[number].verdicts
            if isinstance(verdict, Failed)
        )
        return list(dict.fromkeys(map(self._named, found)))

    @property
    def codes(self) -> dict[str, int]:
        """As ``Row.codes``."""
        found: dict[str, int] = {}
        for family in self._world.metrics.worker_calls.collect():
            for sample in family.samples:
                if sample.name.endswith("_total") and sample.value:
                    found[sample.labels["code"]] = found.get(sample.labels["code"], 0) + int(sample.value)
        return found

    def seen(self, count: str) -> tuple[int, ...]:
        """Return a count of each worker."""
        return tuple(worker.seen[count] for worker in self.workers)

    def _named(self, text: str) -> str:
        """Return *text* with the names of workers in place of their addresses."""
        for worker in self.workers:
            text = text.replace(worker.target, f"W{self.names[worker.address]}")
        return text


def _letter(verdict: Verdict) -> str:
    return "f" if isinstance(verdict, Failed) else "a" if isinstance(verdict, Allowed) else "d"


def _in_a_row(found: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    for result, equal in itertools.groupby(found):
        yield result, len(list(equal))


def check(row: Row, transport: str = "Stream") -> Run:
    """Run *row*, and compare what came of it.

    Raises:
        AssertionError: something differs; it shows what came of everything that the row names.
    """
    runs: list[Run] = []

    async def live(world: SimulatedWorld) -> None:
        run = Run(row, transport, world)
        runs.append(run)
        await run.live()
        expected, found = {}, {}
        for name in ("called", "ms", "codes", "retries", "hedges"):
            if getattr(row, name) is not None:
                expected[name], found[name] = getattr(row, name), getattr(run, name)
        for name in ("streams", "cancelled"):
            if getattr(row, name) is not None:
                expected[name], found[name] = getattr(row, name), run.seen(name)
        expected["causes"], found["causes"] = list(row.causes), run.causes
        if len(row.causes) == len(run.causes) and all(map(re.fullmatch, row.causes, run.causes)):
            found["causes"] = expected["causes"]
        expected["states"], found["states"] = list(row.states), run.states
        different = [
            f"{name}: expected {expected[name]!r}\n{name}: found    {found[name]!r}"
            for name in expected
            if found[name] != expected[name]
        ]
        assert not different, "\n".join((row.what, *different))

    simulate(live, SimulatedWorld)
    return runs[0]
