"""The port of several processes, as their parent keeps it."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

import pytest

from gateway.base.errors import ConfigError
from gateway.server.process import shared_port
from gateway.server.process.shared_port import SharedPort, inherited
from gateway.server.serving.sockets import listen
from tests.kit import PATIENCE_S

if TYPE_CHECKING:
    from gateway.server.serving.listener import SharedSockets


def process(port: SharedPort, number: int) -> SharedSockets:
    """Return the sockets of a process that serves, as if it had inherited those of *port*."""
    copies = "/".join(str(os.dup(int(text))) for text in port.arguments().split("/"))
    shared = inherited(copies, number)
    listen(shared.own)
    return shared


def end(shared: SharedSockets) -> None:
    for sock in (*shared.own, *shared.others):
        sock.close()


def connect(port: SharedPort) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port.port), PATIENCE_S)


async def test_a_process_has_sockets_of_its_own_and_those_of_the_others() -> None:
    port = SharedPort("127.0.0.1:0", 3)
    first, last = process(port, 0), process(port, 2)
    try:
        assert [len(part) for part in (*first, *last)] == [1, 2, 1, 2]
        assert port.address == f"127.0.0.1:{port.port}"
        found = {sock.getsockname() for sock in (*first.own, *first.others, *last.own, *last.others)}
        assert found == {("127.0.0.1", port.port)}
        assert not any(sock.get_inheritable() for sock in (*first.own, *first.others))
    finally:
        end(first)
        end(last)
        port.close()


async def test_nothing_listens_before_the_first_process_serves_and_after_the_close() -> None:
    port = SharedPort("127.0.0.1:0", 2)
    port.note(is_served=False, has_failed=True)
    with pytest.raises(ConnectionRefusedError):
        connect(port)
    end(process(port, 1))
    connect(port).close()
    number = port.port
    port.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", number), PATIENCE_S)


@pytest.mark.parametrize("reason", ["failed", "late"])
async def test_connections_wait_unless_no_process_can_start(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = SharedPort("127.0.0.1:0", 2)
    for number in range(2):
        end(process(port, number))
    port.note(is_served=False, has_failed=False)
    with connect(port) as client:
        if reason == "late":
            monkeypatch.setattr(shared_port, "START_S", 0.0)
        for _ in range(2):
            port.note(is_served=False, has_failed=reason == "failed")
        assert await asyncio.to_thread(client.recv, 1) == b""
    port.note(is_served=True, has_failed=False)
    with connect(port) as client:
        client.settimeout(None)
        again = process(port, 0)
        for sock in (*again.own, *again.others):
            sock.settimeout(0)
        accepted = []
        for sock in (*again.own, *again.others):
            try:
                accepted.append(sock.accept()[0])
            except BlockingIOError:
                continue
        assert [one.getpeername() for one in accepted] == [client.getsockname()]
        for one in accepted:
            one.close()
        end(again)
    port.close()


async def test_an_address_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match="Address already in use"):
            SharedPort(address, 2)
