"""The health watch: against real gRPC servers, against other peers, and its timing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import h2.config
import h2.connection
import h2.events
import pytest
import uvloop
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.model import WorkerTls
from gateway.dispatch import health as watched
from gateway.dispatch import keepalive
from gateway.dispatch.dialer import Dialer, Unreachable
from gateway.dispatch.health import MAX_BACKOFF_S, MAX_MESSAGES, WATCH, HealthWatch
from gateway.dispatch.keepalive import Keepalive
from gateway.dispatch.rpc import CallStatus
from tests.kit import PATIENCE_S
from tests.simulation.loop import VirtualLoop
from tests.waiting import until
from workers import PolicyServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    import trustme

    from gateway.dispatch.stream_connection import StreamConnectionOwner

    OnLoop = Callable[[Callable[[], Awaitable[None]]], None]

UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN = (
    health_pb2.HealthCheckResponse(status=number).SerializeToString() for number in range(4)
)
NEW_STATUS = b"\x08\x63"
"""Status 99, which this version of the protocol does not define."""


def left_over() -> set[asyncio.Task[Any]]:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    return {task for task in tasks if "gateway" in repr(task.get_coro())}


@pytest.fixture(params=["uvloop", "asyncio"])
def on_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> OnLoop:
    """Run a coroutine function on a loop of its own, with a back-off that is short; nothing may be left."""
    monkeypatch.setattr(watched, "MIN_BACKOFF_S", 0.01)

    def run(test: Callable[[], Awaitable[None]]) -> None:
        async def body() -> None:
            await asyncio.wait_for(test(), PATIENCE_S)
            assert not left_over()
            # A call that a server has yet to end would wake up on a loop that is closed.
            await until(lambda: len(asyncio.all_tasks()) == 1)

        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(body())

    return run


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the gateway logged; grpc's server has its own words for a call that it cuts off when it stops."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("gateway.")]


@asynccontextmanager
async def watching(
    address: str, tls: WorkerTls | None = None, server_name: str | None = None
) -> AsyncIterator[tuple[HealthWatch, list[bool]]]:
    """Watch the health at *address*; what was told so far is in the list."""
    dialer = Dialer(address, tls, server_name)
    told: list[bool] = []
    watch = HealthWatch(dialer, told.append)
    try:
        yield watch, told
    finally:
        await watch.close()
        assert not left_over()
        # What was watched before may have its TLS still to end.
        await dialer.close()


@asynccontextmanager
async def served(
    service: grpc.GenericRpcHandler | health.aio.HealthServicer | None = None,
    address: str = "ipv4:127.0.0.1:0",
    credentials: grpc.ServerCredentials | None = None,
) -> AsyncIterator[tuple[aio.Server, str]]:
    options = [
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 1),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
    server = aio.server(options=options)
    if isinstance(service, grpc.GenericRpcHandler):
        server.add_generic_rpc_handlers((service,))
    elif service is not None:
        health_pb2_grpc.add_HealthServicer_to_server(service, server)
    listen = address.removeprefix("ipv4:")
    if credentials is None:
        port = server.add_insecure_port(listen)
    else:
        port = server.add_secure_port(listen, credentials)
    await server.start()
    try:
        yield server, address if address.startswith("unix:") else f"ipv4:127.0.0.1:{port}"
    finally:
        await server.stop(None)


class Call:
    """A call of Watch, as its server sees it."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.answers: asyncio.Queue[bytes | grpc.StatusCode] = asyncio.Queue()
        self.has_ended = False
        self.began = asyncio.get_running_loop().time()

    def say(self, *answers: bytes | grpc.StatusCode) -> None:
        for answer in answers:
            self.answers.put_nowait(answer)


class Word(grpc.GenericRpcHandler):
    """Serves Watch, and says on each call what a test has it say, message by message."""

    def __init__(self, *first: bytes | grpc.StatusCode) -> None:
        self.calls: list[Call] = []
        self.first = first
        """What is said on every call to begin with."""

    def service(self, handler_call_details: Any) -> Any:
        assert handler_call_details.method == WATCH
        return grpc.unary_stream_rpc_method_handler(self._watch)

    async def _watch(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        call = Call(request)
        self.calls.append(call)
        call.say(*self.first)
        try:
            while True:
                answer = await call.answers.get()
                if answer is grpc.StatusCode.OK:
                    return
                if isinstance(answer, grpc.StatusCode):
                    await context.abort(answer, "by the test")
                else:
                    yield answer
        finally:
            call.has_ended = True

    async def call(self, number: int) -> Call:
        await until(lambda: len(self.calls) > number)
        return self.calls[number]


class NoHealth(grpc.GenericRpcHandler):
    """Serves nothing, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def service(self, handler_call_details: Any) -> None:
        self.asked += 1


# -- what is said ---------------------------------------------------------------------------------


def test_reports_of_grpcs_own_health_service_are_followed(
    on_loop: OnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.dispatch")

    async def test() -> None:
        caplog.clear()
        service = health.aio.HealthServicer()
        async with served(service) as (_, address), watching(address) as (watch, told):
            await service.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
            await until(lambda: told == [False])
            assert repr(watch) == f"<HealthWatch {address} watching, not serving>"
            await service.set("", health_pb2.HealthCheckResponse.SERVING)
            await until(lambda: told == [False, True])
            await service.set("another", health_pb2.HealthCheckResponse.NOT_SERVING)
            await service.enter_graceful_shutdown()
            await until(lambda: told == [False, True, False])
        assert said(caplog) == [
            f"worker {address} reports NOT_SERVING; it gets no calls",
            f"worker {address} reports SERVING; it gets calls again",
            f"worker {address} reports NOT_SERVING; it gets no calls",
        ]

    on_loop(test)


@pytest.mark.parametrize(
    "answer", [SERVING, UNKNOWN, b"", SERVICE_UNKNOWN, NEW_STATUS, SERVING + b"\x7a\x01x"], ids=repr
)
def test_every_report_but_not_serving_counts_as_serving(on_loop: OnLoop, answer: bytes) -> None:
    async def test() -> None:
        word = Word()
        async with served(word) as (_, address), watching(address) as (_, told):
            call = await word.call(0)
            assert call.request == health_pb2.HealthCheckRequest(service="").SerializeToString()
            call.say(answer, NOT_SERVING, NOT_SERVING, answer, answer, NOT_SERVING)
            await until(lambda: len(told) == 3)
            assert told == [False, True, False]
            assert len(word.calls) == 1

    on_loop(test)


@pytest.fixture
def server_pair(certificate: tuple[Path, Path]) -> tuple[bytes, bytes]:
    """Key and certificate of a server on localhost."""
    return certificate[1].read_bytes(), certificate[0].read_bytes()


@pytest.fixture
def tls(authority: trustme.CA, tmp_path: Path) -> WorkerTls:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return WorkerTls(ca_file=tmp_path / "ca.pem")


def test_health_is_watched_over_tls(
    on_loop: OnLoop, server_pair: tuple[bytes, bytes], tls: WorkerTls
) -> None:
    async def test() -> None:
        word = Word(NOT_SERVING)
        async with served(word, credentials=grpc.ssl_server_credentials([server_pair])) as (_, address):
            async with watching(address, tls, "localhost") as (watch, told):
                await until(lambda: told == [False])
                watch.restart()
                await word.call(1)
            await until(lambda: all(call.has_ended for call in word.calls))
            async with watching(address, tls, "elsewhere.test") as (watch, told):
                await asyncio.sleep(0.05)
                assert not told
                assert "not watching" in repr(watch)
            assert len(word.calls) == 2

    on_loop(test)


# -- nothing is said ------------------------------------------------------------------------------


def test_a_worker_without_health_checks_is_watched_once_for_each_connection(
    on_loop: OnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.dispatch")

    async def test() -> None:
        caplog.clear()
        nothing = NoHealth()
        async with served(nothing) as (_, address), watching(address) as (watch, told):
            for asked in (1, 2, 3):
                await until(lambda asked=asked: nothing.asked >= asked)  # type: ignore[misc]
                await until(lambda: not watch._watch)
                await asyncio.sleep(0.05)
                assert nothing.asked == asked
                watch.restart()
            assert not told
        assert not said(caplog)

    on_loop(test)


def test_a_worker_that_stops_serving_health_checks_counts_as_serving(on_loop: OnLoop, tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            served(Word(NOT_SERVING), f"unix:{tmp_path}/s") as (_, address),
            watching(address) as (watch, told),
        ):
            await until(lambda: told == [False])
            # Another one in its place, while it is still there itself.
            (tmp_path / "s").unlink()
            nothing = NoHealth()
            async with served(nothing, address):
                watch.restart()
                await until(lambda: told == [False, True])
                assert nothing.asked == 1

    on_loop(test)


ENDS = [
    (grpc.StatusCode.OK, False),
    (grpc.StatusCode.UNAVAILABLE, False),
    (grpc.StatusCode.CANCELLED, False),
    (grpc.StatusCode.PERMISSION_DENIED, True),
    (grpc.StatusCode.UNAUTHENTICATED, True),
    (grpc.StatusCode.INTERNAL, True),
    (grpc.StatusCode.NOT_FOUND, True),
]


@pytest.mark.parametrize(("status", "is_reported"), ENDS)
def test_a_lost_watch_counts_as_serving_and_is_started_again(
    on_loop: OnLoop, caplog: pytest.LogCaptureFixture, status: grpc.StatusCode, *, is_reported: bool
) -> None:
    caplog.set_level("INFO", "gateway.dispatch")

    async def test() -> None:
        caplog.clear()
        word = Word(status)
        async with served(word) as (_, address), watching(address) as (_, told):
            await word.call(2)
            assert not told
            line = f"health watch of worker {address} failed: {status.name}: by the test"
            # However often it ends so.
            assert said(caplog) == [line] * is_reported
            word.first = (NOT_SERVING, status)
            await until(lambda: told[:3] == [False, True, False])

    on_loop(test)


def test_a_worker_that_stops_and_starts_again(
    on_loop: OnLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.dispatch")

    async def test() -> None:
        caplog.clear()
        address = f"unix:{tmp_path}/s"
        async with watching(address) as (_, told):
            await asyncio.sleep(0.03)
            assert not told
            async with served(Word(NOT_SERVING), address):
                await until(lambda: told == [False])
            await until(lambda: told == [False, True])
            async with served(Word(NOT_SERVING), address):
                await until(lambda: told == [False, True, False])
        before = f"worker {address} reports NOT_SERVING; it gets no calls"
        after = f"health watch of worker {address} lost; assuming SERVING"
        # The loss of the worker is logged by the endpoint.
        assert said(caplog)[:3] == [before, after, before]

    on_loop(test)


def test_a_connected_worker_is_watched_without_delay(
    on_loop: OnLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "MIN_BACKOFF_S", 10 * PATIENCE_S)
    monkeypatch.setattr(watched, "MAX_BACKOFF_S", 10 * PATIENCE_S)

    async def test() -> None:
        address = f"unix:{tmp_path}/s"
        async with watching(address) as (watch, told):
            await asyncio.sleep(0.03)
            async with served(Word(NOT_SERVING), address):
                watch.restart()
                await until(lambda: told == [False])

    on_loop(test)


def test_a_graceful_stop_does_not_wait_for_the_watch(on_loop: OnLoop) -> None:
    async def test() -> None:
        word = Word(NOT_SERVING)
        async with served(word) as (server, address), watching(address) as (_, told):
            await until(lambda: told == [False])
            await server.stop(10 * PATIENCE_S)
            await until(lambda: word.calls[0].has_ended and told == [False, True])

    on_loop(test)


def test_a_worker_of_the_python_sdk_reports_its_shutdown(on_loop: OnLoop, tmp_path: Path) -> None:
    async def test() -> None:
        server = PolicyServer()
        server.policy("allow")(lambda review: None)
        [address] = await server.start(f"unix:{tmp_path}/s")
        async with watching(address) as (watch, told):
            await until(lambda: watch._watch is not None and watch._watch.has_report)
            assert await server.stop(10 * PATIENCE_S) == 0
            await until(lambda: told == [False, True])

    on_loop(test)


# -- nonsense -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "fragment"),
    [
        (b"\xff\xff", "INTERNAL: the worker sent no valid HealthCheckResponse: "),
        (b"\x0a\x7f", "INTERNAL: the worker sent no valid HealthCheckResponse: "),
        (b"\x7a\xff\x08" + bytes(1151), "no valid HealthCheckResponse: 1154 bytes"),
        (bytes(9 * 1024 * 1024), "RESOURCE_EXHAUSTED: message larger than max"),
    ],
    ids=["no message", "cut off", "too long for a status", "too long for anything"],
)
def test_an_invalid_message_ends_the_watch_and_nothing_else(
    on_loop: OnLoop, caplog: pytest.LogCaptureFixture, answer: bytes, fragment: str
) -> None:
    caplog.set_level("INFO", "gateway.dispatch")

    async def test() -> None:
        caplog.clear()
        word = Word()
        async with served(word) as (_, address), watching(address) as (_, told):
            first = await word.call(0)
            first.say(NOT_SERVING, answer, NOT_SERVING)
            await until(lambda: told == [False, True])
            second = await word.call(1)
            await until(lambda: first.has_ended)
            second.say(NOT_SERVING)
            await until(lambda: told == [False, True, False])
        assert fragment in caplog.text

    on_loop(test)


def test_a_flood_ends_the_watch(on_loop: OnLoop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gateway.dispatch")

    async def test() -> None:
        caplog.clear()
        word = Word()
        async with served(word) as (_, address), watching(address) as (_, told):
            call = await word.call(0)
            call.say(*[NOT_SERVING, SERVING] * MAX_MESSAGES)
            await word.call(1)
            assert told == [False, True] * (MAX_MESSAGES // 2)
            await until(lambda: call.has_ended)
        assert "RESOURCE_EXHAUSTED: too many health reports" in caplog.text

    on_loop(test)


@pytest.mark.parametrize(
    "words",
    [b"", b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", b"\0" * 200, b"SSH-2.0-x\r\n"],
    ids=["nothing", "HTTP/1.1", "zeros", "SSH"],
)
def test_a_peer_that_is_no_grpc_server_counts_as_serving(
    on_loop: OnLoop, caplog: pytest.LogCaptureFixture, words: bytes
) -> None:
    caplog.set_level("INFO", "gateway.dispatch")
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(words)
        if words:
            await reader.read(-1)
        writer.close()
        await writer.wait_closed()

    async def test() -> None:
        nonlocal connections
        connections = 0
        caplog.clear()
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with watching(f"ipv4:127.0.0.1:{server.sockets[0].getsockname()[1]}") as (_, told):
            await until(lambda: connections >= 2)
            assert not told
        server.close()
        assert not said(caplog)

    on_loop(test)


def test_an_exception_in_the_callback_does_not_end_the_watch(
    on_loop: OnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        word = Word(NOT_SERVING)
        told = []

        def raise_once(is_serving: bool) -> None:
            told.append(is_serving)
            if len(told) == 1:
                raise ArithmeticError("told")

        async with served(word) as (_, address):
            dialer = Dialer(address, None, None)
            watch = HealthWatch(dialer, raise_once)
            (await word.call(0)).say(SERVING)
            await until(lambda: told == [False, True])
            assert len(word.calls) == 1
            await watch.close()
        assert "internal error" in caplog.text

    on_loop(test)


# -- silence --------------------------------------------------------------------------------------


class Quiet(asyncio.Protocol):
    """A server that says one thing, and nothing any more unless it is asked for a sign of life."""

    def __init__(self, met: list[Quiet]) -> None:
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.is_mute = False
        self.pings = 0
        self.first = NOT_SERVING
        met.append(self)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.h2.initiate_connection()
        self.transport.write(self.h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                self.h2.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
                self.say(self.first)
            self.pings += isinstance(event, h2.events.PingReceived)
        if not self.is_mute:
            self.transport.write(self.h2.data_to_send())

    def say(self, message: bytes) -> None:
        self.h2.send_data(1, b"\0" + len(message).to_bytes(4, "big") + message if message else b"")


@asynccontextmanager
async def quiet() -> AsyncIterator[tuple[list[Quiet], str]]:
    met: list[Quiet] = []
    server = await asyncio.get_running_loop().create_server(lambda: Quiet(met), "127.0.0.1", 0)
    try:
        yield met, f"ipv4:127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for each in met:
            each.transport.abort()


def test_keepalive_ends_a_silent_watch(on_loop: OnLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepalive, "KEEPALIVE_TIME_S", 0.05)
    monkeypatch.setattr(keepalive, "KEEPALIVE_TIMEOUT_S", 0.3)

    async def test() -> None:
        async with quiet() as (met, address), watching(address) as (_, told):
            await until(lambda: told == [False])
            await until(lambda: met[0].pings >= 2)
            assert (len(met), told) == (1, [False])
            met[0].is_mute = True
            await until(lambda: len(met) == 2)
            assert told[:2] == [False, True]

    on_loop(test)


async def read_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(-1)
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("stage", ["dialing", "watching", "waiting", "not served", "at once"])
def test_nothing_remains_whenever_a_watch_is_closed(on_loop: OnLoop, stage: str) -> None:
    async def test() -> None:
        async with quiet() as (met, address), served() as (_, without_health):
            mute = await asyncio.start_server(read_all, "127.0.0.1", 0)
            addresses = {
                "dialing": f"ipv4:127.0.0.1:{mute.sockets[0].getsockname()[1]}",
                "waiting": "ipv4:127.0.0.1:1",
                "not served": without_health,
            }
            dialer = Dialer(addresses.get(stage, address), None, None)
            told: list[bool] = []
            watch = HealthWatch(dialer, told.append)
            if stage == "watching":
                await until(lambda: told)
            elif stage != "at once":
                await asyncio.sleep(0.05)
            await watch.close()
            watch.restart()
            assert not left_over()
            if stage == "watching":
                await until(met[0].transport.is_closing)
            assert told == [False] * (stage == "watching")
            mute.close()
            await dialer.close()
            await until(lambda: "read_all" not in repr(asyncio.all_tasks()))

    on_loop(test)


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "TLS"])
def test_a_watch_can_be_closed_at_any_moment(
    on_loop: OnLoop,
    server_pair: tuple[bytes, bytes],
    tls: WorkerTls,
    caplog: pytest.LogCaptureFixture,
    *,
    is_secure: bool,
) -> None:
    async def close_after(turns: int, address: str) -> None:
        dialer = Dialer(address, tls if is_secure else None, "localhost")
        watch = HealthWatch(dialer, lambda _: None)
        for _ in range(turns):
            await asyncio.sleep(0 if turns % 2 else 0.0002)
        await watch.close()
        await dialer.close()

    async def test() -> None:
        credentials = grpc.ssl_server_credentials([server_pair]) if is_secure else None
        async with served(Word(NOT_SERVING), credentials=credentials) as (_, address):
            for first in range(0, 60, 20):
                await asyncio.gather(*(close_after(turns, address) for turns in range(first, first + 20)))
        assert not said(caplog)

    on_loop(test)


# -- the order of things in time ------------------------------------------------------------------


class Peer:
    """Stands for a dialer, its wires and its worker, on a loop with a clock of its own."""

    address = "worker:1"

    def __init__(self) -> None:
        self.dialed_at: list[float] = []
        self.is_there = False
        self.owner: StreamConnectionOwner | None = None
        self.pinged_at: list[float] = []
        self.answers_pings = True

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def dial(self, path: str, owner: StreamConnectionOwner) -> Peer:
        self.dialed_at.append(self.now())
        if not self.is_there:
            raise Unreachable("nobody")
        self.owner = owner
        self.last_received_at = self.now()
        return self

    def say(self, message: bytes) -> None:
        assert self.owner is not None
        self.last_received_at = self.now()
        self.owner.received(message)

    def end(self, code: str) -> None:
        assert self.owner is not None
        self.owner.ended(CallStatus(code, ""))

    def send(self, message: bytes) -> None:
        pass

    def finish_writing(self) -> None:
        pass

    def start_keepalive(self, on_period: Callable[[], None]) -> None:
        self.keepalive = Keepalive(self, on_period, self.time_out)

    def time_out(self, reason: str) -> None:
        assert self.owner is not None
        self.owner.ended(CallStatus("UNAVAILABLE", reason))

    def abort(self) -> None:
        self.owner = None
        self.keepalive.stop()

    async def close(self) -> None:
        self.abort()

    def ping(self) -> None:
        self.pinged_at.append(self.now())
        if self.answers_pings:
            asyncio.get_running_loop().call_later(0.1, setattr, self, "last_received_at", self.now() + 0.1)

    def watch(self, told: Callable[[bool], None]) -> HealthWatch:
        return HealthWatch(self, told)  # type: ignore[arg-type]


def since(start: float, times: list[float]) -> list[float]:
    return [round(each - start, 6) for each in times]


def test_the_back_off_between_watches_doubles_up_to_half_a_minute() -> None:
    async def test() -> None:
        peer, told = Peer(), list[bool]()
        start = peer.now()
        watch = peer.watch(told.append)
        await asyncio.sleep(100)
        assert since(start, peer.dialed_at) == [0, 1, 3, 7, 15, 31, 61, 91]
        watch.restart()
        await asyncio.sleep(8)
        assert since(start, peer.dialed_at)[8:] == [100, 101, 103, 107]
        assert not told
        await watch.close()

    VirtualLoop().run(test())


def test_the_back_off_starts_over_after_a_long_watch() -> None:
    async def test() -> None:
        peer, told = Peer(), list[bool]()
        start = peer.now()
        watch = peer.watch(told.append)
        await asyncio.sleep(10)
        peer.is_there = True
        await asyncio.sleep(10)
        assert since(start, peer.dialed_at) == [0, 1, 3, 7, 15]
        peer.say(SERVING)
        peer.end("UNAVAILABLE")
        await asyncio.sleep(20)
        assert since(start, peer.dialed_at)[5:] == [36]
        peer.say(SERVING)
        await asyncio.sleep(MAX_BACKOFF_S)
        peer.end("UNAVAILABLE")
        await asyncio.sleep(2)
        assert since(start, peer.dialed_at)[6:] == [71]
        await watch.close()

    VirtualLoop().run(test())


def test_a_ping_is_sent_after_30_s_of_silence_and_the_watch_ends_10_s_later() -> None:
    async def test() -> None:
        peer, told = Peer(), list[bool]()
        peer.is_there = True
        start = peer.now()
        watch = peer.watch(told.append)
        await asyncio.sleep(5)
        peer.say(NOT_SERVING)
        await asyncio.sleep(100)
        assert since(start, peer.pinged_at) == [35, 65.1, 95.2]
        assert told == [False]
        peer.answers_pings = False
        await asyncio.sleep(30)
        assert since(start, peer.pinged_at)[3:] == [125.3]
        assert told == [False]
        await asyncio.sleep(0.5)
        assert told == [False, True]
        await watch.close()

    VirtualLoop().run(test())


def test_a_worker_without_a_report_does_not_keep_the_report_of_its_predecessor() -> None:
    async def test() -> None:
        peer, told = Peer(), list[bool]()
        peer.is_there = True
        watch = peer.watch(told.append)
        await asyncio.sleep(1)
        peer.say(NOT_SERVING)
        watch.restart()
        await asyncio.sleep(29)
        assert (len(peer.dialed_at), told) == (2, [False])
        await asyncio.sleep(2)
        assert told == [False, True]
        await watch.close()

    VirtualLoop().run(test())


EVENTS = st.lists(
    st.sampled_from([SERVING, NOT_SERVING, UNKNOWN, NEW_STATUS, b"\xff", "UNAVAILABLE", "UNIMPLEMENTED"])
    | st.sampled_from(["again", "leave", "gone"])
    | st.binary(max_size=4),
    max_size=30,
)


def is_not_serving(message: bytes) -> bool:
    try:
        parsed = health_pb2.HealthCheckResponse.FromString(message)
    except Exception:
        return False
    return bool(parsed.status == health_pb2.HealthCheckResponse.NOT_SERVING)


@given(events=EVENTS)
def test_the_callback_gets_the_last_report_and_only_changes(events: list[bytes | str]) -> None:
    async def test() -> None:
        peer, told = Peer(), list[bool]()
        peer.is_there = True
        watch = peer.watch(told.append)
        believed = True
        for event in events:
            await asyncio.sleep(0.001)
            if isinstance(event, bytes) and peer.owner is not None:
                peer.say(event)
                believed = not is_not_serving(event)
            elif event == "again":
                peer.is_there = True
                watch.restart()
                # As said last, if the new one says nothing else.
            elif event == "leave" and peer.owner is not None:
                peer.owner.leaving()
                believed = True
            elif event == "gone":
                peer.is_there = False
            elif isinstance(event, str) and peer.owner is not None:
                peer.end(event)
                believed = True
            await asyncio.sleep(0.001)
            assert (told or [True])[-1] == believed
        assert told == [bool(place % 2) for place in range(len(told))]
        await watch.close()
        assert not left_over()

    VirtualLoop().run(test())
