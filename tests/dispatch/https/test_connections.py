"""How many calls and connections there are to one server, and for how long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from gateway.core.verdict import ALLOWED, Failed
from gateway.dispatch.https import connections, server
from gateway.dispatch.https.identity import tls_context

if TYPE_CHECKING:
    from tests.dispatch.conftest import Bed
    from tests.dispatch.https.test_calls import OnBed
    from tests.webhook_process import WebhookProcess


def test_more_connections_than_are_kept(
    on_bed: OnBed, webhook: WebhookProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_IDLE", 25)
    client = webhook.client({"delay_s": 0.05})

    async def test(bed: Bed) -> None:
        running = bed.add_server(client)
        evaluations = await asyncio.gather(*(bed.settle({"client": client}) for _ in range(40)))
        assert all(evaluation.outcomes[0].verdict == ALLOWED for evaluation in evaluations)
        assert running.connections.idle == 25

    on_bed(test)


def test_idle_connections_end(
    on_bed: OnBed, webhook: WebhookProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.02)
    client = webhook.client()

    async def test(bed: Bed) -> None:
        running = bed.add_server(client)
        for _ in range(2):
            await bed.settle({"client": client}, {"client": client})
            assert running.connections.idle
            while running.connections.idle:
                await asyncio.sleep(0.005)

    on_bed(test)


def test_past_the_bound_calls_are_refused_and_ignorable_ones_make_room(
    on_bed: OnBed, webhook: WebhookProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_IN_FLIGHT", 2)
    client = webhook.client({"delay_s": 60})

    async def test(bed: Bed) -> None:
        bed.add_server(client)
        loop = asyncio.get_running_loop()
        shed: asyncio.Future[Any] = loop.create_future()
        runs = [
            bed.start([{"client": client, "failure_policy": "Ignore"}], shed.set_result),
            bed.start([{"client": client}], lambda _: pytest.fail("an answer")),
        ]
        runs.append(bed.start([{"client": client}], lambda _: pytest.fail("an answer")))
        (outcome,) = (await shed).outcomes
        assert outcome.verdict.cause.startswith("RESOURCE_EXHAUSTED: ")
        refused = await bed.ask({"client": client})
        assert isinstance(refused, Failed)
        assert refused.cause == (
            f"RESOURCE_EXHAUSTED: {client.url}: 2 calls are in flight, as many as may be"
        )
        for run in runs[1:]:
            run.cancel()

    on_bed(test)


def test_closing_ends_what_is_out(on_bed: OnBed, webhook: WebhookProcess) -> None:
    client = webhook.client({"delay_s": 60})

    async def test(bed: Bed) -> None:
        running = bed.add_server(client)
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        bed.start([{"client": client}], ended.set_result)
        await asyncio.sleep(0)
        await running.close(0.0)
        (outcome,) = (await ended).outcomes
        assert "the gateway ends its connections" in outcome.verdict.cause
        assert bed.calls("CANCELLED") == 0, "the series of what is gone goes"
        del bed.servers[client]

    on_bed(test)


def test_a_call_that_is_nobodys_any_more_was_never_made(on_bed: OnBed, webhook: WebhookProcess) -> None:
    client = webhook.client({"never": True})

    async def test(bed: Bed) -> None:
        bed.add_server(client)
        bed.start([{"client": client}], lambda _: pytest.fail("an answer")).cancel()
        await asyncio.sleep(0)
        assert bed.is_clean()

    on_bed(test)
    assert not webhook.requests(client)


def test_contexts_are_shared(webhook: WebhookProcess) -> None:
    assert tls_context(webhook.ca_pem) is tls_context(webhook.ca_pem)
