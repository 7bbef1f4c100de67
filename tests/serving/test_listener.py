"""Listening sockets, the bound on connections, and the drain."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.base.errors import ConfigError
from gateway.server.serving.bounds import Bounds
from gateway.server.serving.connection_table import ConnectionTable
from gateway.server.serving.listener import Listener, SharedSockets
from gateway.server.serving.routes import Router
from gateway.server.serving.sockets import FRONT_END, open_sockets, share_port
from tests.kit import PATIENCE_S
from tests.serving.kit import (
    CLOSE,
    PATHS,
    Application,
    Clock,
    connected,
    listening,
    ok,
    post,
    refused,
    serving,
)
from tests.waiting import until

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from gateway.server.serving.tls import ServerCertificate

EVENT_LOOPS = ("asyncio", "uvloop")

DRAINING = refused(
    b"503 Service Unavailable", "this replica is about to stop, try again", b"Retry-After: 1\r\n" + CLOSE
)


async def test_address_in_use_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        listener = Listener(address, ConnectionTable(Router(Application(), PATHS)))
        with pytest.raises(ConfigError) as raised:
            await listener.start()
    assert str(raised.value) == f"cannot listen on {address}: Address already in use"


@pytest.mark.parametrize("address", ["[::1]:0", "localhost:0", "[::]:0"])
async def test_every_form_of_address_is_served(address: str) -> None:
    listener = Listener(address, ConnectionTable(Router(Application(), PATHS)))
    await listener.start()
    host = "::1" if "::1" in address else "127.0.0.1"
    reader, writer = await asyncio.open_connection(host, listener.port)
    writer.write(post(b"1"))
    assert await asyncio.wait_for(reader.readexactly(len(ok(b"m:1"))), PATIENCE_S) == ok(b"m:1")
    writer.close()
    await listener.close()


def abandoned(path: Path) -> None:
    """Leave a socket file, like a killed process."""
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
        killed.listen()


async def test_socket_file_of_a_killed_process_is_replaced_and_removed_at_the_end(tmp_path: Path) -> None:
    abandoned(tmp_path / "s")
    listener = Listener(f"unix:{tmp_path}/s", ConnectionTable(Router(Application(), PATHS)))
    await listener.start()
    reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
    writer.write(post(b"1"))
    assert await asyncio.wait_for(reader.readexactly(len(ok(b"m:1"))), PATIENCE_S) == ok(b"m:1")
    writer.close()
    await listener.close()
    assert list(tmp_path.iterdir()) == []


def test_socket_file_in_use_is_left_alone(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "s"))
        other.listen()
        with pytest.raises(ConfigError, match="Address already in use"):
            open_sockets(f"unix:{tmp_path}/s")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))


def test_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("precious")
    with pytest.raises(ConfigError, match="Address already in use"):
        open_sockets(f"unix:{tmp_path}/s")
    assert (tmp_path / "s").read_text() == "precious"


async def test_unix_socket_is_served(tmp_path: Path) -> None:
    address = tmp_path / "s"
    listener = Listener(f"unix:{address}", ConnectionTable(Router(Application(), PATHS)))
    await listener.start()
    reader, writer = await asyncio.open_unix_connection(str(address))
    writer.write(post(b"1"))
    assert await asyncio.wait_for(reader.readexactly(len(ok(b"m:1"))), PATIENCE_S) == ok(b"m:1")
    assert [repr(c) for c in listener.connections.open] == [
        "<HttpConnection local, HTTP/1.1, idle, 1 requests>"
    ]
    writer.close()
    await listener.close()


@pytest.mark.parametrize("address", ["127.0.0.1:x", "no-such-host.invalid:1", "192.0.2.1:1"])
def test_address_that_cannot_be_bound_is_a_clear_error(address: str) -> None:
    with pytest.raises(ConfigError, match=rf"^cannot listen on {address}: \S+"):
        open_sockets(address)


@contextlib.contextmanager
def shared_port(address: str, processes: int) -> Iterator[Callable[[int], Listener]]:
    """Give a function that returns the listener of one of several processes, by its number.

    Each has its own copies of the sockets, as a process has.
    """
    sockets = [share_port(address, FRONT_END)]
    port = sockets[0][0].getsockname()[1]
    host = address.rpartition(":")[0]
    sockets += [share_port(f"{host}:{port}", FRONT_END) for _ in range(processes - 1)]

    def listener_of(number: int) -> Listener:
        copies = [[sock.dup() for sock in of_process] for of_process in sockets]
        own = copies.pop(number)
        shared = SharedSockets(own, [sock for of_process in copies for sock in of_process])
        table = ConnectionTable(Router(Application(), PATHS), Bounds(drain_quiet_s=0.01))
        return Listener(address, table, shared=shared)

    yield listener_of
    for sock in (sock for of_process in sockets for sock in of_process):
        sock.close()


async def answered(listener: Listener, times: int) -> None:
    """Have *listener*, or the others of its address, answer on as many connections."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(listener, None)) for _ in range(times)]
        for client in clients:
            await client.send(post(b"1"))
        for client in clients:
            await client.expect(ok(b"m:1"))


async def test_processes_share_an_address() -> None:
    with shared_port("127.0.0.1:0", 2) as listener_of:
        first, second = listener_of(0), listener_of(1)
        await first.start()
        await answered(first, 10)
        assert (first.accepted, second.accepted) == (10, 0)
        await second.start()
        await answered(first, 40)
        assert first.accepted + second.accepted == 50
        assert first.accepted > 10
        assert second.accepted
        await first.close()
        await second.close()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0", "[::]:0"])
@pytest.mark.parametrize("ended", [{0}, {1}, {0, 1}])
async def test_connections_at_the_sockets_of_ended_processes_are_answered(
    address: str, ended: set[int]
) -> None:
    """By the other process, or by the next one, whichever number that has."""
    with shared_port(address, 2) as listener_of:
        listeners = [listener_of(0), listener_of(1)]
        for listener in listeners:
            await listener.start()
        port = listeners[0].port
        for number in ended:
            await listeners[number].close()
        async with contextlib.AsyncExitStack() as stack:
            host = "127.0.0.1" if "." in address else "::1"
            streams = [await asyncio.open_connection(host, port) for _ in range(20)]
            for _, writer in streams:
                stack.callback(writer.close)
                writer.write(post(b"1"))
            if ended == {0, 1}:
                listeners[1] = listener_of(1)
                await listeners[1].start()
            for reader, _ in streams:
                found = await asyncio.wait_for(reader.readexactly(len(ok(b"m:1"))), PATIENCE_S)
                assert found == ok(b"m:1")
        for listener in listeners:
            await listener.close()


async def test_a_drain_answers_what_waits_at_the_sockets_of_ended_processes() -> None:
    with shared_port("127.0.0.1:0", 2) as listener_of:
        first, second = listener_of(0), listener_of(1)
        await first.start()
        await second.start()
        port = first.port
        await second.close()
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in streams:
            writer.write(post(b"1"))
        draining = asyncio.create_task(first.drain(PATIENCE_S))
        for reader, writer in streams:
            answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
            assert answer.endswith(DRAINING)
            writer.close()
        await draining


async def test_above_the_bound_new_connections_wait_for_room(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    bounds = Bounds(connections=2)
    async with (
        # Otherwise a sweep ends idle connections after a second, to make room.
        serving(Router(Application(), PATHS), None, None, bounds, Clock()) as (listener, first),
        connected(listener, None) as second,
    ):
        for client in (first, second):
            await client.send(post(b"1"))
            await client.expect(ok(b"m:1"))
        async with connected(listener, None) as third:
            await third.send(post(b"3"))
            await until(lambda: "not accepting" in repr(listener))
            listener.tick()
            assert len(listener.connections.open) == 2
            await first.close()
            await third.expect(ok(b"m:3"))
    assert listener.accepted == 3
    assert "connection limit reached, new connections wait" in caplog.text


async def test_checks_run_with_the_sweep() -> None:
    ran: list[int] = []
    connections = ConnectionTable(Router(Application(), PATHS))
    listener = Listener("127.0.0.1:0", connections, checks=[lambda: ran.append(1)])
    await listener.start()
    listener.tick()
    assert ran == [1]
    await listener.close()
    listener.tick()
    assert ran == [1]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_silent_client_is_dropped_in_the_handshake(certificate: ServerCertificate) -> None:
    bounds = Bounds(handshake_s=0.05)
    async with listening(Router(Application(), PATHS), certificate, bounds) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        await until(lambda: listener.failed_handshakes == 1)
        writer.close()


async def test_failed_handshakes_leave_no_file_open(certificate: ServerCertificate) -> None:
    async def fail_handshakes(listener: Listener, count: int) -> None:
        expected = listener.failed_handshakes + count
        for attempt in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            if attempt % 2:
                writer.write(post(b"1"))
            writer.close()
        await until(lambda: listener.failed_handshakes == expected)

    async with listening(Router(Application(), PATHS), certificate) as listener:
        await fail_handshakes(listener, 2)  # the loop opens files of its own on first use
        await asyncio.sleep(0)
        before = open_files()
        await fail_handshakes(listener, 20)
        await until(lambda: open_files() <= before)
        assert listener.connections.handshaking == 0


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the connection has been closed or aborted."""
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
    except ConnectionError:
        return True


async def test_the_oldest_silent_client_makes_room(
    certificate: ServerCertificate, client_tls: ssl.SSLContext
) -> None:
    """Clients that are silent before or after the handshake, send half a head, or are refused."""
    silent, shaken, slow, lost = "silent", "shaken", "slow", "/other"

    async def open_one(listener: Listener, kind: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls = None if kind == silent else client_tls
        name = None if tls is None else "localhost"
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", listener.port, ssl=tls, server_hostname=name
        )
        if kind == slow:
            writer.write(post(b"1")[:40])
        if kind == lost:
            writer.write(post(b"1", lost.encode()))
            await reader.readuntil(b"}")
        return reader, writer

    app = Application(holds=True)
    bounds = Bounds(unproven=4, unproven_s=0)
    async with (
        serving(Router(app, PATHS), certificate, client_tls, bounds) as (listener, idle),
        connected(listener, client_tls) as busy,
    ):
        for client, number in ((idle, b"1"), (busy, b"2")):
            await client.send(post(number))
            await until(lambda: len(app.seen) and app.seen[-1].request.body == number)  # noqa: B023
        app.seen[0].respond(200, b"1")
        await idle.expect(ok(b"1"))
        others = [await open_one(listener, kind) for kind in (silent, shaken, slow, lost)]
        for reader, _ in list(others):
            assert len(listener.connections.unproven) == 4
            others.append(await open_one(listener, silent))
            assert await is_closed(reader)
        await until(lambda: "2 open, 4 in handshake" in repr(listener))
        await idle.send(post(b"3"))
        await until(lambda: len(app.seen) == 3)
        app.seen[1].respond(200, b"2")
        await busy.expect(ok(b"2"))
        for _, writer in others:
            writer.close()
        await until(lambda: not listener.connections.unproven)
        assert listener.connections.handshaking == 0


async def test_a_burst_of_clients_waits_and_none_is_lost(
    certificate: ServerCertificate, client_tls: ssl.SSLContext
) -> None:
    """Accepting is faster than a handshake: new connections would end others before their request."""

    async def ask(listener: Listener) -> None:
        async with connected(listener, client_tls) as client:
            await client.send(post(b"1"))
            await client.expect(ok(b"m:1"))

    bounds = Bounds(unproven=2)
    async with listening(Router(Application(), PATHS), certificate, bounds, Clock()) as listener:
        await asyncio.gather(*(ask(listener) for _ in range(12)))
        assert listener.failed_handshakes == 0


async def test_silent_clients_are_kept_for_two_seconds(
    certificate: ServerCertificate, client_tls: ssl.SSLContext
) -> None:
    clock = Clock()
    async with listening(Router(Application(), PATHS), certificate, Bounds(unproven=1), clock) as listener:
        reader, silent = await asyncio.open_connection("127.0.0.1", listener.port)
        await until(lambda: listener.connections.handshaking)
        asking = asyncio.create_task(asyncio.open_connection("localhost", listener.port, ssl=client_tls))
        await until(lambda: "not accepting" in repr(listener))
        clock.now += 1.9
        listener.tick()
        assert listener.accepted == 1
        clock.now += 0.1
        listener.tick()
        assert await is_closed(reader)
        for writer in (silent, (await asking)[1]):
            writer.close()


@pytest.mark.parametrize(("connections", "unproven"), [(16_384, 4096), (3584, 896), (512, 128), (2, 1)])
def test_silent_clients_get_a_quarter_of_the_connections(connections: int, unproven: int) -> None:
    bounds = Bounds.of(connections)
    assert (bounds.connections, bounds.unproven) == (connections, unproven)


async def test_a_connection_that_made_room_leaves_no_file_open(certificate: ServerCertificate) -> None:
    bounds = Bounds(unproven=2, unproven_s=0)
    async with listening(Router(Application(), PATHS), certificate, bounds) as listener:
        before = open_files()
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            await until(lambda: not listener.connections.handshaking > 2)
            writer.close()
        await until(lambda: listener.failed_handshakes == 20)
        await until(lambda: open_files() <= before + 3)  # the loop's own


async def test_connections_that_end_before_their_handshake_begins_are_closed() -> None:
    """Those that arrive together make room for each other."""
    bounds = Bounds(unproven=2, unproven_s=0)
    async with listening(Router(Application(), PATHS), None, bounds) as listener:
        with contextlib.ExitStack() as clients, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for _ in range(6):
                clients.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
            await until(lambda: listener.failed_handshakes == 4)
            await until(lambda: not listener.connections.handshaking)
        assert [str(warning.message) for warning in warned] == []


def test_the_soft_limit_of_files_is_raised_and_some_are_reserved() -> None:
    """In another process, since a lowered limit cannot be raised again."""
    script = """
import resource, sys
from gateway.server.serving.sockets import affordable_connections
soft, hard = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(affordable_connections(2000), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""

    def afforded(soft: int, hard: int) -> list[int]:
        command = [sys.executable, "-c", script, str(soft), str(hard)]
        return [int(word) for word in subprocess.check_output(command, text=True).split()]

    assert afforded(1024, 4096) == [2000, 2512, 4096]
    assert afforded(3000, 4096) == [2000, 3000, 4096]
    assert afforded(1024, 2048) == [1536, 2048, 2048]
    assert afforded(256, 512) == [256, 512, 512]


async def test_plain_http_on_the_tls_port_is_not_answered(certificate: ServerCertificate) -> None:
    app = Application()
    async with listening(Router(app, PATHS), certificate) as listener:
        async with connected(listener, None) as client:
            await client.send(post(b"1"))
            assert b"HTTP" not in await client.rest()
        await until(lambda: listener.failed_handshakes == 1)
        assert app.seen == []


async def test_drain_completes_reviews_in_flight_and_refuses_new_ones(
    certificate: ServerCertificate, client_tls: ssl.SSLContext
) -> None:
    app, clock = Application(holds=True), Clock()
    router, bounds = Router(app, PATHS), Bounds(drain_quiet_s=0.01)
    async with listening(router, certificate, bounds, clock) as listener:
        async with (
            connected(listener, client_tls) as busy,
            connected(listener, client_tls) as idle,
            connected(listener, client_tls) as quiet,
        ):
            await until(lambda: len(listener.connections.open) == 3)
            port = listener.port
            await busy.send(post(b"1"))
            await asyncio.wait_for(app.arrived.wait(), PATIENCE_S)
            draining = asyncio.ensure_future(listener.drain(30))
            await until(lambda: router.draining)
            await idle.send(post(b"2"))
            assert await idle.rest() == DRAINING
            clock.now += 1.5
            listener.tick()
            assert await quiet.rest() == DRAINING
            assert not draining.done()
            app.seen[0].respond(200, b"1")
            assert await busy.rest() == ok(b"1", CLOSE)
        await asyncio.wait_for(draining, PATIENCE_S)
        assert not listener.connections.open
        assert router.in_flight == 0
        with pytest.raises(OSError, match=r"(?i)refused|connect"):
            await asyncio.open_connection("127.0.0.1", port)


async def test_drain_goes_on_while_new_connections_come(
    certificate: ServerCertificate, client_tls: ssl.SSLContext
) -> None:
    """Load balancers stop using a replica late; a refused connection is a lost request."""
    router, bounds = Router(Application(), PATHS), Bounds(drain_quiet_s=3600)
    async with serving(router, certificate, client_tls, bounds, Clock()) as (listener, client):
        draining = asyncio.ensure_future(listener.drain(3600))
        await until(lambda: router.draining)
        await client.send(post(b"1"))
        assert await client.rest() == DRAINING
        for _ in range(3):
            await until(lambda: not listener.connections.open)
            async with connected(listener, client_tls) as late:
                await late.send(post(b"2"))
                assert await late.rest() == DRAINING
        assert not draining.done()
        draining.cancel()
        await asyncio.wait([draining])
        await asyncio.wait_for(listener.drain(30), PATIENCE_S)  # none came since it began
        assert "not accepting" in repr(listener)


async def test_drain_ends_at_once_without_requests(
    certificate: ServerCertificate, client_tls: ssl.SSLContext
) -> None:
    bounds = Bounds(drain_quiet_s=3600)
    async with serving(Router(Application(), PATHS), certificate, client_tls, bounds) as (
        listener,
        client,
    ):
        await client.send(post(b"1"))
        await until(lambda: listener.connections.requests == 1)
        await client.close()
        await asyncio.wait_for(listener.drain(3600), PATIENCE_S)


async def test_an_idle_connection_with_an_unread_request_is_not_closed() -> None:
    """A busy loop runs timers before reads, and the API server does not repeat the request."""
    clock = Clock()
    async with listening(Router(Application(), PATHS), None, clock=clock) as listener:
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            await until(lambda: len(listener.connections.open) == 1)
            clock.now += listener.connections.bounds.idle_s + 1
            client.sendall(post(b"1"))  # in the kernel, and the loop has not turned since
            listener.tick()
            client.setblocking(False)  # noqa: FBT003
            answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 65_536), PATIENCE_S)
            assert answer == ok(b"m:1")


async def test_drain_serves_what_the_backlog_holds() -> None:
    router = Router(Application(), PATHS)
    async with listening(router, None, Bounds(drain_quiet_s=0.01)) as listener:
        with socket.create_connection(("127.0.0.1", listener.port)) as client:  # not accepted yet
            client.setblocking(False)  # noqa: FBT003
            draining = asyncio.ensure_future(listener.drain(30))
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, post(b"1"))
            answer = b""
            while piece := await asyncio.wait_for(loop.sock_recv(client, 65_536), PATIENCE_S):
                answer += piece
            assert answer == DRAINING
        await asyncio.wait_for(draining, PATIENCE_S)


async def test_drain_accepts_from_the_backlog_only_within_the_bound() -> None:
    """Otherwise fast new connections would block the event loop."""
    bounds = Bounds(connections=2)
    async with listening(Router(Application(), PATHS), None, bounds) as listener:
        with contextlib.ExitStack() as clients:
            for _ in range(5):  # not accepted yet
                clients.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
            await listener.drain(0.05)
        assert listener.accepted == 2


async def test_drain_aborts_what_does_not_end_in_time(
    certificate: ServerCertificate, client_tls: ssl.SSLContext
) -> None:
    app = Application(holds=True)
    async with serving(Router(app, PATHS), certificate, client_tls) as (listener, client):
        await client.send(post(b"1"))
        await asyncio.wait_for(app.arrived.wait(), PATIENCE_S)
        await asyncio.wait_for(listener.drain(0.05), PATIENCE_S)
        assert app.cancelled == app.seen
        assert not listener.connections.open


async def test_close_ends_handshakes_and_connections(certificate: ServerCertificate) -> None:
    async with listening(Router(Application(), PATHS), certificate) as listener:
        async with connected(listener, None) as client:
            await until(lambda: "1 in handshake" in repr(listener))
            await asyncio.wait_for(listener.close(), PATIENCE_S)
            assert await client.rest() == b""
        assert "0 open, 0 in handshake" in repr(listener)


def test_repr_is_a_status_line() -> None:
    listener = Listener("127.0.0.1:1", ConnectionTable(Router(Application(), PATHS)))
    assert repr(listener) == "<Listener 127.0.0.1:1, not accepting, 0 open, 0 in handshake, 0 accepted>"
