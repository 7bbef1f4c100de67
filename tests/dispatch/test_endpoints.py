"""Pools of several endpoints, and calls in flight. Workers that come and go are rows of the simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.config.kinds.worker_pool import WorkerPool, WorkerTls
from gateway.engine.dispatch.pool import tls_fingerprint
from gateway.pure.core.verdict import ALLOWED, Failed
from tests.waiting import until
from tests.world import in_world, simulated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.worker.server import StartWorker
    from tests.world import SimulatedWorld, World

    OnEachLoop = Callable[[Callable[[World], Awaitable[None]]], None]

EVENT_LOOPS = ("asyncio", "uvloop")


def never(evaluation: object) -> None:
    pytest.fail(f"an unexpected answer: {evaluation}")


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
@simulated
async def test_a_cancelled_review_leaves_nothing_and_the_worker_is_notified(
    world: SimulatedWorld, transport: str
) -> None:
    worker = world.start_worker()
    await world.ready_pool(worker, transport=transport)
    cancel = world.start([{"hang": True}] * 3, never)
    await until(lambda: worker.seen["scripts"] == 3)
    cancel()
    assert world.is_clean()
    assert world.calls("CANCELLED") == 3
    await until(lambda: worker.seen["cancelled"] == 3)


@in_world
async def test_names_are_looked_up_and_every_address_is_an_endpoint(
    world: World, start_worker: StartWorker
) -> None:
    worker = start_worker("127.0.0.1:0")
    port = worker.target.rpartition(":")[2]
    pool = await world.add_pool(f"dns:///localhost:{port}", name="dns")
    assert f"ipv4:127.0.0.1:{port}" in [endpoint.address for endpoint in pool.endpoints]
    assert await pool.wait_until_ready(30)
    assert await world.ask({"pool": "dns"}) is ALLOWED
    assert pool.name_of(f"ipv4:127.0.0.1:{port}") == f"localhost:{port}"
    numeric = await world.add_pool(f"127.0.0.1:{port}", name="numeric")
    assert numeric.name_of(f"ipv4:127.0.0.1:{port}") == numeric.name_of("ipv4:10.0.0.1:1") == ""
    several = await world.add_pool(f"ipv4:127.0.0.1:{port},127.0.0.2:{port}", name="several")
    assert [endpoint.address for endpoint in several.endpoints] == [
        f"ipv4:127.0.0.1:{port}",
        f"ipv4:127.0.0.2:{port}",
    ]
    lost = await world.add_pool("no-such-host.invalid:50051", name="lost")
    assert lost.endpoints == ()
    failed = await world.ask({"pool": "lost"})
    assert isinstance(failed, Failed)
    assert failed.cause.startswith(
        "UNAVAILABLE: worker pool lost: no-such-host.invalid:50051 cannot be resolved"
    )


@simulated
async def test_a_withdrawn_call_leaves_the_queue_at_once(world: SimulatedWorld) -> None:
    worker = world.start_worker()
    pool = await world.ready_pool(worker)
    cancels = [world.start([{"hang": True}], never) for _ in range(50)]
    stream = pool.endpoints[0]._transport._stream
    assert stream is not None
    assert len(stream._queue) == 50
    for cancel in cancels:
        cancel()
    assert not stream._queue
    assert (await world.report())["calls"] == 1


@simulated
async def test_a_name_that_cannot_be_resolved_keeps_its_addresses_and_does_not_delay_others(
    world: SimulatedWorld,
) -> None:
    names = world.network.names
    names |= {"gone.test": ["10.0.0.8"], "other.test": ["10.0.0.9"]}
    pool = await world.add_pool("gone.test:1", "never.test:2", "other.test:3")
    assert [endpoint.address for endpoint in pool.endpoints] == ["ipv4:10.0.0.8:1", "ipv4:10.0.0.9:3"]
    names |= {"gone.test": None, "other.test": ["10.0.0.7"]}
    await pool._resolve()
    assert [endpoint.address for endpoint in pool.endpoints] == ["ipv4:10.0.0.8:1", "ipv4:10.0.0.7:3"]


def test_changed_tls_files_are_noticed(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    roots = tmp_path / "ca.pem"
    roots.write_bytes(certificate[0].read_bytes())
    settings = WorkerPool("pool", ("localhost:1",), tls=WorkerTls(ca_file=roots))
    before = tls_fingerprint(settings)
    assert tls_fingerprint(settings) == before
    roots.write_bytes(certificate[0].read_bytes() * 2)
    assert tls_fingerprint(settings) != before
