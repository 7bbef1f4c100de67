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

from admission_gateway_worker import PolicyServer
from gateway.config.kinds.worker_pool import WorkerTls
from gateway.engine.dispatch import health as watched
from gateway.engine.dispatch import keepalive
from gateway.engine.dispatch.dialer import Dialer, Unreachable
from gateway.engine.dispatch.health import MAX_BACKOFF_S, MAX_MESSAGES, WATCH, HealthWatch
from gateway.engine.dispatch.keepalive import Keepalive
from gateway.engine.dispatch.rpc import CallStatus
from tests.kit import PATIENCE_S
from tests.simulation.loop import VirtualLoop
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    import trustme

    from gateway.engine.dispatch.stream_connection import StreamConnectionOwner

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
    """Run a coroutine function on a new loop with a short back-off; no task may be left."""
    monkeypatch.setattr(watched, "MIN_BACKOFF_S", 0.01)

    def run(test: Callable[[], Awaitable[None]]) -> None:
        async def body() -> None:
            await asyncio.wait_for(test(), PATIENCE_S)
            assert not left_over()
            # Calls that the server has not ended yet would resume on a closed loop.
            await until(lambda: len(asyncio.all_tasks()) == 1)

        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(body())

    return run


def gateway_log(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the gateway's log messages, without those of grpc's server about calls that it cancels."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("gateway.")]


@asynccontextmanager
async def watching(
    address: str, tls: WorkerTls | None = None, server_name: str | None = None
) -> AsyncIterator[tuple[HealthWatch, list[bool]]]:
    """Watch the health at *address*; the list receives the reports to the callback."""
    dialer = Dialer(address, tls, server_name)
    reports: list[bool] = []
    watch = HealthWatch(dialer, reports.append)
    try:
        yield watch, reports
    finally:
        await watch.close()
        assert not left_over()
        # A closed connection may still be in its TLS shutdown.
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
    """The server's side of a call of Watch."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.answers: asyncio.Queue[bytes | grpc.StatusCode] = asyncio.Queue()
        self.has_ended = False
        self.began = asyncio.get_running_loop().time()

    def send_report(self, *answers: bytes | grpc.StatusCode) -> None:
        for answer in answers:
            self.answers.put_nowait(answer)


class ScriptedHealth(grpc.GenericRpcHandler):
    """Serves Watch with the messages of a test."""

    def __init__(self, *first: bytes | grpc.StatusCode) -> None:
        self.calls: list[Call] = []
        self.first = first
        """The first messages of every call."""

    def service(self, handler_call_details: Any) -> Any:
        assert handler_call_details.method == WATCH
        return grpc.unary_stream_rpc_method_handler(self._watch)

    async def _watch(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        call = Call(request)
        self.calls.append(call)
        call.send_report(*self.first)
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
    """Serves no method, and counts the calls."""

    def __init__(self) -> None:
        self.calls = 0

    def service(self, handler_call_details: Any) -> None:
        self.calls += 1


# -- reports --------------------------------------------------------------------------------------


def test_reports_of_grpcs_own_health_service_are_followed(
    on_loop: OnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.engine.dispatch")

    async def test() -> None:
        caplog.clear()
        service = health.aio.HealthServicer()
        async with served(service) as (_, address), watching(address) as (watch, reports):
            await service.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
            await until(lambda: reports == [False])
            assert repr(watch) == f"<HealthWatch {address} watching, not serving>"
            await service.set("", health_pb2.HealthCheckResponse.SERVING)
            await until(lambda: reports == [False, True])
            await service.set("another", health_pb2.HealthCheckResponse.NOT_SERVING)
            await service.enter_graceful_shutdown()
            await until(lambda: reports == [False, True, False])
        assert gateway_log(caplog) == [
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
        service = ScriptedHealth()
        async with served(service) as (_, address), watching(address) as (_, reports):
            call = await service.call(0)
            assert call.request == health_pb2.HealthCheckRequest(service="").SerializeToString()
            call.send_report(answer, NOT_SERVING, NOT_SERVING, answer, answer, NOT_SERVING)
            await until(lambda: len(reports) == 3)
            assert reports == [False, True, False]
            assert len(service.calls) == 1

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
        service = ScriptedHealth(NOT_SERVING)
        async with served(service, credentials=grpc.ssl_server_credentials([server_pair])) as (_, address):
            async with watching(address, tls, "localhost") as (watch, reports):
                await until(lambda: reports == [False])
                watch.restart()
                await service.call(1)
            await until(lambda: all(call.has_ended for call in service.calls))
            async with watching(address, tls, "elsewhere.test") as (watch, reports):
                await asyncio.sleep(0.05)
                assert not reports
                assert "not watching" in repr(watch)
            assert len(service.calls) == 2

    on_loop(test)


# -- no reports -----------------------------------------------------------------------------------


def test_a_worker_without_health_checks_is_watched_once_for_each_connection(
    on_loop: OnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.engine.dispatch")

    async def test() -> None:
        caplog.clear()
        server = NoHealth()
        async with served(server) as (_, address), watching(address) as (watch, reports):
            for count in (1, 2, 3):
                await until(lambda count=count: server.calls >= count)  # type: ignore[misc]
                await until(lambda: not watch._watch)
                await asyncio.sleep(0.05)
                assert server.calls == count
                watch.restart()
            assert not reports
        assert not gateway_log(caplog)

    on_loop(test)


def test_a_worker_that_stops_serving_health_checks_counts_as_serving(on_loop: OnLoop, tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            served(ScriptedHealth(NOT_SERVING), f"unix:{tmp_path}/s") as (_, address),
            watching(address) as (watch, reports),
        ):
            await until(lambda: reports == [False])
            # Another server takes its place before it has stopped.
            (tmp_path / "s").unlink()
            server = NoHealth()
            async with served(server, address):
                watch.restart()
                await until(lambda: reports == [False, True])
                assert server.calls == 1

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
    caplog.set_level("INFO", "gateway.engine.dispatch")

    async def test() -> None:
        caplog.clear()
        service = ScriptedHealth(status)
        async with served(service) as (_, address), watching(address) as (_, reports):
            await service.call(2)
            assert not reports
            line = f"health watch of worker {address} failed: {status.name}: by the test"
            # The failure is logged once.
            assert gateway_log(caplog) == [line] * is_reported
            service.first = (NOT_SERVING, status)
            await until(lambda: reports[:3] == [False, True, False])

    on_loop(test)


def test_a_worker_that_stops_and_starts_again(
    on_loop: OnLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.engine.dispatch")

    async def test() -> None:
        caplog.clear()
        address = f"unix:{tmp_path}/s"
        async with watching(address) as (_, reports):
            await asyncio.sleep(0.03)
            assert not reports
            async with served(ScriptedHealth(NOT_SERVING), address):
                await until(lambda: reports == [False])
            await until(lambda: reports == [False, True])
            async with served(ScriptedHealth(NOT_SERVING), address):
                await until(lambda: reports == [False, True, False])
        before = f"worker {address} reports NOT_SERVING; it gets no calls"
        after = f"health watch of worker {address} lost; assuming SERVING"
        # The loss of the worker is logged by the endpoint.
        assert gateway_log(caplog)[:3] == [before, after, before]

    on_loop(test)


def test_a_connected_worker_is_watched_without_delay(
    on_loop: OnLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "MIN_BACKOFF_S", 10 * PATIENCE_S)
    monkeypatch.setattr(watched, "MAX_BACKOFF_S", 10 * PATIENCE_S)

    async def test() -> None:
        address = f"unix:{tmp_path}/s"
        async with watching(address) as (watch, reports):
            await asyncio.sleep(0.03)
            async with served(ScriptedHealth(NOT_SERVING), address):
                watch.restart()
                await until(lambda: reports == [False])

    on_loop(test)


def test_a_graceful_stop_does_not_wait_for_the_watch(on_loop: OnLoop) -> None:
    async def test() -> None:
        service = ScriptedHealth(NOT_SERVING)
        async with served(service) as (server, address), watching(address) as (_, reports):
            await until(lambda: reports == [False])
            await server.stop(10 * PATIENCE_S)
            await until(lambda: service.calls[0].has_ended and reports == [False, True])

    on_loop(test)


def test_a_worker_of_the_python_sdk_reports_its_shutdown(on_loop: OnLoop, tmp_path: Path) -> None:
    async def test() -> None:
        server = PolicyServer()
        server.policy("allow")(lambda review: None)
        [address] = await server.start(f"unix:{tmp_path}/s")
        async with watching(address) as (watch, reports):
            await until(lambda: watch._watch is not None and watch._watch.has_report)
            assert await server.stop(10 * PATIENCE_S) == 0
            await until(lambda: reports == [False, True])

    on_loop(test)


# -- invalid peers --------------------------------------------------------------------------------


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
    caplog.set_level("INFO", "gateway.engine.dispatch")

    async def test() -> None:
        caplog.clear()
        service = ScriptedHealth()
        async with served(service) as (_, address), watching(address) as (_, reports):
            first = await service.call(0)
            first.send_report(NOT_SERVING, answer, NOT_SERVING)
            await until(lambda: reports == [False, True])
            second = await service.call(1)
            await until(lambda: first.has_ended)
            second.send_report(NOT_SERVING)
            await until(lambda: reports == [False, True, False])
        assert fragment in caplog.text

    on_loop(test)


def test_a_flood_ends_the_watch(on_loop: OnLoop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gateway.engine.dispatch")

    async def test() -> None:
        caplog.clear()
        service = ScriptedHealth()
        async with served(service) as (_, address), watching(address) as (_, reports):
            call = await service.call(0)
            call.send_report(*[NOT_SERVING, SERVING] * MAX_MESSAGES)
            await service.call(1)
            assert reports == [False, True] * (MAX_MESSAGES // 2)
            await until(lambda: call.has_ended)
        assert "RESOURCE_EXHAUSTED: too many health reports" in caplog.text

    on_loop(test)


@pytest.mark.parametrize(
    "first_bytes",
    [b"", b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", b"\0" * 200, b"SSH-2.0-x\r\n"],
    ids=["nothing", "HTTP/1.1", "zeros", "SSH"],
)
def test_a_peer_that_is_no_grpc_server_counts_as_serving(
    on_loop: OnLoop, caplog: pytest.LogCaptureFixture, first_bytes: bytes
) -> None:
    caplog.set_level("INFO", "gateway.engine.dispatch")
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(first_bytes)
        if first_bytes:
            await reader.read(-1)
        writer.close()
        await writer.wait_closed()

    async def test() -> None:
        nonlocal connections
        connections = 0
        caplog.clear()
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with watching(f"ipv4:127.0.0.1:{server.sockets[0].getsockname()[1]}") as (_, reports):
            await until(lambda: connections >= 2)
            assert not reports
        server.close()
        assert not gateway_log(caplog)

    on_loop(test)


def test_an_exception_in_the_callback_does_not_end_the_watch(
    on_loop: OnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        service = ScriptedHealth(NOT_SERVING)
        reports = []

        def raise_once(is_serving: bool) -> None:
            reports.append(is_serving)
            if len(reports) == 1:
                raise ArithmeticError("raised once")

        async with served(service) as (_, address):
            dialer = Dialer(address, None, None)
            watch = HealthWatch(dialer, raise_once)
            (await service.call(0)).send_report(SERVING)
            await until(lambda: reports == [False, True])
            assert len(service.calls) == 1
            await watch.close()
        assert "internal error" in caplog.text

    on_loop(test)


# -- silence --------------------------------------------------------------------------------------


class SilentServer(asyncio.Protocol):
    """A server that sends one report, and then only answers pings."""

    def __init__(self, peers: list[SilentServer]) -> None:
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.is_mute = False
        self.pings = 0
        self.first = NOT_SERVING
        peers.append(self)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.h2.initiate_connection()
        self.transport.write(self.h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                self.h2.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
                self.send_report(self.first)
            self.pings += isinstance(event, h2.events.PingReceived)
        if not self.is_mute:
            self.transport.write(self.h2.data_to_send())

    def send_report(self, message: bytes) -> None:
        self.h2.send_data(1, b"\0" + len(message).to_bytes(4, "big") + message if message else b"")


@asynccontextmanager
async def silent_server() -> AsyncIterator[tuple[list[SilentServer], str]]:
    peers: list[SilentServer] = []
    server = await asyncio.get_running_loop().create_server(lambda: SilentServer(peers), "127.0.0.1", 0)
    try:
        yield peers, f"ipv4:127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for each in peers:
            each.transport.abort()


def test_keepalive_ends_a_silent_watch(on_loop: OnLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepalive, "KEEPALIVE_TIME_S", 0.05)
    monkeypatch.setattr(keepalive, "KEEPALIVE_TIMEOUT_S", 3.0)

    async def test() -> None:
        async with silent_server() as (peers, address), watching(address) as (_, reports):
            await until(lambda: reports == [False])
            await until(lambda: peers[0].pings >= 2)
            assert (len(peers), reports) == (1, [False])
            peers[0].is_mute = True
            await until(lambda: len(peers) == 2)
            assert reports[:2] == [False, True]

    on_loop(test)


async def read_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(-1)
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("stage", ["dialing", "watching", "waiting", "not served", "at once"])
def test_nothing_remains_whenever_a_watch_is_closed(on_loop: OnLoop, stage: str) -> None:
    async def test() -> None:
        async with silent_server() as (peers, address), served() as (_, without_health):
            mute = await asyncio.start_server(read_all, "127.0.0.1", 0)
            addresses = {
                "dialing": f"ipv4:127.0.0.1:{mute.sockets[0].getsockname()[1]}",
                "waiting": "ipv4:127.0.0.1:1",
                "not served": without_health,
            }
            dialer = Dialer(addresses.get(stage, address), None, None)
            reports: list[bool] = []
            watch = HealthWatch(dialer, reports.append)
            if stage == "watching":
                await until(lambda: reports)
            elif stage != "at once":
                await asyncio.sleep(0.05)
            await watch.close()
            watch.restart()
            assert not left_over()
            if stage == "watching":
                await until(peers[0].transport.is_closing)
            assert reports == [False] * (stage == "watching")
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
        async with served(ScriptedHealth(NOT_SERVING), credentials=credentials) as (_, address):
            for first in range(0, 60, 20):
                await asyncio.gather(*(close_after(turns, address) for turns in range(first, first + 20)))
        assert not gateway_log(caplog)

    on_loop(test)


# -- times in virtual time -----------------------------------------------------------------------


class Peer:
    """A dialer, its connections and its worker, on a loop in virtual time."""

    address = "worker:1"

    def __init__(self) -> None:
        self.dialed_at: list[float] = []
        self.is_reachable = False
        self.owner: StreamConnectionOwner | None = None
        self.pinged_at: list[float] = []
        self.answers_pings = True

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def dial(self, path: str, owner: StreamConnectionOwner) -> Peer:
        self.dialed_at.append(self.now())
        if not self.is_reachable:
            raise Unreachable("no worker")
        self.owner = owner
        self.last_received_at = self.now()
        return self

    def send_report(self, message: bytes) -> None:
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

    def watch(self, on_report: Callable[[bool], None]) -> HealthWatch:
        return HealthWatch(self, on_report)  # type: ignore[arg-type]


def since(start: float, times: list[float]) -> list[float]:
    return [round(each - start, 6) for each in times]


def test_the_back_off_between_watches_doubles_up_to_half_a_minute() -> None:
    async def test() -> None:
        peer, reports = Peer(), list[bool]()
        start = peer.now()
        watch = peer.watch(reports.append)
        await asyncio.sleep(100)
        assert since(start, peer.dialed_at) == [0, 1, 3, 7, 15, 31, 61, 91]
        watch.restart()
        await asyncio.sleep(8)
        assert since(start, peer.dialed_at)[8:] == [100, 101, 103, 107]
        assert not reports
        await watch.close()

    VirtualLoop().run(test())


def test_the_back_off_starts_over_after_a_long_watch() -> None:
    async def test() -> None:
        peer, reports = Peer(), list[bool]()
        start = peer.now()
        watch = peer.watch(reports.append)
        await asyncio.sleep(10)
        peer.is_reachable = True
        await asyncio.sleep(10)
        assert since(start, peer.dialed_at) == [0, 1, 3, 7, 15]
        peer.send_report(SERVING)
        peer.end("UNAVAILABLE")
        await asyncio.sleep(20)
        assert since(start, peer.dialed_at)[5:] == [36]
        peer.send_report(SERVING)
        await asyncio.sleep(MAX_BACKOFF_S)
        peer.end("UNAVAILABLE")
        await asyncio.sleep(2)
        assert since(start, peer.dialed_at)[6:] == [71]
        await watch.close()

    VirtualLoop().run(test())


def test_a_ping_is_sent_after_30_s_of_silence_and_the_watch_ends_10_s_later() -> None:
    async def test() -> None:
        peer, reports = Peer(), list[bool]()
        peer.is_reachable = True
        start = peer.now()
        watch = peer.watch(reports.append)
        await asyncio.sleep(5)
        peer.send_report(NOT_SERVING)
        await asyncio.sleep(100)
        assert since(start, peer.pinged_at) == [35, 65.1, 95.2]
        assert reports == [False]
        peer.answers_pings = False
        await asyncio.sleep(30)
        assert since(start, peer.pinged_at)[3:] == [125.3]
        assert reports == [False]
        await asyncio.sleep(0.5)
        assert reports == [False, True]
        await watch.close()

    VirtualLoop().run(test())


def test_a_worker_without_a_report_does_not_keep_the_report_of_its_predecessor() -> None:
    async def test() -> None:
        peer, reports = Peer(), list[bool]()
        peer.is_reachable = True
        watch = peer.watch(reports.append)
        await asyncio.sleep(1)
        peer.send_report(NOT_SERVING)
        watch.restart()
        await asyncio.sleep(29)
        assert (len(peer.dialed_at), reports) == (2, [False])
        await asyncio.sleep(2)
        assert reports == [False, True]
        await watch.close()

    VirtualLoop().run(test())


EVENTS = st.lists(
    st.sampled_from([SERVING, NOT_SERVING, UNKNOWN, NEW_STATUS, b"\xff", "UNAVAILABLE", "UNIMPLEMENTED"])
    | st.sampled_from(["restart", "leaving", "unreachable"])
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
        peer, reports = Peer(), list[bool]()
        peer.is_reachable = True
        watch = peer.watch(reports.append)
        expected = True
        for event in events:
            await asyncio.sleep(0.001)
            if isinstance(event, bytes) and peer.owner is not None:
                peer.send_report(event)
                expected = not is_not_serving(event)
            elif event == "restart":
                peer.is_reachable = True
                watch.restart()
                # The last report holds until the new worker sends another.
            elif event == "leaving" and peer.owner is not None:
                peer.owner.leaving()
                expected = True
            elif event == "unreachable":
                peer.is_reachable = False
            elif isinstance(event, str) and peer.owner is not None:
                peer.end(event)
                expected = True
            await asyncio.sleep(0.001)
            assert (reports or [True])[-1] == expected
        assert reports == [bool(place % 2) for place in range(len(reports))]
        await watch.close()
        assert not left_over()

    VirtualLoop().run(test())
