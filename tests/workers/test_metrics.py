"""The metrics of a worker, its log of failures, and the trace context that policies get."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from admission_gateway_worker import Denied, PolicyServer, Review
from admission_gateway_worker.invoke import run
from admission_gateway_worker.listen import StartError
from admission_gateway_worker.pb import worker_pb2 as pb
from tests.workers.conftest import POD, Worker, stop_at_once

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

ROOT = Path(__file__).parents[2]
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Return a test that runs *test* on an event loop."""

    @functools.wraps(test)
    def run_it(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run_it


class Measured:
    """A server with metrics."""

    def __init__(self, server: PolicyServer, worker: Worker) -> None:
        self.server = server
        self.worker = worker

    async def http(self, request: bytes) -> bytes:
        """Return the answer to *request*, with its head."""
        return await http(self.server.metrics_address, request)

    async def value(self, name: str, **labels: str) -> float:
        """Return the value of a sample."""
        return value(await self.http(b"GET /metrics HTTP/1.1\r\n\r\n"), name, **labels)


async def http(address: str, request: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def value(answer: bytes, name: str, **labels: str) -> float:
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4")
    samples = [sample for family in text_string_to_metric_families(body) for sample in family.samples]
    [found] = [
        sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return found


REVIEWS = "admission_gateway_worker_policy_reviews_total"
IN_FLIGHT = "admission_gateway_worker_policy_in_flight"
DURATION = "admission_gateway_worker_policy_duration_seconds"


@asynccontextmanager
async def measuring(folder: Path) -> AsyncIterator[Measured]:
    """Serve policies with metrics."""
    server = PolicyServer()
    server.policy("allow")(lambda review: None)

    @server.policy("deny")
    def deny(review: Review) -> None:
        raise Denied(f"[{review.traceparent}]")

    @server.policy("fail")
    async def fail(review: Review) -> None:
        await asyncio.sleep(0)
        raise ValueError("it broke")

    @server.policy("wait")
    async def wait(review: Review) -> None:
        await asyncio.Event().wait()  # until the call is cancelled

    address = f"unix:{folder}/socket"
    await server.start(address, metrics_listen="127.0.0.1:0")
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield Measured(server, Worker(channel, address))
    finally:
        await stop_at_once(server)


@on_loop
async def test_reviews_are_counted_by_outcome(folder: Path) -> None:
    async with measuring(folder) as measured:
        assert await measured.value(REVIEWS, policy="allow", outcome="allowed") == 0
        for _ in range(2):
            await measured.worker.unary("allow")
            await measured.worker.streamed("allow")
        await measured.worker.streamed("deny")
        await measured.worker.unary("fail")
        await measured.worker.unary("unknown")
        assert await measured.value(REVIEWS, policy="allow", outcome="allowed") == 4
        assert await measured.value(REVIEWS, policy="allow", outcome="error") == 0
        assert await measured.value(REVIEWS, policy="deny", outcome="denied") == 1
        assert await measured.value(REVIEWS, policy="fail", outcome="error") == 1
        assert await measured.value(f"{DURATION}_count", policy="allow") == 4
        assert await measured.value(f"{DURATION}_bucket", policy="allow", le="+Inf") == 4
        assert await measured.value(f"{DURATION}_sum", policy="allow") > 0
        assert await measured.value("admission_gateway_worker_build_info", sdk="python") == 1
        assert await measured.value("process_cpu_seconds_total") > 0
        assert b"unknown" not in await measured.http(b"GET /metrics HTTP/1.1\r\n\r\n")


@on_loop
async def test_calls_in_flight_and_cancelled_calls(folder: Path) -> None:
    async with measuring(folder) as measured:
        stream = measured.worker.stream()
        await stream.send(pb.Payload(admission_request=POD), [(1, "wait"), (2, "wait")])

        async def in_flight(count: int) -> bool:
            return await measured.value(IN_FLIGHT, policy="wait") == count

        await until_true(lambda: in_flight(2))
        await stream.send(cancelled=[1])
        await until_true(lambda: in_flight(1))
        stream.call.cancel()
        await until_true(lambda: in_flight(0))
        with suppress(grpc.aio.AioRpcError):
            await measured.worker.unary("wait", timeout_s=0.05)
        await until_true(lambda: in_flight(0))
        assert await measured.value(REVIEWS, policy="wait", outcome="allowed") == 0


async def until_true(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.01)


@on_loop
async def test_a_call_that_exceeds_its_deadline_is_an_error(folder: Path) -> None:
    async with measuring(folder) as measured:
        stream = measured.worker.stream()
        await stream.send(pb.Payload(admission_request=POD), [(1, "wait")], timeout_ms=20)
        await stream.receive()
        assert await measured.value(REVIEWS, policy="wait", outcome="error") == 1
        assert await measured.value(IN_FLIGHT, policy="wait") == 0
        await stream.close()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET / HTTP/1.1", b"404"),
        (b"POST /metrics HTTP/1.1", b"405"),
        (b"HEAD /metrics HTTP/1.1", b"200"),
        (b"GET /metrics?x HTTP/1.0", b"200"),
        (b"garbage", b"404"),
    ],
)
@on_loop
async def test_only_the_metrics_are_served(folder: Path, request_line: bytes, status: bytes) -> None:
    async with measuring(folder) as measured:
        answer = await measured.http(request_line + b"\r\nhost: x\r\n\r\n")
        assert answer.split(b" ")[1] == status


@on_loop
async def test_a_large_request_is_not_read(folder: Path) -> None:
    async with measuring(folder) as measured:
        with suppress(ConnectionError):
            assert await measured.http(b"x" * 100_000) == b""
        assert await measured.value(IN_FLIGHT, policy="wait") == 0


@on_loop
async def test_a_taken_port_is_named_with_its_option(folder: Path) -> None:
    async with measuring(folder) as measured:
        server = PolicyServer()
        server.policy("allow")(lambda review: None)
        taken = measured.server.metrics_address
        with pytest.raises(StartError, match=f"^--metrics-listen: {taken}: Address already in use$"):
            await server.start("127.0.0.1:0", metrics_listen=taken)
        with pytest.raises(ValueError, match="HOST:PORT is expected"):
            await server.start("127.0.0.1:0", metrics_listen="unix:x")


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (TRACEPARENT, TRACEPARENT),
        ("", ""),
        ("garbage", ""),
        (TRACEPARENT[1:], ""),
        (TRACEPARENT + "0", ""),
        (TRACEPARENT.upper(), ""),
        ("ff" + TRACEPARENT[2:], ""),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", ""),
        (f"00-{TRACE_ID}-{'0' * 16}-01", ""),
        ("x" * 5000, ""),
    ],
)
@on_loop
async def test_policies_get_a_valid_traceparent_by_both_methods(folder: Path, sent: str, found: str) -> None:
    async with measuring(folder) as measured:
        message = pb.ReviewRequest(policy="deny", admission_request=POD).SerializeToString()
        answer = await measured.worker.review(message, metadata=[("traceparent", sent)])
        assert answer.status.message == f"[{found}]"
        stream = measured.worker.stream()
        call = pb.Call(id=1, policy="deny", timeout_millis=10_000, traceparent=sent)
        await stream.call.write(pb.ReviewBatch(payloads=[pb.Payload(admission_request=POD)], calls=[call]))
        [verdict] = (await stream.receive()).verdicts
        assert verdict.response.status.message == f"[{found}]"
        await stream.close()
        assert Review.from_json(POD, traceparent=sent).traceparent == found


def test_the_log_of_a_failure_has_uid_trace_and_error(caplog: pytest.LogCaptureFixture) -> None:
    server = PolicyServer()

    @server.policy("fail")
    def fail(review: Review) -> None:
        raise ValueError('bang\n"quoted"')

    review = Review(b'{"uid": "u-1", "object": {"data": "s3cret"}}', traceparent=TRACEPARENT)
    run(server.policies["fail"], review)
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == (
        rf'policy failed: policy="fail" uid="u-1" trace_id="{TRACE_ID}" error="ValueError: bang\n\"quoted\""'
    )


PROGRAM = """
from admission_gateway_worker import PolicyServer, Review

server = PolicyServer()

@server.policy("allow")
def allow(review: Review) -> None:
    pass

@server.policy("fail")
def fail(review: Review) -> None:
    raise ValueError("bang\\n2026-01-01T00:00:00.000Z ERROR worker: forged \\x1b[31m\\u2028")

server.main()
"""


@pytest.mark.process
@pytest.mark.parametrize("processes", [1, 3])
@on_loop
async def test_a_program_serves_the_metrics_of_its_processes(folder: Path, processes: int) -> None:
    path = folder / "program.py"
    path.write_text(PROGRAM)
    command = [sys.executable, str(path), "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
    with subprocess.Popen(  # noqa: ASYNC220 - short, and nothing else runs
        [*command, "--processes", str(processes)], stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as worker:
        assert worker.stderr is not None
        found = re.fullmatch(r"worker: metrics on http://(.*)/metrics\n", worker.stderr.readline())
        assert found is not None
        address = worker.stderr.readline().rpartition(" ")[2].strip()
        for count in range(20):
            # A channel of its own: the kernel chooses a process for each connection.
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with grpc.aio.insecure_channel(address, options=options) as channel:
                await Worker(channel, address).unary("allow", b'{"uid": "u"}')
                if count == 0:
                    await Worker(channel, address).unary("fail", b'{"uid": "u"}')
        answer = await http(found[1], b"GET /metrics HTTP/1.1\r\n\r\n")
        assert value(answer, REVIEWS, policy="allow", outcome="allowed") == 20
        assert value(answer, REVIEWS, policy="fail", outcome="error") == 1
        assert value(answer, "process_cpu_seconds_total") > 0
        assert value(answer, "process_open_fds") > 0
        worker.terminate()
        lines = worker.stderr.read().splitlines()
    assert worker.returncode == 0
    assert re.fullmatch(
        r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ERROR worker: policy failed: policy="fail" uid="u" '
        r'error="ValueError: bang\\n2026-01-01T00:00:00.000Z ERROR worker: forged \\u001b\[31m\\u2028"',
        lines[0],
    )
    assert len(lines) > 3
    assert all(line.startswith("    | ") and line.isprintable() for line in lines[1:])
