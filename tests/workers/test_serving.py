"""Addresses, TLS, health, and the order of stopping, with real sockets."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import trustme
import uvloop
from grpc import aio

from admission_gateway_worker import PolicyServer, Review, connection
from admission_gateway_worker.listen import StartError, Tls
from admission_gateway_worker.pb import worker_pb2 as pb
from tests.kit import PATIENCE_S
from tests.waiting import until
from tests.workers.raw_client import Connect, connections

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVENT_LOOPS = ("uvloop",)

NAME = "admissiongateway.worker.v1.PolicyWorker"
REVIEW = f"/{NAME}/Review"


def server_of(**policies: Any) -> PolicyServer:
    server = PolicyServer()
    for name, function in policies.items():
        server.policy(name)(function)
    return server


def review_on(channel: aio.Channel) -> Any:
    return channel.unary_unary(REVIEW)


def allow(review: Review) -> None:
    pass


def test_a_free_port_is_chosen_and_returned() -> None:
    async def scenario() -> None:
        server = server_of(allow=allow)
        [address] = await server.start("127.0.0.1:0")
        assert int(address.removeprefix("127.0.0.1:")) > 0
        async with aio.insecure_channel(address) as channel:
            message = pb.ReviewRequest(policy="allow", admission_request=b"{}").SerializeToString()
            answer = pb.ReviewResponse.FromString(await review_on(channel)(message, timeout=PATIENCE_S))
            assert answer.allowed
        await server.stop()

    asyncio.run(scenario())


async def test_a_server_starts_once_and_again_after_a_stop(folder: Path) -> None:
    server = server_of(allow=allow)
    assert await server.stop() == 0
    await server.start(f"unix:{folder}/a")
    with pytest.raises(RuntimeError, match="is already started"):
        await server.start(f"unix:{folder}/b")
    await server.stop()
    await server.start(f"unix:{folder}/a", f"unix:{folder}/b")
    assert "policies=1" in repr(server)
    await server.stop()
    assert not list(folder.iterdir())


class Pki:
    """A CA, the files of a server, and a client's certificate."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.client = self.ca.issue_cert("client@example.org")
        self.ca_file, self.cert, self.key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        issued = self.ca.issue_cert("localhost")
        self.ca.cert_pem.write_to_path(self.ca_file)
        issued.private_key_pem.write_to_path(self.key)
        issued.cert_chain_pems[0].write_to_path(self.cert)

    def channel(self, address: str, *, with_client: bool) -> aio.Channel:
        key = self.client.private_key_pem.bytes() if with_client else None
        chain = self.client.cert_chain_pems[0].bytes() if with_client else None
        secret = grpc.ssl_channel_credentials(self.ca.cert_pem.bytes(), key, chain)
        return aio.secure_channel(address.replace("127.0.0.1", "localhost"), secret)


@pytest.mark.parametrize(
    ("ask", "show", "served"), [(False, False, True), (True, True, True), (True, False, False)]
)
async def test_tls_with_and_without_client_certificates(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, ask: bool, show: bool, served: bool
) -> None:
    # Clients of grpc close their connections late.
    monkeypatch.setattr("admission_gateway_worker.serving.CLOSE_S", 0.0)
    pki = Pki(folder)
    server = server_of(allow=allow)
    tls = Tls(pki.cert, pki.key, pki.ca_file if ask else None)
    [address] = await server.start("127.0.0.1:0", tls=tls)
    message = pb.ReviewRequest(policy="allow", admission_request=b"{}").SerializeToString()
    async with pki.channel(address, with_client=show) as channel:
        call = review_on(channel)(message, timeout=PATIENCE_S)
        assert (await call.code() is grpc.StatusCode.OK) == served
    await server.stop()


async def test_broken_tls_files_are_named(folder: Path) -> None:
    pki = Pki(folder)
    text = folder / "text"
    text.write_text("no PEM")
    other = trustme.CA().issue_cert("localhost")
    other.private_key_pem.write_to_path(folder / "other.pem")
    cases = [
        (Tls(folder / "absent", pki.key), r"absent: No such file"),
        (Tls(text, pki.key), r"text and .*key.pem are not a PEM certificate and its key"),
        (Tls(pki.cert, folder / "other.pem"), r"are not a PEM certificate and its key"),
        (Tls(pki.cert, pki.key, text), r"text holds no PEM certificate"),
    ]
    for tls, message in cases:
        with pytest.raises(StartError, match=message):
            await server_of(allow=allow).start("127.0.0.1:0", tls=tls)


class Slow:
    """A policy that answers when its gate opens."""

    def __init__(self) -> None:
        self.started, self.gate = asyncio.Event(), asyncio.Event()
        self.cancelled = False

    async def __call__(self, review: Review) -> None:
        self.started.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def test_calls_are_cancelled_after_the_grace_period(serve: Any) -> None:
    slow = Slow()
    server = server_of(slow=slow)
    async with serve(server) as worker:
        stream = worker.stream()
        await stream.send(calls=[(1, "slow")])
        await slow.started.wait()
        await server.stop(0.01)
        assert slow.cancelled


async def test_a_unary_call_in_flight_is_finished_too(serve: Any) -> None:
    slow = Slow()
    server = server_of(slow=slow)
    async with serve(server) as worker:
        call = asyncio.create_task(worker.unary("slow"))
        await slow.started.wait()
        stopping = asyncio.create_task(server.stop(PATIENCE_S))
        await asyncio.sleep(0)
        slow.gate.set()
        assert (await call).allowed
        await stopping


@pytest.mark.parametrize(
    "new_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"]
)
def test_handshakes_that_do_not_end_keep_nobody_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    pki = Pki(folder)
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 8)

    async def scenario() -> None:
        server = server_of(allow=allow)
        [address] = await server.start("127.0.0.1:0", tls=Tls(pki.cert, pki.key))
        port = int(address.rpartition(":")[2])
        message = pb.ReviewRequest(policy="allow", admission_request=b"{}").SerializeToString()
        async with pki.channel(address, with_client=False) as channel:
            before = await review_on(channel)(message, timeout=PATIENCE_S)
            # Of another client, whose handshakes never end.
            hung = [
                await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
                for _ in range(3 * connection.MAX_CONNECTIONS)
            ]
            first = hung[: -connection.MAX_CONNECTIONS]
            ends = await asyncio.gather(*(reader.read() for reader, _ in first), return_exceptions=True)
            assert all(end == b"" or isinstance(end, ConnectionError) for end in ends)
            async with pki.channel(address, with_client=False) as later:
                for one in (channel, later):
                    assert await review_on(one)(message, timeout=PATIENCE_S) == before
            open_ = connections(server)
            assert len(open_.open) + len(open_.handshakes) <= connection.MAX_CONNECTIONS
            for _, writer in hung:
                writer.close()
            await until(lambda: not open_.handshakes)
        await server.stop()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


async def test_a_worker_without_file_descriptors_keeps_fewer_connections(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LEAST_CONNECTIONS", 4)
    accepted = socket.socket.accept
    refusals = iter([OSError(errno.EMFILE, "Too many open files")])

    def accept(sock: socket.socket) -> object:
        for error in refusals:
            raise error
        return accepted(sock)

    server = server_of(allow=allow)
    async with connect(server) as client:
        first = [await client() for _ in range(10)]
        for one in first:
            await one.frame()
        monkeypatch.setattr(socket.socket, "accept", accept)
        last = await client()
        await last.frame()
        await until(lambda: len(connections(server).open) == 6)
        for one in first[:4]:
            assert await one.ended()


async def test_a_stop_ends_handshakes(folder: Path) -> None:
    pki = Pki(folder)
    server = server_of(allow=allow)
    [address] = await server.start("127.0.0.1:0", tls=Tls(pki.cert, pki.key))
    reader, writer = await asyncio.open_connection(*address.split(":"))
    await until(lambda: connections(server).handshakes)
    await server.stop(0)
    with suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
