"""The front end over real sockets and TLS, on both event loops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gateway.server.serving.bounds import Bounds
from gateway.server.serving.http_connection import HttpConnection
from gateway.server.serving.routes import Router
from tests.kit import PATIENCE_S, without_collector
from tests.serving.kit import (
    CLOSE,
    PATHS,
    TOO_LARGE,
    Application,
    Clock,
    chunked,
    connected,
    listening,
    ok,
    post,
    refused,
    serving,
)
from tests.waiting import until

if TYPE_CHECKING:
    import ssl

    from gateway.pure.core.deadline import Deadline
    from gateway.server.serving.message import Exchange
    from gateway.server.serving.tls import ServerCertificate

EVENT_LOOPS = ("asyncio", "uvloop")


@pytest.mark.parametrize("piece_bytes", [None, 1, 7, 1000])
async def test_pipelined_requests_are_answered_in_order(
    certificate: ServerCertificate, client_tls: ssl.SSLContext, piece_bytes: int | None
) -> None:
    stream = post(b"1") + chunked(b"2", b"2") + post(b"3", b"/other") + post(b"4", b"/validate?timeout=1s")
    answers = (
        ok(b"m:1") + ok(b"m:22") + refused(b"404 Not Found", 'nothing is configured at "/other"') + ok(b"v:4")
    )
    router = Router(Application(), PATHS)
    # The second that the last one allows begins with its first byte.
    async with serving(router, certificate, client_tls, clock=Clock()) as (_listener, client):
        await client.send(stream, piece_bytes=piece_bytes)
        assert await client.receive(len(answers)) == answers


async def test_large_bodies_and_answers_pass(
    certificate: ServerCertificate, client_tls: ssl.SSLContext
) -> None:
    body = b"x" * (7 * 1024 * 1024)
    router = Router(Application(), PATHS)
    async with listening(router, certificate) as listener, connected(listener, client_tls) as client:
        for _ in range(2):
            await asyncio.gather(client.send(post(body)), client.expect(ok(b"m:" + body)))


async def test_many_pipelined_requests_with_late_answers(
    certificate: ServerCertificate, client_tls: ssl.SSLContext
) -> None:
    numbers = [b"%d" % number for number in range(1500)]

    class Later(Application):
        def __call__(self, exchange: Exchange, selection: str, deadline: Deadline) -> None:
            asyncio.get_running_loop().call_soon(super().__call__, exchange, selection, deadline)

    bounds = Bounds(pipelined=1500)
    async with serving(Router(Later(), PATHS), certificate, client_tls, bounds) as (_listener, client):
        answers = b"".join(ok(b"m:" + number) for number in numbers)
        sending = asyncio.ensure_future(client.send(b"".join(map(post, numbers))))
        assert await client.receive(len(answers)) == answers
        await sending


async def test_413_reaches_a_client_that_is_still_sending(
    certificate: ServerCertificate, client_tls: ssl.SSLContext
) -> None:
    too_large = refused(TOO_LARGE, "body over 1000 bytes", CLOSE)
    router, bounds = Router(Application(), PATHS), Bounds(body_bytes=1000)
    async with listening(router, certificate, bounds) as listener:
        for stream in (post(b"x" * 300_000), chunked(b"x" * 900, b"x" * 300_000)):
            async with connected(listener, client_tls) as client:
                await client.send(stream)
                assert await client.receive(len(too_large)) == too_large
                assert await client.rest() == b""


@pytest.mark.parametrize("politely", [True, False])
async def test_client_that_disconnects_cancels_its_review(
    certificate: ServerCertificate,
    client_tls: ssl.SSLContext,
    politely: bool,
) -> None:
    app = Application(holds=True)
    router = Router(app, PATHS)
    async with listening(router, certificate) as listener:
        async with connected(listener, client_tls) as client:
            await client.send(post(b"1"))
            await asyncio.wait_for(app.arrived.wait(), PATIENCE_S)
            assert router.in_flight == 1
            if not politely:
                client.writer.transport.abort()
        await asyncio.wait_for(app.withdrawn.wait(), PATIENCE_S)
        assert app.cancelled == app.seen
        assert router.in_flight == 0
        app.seen[0].respond(200, b"late")
        await until(lambda: not listener.connections.open)


async def test_client_that_does_not_read_is_dropped_and_bounded(
    certificate: ServerCertificate, client_tls: ssl.SSLContext
) -> None:
    class Verbose(Application):
        def __call__(self, exchange: Exchange, selection: str, deadline: Deadline) -> None:
            self.seen.append(exchange)
            exchange.respond(200, b"x" * 4_000_000)

    app, clock = Verbose(), Clock()
    async with serving(Router(app, PATHS), certificate, client_tls, clock=clock) as (listener, client):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(post(b"1") * 50)
        await until(lambda: [c for c in listener.connections.open if "sending" in repr(c)])
        assert len(app.seen) < 50
        listener.tick()
        clock.now += 29
        listener.tick()
        assert listener.connections.open
        clock.now += 31
        listener.tick()
        clock.now += 31
        listener.tick()
        await until(lambda: not listener.connections.open)


async def test_time_bounds_over_the_wire(certificate: ServerCertificate, client_tls: ssl.SSLContext) -> None:
    clock = Clock()
    router = Router(Application(), PATHS)
    async with (
        serving(router, certificate, client_tls, clock=clock) as (listener, idle),
        connected(listener, client_tls) as slow,
    ):
        await idle.send(post(b"1"))
        await idle.expect(ok(b"m:1"))
        await slow.send(post(b"1")[:30])
        await until(lambda: [c for c in listener.connections.open if "reading" in repr(c)])
        clock.now += 31
        listener.tick()
        late = "request not complete 30 seconds after its first byte"
        assert await slow.rest() == refused(b"408 Request Timeout", late, CLOSE)
        await idle.send(post(b"2"))
        await idle.expect(ok(b"m:2"))
        clock.now += 121
        listener.tick()
        assert await idle.rest() == b""


async def test_an_ended_connection_is_freed_without_the_garbage_collector(
    certificate: ServerCertificate, client_tls: ssl.SSLContext
) -> None:
    router = Router(Application(), PATHS)
    async with listening(router, certificate) as listener:
        with without_collector() as count:
            async with connected(listener, client_tls) as client:
                await client.send(post(b"1"))
                assert await client.receive(len(ok(b"m:1"))) == ok(b"m:1")
                assert count(HttpConnection) == 1
            await until(lambda: not listener.connections.open)
            await until(lambda: count(HttpConnection) == 0)
