"""Drivers and real pools on an event loop of their own: uvloop's and the standard one."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from gateway.config.kinds.worker_pool import WorkerPool
from gateway.engine.dispatch.backends import Backends
from gateway.engine.dispatch.driver import EvaluationDriver
from gateway.engine.dispatch.https.server import HttpsServer
from gateway.engine.dispatch.pool import Pool
from gateway.engine.dispatch.timer_wheel import TimerWheel
from gateway.observe.telemetry.metrics import Metrics
from gateway.pure.conditions.resolver import ConditionResolver, FairExecutor
from gateway.pure.core.call import Payload
from gateway.pure.core.deadline import Deadline
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.matching import Selection
from gateway.pure.core.review import decode
from gateway.pure.core.speculation import ChangeRates
from gateway.pure.core.webhook import Rule, Webhook, WorkerRef
from tests.kit import PATIENCE_S, REVIEWS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.engine.dispatch.backends import Backend
    from gateway.engine.dispatch.calls import Endpoint
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import HttpsClient

ALWAYS = Rule(("*",), ("*",), ("*",), ("*/*",))


class Bed:
    """Pools under test, and reviews through them. Use it on a running loop."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.timers = TimerWheel(asyncio.get_running_loop())
        self.pools: dict[str, Pool] = {}
        self.servers: dict[HttpsClient, HttpsServer] = {}
        self.namespaces: dict[str, Namespace] = {}

    async def add_pool(self, *targets: str, name: str = "pool", **settings: Any) -> Pool:
        pool = Pool(
            WorkerPool(name, tuple(targets), **settings), targets, self.timers, self.metrics.pool(name)
        )
        self.pools[name] = pool
        await pool.start()
        return pool

    def add_server(self, client: HttpsClient, **options: Any) -> HttpsServer:
        server = HttpsServer(
            client, options.pop("user", None), self.timers, self.metrics.pool("https"), **options
        )
        self.servers[client] = server
        return server

    async def all_ready(self, pool: Pool) -> None:
        """Wait until every endpoint of *pool* has been reached."""
        while not all(endpoint.state == "ready" for endpoint in pool.endpoints):
            await asyncio.sleep(0.01)

    def start(
        self, scripts: list[dict[str, Any]], done: Callable[[Evaluation], None], **options: Any
    ) -> EvaluationDriver:
        webhooks = [
            Webhook(
                options.get("phase", "validate"),
                "configuration",
                f"h{number}.example.test",
                script.get("client") or WorkerRef(script.get("pool", "pool"), json.dumps(script)),
                (ALWAYS,),
                EVERYTHING,
                EVERYTHING,
                timeout_s=script.get("timeout_s", 10),
                side_effects=script.get("side_effects", "None"),
                failure_policy=script.get("failure_policy", "Fail"),
                review_version=script.get("review_version", "v1"),
            )
            for number, script in enumerate(scripts)
        ]
        selection = Selection(webhooks[0].phase, webhooks)
        body = options.get("body") or (REVIEWS / "pod-create-mutate.json").read_bytes()
        request = decode(body)
        memory = ChangeRates()
        for _ in range(9 if options.get("chained") else 0):
            for webhook, script in zip(webhooks, scripts, strict=True):
                memory.note(webhook, request, changed="label" in script)
        namespace = self.namespaces.get(request.namespace)
        modes = {number: script["mode"] for number, script in enumerate(scripts) if "mode" in script}
        # In the mode Shadow webhooks are called after the answer.
        payload = Payload(request) if "Shadow" in modes.values() else None
        evaluation = Evaluation(selection, request, namespace, memory, modes=modes, payload=payload)
        budget_s = options.get("budget_s", 30.0)
        deadline = Deadline.after(budget_s, self.timers.now())
        workers = Backends(
            self.pools, ConditionResolver(FairExecutor()).resolve, self.timers.now, servers=self.servers
        )
        run = EvaluationDriver(evaluation, workers, deadline, done, options.get("crashed", pytest.fail))
        run.start(evaluation.start())
        return run

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
        endpoints += self.servers.values()
        return not len(self.timers) and not any(endpoint.calls.count for endpoint in endpoints)

    async def close(self) -> None:
        backends: list[Backend] = [*self.pools.values(), *self.servers.values()]
        for backend in backends:
            await backend.close(1.0)
        assert self.is_clean()
        leftover = asyncio.all_tasks() - {asyncio.current_task()}
        leftover = {task for task in leftover if "gateway" in repr(task.get_coro())}
        assert not leftover


@pytest.fixture(params=["uvloop", "asyncio"])
def on_bed(request: pytest.FixtureRequest) -> Callable[[Callable[[Bed], Awaitable[None]]], None]:
    """EvaluationDriver a coroutine function on a Bed that is closed, and checked for leftovers, after it."""

    def run(test: Callable[[Bed], Awaitable[None]]) -> None:
        async def body() -> None:
            bed = Bed()
            try:
                await asyncio.wait_for(test(bed), PATIENCE_S)
            finally:
                await bed.close()

        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(body())

    return run
