"""A real HTTPS webhook in its own process, and a proxy."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from tests.webhook_process import WebhookProcess

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookProcess]:
    process = WebhookProcess(tmp_path_factory.mktemp("webhook"))
    yield process
    process.stop()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Proxy:
    """A proxy that connects every name to this machine; or a server without TLS."""

    def __init__(self) -> None:
        self.answer = "HTTP/1.1 200 Connection established"
        self.heads: list[str] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._server]
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._sockets.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            head = client.recv(4096).decode("latin-1")
            self.heads.append(head)
            client.sendall(f"{self.answer}\r\n\r\n".encode())
            if " 200 " in self.answer and head.startswith("CONNECT"):
                port = int(head.split(" ")[1].rpartition(":")[2])
                server = socket.create_connection(("127.0.0.1", port))
                self._sockets.append(server)
                threading.Thread(target=_copy, args=(server, client), daemon=True).start()
                _copy(client, server)
            client.close()

    def close(self) -> None:
        for each in self._sockets:
            each.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    running = Proxy()
    yield running
    running.close()
