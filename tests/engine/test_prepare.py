"""A configuration that cannot be put in force leaves the one in force as it was, and nothing of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from gateway.base.errors import ClusterError, ConfigError, Problem
from gateway.config.merge.load import load
from gateway.engine import engine as engine_module
from gateway.engine.cluster_source import NoCluster
from gateway.engine.dispatch.pool import Pool
from gateway.engine.snapshot import Pools, StagedPools
from tests.core.build import body
from tests.core.build import document as request_document
from tests.engines import begin
from tests.kit import pool_document, webhook_document
from tests.policies.documents import binding, policy, written
from tests.waiting import until
from tests.world import SimulatedWorld, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from pathlib import Path

    from gateway.config.kinds.worker_pool import WorkerPool
    from gateway.config.merge.merged import Merged, Rejections
    from gateway.config.merge.model import Config
    from gateway.engine.credentials.ca_bundle import CaBundle
    from gateway.pure.core.webhook import CaBundleSource
    from tests.simulation.loop import VirtualLoop

    Fail = Callable[[], None]

ERRORS: tuple[BaseException, ...] = (
    ConfigError([Problem("file", "field", "wrong")]),
    ClusterError("the API server is away"),
    RuntimeError("a bug"),
    asyncio.CancelledError(),
)


class Cluster(NoCluster):
    """A cluster that can fail everywhere, and knows whether something is staged."""

    def __init__(self) -> None:
        self.failing: dict[str, BaseException] = {}
        self.is_staged = False

    def fail(self, place: str) -> None:
        if place in self.failing:
            raise self.failing[place]

    async def merge(self, files: Config, rejected: Rejections) -> Merged:
        self.fail("merge")
        return await super().merge(files, rejected)

    def stage(self, config: Config) -> Mapping[CaBundleSource, CaBundle]:
        self.is_staged = True
        self.fail("stage")
        return super().stage(config)

    async def wait_until_synced(self) -> None:
        await asyncio.sleep(0)
        self.fail("wait_until_synced")

    def abandon(self) -> None:
        self.is_staged = False


class LocalWorkers:
    """The names of the pools whose workers run. Those of the configuration in force never end."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self.fail = fail
        self.in_force: set[str] = set()
        self.staged: set[str] = set()

    def stage(self, pools: Mapping[str, WorkerPool]) -> None:
        self.staged = set(pools)
        self.fail("workers")

    def activate(self) -> None:
        self.in_force, self.staged = self.staged, set()

    def abandon(self) -> None:
        self.staged = set()


class Changing(SimulatedWorld):
    """A world with a configuration in force, and the next configuration."""

    def __init__(self, loop: VirtualLoop, folder: Path) -> None:
        self.cluster = Cluster()
        self.local_workers = LocalWorkers(self.cluster.fail)
        super().__init__(
            loop,
            workers=self.local_workers,
            require_webhooks=lambda config, in_force: self.cluster.fail("require_webhooks"),
            others_within_s=5.0,
        )
        self.target = self.start_worker().target
        self.old = self.config(folder / "old", "old")
        self.new = self.config(folder / "new", "new", "a", "b")

    def config(self, folder: Path, name: str, *pools: str) -> Config:
        folder.mkdir()
        written(folder, [policy(validations=[{"expression": "false", "message": f"by {name}"}]), binding()])
        documents = [pool_document(one, self.target) for one in ("kept", *pools)]
        documents += [webhook_document("mutate", f"m-{one}", one, {}) for one in ("kept", *pools)]
        url = {"clientConfig": {"url": f"https://127.0.0.1:1/{name}"}}
        documents.append(webhook_document("mutate", "https", "kept", {"webhook": url}))
        (folder / "c.yaml").write_text("---\n".join(documents))
        return load([folder])

    async def activate_old(self) -> None:
        self.engine.activate(await self.engine.prepare(self.old, self.cluster))
        self.cluster.is_staged = False
        await self.all_ready(self.pools["kept"])
        await asyncio.sleep(1)
        self.in_force = self.state()

    def state(self) -> tuple[object, ...]:
        """What is in force, and what it has: tasks and connections."""
        engine = self.engine
        endpoints = [(name, pool, pool.endpoints) for name, pool in engine.pools.items()]
        tasks = Counter(getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
        connections = len(self.network.connections)
        return engine.config, engine.snapshot, engine.review, endpoints, tasks, connections

    def answer(self) -> str:
        """The text with which a Pod is denied now."""
        answers: list[Any] = []
        selection = self.snapshot.paths["/validate"]
        begin(self.engine, selection, body(request_document()), answers.append, answers.append)
        (answer,) = answers
        return str(answer.decision.status.message)


def run(folder: Path, scenario: Callable[[Changing], Coroutine[Any, Any, None]]) -> None:
    async def main(world: Changing) -> None:
        await world.activate_old()
        assert "by old" in world.answer()
        await scenario(world)

    simulate(main, lambda loop: Changing(loop, folder))


async def fails(world: Changing, error: BaseException) -> None:
    """Prepare the next configuration, which fails with *error*, and find the one in force whole."""
    with pytest.raises(type(error)):
        await world.engine.prepare(world.new, world.cluster)
    await until(lambda: world.state() == world.in_force, "everything is as before")
    assert world.local_workers.in_force == {"kept"}
    assert not world.local_workers.staged
    assert not world.cluster.is_staged
    assert "by old" in world.answer()


async def succeeds(world: Changing) -> None:
    """Put the next configuration in force."""
    world.engine.activate(await world.engine.prepare(world.new, world.cluster))
    assert "by new" in world.answer()
    assert world.engine.pools.keys() == world.local_workers.in_force == {"kept", "a", "b"}


@pytest.mark.parametrize("place", ["merge", "require_webhooks", "stage", "wait_until_synced", "workers"])
def test_a_cluster_or_a_caller_that_fails(tmp_path: Path, place: str) -> None:
    async def scenario(world: Changing) -> None:
        for error in ERRORS:
            world.cluster.failing = {place: error}
            await fails(world, error)
        world.cluster.failing = {}
        await succeeds(world)

    run(tmp_path, scenario)


async def _one_pool_fails(error: BaseException, pool: Pool) -> None:
    """The pool "b" fails while "a" has not started yet."""
    await asyncio.sleep(1 if pool.settings.name == "b" else 3)
    if pool.settings.name == "b":
        raise error
    await START(pool)


START = Pool.start


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Pool, "start"),
        (Pools, "_server"),
        (StagedPools, "wait_until_ready"),
        (Pools, "snapshot"),
        (engine_module, "Paths"),
        (engine_module, "digest"),
        (engine_module, "to_judge"),
        (engine_module, "judge"),
        (engine_module, "Admission"),
    ],
    ids=str,
)
def test_a_part_of_the_engine_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    async def scenario(world: Changing) -> None:
        for error in ERRORS:
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, _failing(error, name))
                await fails(world, error)
        await succeeds(world)

    run(tmp_path, scenario)


def _failing(error: BaseException, name: str) -> Callable[..., Any]:
    def fail(*arguments: object, **options: object) -> NoReturn:
        raise error

    async def fail_later(*arguments: object, **options: object) -> NoReturn:
        await asyncio.sleep(0)
        raise error

    if name == "start":
        return lambda pool: _one_pool_fails(error, pool)
    return fail_later if name in ("wait_until_ready", "judge") else fail


@pytest.mark.parametrize("steps", range(1, 40, 3))
def test_it_is_cancelled_at_any_time(tmp_path: Path, steps: int) -> None:
    async def scenario(world: Changing) -> None:
        task = asyncio.create_task(world.engine.prepare(world.new, world.cluster))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await until(lambda: world.state() == world.in_force, "everything is as before")
        assert "by old" in world.answer()
        await succeeds(world)

    run(tmp_path, scenario)


def test_a_prepared_configuration_is_abandoned(tmp_path: Path) -> None:
    async def scenario(world: Changing) -> None:
        prepared = await world.engine.prepare(world.new, world.cluster)
        assert world.state() != world.in_force
        await world.engine.abandon(prepared)
        await until(lambda: world.state() == world.in_force, "everything is as before")
        assert world.local_workers.in_force == {"kept"}
        assert not world.local_workers.staged
        assert not world.cluster.is_staged

    run(tmp_path, scenario)


def test_an_equal_configuration_needs_nothing(tmp_path: Path) -> None:
    async def scenario(world: Changing) -> None:
        prepared = await world.engine.prepare(world.old, world.cluster, rereads_files=False)
        assert prepared.next is None
        change = world.engine.activate(prepared)
        assert not change.is_new
        assert change.snapshot is world.engine.snapshot
        assert world.state() == world.in_force

    run(tmp_path, scenario)
