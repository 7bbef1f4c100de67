"""An engine with real pools on an event loop of its own: uvloop's and the standard one."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pytest
import uvloop

from gateway.config.kinds.webhook_users import WebhookUsers
from gateway.config.kinds.worker_pool import WorkerPool
from gateway.config.merge.model import Config
from gateway.engine.admit import call_apart
from gateway.engine.engine import Engine
from gateway.observe.telemetry.metrics import Metrics
from gateway.pure.core.call import Payload
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.matching import Selection
from gateway.pure.core.review import decode
from gateway.pure.core.webhook import Rollout, Rule, Webhook, WorkerRef
from tests.engines import INLINE, begin, snapshot_of
from tests.kit import PATIENCE_S, REVIEWS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from gateway.config.kinds.kubeconfig import KubeconfigUser
    from gateway.engine.dispatch.calls import Endpoint
    from gateway.engine.dispatch.https.server import HttpsServer
    from gateway.engine.dispatch.pool import Pool
    from gateway.engine.snapshot import Snapshot
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import HttpsClient, Phase

ALWAYS = Rule(("*",), ("*",), ("*",), ("*/*",))


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


class Bed:
    """An engine under test, and reviews by it. Use it on a running loop."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.engine = Engine(
            self.metrics, lambda pool: pool.targets, others_within_s=0.0, surroundings=INLINE
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

    async def _activate(self, config: Config) -> None:
        self.engine.activate(await self.engine.prepare(config))
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
        while not all(endpoint.state == "ready" for endpoint in pool.endpoints):
            await asyncio.sleep(0.01)

    def start(
        self, scripts: list[dict[str, Any]], done: Callable[[Evaluation], None], **options: Any
    ) -> Callable[[], None]:
        """Begin a review by webhooks with these *scripts*, and return a function that cancels it."""
        phase, failed = options.get("phase", "validate"), options.get("crashed", pytest.fail)
        body = options.get("body") or (REVIEWS / "pod-create-mutate.json").read_bytes()
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


@pytest.fixture(params=["uvloop", "asyncio"])
def on_bed(request: pytest.FixtureRequest) -> Callable[[Callable[[Bed], Awaitable[None]]], None]:
    """Run a coroutine function on a Bed that is closed, and checked for leftovers, after it."""

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
