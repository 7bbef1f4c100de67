"""A worker as a program: real processes, real signals."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import grpc
import pytest
import trustme
import uvloop
from grpc import aio

from admission_gateway_worker import PolicyServer
from admission_gateway_worker.main import parse_options
from admission_gateway_worker.pb import worker_pb2 as pb
from tests.kit import PATIENCE_S
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
REVIEW = "/admissiongateway.worker.v1.PolicyWorker/Review"
STREAM = "/admissiongateway.worker.v1.PolicyWorker/ReviewStream"
PROGRAM = """
import asyncio, os, pathlib, time
from admission_gateway_worker import PolicyServer, Review

server = PolicyServer()

@server.policy("pid")
def pid(review: Review) -> None:
    review.annotate("pid", str(os.getpid()))

@server.policy("waits")
async def waits(review: Review) -> None:
    while not pathlib.Path(review.request["file"]).exists():
        await asyncio.sleep(0.01)

@server.policy("blocks", blocking=True)
def blocks(review: Review) -> None:
    time.sleep(600)

server.main()
"""


@pytest.fixture
def program(folder: Path) -> Path:
    path = folder / "program.py"
    path.write_text(PROGRAM)
    return path


@contextmanager
def worker(*command: object) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """Run ``python COMMAND``; it is killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, *map(str, command)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stderr is not None
    try:
        yield process, process.stderr
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def address_of(line: str) -> str:
    assert line.startswith("worker: serving 3 policies on "), line
    return line.rpartition(" on ")[2].strip()


def message(policy: str, request: bytes = b"{}") -> bytes:
    return pb.ReviewRequest(policy=policy, admission_request=request).SerializeToString()


async def ask(channel: aio.Channel, policy: str, request: bytes = b"{}") -> pb.ReviewResponse:
    call: Any = channel.unary_unary(REVIEW, response_deserializer=pb.ReviewResponse.FromString)
    answer = await call(message(policy, request), timeout=PATIENCE_S, wait_for_ready=True)
    assert isinstance(answer, pb.ReviewResponse)
    return answer


@pytest.mark.process
def test_the_samples_run_as_a_module_and_stop_on_sigterm(folder: Path) -> None:
    path = folder / "worker.sock"
    with worker("-m", "admission_gateway_worker.samples", "--listen", f"unix:{path}") as (process, stderr):
        assert stderr.readline() == f"worker: serving 12 policies on unix:{path}\n"
        assert path.is_socket()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert stderr.read() == ""
        assert not path.exists()


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_finishes_calls_in_flight(program: Path, number: signal.Signals) -> None:
    noticed = program.with_name("noticed")
    with worker(program, "--listen", "127.0.0.1:0", "--grace", "300") as (process, stderr):
        address = address_of(stderr.readline())

        async def scenario() -> None:
            async with aio.insecure_channel(address) as channel:
                stream: Any = channel.stream_stream(
                    STREAM, response_deserializer=pb.VerdictBatch.FromString
                )()
                payload = pb.Payload(admission_request=json.dumps({"file": str(noticed)}).encode())
                call = pb.Call(id=1, policy="waits", timeout_millis=250_000)
                await stream.write(pb.ReviewBatch(payloads=[payload], calls=[call]).SerializeToString())
                await ask(channel, "pid")
                process.send_signal(number)
                assert (await stream.read()).draining
                noticed.touch()
                [verdict] = (await stream.read()).verdicts
                assert verdict.response.allowed
                await stream.done_writing()
                assert await stream.read() is aio.EOF
                assert await stream.code() is grpc.StatusCode.OK

        uvloop.run(scenario())
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.process
def test_the_second_signal_ends_it_at_once(program: Path) -> None:
    with worker(program, "--listen", "127.0.0.1:0", "--grace", "300") as (process, stderr):
        address = address_of(stderr.readline())

        async def scenario() -> None:
            async with aio.insecure_channel(address) as channel:
                stream: Any = channel.stream_stream(
                    STREAM, response_deserializer=pb.VerdictBatch.FromString
                )()
                payload = pb.Payload(admission_request=b'{"file": "/nowhere"}')
                call = pb.Call(id=1, policy="waits", timeout_millis=250_000)
                await stream.write(pb.ReviewBatch(payloads=[payload], calls=[call]).SerializeToString())
                await ask(channel, "pid")
                process.send_signal(signal.SIGTERM)
                assert (await stream.read()).draining
                process.send_signal(signal.SIGTERM)
                assert await stream.code() is grpc.StatusCode.UNAVAILABLE

        uvloop.run(scenario())
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM


@pytest.mark.process
def test_the_grace_bounds_the_stop_even_with_a_thread_that_never_ends(program: Path) -> None:
    with worker(program, "--listen", "127.0.0.1:0", "--grace", "0.1") as (process, stderr):
        address = address_of(stderr.readline())

        async def scenario() -> None:
            async with aio.insecure_channel(address) as channel:
                await ask(channel, "pid")  # calls that wait for the connection leave in any order
                method: Any = channel.unary_unary(REVIEW)
                blocked = method(message("blocks"), timeout=PATIENCE_S)
                await ask(channel, "pid")
                process.send_signal(signal.SIGTERM)
                assert await blocked.code() is not grpc.StatusCode.OK

        uvloop.run(scenario())
        assert process.wait(PATIENCE_S) == 0
        assert "exiting while 1 policies still run in threads" in stderr.read()


@pytest.mark.process
def test_a_taken_port_is_one_line_and_status_1(program: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for more in ([], ["--processes", "2"]):
            with worker(program, "--listen", address, *more) as (process, stderr):
                assert process.wait(PATIENCE_S) == 1
                assert stderr.read() == f"worker: {address}: Address already in use\n"


@pytest.mark.process
def test_several_processes_share_a_port_and_are_restarted(program: Path) -> None:
    with worker(program, "--listen", "127.0.0.1:0", "--processes", "2") as (process, stderr):
        address = address_of(stderr.readline())

        async def pids(enough: Callable[[set[int]], bool]) -> set[int]:
            """Return the process ids of answers, each over a new connection, until *enough* holds."""
            found: set[int] = set()
            async with asyncio.timeout(PATIENCE_S):
                while not enough(found):
                    options = [("grpc.use_local_subchannel_pool", 1)]
                    async with aio.insecure_channel(address, options=options) as channel:
                        found.add(int((await ask(channel, "pid")).audit_annotations["pid"]))
            return found

        first = uvloop.run(pids(lambda found: len(found) == 2))
        assert process.pid not in first
        os.kill(min(first), signal.SIGKILL)
        assert "exited with status -9; restarting" in stderr.readline()
        assert uvloop.run(pids(lambda found: bool(found - first))) - first
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.process
def test_processes_end_with_their_parent(program: Path) -> None:
    with worker(program, "--listen", "127.0.0.1:0", "--processes", "2") as (process, stderr):
        address = address_of(stderr.readline())
        process.kill()
        process.wait()
        # The children hold the other end of stderr until they end, and the port a little longer.
        assert stderr.read() == ""
        host, port = address.rsplit(":", 1)

        def is_refused() -> bool:
            with socket.socket() as client:
                return client.connect_ex((host, int(port))) == errno.ECONNREFUSED

        eventually(is_refused)


@pytest.mark.process
def test_tls_from_the_command_line(program: Path, folder: Path) -> None:
    ca = trustme.CA()
    issued, client = ca.issue_cert("localhost"), ca.issue_cert("gateway@example.org")
    ca.cert_pem.write_to_path(folder / "ca.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    files = [
        "--tls-cert",
        folder / "cert.pem",
        "--tls-key",
        folder / "key.pem",
        "--client-ca",
        folder / "ca.pem",
    ]
    with worker(program, "--listen", "localhost:0", *files) as (process, stderr):
        address = address_of(stderr.readline())
        secret = grpc.ssl_channel_credentials(
            ca.cert_pem.bytes(), client.private_key_pem.bytes(), client.cert_chain_pems[0].bytes()
        )

        async def scenario() -> None:
            async with aio.secure_channel(address, secret) as channel:
                assert (await ask(channel, "pid")).allowed

        uvloop.run(scenario())
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--listen", "nonsense"], "argument --listen: 'nonsense' is not an address"),
        (["--listen", "a:1", "--listen", "a:1"], "--listen has the same address twice"),
        (["--processes", "0"], "argument --processes: '0' is not a number from 1"),
        (["--processes", "2", "--listen", "unix:a"], "--processes needs HOST:PORT"),
        (["--grace", "-1"], "argument --grace: '-1' is not a number of seconds"),
        (["--grace", "nan"], "'nan' is not a number of seconds"),
        (["--tls-cert", "a"], "--tls-cert and --tls-key go together"),
        (["--tls-key", "a"], "--tls-cert and --tls-key go together"),
        (["--client-ca", "a"], "--client-ca needs --tls-cert"),
        (["--tls-cert", "a", "--tls-key", "b", "--listen", "unix:a"], "TLS needs HOST:PORT"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["nonsense"], "unrecognized arguments: nonsense"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_options(argv)
    assert caught.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("worker: ")
    assert message in line


def test_the_defaults() -> None:
    options = parse_options([])
    assert (options.listen, options.processes, options.tls, options.grace_s) == (
        ("127.0.0.1:50051",),
        1,
        None,
        10.0,
    )


def test_a_worker_without_a_policy_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        PolicyServer().main([])
    assert caught.value.code == 1
    assert capsys.readouterr().err.startswith("worker: no policy is registered")


def test_broken_tls_files_are_status_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = PolicyServer()
    server.policy("allow")(lambda review: None)
    absent = str(folder / "absent.pem")
    with pytest.raises(SystemExit) as caught:
        server.main(["--listen", "127.0.0.1:0", "--tls-cert", absent, "--tls-key", absent])
    assert caught.value.code == 1
    assert capsys.readouterr().err == f"worker: {absent}: No such file or directory\n"
