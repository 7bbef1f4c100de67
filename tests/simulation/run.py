"""Runs one scenario: the gateway's real code on virtual time with simulated workers, and records it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast
from unittest import mock

from gateway.engine import admit
from gateway.engine.dispatch import pool
from gateway.engine.dispatch.transport import WorkerTransport
from gateway.engine.engine import Engine
from gateway.engine.snapshot import OTHER_WORKERS_WITHIN_S, Surroundings
from gateway.observe.telemetry.definitions import WORKER_CALLS
from gateway.observe.telemetry.metrics import Metrics
from gateway.pure.core import speculation
from tests.engines import begin, compute, snapshot_of
from tests.simulation.counts import KeptCounts
from tests.simulation.faults import begin_fault, end_faults
from tests.simulation.in_memory import in_memory
from tests.simulation.journal import Journal
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Network
from tests.simulation.policies import Policies
from tests.simulation.record import Record, Recorded, counting, repeating
from tests.simulation.stage import Question, Stage
from tests.simulation.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gateway.engine.dispatch.endpoint import WorkerEndpoint
    from gateway.engine.dispatch.pool import Pool
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.call import Call
    from tests.simulation.scenario import Review, Scenario

HEALED_WITHIN_S: Final = 75.0
"""Keepalive detects a lost worker within 40 s, and replaced connections are open for 30 s."""
PROBES: Final = 4
PROBE_BUDGET_S: Final = 20.0


class Simulation:
    """One run. Its records are the input of ``tests.simulation.laws``, ``causes`` and ``counts``."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.loop = loop = VirtualLoop()
        dice = random.Random(scenario.seed + 1)
        self.network = loop.network = Network(loop, dice)
        self.journal = Journal(loop.time)
        self.stage = Stage(loop, dice, Policies(scenario.seed), self.journal)
        self.workers: dict[str, Worker] = {}
        for spec in scenario.worker_specs:
            self.workers[spec.address] = self.network.hosts[spec.address] = Worker(self.stage, spec)
        self.network.names.update(scenario.names)
        self.records: dict[str, Record] = {}
        self.made_at: dict[Call, float] = {}
        self.pools_seen: dict[Pool, None] = {}
        self.endpoints_seen: dict[WorkerEndpoint, None] = {}
        self.submitted: Counter[str] = Counter()
        """Calls handed to endpoints, by address."""
        self.repeated: Counter[str] = Counter()
        """Calls retried as unary calls after their stream broke, by address."""
        self.metrics = Metrics()
        self.metrics.worker_calls = KeptCounts(WORKER_CALLS)
        self.began_at = self.healed_at = 0.0
        self._by_uid: dict[str, list[Question]] = {}

    def run(self) -> None:
        """Run the scenario to its end.

        Raises:
            AssertionError: the run stalls, or leaves calls, tasks, connections or timers.
        """
        with _in_simulation(self):
            self.loop.run(self._live())

    @property
    def errors(self) -> list[str]:
        """Errors that were observed during the run."""
        return [*self.loop.errors, *self.journal.errors, *self.stage.breaches]

    @property
    def endpoints(self) -> list[WorkerEndpoint]:
        """All endpoints of the run, including those that are closed."""
        return list(self.endpoints_seen)

    async def _live(self) -> None:
        self._engine = Engine(
            self.metrics,
            lambda settings: settings.targets,
            others_within_s=5.0 if self.scenario.waits else 0.0,
            surroundings=Surroundings(self.loop.time, self.loop.time, compute),
        )
        await self._load(0)
        self._engine.others_within_s = OTHER_WORKERS_WITHIN_S
        begin = self.began_at = self.loop.time()
        for fault in self.scenario.faults:
            worker = self.workers[fault.address]
            self.loop.call_at(begin + fault.at, begin_fault, worker, fault.kind, fault.lasting_s)
        for at, name, addresses in self.scenario.moves:
            self.loop.call_at(begin + at, self._move, name, addresses)
        loading = [
            asyncio.create_task(self._load_at(begin + at, number))
            for number, (at, _) in enumerate(self.scenario.configs)
            if number
        ]
        for review in self.scenario.reviews:
            self.loop.call_at(begin + review.at, self.start_review, review)
        await asyncio.sleep(self.scenario.end)
        await asyncio.gather(*loading)
        await self._settle()
        await self._probe()
        self._check_leftovers()
        await self._close()

    async def _load_at(self, at: float, number: int) -> None:
        await asyncio.sleep(at - self.loop.time())
        await self._load(number)

    async def _load(self, number: int) -> None:
        self._engine.activate(await self._engine.prepare(self.scenario.configs[number][1]))
        self.journal.note("configuration %s is in force", number)
        self.pools_seen.update(dict.fromkeys(self._engine.pools.values()))

    def _move(self, name: str, addresses: list[str] | None) -> None:
        self.journal.note("%s is at %s", name, addresses)
        self.network.names[name] = addresses

    # -- queries of the checks ----------------------------------------------------------------------

    def questions_of(self, uid: str) -> list[Question]:
        """Return the calls that workers received for one review."""
        if not self._by_uid:
            for question in self.stage.questions:
                self._by_uid.setdefault(question.uid, []).append(question)
        return self._by_uid.get(uid, [])

    def in_rotation(self, evaluation: Recorded, call: Call) -> set[str]:
        """Return the addresses of the endpoints that can take *call* now."""
        pools = cast("Mapping[str, Pool]", self.records[evaluation.request.uid].snapshot.backends.pools)
        return {
            endpoint.address.split(":")[1]
            for endpoint in pools[call.invocation.webhook.worker.pool].endpoints
            if endpoint.state == "ready" and endpoint.calls.free
        }

    def addresses_of(self, pool: str) -> list[str]:
        """Return the addresses of all workers of a pool."""
        return [spec.address for spec in self.scenario.worker_specs if spec.pool == pool]

    def max_in_flight(self, pool: str) -> int:
        """Return the least ``maxInFlight`` of a pool in all configurations."""
        return min(
            config.pools[pool].max_in_flight for _, config in self.scenario.configs if pool in config.pools
        )

    # -- reviews ----------------------------------------------------------------------------------

    def start_review(self, review: Review, *, is_probe: bool = False) -> None:
        """Start a review."""
        now, snapshot = self.loop.time(), snapshot_of(self._engine)
        selection = snapshot.paths[f"/{review.phase}"]
        record = Record(review, now + review.budget_s, snapshot, selection, snapshot.audit_level, now)
        record.is_probe = is_probe
        self.records[review.uid] = record
        self.journal.note("review %s (%s) has %s s", review.uid, review.phase, review.budget_s)
        answered = partial(self._answered, record)
        cancel = begin(self._engine, selection, review.body, answered, record.crashes.append, review.budget_s)
        if review.cancelled_after_s is not None:
            self.loop.call_later(review.cancelled_after_s, self._cancel, record, cancel)

    def _answered(self, record: Record, answer: Answer) -> None:
        self.journal.note("review %s is answered: %s", record.review.uid, answer.body)
        record.answers.append((self.loop.time(), answer.body))

    def _cancel(self, record: Record, cancel: Callable[[], None]) -> None:
        # As the front end: an answered review cannot be cancelled.
        if not record.answers:
            self.journal.note("review %s is cancelled", record.review.uid)
            record.cancelled_at = self.loop.time()
            cancel()

    # -- the end ----------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Wait for all reviews, end all faults, and wait until all workers are ready."""
        await asyncio.sleep(
            max([0.0, *(record.deadline - self.loop.time() for record in self.records.values())])
        )
        assert not self._engine.deadlines, "deadlines are left when no review is"
        assert not any(endpoint.calls.count for endpoint in self.endpoints), f"in flight: {self.endpoints}"
        self.healed_at = self.loop.time()
        end_faults(self)
        await asyncio.sleep(HEALED_WITHIN_S)

    async def _probe(self) -> None:
        """Send reviews after all faults are over."""
        self.journal.note("probes begin")
        for number in range(PROBES):
            for phase in ("mutate", "validate"):
                model = next((r for r in self.scenario.reviews if r.phase == phase), None)
                if model is not None:
                    uid = f"probe{number}{phase}"
                    body = model.body.replace(f'"uid":"{model.uid}"'.encode(), f'"uid":"{uid}"'.encode())
                    probe = replace(
                        model, uid=uid, budget_s=PROBE_BUDGET_S, body=body, cancelled_after_s=None
                    )
                    self.start_review(probe, is_probe=True)
        await asyncio.sleep(PROBE_BUDGET_S)

    def _check_leftovers(self) -> None:
        assert not self._engine.deadlines, "deadlines are left when no review is"
        assert not any(endpoint.calls.count for endpoint in self.endpoints), f"in flight: {self.endpoints}"
        not_ready = [
            repr(e) for one in self._engine.pools.values() for e in one.endpoints if e.state != "ready"
        ]
        assert not not_ready, f"all workers are healthy, and endpoints are not ready: {not_ready}"
        kept = [repr(endpoint) for endpoint in self.endpoints if _keeps_calls(endpoint)]
        assert not kept, f"ended calls are still referenced: {kept}"
        names = {getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks()}
        odd = names - STANDING_TASKS
        assert not odd, f"unexpected tasks: {odd}"

    async def _close(self) -> None:
        await self._engine.close(0.5)
        await asyncio.sleep(1.0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"
        assert not self.network.connections, "connections are left"
        assert not self.loop.timers(), f"timers are left: {self.loop.timers()}"


STANDING_TASKS: Final = {
    "Simulation._live",
    "WorkerTransport._keep_connected",
    "Event.wait",
    "Pool._keep_resolving",
    "HealthWatch._keep",
}
"""Tasks of an idle gateway."""


def _keeps_calls(endpoint: WorkerEndpoint) -> bool:
    stream = endpoint._transport._stream
    return bool(endpoint.calls.groups or (stream is not None and (stream._written or stream._queue)))


@contextmanager
def _in_simulation(simulation: Simulation) -> Iterator[None]:
    """Patch the gateway's modules with simulated parts, and seed all random numbers."""
    gateway_log = logging.getLogger("gateway")
    level, state = gateway_log.level, random.getstate()
    with ExitStack() as stack:
        stack.callback(random.setstate, state)
        stack.callback(gateway_log.setLevel, level)
        stack.callback(gateway_log.removeHandler, simulation.journal)
        random.seed(simulation.scenario.seed)
        gateway_log.setLevel(logging.INFO)
        gateway_log.addHandler(simulation.journal)
        stack.enter_context(mock.patch.object(gateway_log, "propagate", new=False))
        stack.enter_context(mock.patch.object(admit, "Evaluation", partial(Recorded, simulation)))
        stack.enter_context(mock.patch.object(pool, "WorkerEndpoint", counting(simulation)))
        stack.enter_context(mock.patch.object(WorkerTransport, "_resubmit_unary", repeating(simulation)))
        # One change is enough for a chain: a run has few reviews.
        stack.enter_context(mock.patch.object(speculation, "_WEIGHT", 0.6))
        stack.enter_context(in_memory(simulation.loop))
        yield
