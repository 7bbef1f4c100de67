"""The number and lifetime of calls and connections of one server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from admission_gateway_worker.client_tls import tls_context
from gateway.engine.dispatch.https import connection_pool, happy_eyeballs, server
from gateway.pure.core.verdict import ALLOWED, Failed
from gateway.pure.core.webhook import HttpsClient
from tests.waiting import until
from tests.world import in_world, opened_world

if TYPE_CHECKING:
    from gateway.pure.core.evaluation import Evaluation
    from tests.dispatch.https.conftest import InVirtualTime
    from tests.webhook_process import WebhookProcess
    from tests.world import World

EVENT_LOOPS = ("asyncio", "uvloop")


@in_world
async def test_more_connections_than_stay_idle(
    world: World, webhook: WebhookProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_pool, "MAX_IDLE", 25)
    client = webhook.client({"delay_s": 0.05})
    running = await world.add_server(client)
    evaluations = await asyncio.gather(*(world.settle({"client": client}) for _ in range(40)))
    assert all(evaluation.outcomes[0].verdict == ALLOWED for evaluation in evaluations)
    assert running.connections.idle == 25


def test_idle_connections_end(in_virtual_time: InVirtualTime) -> None:
    async def test(world: World, client: HttpsClient) -> None:
        running = await world.add_server(client)
        for _ in range(2):
            await world.settle({"client": client}, {"client": client})
            await asyncio.sleep(connection_pool.IDLE_S - 1)
            assert running.connections.idle == 2
            await asyncio.sleep(2)
            assert running.connections.idle == 0

    in_virtual_time({}, test)


async def test_a_connection_that_was_used_meanwhile_stays(
    webhook: WebhookProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(connection_pool, "time", SimpleNamespace(monotonic=lambda: now_s))
    client = webhook.client()

    async with opened_world() as world:
        connections = (await world.add_server(client)).connections
        now_s = 0.0
        await world.settle({"client": client}, {"client": client})
        assert connections.idle == 2
        now_s = connection_pool.IDLE_S / 2
        await world.settle({"client": client})
        now_s = connection_pool.IDLE_S + 1
        connections._sweep()
        assert connections.idle == 1


@in_world
async def test_calls_above_max_in_flight_fail_or_shed_ignorable_ones(
    world: World, webhook: WebhookProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_IN_FLIGHT", 2)
    client = webhook.client({"delay_s": 60})
    await world.add_server(client)
    loop = asyncio.get_running_loop()
    shed: asyncio.Future[Any] = loop.create_future()
    cancels = [
        world.start([{"client": client, "failure_policy": "Ignore"}], shed.set_result),
        world.start([{"client": client}], lambda _: pytest.fail("an answer")),
    ]
    cancels.append(world.start([{"client": client}], lambda _: pytest.fail("an answer")))
    (outcome,) = (await shed).outcomes
    assert outcome.verdict.cause.startswith("RESOURCE_EXHAUSTED: ")
    refused = await world.ask({"client": client})
    assert isinstance(refused, Failed)
    assert refused.cause == (f"RESOURCE_EXHAUSTED: {client.url}: 2 calls are in flight, which is the maximum")
    for cancel in cancels[1:]:
        cancel()


@in_world
async def test_close_ends_calls_in_flight(world: World, webhook: WebhookProcess) -> None:
    client = webhook.client({"delay_s": 60})
    await world.add_server(client)
    ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    world.start([{"client": client}], ended.set_result)
    await asyncio.sleep(0)
    await world.close(0.0)
    (outcome,) = (await ended).outcomes
    assert "the gateway is shutting down" in outcome.verdict.cause
    assert world.calls("CANCELLED") == 0, "the series of a closed server is removed"


async def test_a_group_without_open_calls_sends_nothing(webhook: WebhookProcess) -> None:
    client = webhook.client({"never": True})

    async with opened_world() as world:
        await world.add_server(client)
        world.start([{"client": client}], lambda _: pytest.fail("an answer"))()
        await asyncio.sleep(0)
        assert world.is_clean()
    assert not webhook.requests(client)


def test_contexts_are_shared(webhook: WebhookProcess) -> None:
    assert tls_context(webhook.ca_pem) is tls_context(webhook.ca_pem)


async def test_unknown_names_do_not_delay_others(
    webhook: WebhookProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, answered, threads = webhook.client(), threading.Event(), list[threading.Thread]()
    look_up = socket.getaddrinfo

    def slow(name: str, *arguments: Any, **options: Any) -> Any:
        if not name.endswith(".invalid"):
            return look_up(name, *arguments, **options)
        threads.append(threading.current_thread())
        answered.wait()
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    try:
        async with opened_world() as world:
            await world.add_server(client)
            dead = [HttpsClient(f"https://n{number}.invalid/") for number in range(100)]
            for each in dead:
                await world.add_server(each)
            cancels = [
                world.start([{"client": each}], lambda _: pytest.fail("an answer")) for each in dead * 2
            ]
            assert await world.ask({"client": client}) == ALLOWED
            await until(lambda: len(threads) >= len(dead), "a thread for each name")
            for cancel in cancels:
                cancel()
    finally:
        answered.set()
    for thread in threads:
        thread.join()
    assert len(threads) == len(dead), "all calls to a server share one look-up"


@in_world
async def test_a_look_up_without_a_thread_fails(
    world: World, webhook: WebhookProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = webhook.client()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    await world.add_server(client)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        verdict = await world.ask({"client": client})
    assert isinstance(verdict, Failed)
    assert verdict.cause.endswith(": can't start new thread")
    assert await world.ask({"client": client}) == ALLOWED


async def test_the_next_address_is_tried_while_one_is_silent(
    webhook: WebhookProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(happy_eyeballs, "NEXT_ADDRESS_AFTER_S", 0.0)
    client, port = webhook.client(), webhook.ports["good"]
    with contextlib.ExitStack() as sockets:
        full = sockets.enter_context(socket.socket())
        full.bind(("127.0.0.2", port))
        full.listen(0)
        for _ in range(3):
            caller = sockets.enter_context(socket.socket())
            caller.settimeout(0)
            caller.connect_ex(full.getsockname())
        # Silent, refusing, and the server itself.
        found = [(socket.AF_INET, 0, 0, "", (f"127.0.0.{last}", port)) for last in (2, 3, 1)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

        async with opened_world() as world:
            await world.add_server(client)
            assert await world.ask({"client": client}) == ALLOWED


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def unwanted(evaluation: Evaluation) -> None:
    pytest.fail(f"{evaluation} ended")


async def test_calls_that_end_while_connecting_leave_no_connection_open(webhook: WebhookProcess) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as silent:
        client = HttpsClient(f"https://127.0.0.1:{silent.getsockname()[1]}/", webhook.ca_pem)

        async with opened_world() as world:
            await world.add_server(client)
            before = descriptors()
            for turns in (1, 1, 10, 100) * 5:
                cancels = [world.start([{"client": client}], unwanted) for _ in range(20)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for cancel in cancels:
                    cancel()
            await until(lambda: descriptors() <= before + 2, "no connection is open")


async def test_a_server_that_closes_immediately_fails_the_call(webhook: WebhookProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as rude:
        client = HttpsClient(f"https://127.0.0.1:{rude.getsockname()[1]}/", webhook.ca_pem)

        def hang_up() -> None:
            for _ in range(20):
                rude.accept()[0].close()

        async with opened_world() as world:
            await world.add_server(client)
            hanging_up = asyncio.create_task(asyncio.to_thread(hang_up))
            for _ in range(20):
                verdict = await world.ask({"client": client})
                assert isinstance(verdict, Failed)
                assert "dial tcp 127.0.0.1" in verdict.cause
            await hanging_up
