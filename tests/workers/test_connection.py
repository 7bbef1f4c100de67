"""A worker's connections against clients that send raw frames, violate gRPC, or do not read."""

from __future__ import annotations

import asyncio
import struct

import pytest

from admission_gateway_worker import PolicyServer, Review, connection, rpc, stream, turns
from admission_gateway_worker.http2 import frames
from admission_gateway_worker.http2.frames import PREFACE
from admission_gateway_worker.pb import worker_pb2 as pb
from tests import frames as raw
from tests.kit import without_collector
from tests.waiting import until
from tests.workers.raw_client import SERVICE, Connect, review, server_of

EVENT_LOOPS = ("uvloop",)


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
async def test_the_fields_of_a_request_are_checked(
    connect: Connect, fields: dict[str, str], expected: dict[str, str]
) -> None:
    async with connect(server_of()) as client:
        one = await client()
        one.open(**fields)
        if expected != {"grpc-status": "4"}:
            one.send(review())
        answer = await one.answer()
        assert expected.items() <= answer.items()


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
async def test_the_messages_of_a_request_are_checked(connect: Connect, body: bytes, status: str) -> None:
    async with connect(server_of()) as client:
        one = await client()
        one.open()
        one.send(raw.frame(raw.DATA, body, raw.END_STREAM, 1))
        assert (await one.answer())["grpc-status"] == status


async def test_acknowledgements_that_are_not_read_end_the_connection(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_UNSENT_BYTES", 300_000)
    # Otherwise this limit ends the connection first.
    monkeypatch.setattr(frames, "MAX_UNPRODUCTIVE_FRAMES", 10**9)
    pings = raw.frame(raw.PING, bytes(8)) * 100
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


async def test_a_batch_that_goes_on_stops_nothing_else_on_its_connection(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cancellation is read, and other calls are answered."""
    monkeypatch.setattr(stream, "SLICE_S", 0.0)
    monkeypatch.setattr(connection, "SLICE_S", 0.0)
    seen: list[str] = []
    async with connect(server_of(lambda review: seen.append(review.uid))) as client:
        one = await client()
        batch = pb.ReviewBatch(payloads=[pb.Payload(admission_request=b'{"uid": "many"}')])
        for number in range(4000):
            batch.calls.add(id=number, policy="policy", timeout_millis=60_000)
        one.open(path=SERVICE + "ReviewStream")
        one.send(raw.data(raw.message(batch.SerializeToString())))
        await until(lambda: seen)
        one.open(3)
        one.send(review(3))
        assert (await one.answer(3))["grpc-status"] == "0"
        one.send(raw.frame(raw.RST_STREAM, bytes(4), 0, 1))
        one.open(5)
        one.send(review(5))
        assert (await one.answer(5))["grpc-status"] == "0"
        assert seen.count("many") < 4000


async def test_a_client_that_does_not_read_gets_no_more_than_its_window(connect: Connect) -> None:
    server = PolicyServer()

    @server.policy("policy", mutating=True)
    def large(review: Review) -> None:
        review.object["text"] = "x" * (2 * 1024 * 1024)

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


async def test_answers_that_wait_for_a_window_are_bounded(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_WAITING_BYTES", 5 * 1024 * 1024)
    server = PolicyServer()

    @server.policy("policy", mutating=True)
    async def large(review: Review) -> None:
        review.object["text"] = "x" * (2 * 1024 * 1024)

    async with connect(server) as client:
        one = await client()
        message = pb.ReviewRequest(policy="policy", admission_request=b'{"object":{}}')
        body = raw.message(message.SerializeToString())
        for stream in (1, 3, 5):
            one.open(stream)
            one.send(raw.frame(raw.DATA, body, raw.END_STREAM, stream))
        assert await one.ended()


async def test_a_stream_that_is_opened_during_the_shutdown_gets_the_drain_notice(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admission_gateway_worker.stream.QUIET_S", 0.01)
    monkeypatch.setattr("admission_gateway_worker.serving.CLOSE_S", 0.0)
    started, gate = asyncio.Event(), asyncio.Event()

    async def wait(review: Review) -> None:
        started.set()
        await gate.wait()

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


async def test_rpcs_leave_no_reference_cycles(connect: Connect) -> None:
    server = server_of()
    async with connect(server) as client:
        one = await client()
        with without_collector() as count:
            for stream in (1, 3, 5):
                one.open(stream, grpc_timeout="9S")
                one.send(raw.frame(raw.DATA, b"", raw.END_STREAM, stream) if stream > 1 else review())
                assert await one.answer(stream)
            assert count(rpc.Rpc) == 0


async def test_silent_connections_end_unless_they_answer_a_ping(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of silence is set by hand: a busy machine may be late with an answer."""
    monkeypatch.setattr(connection, "PERIOD_S", 0.02)
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


async def test_above_the_limit_the_longest_silent_idle_connection_ends(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 2)
    started = asyncio.Event()

    async def wait(review: Review) -> None:
        started.set()
        await asyncio.Event().wait()

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
        # All have RPCs: the longest silent one is that of the call.
        last = await client()
        assert (await busy.answer())["grpc-status"] == "8"
        assert await busy.ended()
        last.open(path="/grpc.health.v1.Health/Check")
        last.send(raw.frame(raw.DATA, raw.message(b""), raw.END_STREAM, 1))
        assert (await last.answer())["grpc-status"] == "0"


@pytest.mark.parametrize("messages", [1000, 1])
async def test_a_connection_with_much_input_leaves_turns_to_others(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    monkeypatch.setattr(turns, "AT_ONCE_S", 0.0)
    monkeypatch.setattr(turns, "FIRST_S", 0.0)
    monkeypatch.setattr(connection, "SLICE_S", 0.0)
    monkeypatch.setattr(stream, "SLICE_S", 0.0)
    order: list[str] = []

    def note(review: Review) -> None:
        order.append(review.uid)

    async with connect(server_of(note)) as client:
        many, few = await client(), await client()
        batch = pb.ReviewBatch(payloads=[pb.Payload(admission_request=b'{"uid": "many"}')])
        for number in range(1000 // messages):
            batch.calls.add(id=number, policy="policy", timeout_millis=60_000)
        many.open(path=SERVICE + "ReviewStream")
        many.send(raw.data(raw.message(batch.SerializeToString()) * messages))
        await until(lambda: order)
        few.open()
        message = pb.ReviewRequest(policy="policy", admission_request=b'{"uid": "few"}').SerializeToString()
        few.send(raw.frame(raw.DATA, raw.message(message), raw.END_STREAM, 1))
        assert (await few.answer())["grpc-status"] == "0"
        await until(lambda: len(order) == 1001)
        assert order.index("few") < 1000
