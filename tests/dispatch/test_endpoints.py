"""Pools of several endpoints, which appear, drain and disappear."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.kinds.worker_pool import WorkerPool, WorkerTls
from gateway.engine.dispatch.pool import tls_fingerprint
from gateway.engine.dispatch.targets import parse_target
from gateway.pure.core.verdict import ALLOWED, Failed, FailureReason
from tests.kit import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from gateway.pure.core.evaluation import Evaluation
    from tests.kit import WorkerProcess
    from tests.world import World

    OnEachLoop = Callable[[Callable[[World], Awaitable[None]]], None]


def never(evaluation: object) -> None:
    pytest.fail(f"an unexpected answer: {evaluation}")


def test_the_less_loaded_endpoint_takes_the_call(
    on_each_loop: OnEachLoop, start_worker: Callable[..., WorkerProcess]
) -> None:
    workers = [start_worker(), start_worker()]

    async def test(world: World) -> None:
        pool = await world.add_pool(*(worker.target for worker in workers))
        await world.all_ready(pool)
        cancels = [world.start([{"hang": True}], never) for _ in range(10)]
        assert [endpoint.calls.count for endpoint in pool.endpoints] == [5, 5]
        for cancel in cancels:
            cancel()
        assert world.is_clean()

    on_each_loop(test)


def test_above_max_in_flight_a_call_is_refused_at_once(
    on_each_loop: OnEachLoop, start_worker: Callable[..., WorkerProcess]
) -> None:
    worker = start_worker()

    async def test(world: World) -> None:
        await world.add_pool(worker.target, max_in_flight=2)
        evaluation = await world.settle(*[{"delay_ms": 20}] * 3)
        *taken, refused = [outcome.verdict for outcome in evaluation.outcomes]
        assert taken == [ALLOWED, ALLOWED]
        assert refused == Failed(
            FailureReason.STATUS,
            "RESOURCE_EXHAUSTED: worker pool pool: 2 calls are in flight on each endpoint (maxInFlight)",
            429,
        )

    on_each_loop(test)


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
def test_a_cancelled_review_leaves_nothing_and_the_worker_is_notified(
    on_each_loop: OnEachLoop, start_worker: Callable[..., WorkerProcess], transport: str
) -> None:
    worker = start_worker()

    async def test(world: World) -> None:
        assert await (await world.add_pool(worker.target, transport=transport)).wait_until_ready(30)
        cancel = world.start([{"hang": True}] * 3, never)
        reached = "calls" if transport == "Stream" else "unary"
        while (await world.report())[reached] < 4:
            await asyncio.sleep(0.01)
        cancel()
        assert world.is_clean()
        assert world.calls("CANCELLED") == 3
        while (await world.report()).get("cancelled") != 3:
            await asyncio.sleep(0.01)

    on_each_loop(test)


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
def test_calls_fail_with_a_dead_worker_and_succeed_when_it_is_back(
    on_each_loop: OnEachLoop, start_worker: Callable[..., WorkerProcess], tmp_path: Path, transport: str
) -> None:
    listen = f"unix:{tmp_path}/s"
    worker = start_worker(listen)

    async def test(world: World) -> None:
        pool = await world.add_pool(worker.target, transport=transport)
        assert await world.ask({}) is ALLOWED
        died = await world.ask({"exit": True})
        assert isinstance(died, Failed)
        assert died.cause.startswith("UNAVAILABLE: ")
        refused = await world.ask({})
        assert isinstance(refused, Failed)
        assert refused.cause.startswith("UNAVAILABLE: ")
        assert pool.endpoints[0].state == "down"
        await asyncio.to_thread(start_worker, listen)
        assert await pool.wait_until_ready(30)
        assert await world.ask({}) is ALLOWED

    on_each_loop(test)


def test_an_endpoint_that_is_down_is_not_chosen_while_another_is_up(
    on_each_loop: OnEachLoop, start_worker: Callable[..., WorkerProcess]
) -> None:
    dead, alive = start_worker(), start_worker()

    async def test(world: World) -> None:
        pool = await world.add_pool(dead.target, alive.target)
        await world.all_ready(pool)
        dead.signal(signal.SIGKILL)
        while pool.endpoints[0].state != "down":
            await asyncio.sleep(0.01)
        for _ in range(20):
            assert await world.ask({}) is ALLOWED

    on_each_loop(test)


def test_a_draining_worker_gets_no_calls_while_another_is_ready(
    on_each_loop: OnEachLoop, start_worker: Callable[..., WorkerProcess]
) -> None:
    leaving, staying = start_worker(), start_worker()

    async def test(world: World) -> None:
        pool = await world.add_pool(leaving.target, staying.target, max_in_flight=1000)
        await world.all_ready(pool)
        while not any(endpoint.state == "draining" for endpoint in pool.endpoints):
            await world.ask({"drain": True})
        chosen = [pool.choose() for _ in range(20)]
        assert all(not isinstance(one, Failed) and one.state == "ready" for one in chosen)

    on_each_loop(test)


def test_names_are_looked_up_and_every_address_is_an_endpoint(
    on_each_loop: OnEachLoop, start_worker: Callable[..., WorkerProcess]
) -> None:
    worker = start_worker("127.0.0.1:0")
    port = worker.target.rpartition(":")[2]

    async def test(world: World) -> None:
        pool = await world.add_pool(f"dns:///localhost:{port}", name="dns")
        assert f"ipv4:127.0.0.1:{port}" in [endpoint.address for endpoint in pool.endpoints]
        assert await pool.wait_until_ready(30)
        assert await world.ask({"pool": "dns"}) is ALLOWED
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

    on_each_loop(test)


def test_a_pool_without_endpoints_does_not_wait_for_the_next_periodic_look_up(
    on_each_loop: OnEachLoop, start_worker: Callable[..., WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = start_worker("127.0.0.1:0").target.rpartition(":")[2]
    answers = iter([socket.gaierror(socket.EAI_NONAME, "no address")])
    look_up = socket.getaddrinfo

    def no_address_at_first(host: str, *arguments: Any, **options: Any) -> list[Any]:
        if error := next(answers, None):
            raise error
        return look_up("localhost", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", no_address_at_first)
    monkeypatch.setattr("gateway.engine.dispatch.pool.RESOLVE_EVERY_S", 10 * PATIENCE_S)

    async def test(world: World) -> None:
        pool = await world.add_pool(f"starting:{port}")
        assert pool.endpoints == ()
        assert await pool.wait_until_ready(PATIENCE_S)
        assert await world.ask({}) is ALLOWED

    on_each_loop(test)


def test_a_review_past_its_deadline_makes_no_call(
    on_each_loop: OnEachLoop, start_worker: Callable[..., WorkerProcess]
) -> None:
    worker = start_worker()

    async def test(world: World) -> None:
        assert await (await world.add_pool(worker.target)).wait_until_ready(30)
        evaluation = await world.settle({}, {}, budget_s=0.0, phase="validate")
        assert [outcome.verdict for outcome in evaluation.outcomes] == [
            Failed(FailureReason.DEADLINE, "DEADLINE_EXCEEDED: no answer within 0s", 504)
        ] * 2
        assert (await world.report())["calls"] == 1

    on_each_loop(test)


def test_a_call_ahead_of_its_turn_without_room_is_made_in_its_turn(
    on_each_loop: OnEachLoop, start_worker: Callable[..., WorkerProcess]
) -> None:
    worker = start_worker()

    async def test(world: World) -> None:
        pool = await world.add_pool(worker.target, max_in_flight=1)
        assert await pool.wait_until_ready(30)
        evaluation = await world.settle({}, {"label": "a"}, {}, {"deny": {"message": "no"}}, phase="mutate")
        assert [type(outcome.verdict).__name__ for outcome in evaluation.outcomes] == [
            "Allowed",
            "Allowed",
            "Allowed",
            "Denied",
        ]
        assert world.calls("RESOURCE_EXHAUSTED") == 0

    on_each_loop(test)


def test_withdrawn_calls_make_room_before_new_calls(
    on_each_loop: OnEachLoop, start_worker: Callable[..., WorkerProcess]
) -> None:
    worker = start_worker()

    async def test(world: World) -> None:
        pool = await world.add_pool(worker.target, max_in_flight=3)
        assert await pool.wait_until_ready(30)
        slow = {"delay_ms": 100}
        evaluation = await world.settle({"label": "a"}, slow, slow, phase="mutate")
        assert all(outcome.verdict is not None for outcome in evaluation.outcomes)
        assert not any(isinstance(outcome.verdict, Failed) for outcome in evaluation.outcomes)

    on_each_loop(test)


def test_a_withdrawn_call_leaves_the_queue_at_once(
    on_each_loop: OnEachLoop, start_worker: Callable[..., WorkerProcess]
) -> None:
    worker = start_worker()

    async def test(world: World) -> None:
        pool = await world.add_pool(worker.target)
        assert await pool.wait_until_ready(30)
        cancels = [world.start([{"hang": True}], never) for _ in range(50)]
        stream = pool.endpoints[0]._transport._stream
        assert stream is not None
        assert len(stream._queue) == 50
        for cancel in cancels:
            cancel()
        assert not stream._queue
        assert (await world.report())["calls"] == 1

    on_each_loop(test)


def test_a_draining_worker_at_the_only_address_is_replaced_by_a_new_connection(
    on_each_loop: OnEachLoop, start_worker: Callable[..., WorkerProcess]
) -> None:
    worker = start_worker()

    async def test(world: World) -> None:
        pool = await world.add_pool(worker.target)
        assert await pool.wait_until_ready(30)
        slow: asyncio.Future[Evaluation] = asyncio.get_running_loop().create_future()
        world.start([{"delay_ms": 300}], slow.set_result)
        await world.ask({"drain": True})
        assert repr(pool.endpoints[0]).split()[2] != "ready"
        while pool.endpoints[0].state != "ready":
            assert await world.ask({}) is ALLOWED
        # Earlier calls are still answered over the old connection.
        assert [outcome.verdict for outcome in (await slow).outcomes] == [ALLOWED]
        assert (await world.report())["streams"] == 2

    on_each_loop(test)


def test_a_name_that_cannot_be_resolved_keeps_its_addresses_and_does_not_delay_others(
    on_each_loop: OnEachLoop,
) -> None:
    async def test(world: World) -> None:
        pool = await world.add_pool("localhost:1", "no-such-host.invalid:2")
        known = [endpoint.address for endpoint in pool.endpoints]
        assert "ipv4:127.0.0.1:1" in known
        pool._targets = [*pool._targets, parse_target("127.0.0.3:3")]
        pool._targets[0] = parse_target("gone.invalid:1")
        pool._addresses[pool._targets[0]] = {"ipv4:127.0.0.1:1": "localhost"}
        await pool._resolve()
        assert [endpoint.address for endpoint in pool.endpoints] == ["ipv4:127.0.0.1:1", "ipv4:127.0.0.3:3"]

    on_each_loop(test)


def test_changed_tls_files_are_noticed(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    roots = tmp_path / "ca.pem"
    roots.write_bytes(certificate[0].read_bytes())
    settings = WorkerPool("pool", ("localhost:1",), tls=WorkerTls(ca_file=roots))
    before = tls_fingerprint(settings)
    assert tls_fingerprint(settings) == before
    roots.write_bytes(certificate[0].read_bytes() * 2)
    assert tls_fingerprint(settings) != before


def test_each_drain_notice_of_a_worker_replaces_the_connection(
    on_each_loop: OnEachLoop, start_worker: Callable[..., WorkerProcess]
) -> None:
    worker = start_worker()

    async def test(world: World) -> None:
        pool = await world.add_pool(worker.target)
        for _ in range(12):
            assert await pool.wait_until_ready(30)
            assert await world.ask({"drain": True}) is ALLOWED
            await asyncio.sleep(0.15)
        assert (await world.report())["streams"] == 13

    on_each_loop(test)
