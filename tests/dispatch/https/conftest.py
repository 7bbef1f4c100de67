"""A real HTTPS webhook in its own process, and a proxy."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from socketserver import BaseRequestHandler
from typing import TYPE_CHECKING, Any

import pytest

from gateway.engine.snapshot import Surroundings
from gateway.pure.core.webhook import HttpsClient
from tests.engines import compute
from tests.fakes.https_webhook import Seen, Webhook, path_of
from tests.kit import ThreadingServer, serving
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


class Proxy(ThreadingServer):
    """A proxy that connects every name to this machine; or a server without TLS."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.answer = "HTTP/1.1 200 Connection established"
        self.heads: list[str] = []


class _Handler(BaseRequestHandler):
    server: Proxy

    def handle(self) -> None:
        head = self.request.recv(4096).decode("latin-1")
        self.server.heads.append(head)
        self.request.sendall(f"{self.server.answer}\r\n\r\n".encode())
        if " 200 " in self.server.answer and head.startswith("CONNECT"):
            port = int(head.split(" ")[1].rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as server:
                answers = threading.Thread(target=_copy, args=(server, self.request))
                answers.start()
                _copy(self.request, server)
                answers.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Send what *source* receives to *target*, until either has ended; then both have."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for ended in (source, target):
        with contextlib.suppress(OSError):
            ended.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    running = Proxy()
    with serving(running):
        yield running
