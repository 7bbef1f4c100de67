"""The health watch: against real gRPC servers, against other peers, and its timing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

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
from gateway.engine.dispatch.dialer import Dialer, Unreachable
from gateway.engine.dispatch.health import MAX_BACKOFF_S, MAX_MESSAGES, WATCH, HealthWatch
from gateway.engine.dispatch.keepalive import KEEPALIVE_TIME_S, Keepalive
from gateway.engine.dispatch.rpc import CallStatus
from tests.dispatch.peers import Says
from tests.kit import PATIENCE_S
from tests.simulation.loop import VirtualLoop
from tests.simulation.server import ServerCall
from tests.waiting import until
from tests.world import simulated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    import trustme

    from gateway.engine.dispatch.stream_connection import StreamConnectionOwner
    from tests.simulation.network import Connection
    from tests.world import SimulatedWorld

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
def on_loop(request: pytest.FixtureRequest) -> OnLoop:
    """Run a coroutine function on a new loop; no task may be left."""

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

    def __init__(self, call: ServerCall) -> None:
        self.request = b""
        self.has_ended = False
        self._call = call

    def send_report(self, *answers: bytes | grpc.StatusCode) -> None:
        for answer in answers:
            if isinstance(answer, grpc.StatusCode):
                self._call.end(answer.value[0], "by the test")
            else:
                self._call.send(answer)


class Server:
    """A server in memory that serves Watch with the messages of a test, or no method.

    It is a ``network.Host``, and the service of its calls.
    """

    is_cut_off = False

    def __init__(
        self,
        world: SimulatedWorld,
        *first: bytes | grpc.StatusCode,
        serves_watch: bool = True,
        address: str = "10.0.2.1",
    ) -> None:
        self.calls: list[Call] = []
        self.refused = 0
        """Calls when it serves no method."""
        self.first = first
        """The first messages of every call."""
        self.target = f"ipv4:{address}:1"
        self._serves_watch = serves_watch
        self._calls: dict[ServerCall, Call] = {}
        self._connections: list[Connection] = []
        self._hosts, self._address = world.network.hosts, address
        self._hosts[address] = self

    async def call(self, number: int) -> Call:
        await until(lambda: len(self.calls) > number)
        return self.calls[number]

    def stop(self) -> None:
        del self._hosts[self._address]
        for connection in self._connections:
            connection.hang_up()

    def accept(self, connection: Connection) -> bool:
        call = ServerCall(self, connection.answer, connection.hang_up, 65_535)
        connection.peer = call
        call.send_settings()
        self._connections.append(connection)
        return True

    def called(self, call: ServerCall, path: str) -> None:
        assert path == WATCH
        self.refused += not self._serves_watch
        if not self._serves_watch:
            call.end(12, "no such method")
            return
        call.respond()
        self._calls[call] = Call(call)
        self.calls.append(self._calls[call])

    def received(self, call: ServerCall, message: bytes) -> None:
        if call in self._calls:
            made = self._calls[call]
            made.request = message
            made.send_report(*self.first)

    def half_closed(self, call: ServerCall) -> None:
        pass

    def ended(self, call: ServerCall) -> None:
        if call in self._calls:
            self._calls[call].has_ended = True

    def pinged_too_often(self, call: ServerCall) -> None:
        pytest.fail("too many pings")


class NotServing(grpc.GenericRpcHandler):
    """The service of a server of grpcio, which reports NOT_SERVING."""

    def __init__(self) -> None:
        self.calls: list[bool] = []
        """For each call whether it has ended."""

    def service(self, handler_call_details: Any) -> Any:
        assert handler_call_details.method == WATCH
        return grpc.unary_stream_rpc_method_handler(self._watch)

    async def _watch(self, request: bytes, _: Any) -> AsyncIterator[bytes]:
        number = len(self.calls)
        self.calls.append(False)
        try:
            yield NOT_SERVING
            await asyncio.Event().wait()
        finally:
            self.calls[number] = True


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
@simulated
async def test_every_report_but_not_serving_counts_as_serving(world: SimulatedWorld, answer: bytes) -> None:
    service = Server(world)
    async with watching(service.target) as (_, reports):
        call = await service.call(0)
        assert call.request == health_pb2.HealthCheckRequest(service="").SerializeToString()
        call.send_report(answer, NOT_SERVING, NOT_SERVING, answer, answer, NOT_SERVING)
        await until(lambda: len(reports) == 3)
        assert reports == [False, True, False]
        assert len(service.calls) == 1


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
        service = NotServing()
        async with served(service, credentials=grpc.ssl_server_credentials([server_pair])) as (_, address):
            async with watching(address, tls, "localhost") as (watch, reports):
                await until(lambda: reports == [False])
                watch.restart()
                await until(lambda: len(service.calls) == 2)
            await until(lambda: all(service.calls))
            with pytest.raises(Unreachable, match=r"not valid for 'elsewhere\.test'"):
                await Dialer(address, tls, "elsewhere.test").dial(WATCH, Mock())
            assert len(service.calls) == 2

    on_loop(test)


# -- no reports -----------------------------------------------------------------------------------


@simulated
async def test_a_worker_without_health_checks_is_watched_once_for_each_connection(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.engine.dispatch")
    server = Server(world, serves_watch=False)
    async with watching(server.target) as (watch, reports):
        for count in (1, 2, 3):
            await asyncio.sleep(10 * MAX_BACKOFF_S)
            assert not watch._watch
            assert server.refused == count
            watch.restart()
        assert not reports
    assert not gateway_log(caplog)


@simulated
async def test_a_worker_that_stops_serving_health_checks_counts_as_serving(world: SimulatedWorld) -> None:
    first = Server(world, NOT_SERVING)
    async with watching(first.target) as (watch, reports):
        await until(lambda: reports == [False])
        # Another server takes its place before it has stopped.
        server = Server(world, serves_watch=False)
        watch.restart()
        await until(lambda: reports == [False, True])
        assert server.refused == 1


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
@simulated
async def test_a_lost_watch_counts_as_serving_and_is_started_again(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture, status: grpc.StatusCode, *, is_reported: bool
) -> None:
    caplog.set_level("INFO", "gateway.engine.dispatch")
    service = Server(world, status)
    address = service.target
    async with watching(address) as (_, reports):
        await service.call(2)
        assert not reports
        line = f"health watch of worker {address} failed: {status.name}: by the test"
        # The failure is logged once.
        assert gateway_log(caplog) == [line] * is_reported
        service.first = (NOT_SERVING, status)
        await until(lambda: reports[:3] == [False, True, False])


@simulated
async def test_a_worker_that_stops_and_starts_again(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.engine.dispatch")
    address = "ipv4:10.0.2.1:1"
    async with watching(address) as (_, reports):
        await asyncio.sleep(5)
        assert not reports
        server = Server(world, NOT_SERVING)
        await until(lambda: reports == [False])
        server.stop()
        await until(lambda: reports == [False, True])
        Server(world, NOT_SERVING)
        await until(lambda: reports == [False, True, False])
    before = f"worker {address} reports NOT_SERVING; it gets no calls"
    after = f"health watch of worker {address} lost; assuming SERVING"
    # The loss of the worker is logged by the endpoint.
    assert gateway_log(caplog) == [before, after, before]


@simulated
async def test_a_connected_worker_is_watched_without_delay(world: SimulatedWorld) -> None:
    async with watching("ipv4:10.0.2.1:1") as (watch, reports):
        # The next attempt is half a minute away.
        await asyncio.sleep(2 * MAX_BACKOFF_S + 5)
        Server(world, NOT_SERVING)
        watch.restart()
        await asyncio.sleep(1)
        assert reports == [False]


def test_a_graceful_stop_does_not_wait_for_the_watch(on_loop: OnLoop) -> None:
    async def test() -> None:
        service = NotServing()
        async with served(service) as (server, address), watching(address) as (_, reports):
            await until(lambda: reports == [False])
            await server.stop(10 * PATIENCE_S)
            await until(lambda: service.calls == [True] and reports == [False, True])

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
@simulated
async def test_an_invalid_message_ends_the_watch_and_nothing_else(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture, answer: bytes, fragment: str
) -> None:
    caplog.set_level("INFO", "gateway.engine.dispatch")
    service = Server(world)
    async with watching(service.target) as (_, reports):
        first = await service.call(0)
        first.send_report(NOT_SERVING, answer, NOT_SERVING)
        await until(lambda: reports == [False, True])
        second = await service.call(1)
        await until(lambda: first.has_ended)
        second.send_report(NOT_SERVING)
        await until(lambda: reports == [False, True, False])
    assert fragment in caplog.text


@simulated
async def test_a_flood_ends_the_watch(world: SimulatedWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gateway.engine.dispatch")
    service = Server(world)
    async with watching(service.target) as (_, reports):
        call = await service.call(0)
        call.send_report(*[NOT_SERVING, SERVING] * MAX_MESSAGES)
        await service.call(1)
        assert reports == [False, True] * (MAX_MESSAGES // 2)
        await until(lambda: call.has_ended)
    assert "RESOURCE_EXHAUSTED: too many health reports" in caplog.text


@pytest.mark.parametrize(
    "first_bytes",
    [b"", b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", b"\0" * 200, b"SSH-2.0-x\r\n"],
    ids=["nothing", "HTTP/1.1", "zeros", "SSH"],
)
@simulated
async def test_a_peer_that_is_no_grpc_server_counts_as_serving(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture, first_bytes: bytes
) -> None:
    caplog.set_level("INFO", "gateway.engine.dispatch")
    peers: list[Says] = []

    def accept() -> Says:
        peers.append(Says(first_bytes or None))
        return peers[-1]

    async with watching(world.listen(accept)) as (_, reports):
        await until(lambda: len(peers) >= 2)
        assert not reports
    assert not gateway_log(caplog)


@simulated
async def test_an_exception_in_the_callback_does_not_end_the_watch(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    service = Server(world, NOT_SERVING)
    reports = []

    def raise_once(is_serving: bool) -> None:
        reports.append(is_serving)
        if len(reports) == 1:
            raise ArithmeticError("raised once")

    watch = HealthWatch(Dialer(service.target, None, None), raise_once)
    (await service.call(0)).send_report(SERVING)
    await until(lambda: reports == [False, True])
    assert len(service.calls) == 1
    await watch.close()
    assert "internal error" in caplog.text


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


@simulated
async def test_keepalive_ends_a_silent_watch(world: SimulatedWorld) -> None:
    peers: list[SilentServer] = []
    async with watching(world.listen(lambda: SilentServer(peers))) as (_, reports):
        await asyncio.sleep(3 * KEEPALIVE_TIME_S)
        assert peers[0].pings >= 2
        assert (len(peers), reports) == (1, [False])
        peers[0].is_mute = True
        await until(lambda: len(peers) == 2)
        assert reports[:2] == [False, True]


@pytest.mark.parametrize("stage", ["dialing", "watching", "waiting", "not served", "at once"])
@simulated
async def test_nothing_remains_whenever_a_watch_is_closed(world: SimulatedWorld, stage: str) -> None:
    peers: list[SilentServer] = []
    address = world.listen(lambda: SilentServer(peers))
    addresses = {
        "dialing": world.listen(lambda: Says(b"")),
        "waiting": "ipv4:10.0.2.2:1",
        "not served": Server(world, serves_watch=False).target,
    }
    dialer = Dialer(addresses.get(stage, address), None, None)
    reports: list[bool] = []
    watch = HealthWatch(dialer, reports.append)
    if stage != "at once":
        await asyncio.sleep(0.05)
    assert reports == [False] * (stage == "watching")
    await watch.close()
    watch.restart()
    assert not left_over()
    assert reports == [False] * (stage == "watching")
    await dialer.close()
    await asyncio.sleep(0.05)
    assert not world.network.connections


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
        for _ in range(5 * turns):
            await asyncio.sleep(0)
        await watch.close()
        await dialer.close()

    async def test() -> None:
        credentials = grpc.ssl_server_credentials([server_pair]) if is_secure else None
        async with served(NotServing(), credentials=credentials) as (_, address):
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
