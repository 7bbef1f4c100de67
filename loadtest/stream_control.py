"""The control of the gateway's own HTTP/2 client: the same batches on one stream of grpc.aio.

``python -m loadtest.stream_control`` starts a worker and prints, for both clients, the CPU time of this
process and of the worker for a batch with one review and four calls: one batch in flight, 500 batches a
second, and as many as possible with 16 in flight.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Protocol

import grpc
import orjson
import uvloop

from admission_gateway_worker.pb import worker_pb2
from gateway.engine.dispatch.dialer import Dialer
from gateway.engine.dispatch.transport import REVIEW_STREAM
from loadtest.measurement import cpu_clock
from loadtest.reviews import POD
from loadtest.servers import POLICIES, logged, start
from loadtest.worker import validating_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from gateway.engine.dispatch.rpc import CallStatus

CALLS: Final = 4
WINDOW_S: Final = 1.5
ROUNDS: Final = 3
LOADS: Final = (("1 in flight", 1, 0.0), ("500/s", 16, 500.0), ("16 in flight", 16, 0.0))
"""Name, batches in flight at most, and batches a second, where 0 stands for as many as possible."""


class Client(Protocol):
    """A stream to the worker."""

    def send(self, message: bytes) -> None:
        """Send a batch."""


class OwnClient:
    """The gateway's client."""

    def __init__(self, received: Callable[[bytes | bytearray], int]) -> None:
        self._received = received

    async def open(self, address: str) -> OwnClient:
        """Connect to the worker at *address*."""
        self._connection = await Dialer(f"ipv4:{address}", None, None).dial(REVIEW_STREAM, self)
        self.send = self._connection.send
        return self

    def received(self, message: bytes | bytearray) -> Iterator[int]:
        """Take an answer; yield how many calls it answers, for the CPU budget."""
        yield self._received(message)

    def writable(self) -> None:
        """Ignored: the windows are large enough."""

    def leaving(self) -> None:
        """Ignored."""

    def ended(self, status: CallStatus) -> None:
        """Ignored."""


class GrpcClient:
    """One stream of grpc.aio: a task reads, and a task writes what was queued."""

    def __init__(self, received: Callable[[bytes | bytearray], int]) -> None:
        self._received = received
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()

    async def open(self, address: str) -> GrpcClient:
        """Connect to the worker at *address*."""
        self._channel = grpc.aio.insecure_channel(address)
        method: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = self._channel.stream_stream(REVIEW_STREAM)
        self._call = method(self._messages())
        self._reader = asyncio.create_task(self._read())
        return self

    def send(self, message: bytes) -> None:
        """Send a batch."""
        self._queue.put_nowait(message)

    async def _messages(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._queue.get()

    async def _read(self) -> None:
        async for message in self._call:
            self._received(message)


class Load:
    """Sends batches, one for each answer or by the clock, and counts the answers."""

    def __init__(self) -> None:
        self.batches = 0
        self.in_flight = self.number = 0
        self.is_closed_loop = False
        self.client: Client | None = None
        self._payload = orjson.dumps(orjson.loads(POD.read_bytes())["request"])
        self._open_calls: dict[int, int] = {}

    def send(self) -> None:
        """Send one batch."""
        batch = worker_pb2.ReviewBatch()
        batch.payloads.add(admission_request=self._payload)
        self.number += 1
        for index in range(CALLS):
            batch.calls.add(
                id=self.number * CALLS + index, policy=validating_name(index), timeout_millis=10_000
            )
        self._open_calls[self.number] = CALLS
        self.in_flight += 1
        assert self.client is not None
        self.client.send(batch.SerializeToString())

    def received(self, message: bytes | bytearray) -> int:
        """Take an answer of the worker, and return its number of verdicts."""
        verdicts = worker_pb2.VerdictBatch.FromString(bytes(message)).verdicts
        for verdict in verdicts:
            assert verdict.response.allowed
            number = verdict.id // CALLS
            self._open_calls[number] -= 1
            if not self._open_calls[number]:
                del self._open_calls[number]
                self.batches += 1
                self.in_flight -= 1
                if self.is_closed_loop:
                    self.send()
        return len(verdicts)

    async def run(self, in_flight: int, rate: float) -> None:
        """Run for the length of a window."""
        end = time.perf_counter() + WINDOW_S
        self.is_closed_loop = not rate
        while self.is_closed_loop and self.in_flight < in_flight:
            self.send()
        while time.perf_counter() < end:
            if rate and self.in_flight < in_flight:
                self.send()
            await asyncio.sleep(1 / rate if rate else 0.05)
        self.is_closed_loop = False
        while self.in_flight:  # noqa: ASYNC110 - an event would be work for each batch
            await asyncio.sleep(0.001)


async def measure(address: str, worker: int) -> None:
    """Print the figures with the worker at *address*, whose process id is *worker*."""
    clock = cpu_clock(worker)
    loads = {}
    for kind in (OwnClient, GrpcClient):
        load = loads[kind.__name__] = Load()
        load.client = await kind(load.received).open(address)
        await load.run(1, 0.0)
    for title, in_flight, rate in LOADS:
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in loads}
        for _ in range(ROUNDS):
            for name, load in loads.items():
                before, own, theirs = load.batches, time.process_time(), time.clock_gettime(clock)
                await load.run(in_flight, rate)
                count = load.batches - before
                own_us = (time.process_time() - own) / count * 1e6
                found[name].append(
                    (own_us, (time.clock_gettime(clock) - theirs) / count * 1e6, count / WINDOW_S)
                )
        for name, rows in found.items():
            own_us, worker_us, batches = (statistics.median(column) for column in zip(*rows, strict=True))
            print(f"{title:<14} {name:<11} {own_us:7.1f} us  worker {worker_us:7.1f} us  {batches:7,.0f}/s")


def main() -> None:
    """Run the command line."""
    with ExitStack() as stack:
        process = start(
            stack, sys.executable, "-m", "loadtest.worker", "--listen", "127.0.0.1:0", "--grace", "0"
        )
        address = logged("the worker", process, POLICIES)
        uvloop.run(measure(address, process.child.pid))


if __name__ == "__main__":
    main()
