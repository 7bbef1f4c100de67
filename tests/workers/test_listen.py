"""Addresses and sockets: valid addresses, and the errors of invalid ones."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest
import uvloop

from admission_gateway_worker import PolicyServer, Review
from admission_gateway_worker.listen import Address, StartError, claim, listening, parse_address, reserve_tcp
from tests.kit import free_port
from tests.waiting import together

EVENT_LOOPS = ("uvloop",)


def server_of_one() -> PolicyServer:
    server = PolicyServer()

    @server.policy("allow")
    def allow(review: Review) -> None:
        pass

    return server


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:50051", Address("127.0.0.1", 50051)),
        ("[::1]:0", Address("::1", 0)),
        ("localhost:65535", Address("localhost", 65535)),
        ("unix:a.sock", Address(path=Path("a.sock"))),
        ("unix:/run/a.sock", Address(path=Path("/run/a.sock"))),
        ("unix:///run/a.sock", Address(path=Path("/run/a.sock"))),
    ],
)
def test_addresses_are_read(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "50051",
        ":50051",
        "host:",
        "host:x",
        "host:65536",
        "host:-1",
        "host:1.5",
        "::1:50051",
        "[::1]",
        "unix:",
        "a:b:1",
        "[host:1",
        "[host]:1",
        "host:²",
        "ho st:1",
        "unix:/" + "a" * 107,
    ],
)
def test_an_invalid_address_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"is expected|has at most"):
        parse_address(text)


async def test_a_taken_port_is_noticed(folder: Path) -> None:
    server = server_of_one()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"127\.0\.0\.1:{port}: Address already in use"):
            await server.start(f"unix:{folder}/a", f"127.0.0.1:{port}")
    assert not list(folder.iterdir())


async def test_the_socket_of_a_dead_worker_is_replaced(folder: Path) -> None:
    path = folder / "a"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    server = server_of_one()
    await server.start(f"unix:{path}")
    await server.stop()
    assert not path.exists()


def test_the_socket_of_a_live_worker_is_not(folder: Path) -> None:
    path = folder / "a"
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(path))
        live.listen()

        async def scenario() -> None:
            with pytest.raises(StartError, match="Address already in use"):
                await server_of_one().start(f"unix:{path}")

        uvloop.run(scenario())
        assert path.exists()


@pytest.mark.parametrize(
    ("name", "message"), [("file", "exists and is not a socket"), ("absent/a", "does not exist")]
)
async def test_a_path_that_cannot_be_a_socket_is_refused(folder: Path, name: str, message: str) -> None:
    (folder / "file").write_text("precious")
    with pytest.raises(StartError, match=message):
        await server_of_one().start(f"unix:{folder}/{name}")
    assert (folder / "file").read_text() == "precious"


async def test_an_unknown_host_is_an_error(folder: Path) -> None:
    with pytest.raises(StartError, match=r"^nowhere.invalid:1: "):
        await server_of_one().start("nowhere.invalid:1")


OVERLAPPING = [
    ("127.0.0.1", "127.0.0.1"),
    ("127.0.0.1", "0.0.0.0"),
    ("0.0.0.0", "127.0.0.1"),
    ("::1", "::"),
    ("::", "127.0.0.1"),
]


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize(("first", "second"), OVERLAPPING)
def test_a_worker_with_several_processes_shares_its_port_with_no_other(
    first: str, second: str, *, listens: bool
) -> None:
    """Also while its processes do not listen, and whatever the number of processes of the other."""
    with contextlib.ExitStack() as sockets:

        def keep(bound: list[socket.socket]) -> list[socket.socket]:
            for sock in bound:
                sockets.enter_context(sock)
            return bound

        port = keep(reserve_tcp(Address(first)))[0].getsockname()[1]
        for _ in range(2 if listens else 0):
            for sock in keep(listening(Address(first, port), reuse_port=True)):
                sock.listen()
        for try_it in (reserve_tcp, claim):
            with pytest.raises(StartError, match=f"{port}: Address already in use"):
                try_it(Address(second, port))
        keep(listening(Address(first, port), reuse_port=True))


def test_of_workers_that_start_together_one_gets_the_port() -> None:
    address = Address("127.0.0.1", free_port())
    reserved, refused = together(lambda: reserve_tcp(address), StartError)
    sockets = [sock for each in reserved for sock in each]
    for sock in sockets:
        sock.close()
    assert (len(sockets), refused) == (1, 7)


def test_closed_connections_of_an_earlier_worker_do_not_matter() -> None:
    address = Address("127.0.0.1", free_port())
    at = address.host, address.port
    with socket.create_server(at) as server, socket.create_connection(at) as client:
        accepted, _ = server.accept()
        accepted.close()  # first: it stays in TIME_WAIT
        assert client.recv(1) == b""
    for _ in range(2):
        for sock in reserve_tcp(address):
            with listening(address, reuse_port=True)[0]:
                sock.close()
