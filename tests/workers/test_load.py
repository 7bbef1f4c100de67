"""The memory that clients hold is bounded, and the client that holds most is refused."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

from admission_gateway_worker import PolicyServer, Review, load, unary
from admission_gateway_worker.load import CALL_BYTES, RPC_BYTES
from admission_gateway_worker.pb import worker_pb2 as pb
from tests import frames as raw
from tests.waiting import until
from tests.workers.raw_client import SERVICE, Client, Connect, connections, review, server_of

if TYPE_CHECKING:
    import pytest

EVENT_LOOPS = ("uvloop",)

STREAM = SERVICE + "ReviewStream"


def held(server: PolicyServer) -> int:
    return int(connections(server).load.held_bytes)


def streams(server: PolicyServer) -> list[list[int]]:
    """Return the numbers of the open streams of each connection."""
    return [list(connection._http2.streams) for connection in connections(server).open]


def send(client: Client, batch: pb.ReviewBatch) -> None:
    client.send(raw.data(raw.message(batch.SerializeToString())))


def begun(size: int, stream: int) -> bytes:
    """Return the first *size* bytes of a message that is longer."""
    return raw.frame(raw.DATA, struct.pack(">BL", 0, 500_000) + bytes(size - 5), 0, stream)


async def test_an_incomplete_message_of_the_client_with_most_is_refused(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "MAX_HELD_BYTES", 90_000)
    monkeypatch.setattr(load, "RELIEF_BYTES", 0)
    server = server_of()
    async with connect(server) as client:
        one, other, last = await client(), await client(), await client()
        one.open(1)
        one.send(begun(15_000, 1))
        await until(lambda: held(server) == RPC_BYTES + 15_000)
        # One after another: input that waits for its turn counts too.
        other.open(1)
        other.send(begun(15_001, 1))
        await until(lambda: held(server) == 2 * (RPC_BYTES + 15_000) + 1)
        other.open(3)
        other.send(begun(15_003, 3))
        await until(lambda: held(server) == 3 * (RPC_BYTES + 15_000) + 4)
        last.open(1)
        last.send(begun(15_000, 1))
        assert (await other.answer(3))["grpc-status"] == "8"
        await until(lambda: held(server) <= 90_000)
        # For the same reason the other one may have ended as well.
        assert streams(server) in ([[1], [1], [1]], [[1], [], [1]])
        for each in (one, other, last):
            each.writer.close()
        await until(lambda: (held(server), connections(server).load.rpcs) == (0, 0))


async def test_idle_calls_of_the_connection_with_most_are_refused(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "MAX_HELD_BYTES", 10 * RPC_BYTES)
    monkeypatch.setattr(load, "RELIEF_BYTES", 0)
    server = server_of()
    async with connect(server) as client:
        one, other = await client(), await client()
        one.open(1)
        await until(lambda: held(server) == RPC_BYTES)
        for number in range(20):
            other.open(2 * number + 1)
        await until(lambda: connections(server).load.rpcs == 10 and streams(server)[1][-1] == 39)
        assert streams(server)[0] == [1]
        one.send(review())
        assert (await one.answer())["grpc-status"] == "0"


async def test_what_calls_hold_is_counted_until_they_end(connect: Connect) -> None:
    """The payload of a batch once, whatever the number of its calls in flight."""

    async def wait(review: Review) -> None:
        await asyncio.Event().wait()

    server = server_of(wait)
    async with connect(server) as client:
        one = await client()
        batch = pb.ReviewBatch(payloads=[pb.Payload(admission_request=b'{"x":"%s"}' % (9000 * b"x"))])
        for number in range(10):
            batch.calls.add(id=number, policy="policy", timeout_millis=60_000)
        one.open(path=STREAM)
        send(one, batch)
        size = len(batch.payloads[0].admission_request)
        await until(lambda: held(server) == RPC_BYTES + size + 10 * CALL_BYTES)
        send(one, pb.ReviewBatch(cancelled=range(9)))
        await until(lambda: held(server) == RPC_BYTES + size + CALL_BYTES)
        send(one, pb.ReviewBatch(cancelled=[9]))
        await until(lambda: held(server) == RPC_BYTES)
        one.open(3)
        one.send(review(3))
        await until(lambda: held(server) == 2 * RPC_BYTES + len(review(3)) - 14)
        one.send(raw.frame(raw.RST_STREAM, bytes(4), 0, 3))
        await until(lambda: held(server) == RPC_BYTES)


async def test_a_client_that_takes_no_answers_is_ended_when_the_sum_is_reached(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "MAX_HELD_BYTES", 3_000_000)

    def large(review: Review) -> None:
        review.warn("x" * 200_000)

    server = server_of(large)
    async with connect(server) as client:
        one, other = await client(), await client()
        for stream in range(1, 41, 2):
            one.open(stream)
            one.send(review(stream))
        await until(lambda: len(streams(server)) == 1)
        assert held(server) == 0
        other.open()
        other.send(review())
        await until(lambda: held(server) > 100_000)
        for stream in (0, 1):
            other.send(raw.frame(raw.WINDOW_UPDATE, (10**6).to_bytes(4), 0, stream))
        assert (await other.answer())["grpc-status"] == "0"


async def test_parameters_of_all_streams_are_bounded(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unary, "MAX_PARAMETERS_BYTES", 100_000)
    server = server_of()
    async with connect(server) as client:
        one, other = await client(), await client()

        async def keep(each: Client, number: int, size: int, total: int) -> None:
            send(each, pb.ReviewBatch(parameters=[pb.Parameters(id=number, json=bytes(size))]))
            await until(lambda: held(server) == total)

        one.open(path=STREAM)
        await keep(one, 1, 30_000, RPC_BYTES + 30_000)
        await keep(one, 1, 20_000, RPC_BYTES + 20_000)  # a value that replaces another
        other.open(path=STREAM)
        await keep(other, 1, 40_000, 2 * RPC_BYTES + 60_000)
        await keep(other, 2, 40_000, 2 * RPC_BYTES + 100_000)
        await keep(one, 2, 10_000, RPC_BYTES + 30_000)
        assert (await other.answer())["grpc-status"] == "8"
        one.writer.close()
        await until(lambda: held(server) == 0)


class Holder:
    """A connection that holds something."""

    def __init__(self, client: str, held_bytes: int) -> None:
        self.client = client
        self.held_bytes = held_bytes

    def release(self, wanted_bytes: int) -> None:
        raise NotImplementedError


def test_the_holder_is_one_of_the_client_with_most() -> None:
    """A client with many connections does not hide behind one with a large one."""
    many = [Holder("a", size) for size in (3, 4, 3)]
    found: Any = load.heaviest([Holder("b", 9), *many])
    assert found is many[1]
    assert load.heaviest([]) is None
