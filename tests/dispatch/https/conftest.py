"""A real HTTPS webhook in its own process, and a proxy."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any

import pytest

from gateway.engine.snapshot import Surroundings
from gateway.pure.core.webhook import HttpsClient
from tests.engines import compute
from tests.fakes.https_webhook import Seen, Webhook, path_of
from tests.stream_server import stream_server
from tests.webhook_process import WebhookProcess
from tests.world import opened_world

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    import trustme

    from tests.in_process import Stage
    from tests.world import World

    InVirtualTime = Callable[[dict[str, Any], Callable[[World, HttpsClient], Awaitable[None]]], None]


@pytest.fixture(scope="session")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookProcess]:
    process = WebhookProcess(tmp_path_factory.mktemp("webhook"))
    yield process
    process.stop()


@pytest.fixture
def in_virtual_time(stage: Stage, certificate: tuple[Path, Path], authority: trustme.CA) -> InVirtualTime:
    """Run a test with a world and the client of a webhook that answers by a script, both on one loop."""

    def run(script: dict[str, Any], test: Callable[[World, HttpsClient], Awaitable[None]]) -> None:
        async def body() -> None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(*certificate)
            async with stream_server(Webhook(Seen()).serve, ssl=tls) as port:
                url = f"https://127.0.0.1:{port}{path_of(script)}"
                async with opened_world(Surroundings(stage.loop.time, stage.loop.time, compute)) as world:
                    await test(world, HttpsClient(url, authority.cert_pem.bytes()))

        stage.run(body())

    return run


class Proxy:
    """A proxy that connects every name to this machine; or a server without TLS."""

    def __init__(self) -> None:
        self.answer = "HTTP/1.1 200 Connection established"
        self.heads: list[str] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._server]
        self.port: int = self._server.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

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
        # Closing alone does not end a call that waits in another thread.
        self._server.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
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
