"""An engine in a test, and reviews by it: with real sockets, or in virtual time with workers in memory.

A test in virtual time is a coroutine function that gets its world::

    @simulated
    async def test_a_worker_answers(world: SimulatedWorld) -> None:
        await world.add_pool(world.start_worker().target)
        assert await world.ask({}) is ALLOWED
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import random
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, cast
from urllib.parse import urlsplit

import pytest

from gateway.config.kinds.webhook_users import WebhookUsers
from gateway.config.kinds.worker_pool import WorkerPool
from gateway.config.merge.load import load
from gateway.config.merge.model import Config
from gateway.engine.admit import call_apart
from gateway.engine.cluster_source import NO_CLUSTER
from gateway.engine.engine import Engine
from gateway.engine.snapshot import Surroundings
from gateway.observe.telemetry.exposition import expose
from gateway.observe.telemetry.metrics import Metrics
from gateway.pure.core.call import Payload
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.matching import Selection
from gateway.pure.core.review import decode
from gateway.pure.core.webhook import Rollout, Rule, Webhook, WorkerRef
from tests.engines import INLINE, begin, compute, snapshot_of
from tests.kit import PATIENCE_S, REVIEWS, metric_of, pool_document
from tests.simulation.in_memory import in_memory
from tests.simulation.journal import Journal
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Listener, Network
from tests.simulation.policies import Policies
from tests.simulation.scripted import ScriptedWorker
from tests.simulation.stage import Stage, WorkerSpec
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from gateway.config.kinds.kubeconfig import KubeconfigUser
    from gateway.engine.cluster_source import ClusterSource
    from gateway.engine.dispatch.calls import Endpoint
    from gateway.engine.dispatch.https.server import HttpsServer
    from gateway.engine.dispatch.pool import Pool
    from gateway.engine.snapshot import Snapshot
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import HttpsClient, Phase

P = ParamSpec("P")
R = TypeVar("R")

ALWAYS: Final = Rule(("*",), ("*",), ("*",), ("*/*",))
POD: Final = (REVIEWS / "pod-create-mutate.json").read_bytes()
POD_UID: Final = b"d6ac54b0-7080-491f-884c-e236f7528ce0"
ROUND_TRIP_S: Final = 0.002
"""Between the gateway and a worker in memory."""


def _webhook(phase: Phase, name: str, script: dict[str, Any]) -> Webhook:
    return Webhook(
        phase,
        "configuration",
        name,
        script.get("client") or WorkerRef(script.get("pool", "pool"), json.dumps(script)),
        (ALWAYS,),
        EVERYTHING,
        EVERYTHING,
        timeout_s=script.get("timeout_s", 10),
        side_effects=script.get("side_effects", "None"),
        failure_policy=script.get("failure_policy", "Fail"),
        review_version=script.get("review_version", "v1"),
        rollout=Rollout(script["mode"]) if "mode" in script else None,
    )


class World:
    """An engine, and reviews by it. Use it on a running loop.

    A webhook is a script: the name of its policy, and the fields of the webhook itself.
    """

    def __init__(self, surroundings: Surroundings = INLINE, **options: Any) -> None:
        """*options* are those of the engine."""
        self.metrics = Metrics()
        self.engine = Engine(
            self.metrics,
            lambda pool: pool.targets,
            surroundings=surroundings,
            **{"others_within_s": 0.0, **options},
        )
        self.namespaces: dict[str, Namespace] = {}
        self._config = Config(namespaces=self.namespaces)
        self._is_closed = False

    @property
    def pools(self) -> Mapping[str, Pool]:
        return self.engine.pools

    @property
    def snapshot(self) -> Snapshot:
        """The configuration in force."""
        return snapshot_of(self.engine)

    async def _activate(self, config: Config, cluster: ClusterSource = NO_CLUSTER) -> None:
        self.engine.activate(await self.engine.prepare(config, cluster))
        self._config = config

    async def add_pool(self, *targets: str, name: str = "pool", **settings: Any) -> Pool:
        pools = {**self._config.pools, name: WorkerPool(name, tuple(targets), **settings)}
        await self._activate(replace(self._config, pools=pools))
        return self.pools[name]

    async def add_server(self, client: HttpsClient, user: KubeconfigUser | None = None) -> HttpsServer:
        """Add the server at the URL of *client*, which gets the credentials of *user*."""
        hooks = (*self._config.validating, _webhook("validate", client.url, {"client": client}))
        users = WebhookUsers(by_name={} if user is None else {urlsplit(client.url).netloc: user})
        settings = replace(self._config.gateway, webhook_users=users)
        await self._activate(replace(self._config, validating=hooks, gateway=settings))
        return cast("HttpsServer", self.snapshot.backends.servers[client])

    async def all_ready(self, pool: Pool) -> None:
        """Wait until every endpoint of *pool* has been reached."""
        await until(lambda: all(endpoint.state == "ready" for endpoint in pool.endpoints))

    def start(
        self, scripts: list[dict[str, Any]], done: Callable[[Evaluation], None], **options: Any
    ) -> Callable[[], None]:
        """Begin a review by webhooks with these *scripts*, and return a function that cancels it."""
        phase, failed = options.get("phase", "validate"), options.get("crashed", pytest.fail)
        body = options.get("body") or POD
        if "uid" in options:
            body = body.replace(POD_UID, options["uid"].encode())
        webhooks = [
            _webhook(phase, f"h{number}.example.test", script) for number, script in enumerate(scripts)
        ]
        request = decode(body)
        for _ in range(9 if options.get("chained") else 0):
            for webhook, script in zip(webhooks, scripts, strict=True):
                self.snapshot.memory.note(webhook, request, changed="label" in script)
        selection = Selection(phase, webhooks)
        budget_s = options.get("budget_s", 30.0)
        if not any(script.get("mode") == "Shadow" for script in scripts):
            return begin(
                self.engine, selection, body, lambda answer: done(answer.evaluation), failed, budget_s
            )
        # After the answer of a review by other webhooks, here of none.
        answers: list[Answer] = []
        begin(self.engine, Selection(phase, ()), body, answers.append, failed)
        before = answers[0].evaluation
        return call_apart(self.snapshot, selection, before, Payload(before.request), done, failed)

    async def settle(self, *scripts: dict[str, Any], **options: Any) -> Evaluation:
        """Return the finished evaluation of a review by webhooks with these scripts."""
        done: asyncio.Future[Evaluation] = asyncio.get_running_loop().create_future()
        self.start(list(scripts), done.set_result, **options)
        return await asyncio.wait_for(done, PATIENCE_S)

    async def ask(self, script: dict[str, Any], **options: Any) -> Verdict:
        """Return the verdict of one call."""
        evaluation = await self.settle(script, **options)
        (outcome,) = evaluation.outcomes
        assert outcome.call is not None
        assert outcome.call.verdict is not None
        return outcome.call.verdict

    async def report(self, **options: Any) -> dict[str, Any]:
        """Return the worker's counts of calls, and its last input."""
        verdict = await self.ask({"report": True}, **options)
        found: dict[str, Any] = json.loads(verdict.message)  # type: ignore[union-attr]
        return found

    def calls(self, code: str) -> float:
        """Return how many calls ended with gRPC status *code*, over all pools and endpoints."""
        return sum(
            sample.value
            for family in self.metrics.worker_calls.collect()
            for sample in family.samples
            if sample.name.endswith("_total") and sample.labels["code"] == code
        )

    def is_clean(self) -> bool:
        """Whether nothing of any call is left."""
        endpoints: list[Endpoint] = [endpoint for pool in self.pools.values() for endpoint in pool.endpoints]
        if self.engine.snapshot is not None:
            endpoints += cast("Iterable[HttpsServer]", self.snapshot.backends.servers.values())
        return not self.engine.deadlines and not any(endpoint.calls.count for endpoint in endpoints)

    async def close(self, grace_s: float = 1.0) -> None:
        """Close the engine, once, and check that nothing is left."""
        if self._is_closed:
            return
        self._is_closed = True
        await self.engine.close(grace_s)
        assert self.is_clean()
        leftover = asyncio.all_tasks() - {asyncio.current_task()}
        leftover = {task for task in leftover if "gateway" in repr(task.get_coro())}
        assert not leftover


class _Average(random.Random):
    """Every delay of the network is the same, and so is every run."""

    def random(self) -> float:
        return 0.5


class SimulatedWorld(World):
    """A world in virtual time. Its workers are in memory, and its network takes ``ROUND_TRIP_S``."""

    def __init__(self, loop: VirtualLoop, **options: Any) -> None:
        super().__init__(Surroundings(loop.time, loop.time, compute), **options)
        self.loop = loop
        dice = _Average()
        self.network = loop.network = Network(loop, dice)
        self.stage = Stage(loop, dice, Policies(0), Journal(loop.time))
        self.workers: dict[str, ScriptedWorker] = {}
        """By address."""

    async def add_pool(self, *targets: str, name: str = "pool", **settings: Any) -> Pool:
        pool = await super().add_pool(*targets, name=name, **settings)
        # Of equal endpoints the first one is called.
        pool._pick = lambda _: 0
        return pool

    def start_worker(
        self,
        *,
        at: str = "",
        override: dict[str, Any] | None = None,
        every: int = 1,
        streams: bool = True,
        health: bool = False,
        chains: bool = False,
    ) -> ScriptedWorker:
        """Start a worker at the address *at*, or at one of its own."""
        address = at or f"10.0.0.{len(self.workers) + 1}"
        spec = WorkerSpec(address, "pool", streams, 65_535, (), health, chains)
        worker = ScriptedWorker(self.stage, spec, override, every)
        self.workers[address] = self.network.hosts[address] = worker
        return worker

    async def serve(self, *documents: str, cluster: ClusterSource = NO_CLUSTER) -> None:
        """Put the configuration of *documents* in force, and a pool "pool" of one worker."""
        with TemporaryDirectory() as folder:
            file = Path(folder) / "c.yaml"
            file.write_text("".join((pool_document("pool", self.start_worker().target), *documents)))
            await self._activate(load([file]), cluster)
        for pool in self.pools.values():
            await self.all_ready(pool)

    async def post(self, path: str, review: bytes) -> bytes:
        """Return the answer to *review* by the webhooks of *path*."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        begin(self.engine, self.snapshot.paths[path], review, answered.set_result, answered.set_exception)
        return (await asyncio.wait_for(answered, PATIENCE_S)).body

    async def review(self, path: str, review: str | bytes) -> dict[str, Any]:
        """Return ``response`` of the answer to a recorded review, by name, or to the bytes of one."""
        body = review if isinstance(review, bytes) else (REVIEWS / f"{review}.json").read_bytes()
        response: dict[str, Any] = json.loads(await self.post(path, body))["response"]
        assert response["uid"] == json.loads(body)["request"]["uid"]
        return response

    def metric(self, name: str, /, **labels: str) -> float:
        """Return the sum of all samples of *name* that carry *labels*."""
        return metric_of(expose(self.metrics.registry, b"")[0].decode(), name, labels)

    def listen(self, make_protocol: Callable[[], asyncio.Protocol]) -> str:
        """Accept connections as a server of asyncio does, and return the target."""
        address = f"10.0.1.{len(self.network.hosts) + 1}"
        self.network.hosts[address] = Listener(make_protocol)
        return f"ipv4:{address}:1"

    async def ready_pool(self, *workers: ScriptedWorker, **settings: Any) -> Pool:
        """Return a pool of *workers*, by default of one, which are connected."""
        chosen = workers or (self.start_worker(),)
        pool = await self.add_pool(*(worker.target for worker in chosen), **settings)
        await self.all_ready(pool)
        return pool

    async def close(self, grace_s: float = 1.0) -> None:
        await super().close(grace_s)
        # Connections end after bytes in transit.
        await asyncio.sleep(1.0)
        assert not self.network.connections, "connections are left"
        assert not self.stage.breaches, self.stage.breaches
        assert not self.loop.errors, self.loop.errors


W = TypeVar("W", bound=World)


def _as_first_argument(
    run: Callable[P, R], test: Callable[Concatenate[Any, P], Awaitable[None]]
) -> Callable[P, R]:
    """Give *run* the name and the parameters of *test*, without the first one, which *run* makes."""
    signature = inspect.signature(test)
    others = list(signature.parameters.values())[1:]
    wrapper = functools.update_wrapper(run, test)
    wrapper.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    return wrapper


@asynccontextmanager
async def opened_world(surroundings: Surroundings = INLINE) -> AsyncIterator[World]:
    """Yield a world with real sockets, which is closed, and checked for leftovers, after the block."""
    world = World(surroundings)
    try:
        yield world
    finally:
        await world.close()


def in_world(test: Callable[Concatenate[World, P], Awaitable[None]]) -> Callable[P, Awaitable[None]]:
    """Make a test of a coroutine function, which gets a world with real sockets as its first argument."""

    async def run(*arguments: P.args, **options: P.kwargs) -> None:
        async with opened_world() as world:
            await asyncio.wait_for(test(world, *arguments, **options), PATIENCE_S)

    return _as_first_argument(run, test)


def simulate(test: Callable[[W], Awaitable[None]], make: Callable[[VirtualLoop], W]) -> None:
    """Run *test* with a world in virtual time, which must be clean after it."""
    loop = VirtualLoop()

    async def body() -> None:
        world = make(loop)
        try:
            await test(world)
        finally:
            await world.close()

    with in_memory(loop):
        loop.run(body())


def simulated(test: Callable[Concatenate[SimulatedWorld, P], Awaitable[None]]) -> Callable[P, None]:
    """Make a test of a coroutine function, which gets a world in virtual time as its first argument."""

    def run(*arguments: P.args, **options: P.kwargs) -> None:
        simulate(lambda world: test(world, *arguments, **options), SimulatedWorld)

    return _as_first_argument(run, test)
