"""The admin port."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from gateway.base.errors import Unavailable
from gateway.server.serving.admin import ADMIN_BOUNDS, AdminRoutes
from gateway.server.serving.bounds import Bounds
from tests.kit import PATIENCE_S
from tests.serving.kit import (
    Clock,
    Wire,
    connected,
    listening,
    ok,
    refused,
    serving,
)
from tests.waiting import until

if TYPE_CHECKING:
    from gateway.server.serving.message import Exchange

EVENT_LOOPS = ("asyncio", "uvloop")

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\n\r\nok\n"
EXPOSED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=1.0.0\r\nContent-Length: 4\r\n\r\na 1\n"


def get(target: bytes, method: bytes = b"GET") -> bytes:
    return b"%b %b HTTP/1.1\r\nHost: a\r\n\r\n" % (method, target)


def exposition(accept: bytes = b"") -> tuple[bytes, str]:
    return b"a 1\n", "text/plain; version=1.0.0"


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        (get(b"/livez"), OK),
        (get(b"/livez?verbose"), OK),
        (get(b"/readyz"), OK),
        (get(b"/readyz", b"HEAD"), OK.removesuffix(b"ok\n")),
        (get(b"/metrics"), EXPOSED),
        (get(b"/metrics", b"HEAD"), EXPOSED.removesuffix(b"a 1\n")),
        (get(b"/"), refused(b"404 Not Found", "expected /livez, /readyz or /metrics")),
        (
            b"POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
            refused(b"405 Method Not Allowed", "expected GET", b"Allow: GET, HEAD\r\n"),
        ),
    ],
)
def test_admin_answers(request_bytes: bytes, answer: bytes) -> None:
    wire = Wire(service=AdminRoutes(lambda: None, exposition))
    assert wire.feed(request_bytes * 2) == answer * 2


def test_only_refusals_in_a_row_end_a_connection() -> None:
    """A kubelet that polls /readyz of an unready replica, and /livez, keeps its connection."""
    wire = Wire(service=AdminRoutes(lambda: "starting", exposition), bounds=Bounds(refusals=3))
    wire.feed((get(b"/readyz") * 2 + get(b"/livez")) * 3)
    assert not wire.is_closed()
    wire.feed(get(b"/readyz") * 3)
    assert wire.is_closed()


@pytest.mark.parametrize("sent", [b"", b"GET /li"])
async def test_silent_clients_do_not_keep_a_kubelet_out(sent: bytes) -> None:
    routes = AdminRoutes(lambda: None, exposition)
    async with (
        listening(routes, None, ADMIN_BOUNDS, Clock()) as listener,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(ADMIN_BOUNDS.connections + 50):
            silent = await stack.enter_async_context(connected(listener, None))
            await silent.send(sent)
        await until(lambda: listener.accepted == ADMIN_BOUNDS.connections + 50)
        assert len(listener.connections.unproven) == ADMIN_BOUNDS.unproven
        async with connected(listener, None) as kubelet:
            await kubelet.send(get(b"/livez"))
            await kubelet.expect(OK)


def test_readyz_gives_the_reason() -> None:
    wire = Wire(service=AdminRoutes(lambda: "no configuration was loaded", exposition))
    assert wire.feed(get(b"/readyz")) == refused(b"503 Service Unavailable", "no configuration was loaded")
    wire.transport.written = b""
    assert wire.feed(get(b"/livez")) == OK


def test_failure_is_500_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken(accept: bytes = b"") -> tuple[bytes, str]:
        raise KeyError("x")

    wire = Wire(service=AdminRoutes(lambda: None, broken))
    internal = refused(b"500 Internal Server Error", "internal error: the gateway's log has the details")
    assert wire.feed(get(b"/metrics"), get(b"/livez")) == internal + OK
    assert len(caplog.records) == 1


async def test_incomplete_metrics_are_503(caplog: pytest.LogCaptureFixture) -> None:
    def now(accept: bytes = b"") -> tuple[bytes, str]:
        raise Unavailable("process 1: does not answer")

    async def later(accept: bytes = b"") -> tuple[bytes, str]:
        return now()

    answer = refused(b"503 Service Unavailable", "process 1: does not answer")
    assert Wire(service=AdminRoutes(lambda: None, now)).feed(get(b"/metrics")) == answer
    async with serving(AdminRoutes(lambda: None, later), None, None) as (_listener, client):
        await client.send(get(b"/metrics"))
        await client.expect(answer)
    assert caplog.records == []


async def test_metrics_may_take_time_over_plain_http() -> None:
    async def later(accept: bytes = b"") -> tuple[bytes, str]:
        await asyncio.sleep(0)
        return exposition()

    async with serving(AdminRoutes(lambda: None, later), None, None) as (_listener, client):
        await client.send(get(b"/metrics") + get(b"/readyz"))
        await client.expect(EXPOSED)
        await client.expect(OK)


async def test_failure_of_late_metrics_is_500() -> None:
    async def broken(accept: bytes = b"") -> tuple[bytes, str]:
        raise KeyError("x")

    async with serving(AdminRoutes(lambda: None, broken), None, None) as (_listener, client):
        await client.send(get(b"/metrics"))
        await client.expect(
            refused(b"500 Internal Server Error", "internal error: the gateway's log has the details")
        )


async def test_scraper_that_disconnects_cancels_the_scrape() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(accept: bytes = b"") -> tuple[bytes, str]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return exposition()

    async with listening(AdminRoutes(lambda: None, endless), None) as listener:
        async with connected(listener, None) as client:
            await client.send(get(b"/metrics"))
            await asyncio.wait_for(begun.wait(), PATIENCE_S)
        await asyncio.wait_for(ended.wait(), PATIENCE_S)


class CancelledAtOnce(AdminRoutes):
    """Cancels a request before its task has begun."""

    def answer(self, exchange: Exchange, now: float) -> None:
        cancel = super().answer(exchange, now)
        assert cancel is not None
        cancel()
        exchange.respond(200, b"cancelled")


@pytest.mark.parametrize("target", [b"/metrics", b"/readyz?verbose"])
async def test_scrape_that_is_cancelled_before_it_begins_leaves_no_coroutine(target: bytes) -> None:
    async def later(accept: bytes = b"") -> tuple[bytes, str]:
        raise AssertionError

    async with serving(CancelledAtOnce(lambda: None, later), None, None) as (_listener, client):
        await client.send(get(target))
        await client.expect(ok(b"cancelled"))
