"""A worker's connections against clients that send raw frames, violate gRPC, or do not read."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import hpack
import pytest
import uvloop

from admission_gateway_worker import PolicyServer, Review, connection, rpc, stream
from admission_gateway_worker.http2 import frames
from admission_gateway_worker.http2.frames import FRAME_HEAD, PREFACE
from admission_gateway_worker.pb import worker_pb2 as pb
from tests import frames as raw
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

SERVICE = "/admissiongateway.worker.v1.PolicyWorker/"
FIELDS = {
    ":method": "POST",
    ":scheme": "http",
    ":path": SERVICE + "Review",
    "content-type": "application/grpc",
}


class Client:
    """A connection that sends raw frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.decoder = hpack.Decoder()

    def send(self, *sent: bytes) -> None:
        self.writer.write(b"".join(sent))

    def open(self, stream: int = 1, **fields: str) -> None:
        """Open a stream; an underscore in a name of *fields* stands for a hyphen."""
        changed = {name.replace("_", "-"): value for name, value in fields.items()}
        changed = {
            ":" + name if name in ("path", "method") else name: value for name, value in changed.items()
        }
        found = [(name.encode(), value.encode()) for name, value in {**FIELDS, **changed}.items()]
        self.send(raw.headers(*found, stream=stream))

    def fields(self, block: bytes) -> list[tuple[str, str]]:
        return [(str(name), str(value)) for name, value in self.decoder.decode(block)]

    async def frame(self) -> tuple[int, int, bytes]:
        """Return type, stream and payload of the next frame."""
        async with asyncio.timeout(20):
            high, low, kind, _, stream = FRAME_HEAD.unpack(await self.reader.readexactly(9))
            return kind, stream, await self.reader.readexactly(high << 8 | low)

    async def answer(self, stream: int = 1) -> dict[str, str]:
        """Return the fields of the stream's header blocks up to its trailers."""
        fields: dict[str, str] = {}
        while True:
            kind, number, payload = await self.frame()
            if kind == raw.HEADERS:
                fields |= dict(self.fields(payload)) if number == stream else {}
                if number == stream and ("grpc-status" in fields or fields[":status"] != "200"):
                    return fields

    async def ended(self) -> bool:
        """Return whether the server ends the connection, after any output."""
        async with asyncio.timeout(20):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass
            return True


Connect = Callable[[PolicyServer], AbstractAsyncContextManager[Callable[..., Any]]]


@pytest.fixture
def connect(folder: Path) -> Connect:
    """``async with connect(server) as client``: ``await client()`` is a settled connection."""

    @asynccontextmanager
    async def connecting(server: PolicyServer) -> AsyncIterator[Callable[..., Any]]:
        await server.start(f"unix:{folder}/worker.sock")
        opened: list[asyncio.StreamWriter] = []

        async def client(start: bytes = PREFACE + raw.frame(raw.SETTINGS)) -> Client:
            reader, writer = await asyncio.open_unix_connection(f"{folder}/worker.sock")
            opened.append(writer)
            writer.write(start)
            return Client(reader, writer)

        try:
            yield client
        finally:
            for writer in opened:
                writer.close()
            await server.stop(0)

    return connecting


def server_of(policy: Callable[[Review], Any] = lambda review: None) -> PolicyServer:
    server = PolicyServer()
    server.policy("policy")(policy)
    return server


def review(**fields: Any) -> bytes:
    message = pb.ReviewRequest(policy="policy", admission_request=b"{}", **fields).SerializeToString()
    return raw.frame(raw.DATA, raw.message(message), raw.END_STREAM, 1)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"path": "/a.B/C"}, {"grpc-status": "12"}),
        ({"method": "GET"}, {":status": "405"}),
        ({"content_type": "text/html"}, {":status": "415"}),
        ({"content_type": "application/grpc-web"}, {":status": "415"}),
        ({"grpc_encoding": "gzip"}, {"grpc-status": "12", "grpc-accept-encoding": "identity"}),
        ({"grpc_timeout": "1"}, {"grpc-status": "13"}),
        ({"grpc_timeout": "0n"}, {"grpc-status": "4"}),
        ({"grpc_timeout": "99999999H"}, {"grpc-status": "0"}),
        ({"content_type": "application/grpc+proto", "te": "trailers"}, {"grpc-status": "0"}),
    ],
)
def test_the_fields_of_a_request_are_checked(
    connect: Connect, fields: dict[str, str], expected: dict[str, str]
) -> None:
    async def scenario() -> None:
        async with connect(server_of()) as client:
            one = await client()
            one.open(**fields)
            if expected != {"grpc-status": "4"}:
                one.send(review())
            answer = await one.answer()
            assert expected.items() <= answer.items()

    uvloop.run(scenario())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (struct.pack(">BL", 1, 1) + b"x", "13"),
        (struct.pack(">BL", 0, 8 * 1024 * 1024 + 1), "8"),
        (struct.pack(">BL", 0, 9) + b"x", "13"),
        (raw.message(b"") + raw.message(b""), "12"),
        (b"", "12"),
    ],
    ids=["compressed", "too large", "cut off", "two messages", "no message"],
)
def test_the_messages_of_a_request_are_checked(connect: Connect, body: bytes, status: str) -> None:
    async def scenario() -> None:
        async with connect(server_of()) as client:
            one = await client()
            one.open()
            one.send(raw.frame(raw.DATA, body, raw.END_STREAM, 1))
            assert (await one.answer())["grpc-status"] == status

    uvloop.run(scenario())


def test_acknowledgements_that_are_not_read_end_the_connection(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_UNSENT_BYTES", 300_000)
    # Otherwise this limit ends the connection first.
    monkeypatch.setattr(frames, "MAX_UNPRODUCTIVE_FRAMES", 10**9)
    pings = raw.frame(raw.PING, bytes(8)) * 100

    async def scenario() -> None:
        async with connect(server_of()) as client:
            one = await client()
            one.writer.transport.pause_reading()
            sent = 0
            while not one.writer.transport.is_closing():
                one.send(pings)
                sent += 100
                try:
                    async with asyncio.timeout(20):
                        await one.writer.drain()
                except ConnectionError:
                    break
                assert sent < 1_000_000

    uvloop.run(scenario())


def test_a_client_that_does_not_read_gets_no_more_than_its_window(connect: Connect) -> None:
    server = PolicyServer()

    @server.policy("policy", mutating=True)
    def large(review: Review) -> None:
        review.object["text"] = "x" * (2 * 1024 * 1024)

    async def scenario() -> None:
        async with connect(server) as client:
            one = await client()
            for stream in (1, 3):
                one.open(stream)
                message = pb.ReviewRequest(
                    policy="policy", admission_request=b'{"object":{}}'
                ).SerializeToString()
                one.send(raw.frame(raw.DATA, raw.message(message), raw.END_STREAM, stream))
            size = 0
            while size < 65_535:
                kind, _, payload = await one.frame()
                size += len(payload) if kind == raw.DATA else 0
            assert size == 65_535
            # Another stream is cancelled and other frames are answered meanwhile.
            one.send(raw.frame(raw.RST_STREAM, struct.pack(">L", 8), 0, 3), raw.frame(raw.PING, bytes(8)))
            while (kind := (await one.frame())[0]) != raw.PING:
                assert kind == raw.HEADERS
            for number in (0, 1):
                one.send(raw.frame(raw.WINDOW_UPDATE, struct.pack(">L", 4 * 1024 * 1024), 0, number))
            assert (await one.answer())["grpc-status"] == "0"

    uvloop.run(scenario())


def test_answers_that_wait_for_a_window_are_bounded(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_WAITING_BYTES", 5 * 1024 * 1024)
    server = PolicyServer()

    @server.policy("policy", mutating=True)
    async def large(review: Review) -> None:
        review.object["text"] = "x" * (2 * 1024 * 1024)

    async def scenario() -> None:
        async with connect(server) as client:
            one = await client()
            message = pb.ReviewRequest(policy="policy", admission_request=b'{"object":{}}')
            body = raw.message(message.SerializeToString())
            for stream in (1, 3, 5):
                one.open(stream)
                one.send(raw.frame(raw.DATA, body, raw.END_STREAM, stream))
            assert await one.ended()

    uvloop.run(scenario())


def test_a_stream_that_is_opened_during_the_shutdown_gets_the_drain_notice(connect: Connect) -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    async def wait(review: Review) -> None:
        started.set()
        await gate.wait()

    async def scenario() -> None:
        server = server_of(wait)
        async with connect(server) as client:
            one = await client()
            one.open(1)
            one.send(review())
            await started.wait()
            stopping = asyncio.create_task(server.stop(60))
            while (await one.frame())[0] != raw.GOAWAY:
                pass
            one.open(3, path=SERVICE + "ReviewStream")
            # Before the stream ends because it is quiet.
            while (found := await one.frame())[0] != raw.DATA:
                assert "grpc-status" not in str(found)
            assert found[1] == 3
            assert pb.VerdictBatch.FromString(found[2][5:]).draining
            gate.set()
            await stopping

    uvloop.run(scenario())


def test_rpcs_leave_no_reference_cycles(connect: Connect) -> None:
    async def scenario() -> None:
        server = server_of()
        async with connect(server) as client:
            one = await client()
            gc.collect()
            gc.disable()
            try:
                for stream in (1, 3, 5):
                    one.open(stream, grpc_timeout="9S")
                    one.send(raw.frame(raw.DATA, b"", raw.END_STREAM, stream) if stream > 1 else review())
                    assert await one.answer(stream)
                assert [found for found in gc.get_objects() if isinstance(found, rpc.Rpc)] == []
            finally:
                gc.enable()

    uvloop.run(scenario())


def test_silent_connections_end_unless_they_answer_a_ping(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of silence is set by hand: a busy machine may be late with an answer."""
    monkeypatch.setattr(connection, "PERIOD_S", 0.02)

    async def scenario() -> None:
        server = server_of()
        async with connect(server) as client:
            unsettled, silent, live = await client(start=PREFACE[:9]), await client(), await client()
            assert server._serving is not None
            opened = server._serving._connections.open

            def stay_silent(seconds: float) -> None:
                for each in opened:
                    each.last_received_at -= seconds

            await until(lambda: [each._http2.is_settled for each in opened] == [False, True, True])
            stay_silent(connection.SETTLE_TIMEOUT_S)
            assert await unsettled.ended()
            assert len(opened) == 2
            answering = list(opened)[-1]
            for _ in range(5):
                stay_silent(connection.PING_AFTER_S)
                before = answering.last_received_at
                while (found := await live.frame())[0] != raw.PING:
                    pass
                live.send(raw.frame(raw.PING, found[2], raw.ACK))
                await until(lambda: answering.last_received_at > before)  # noqa: B023
            assert await silent.ended()
            live.open()
            live.send(review())
            assert (await live.answer())["grpc-status"] == "0"

    uvloop.run(scenario())


def test_above_the_limit_the_longest_silent_idle_connection_ends(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 2)
    started = asyncio.Event()

    async def wait(review: Review) -> None:
        started.set()
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with connect(server_of(wait)) as client:
            busy = await client()
            busy.open()
            busy.send(review())
            await started.wait()
            idle, other = await client(), await client()
            assert await idle.ended()
            other.open(path="/grpc.health.v1.Health/Watch")
            other.send(raw.frame(raw.DATA, raw.message(b""), raw.END_STREAM, 1))
            while (await other.frame())[0] != raw.DATA:
                pass
            # All have RPCs.
            assert await (await client()).ended()

    uvloop.run(scenario())


def test_rpcs_and_stored_bytes_are_limited_for_the_whole_worker(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "MAX_RPCS", 2)
    monkeypatch.setattr(rpc, "MAX_STORED_BYTES", 20_000)

    async def scenario() -> None:
        server = server_of()
        async with connect(server) as client:
            one, other = await client(), await client()
            one.open(1)
            one.open(3)
            assert server._serving is not None
            load = server._serving._connections.load
            await until(lambda: load.rpcs == 2)
            other.open(1)
            assert (await other.answer())["grpc-status"] == "8"
            for stream in (1, 3):
                one.send(raw.frame(raw.DATA, struct.pack(">BL", 0, 100_000) + bytes(10_000), 0, stream))
            assert (await one.answer(3))["grpc-status"] == "8"
            assert (load.rpcs, load.stored_bytes) == (1, 10_005)
            one.writer.close()
            await until(lambda: (load.rpcs, load.stored_bytes) == (0, 0))

    uvloop.run(scenario())


@pytest.mark.parametrize("messages", [1000, 1])
def test_a_connection_with_much_input_leaves_turns_to_others(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    monkeypatch.setattr(connection, "AT_ONCE_S", 0.0)
    monkeypatch.setattr(connection, "SLICE_S", 0.0)
    monkeypatch.setattr(stream, "SLICE_S", 0.0)
    order: list[str] = []

    def note(review: Review) -> None:
        order.append(review.uid)

    async def scenario() -> None:
        async with connect(server_of(note)) as client:
            many, few = await client(), await client()
            batch = pb.ReviewBatch(payloads=[pb.Payload(admission_request=b'{"uid": "many"}')])
            for number in range(1000 // messages):
                batch.calls.add(id=number, policy="policy", timeout_millis=60_000)
            many.open(path=SERVICE + "ReviewStream")
            many.send(raw.data(raw.message(batch.SerializeToString()) * messages))
            await until(lambda: order)
            few.open()
            message = pb.ReviewRequest(
                policy="policy", admission_request=b'{"uid": "few"}'
            ).SerializeToString()
            few.send(raw.frame(raw.DATA, raw.message(message), raw.END_STREAM, 1))
            assert (await few.answer())["grpc-status"] == "0"
            await until(lambda: len(order) == 1001)
            assert order.index("few") < 1000

    uvloop.run(scenario())
