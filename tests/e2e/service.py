"""A stand-in for a Service and its kube-proxy, in front of several gateways on loopback.

    python -m tests.e2e.service            # prints its port; commands on stdin, an answer on stdout for each

Every new connection goes to the next of the ready endpoints; established ones are left alone, also those of
an endpoint that is removed. Bytes are not parsed. ``/readyz`` of the admin port is the readiness probe, with
the period of a kubelet. A connection that finds no ready endpoint, or whose endpoint refuses it, is reset
without a second attempt.

Source: https://kubernetes.io/docs/reference/networking/virtual-ips/ (proxy modes)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import uvloop

from tests.kit import PATIENCE_S, ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.kit import GatewayProcess

PROBE_EVERY_S: Final = 0.1
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends RST."""


# -- the process ----------------------------------------------------------------------------------


@dataclass(eq=False)
class Endpoint:
    """A gateway behind the Service."""

    port: int
    admin_port: int
    listed: bool = True
    ready: bool = False
    probed: bool = True
    host: str = "127.0.0.1"
    taken: int = 0
    """Connections given to it so far."""
    established: set[End] = field(default_factory=set)


class End(asyncio.Protocol):
    """One end of a forwarded connection: the other end sends the bytes that it receives."""

    def __init__(self, endpoint: Endpoint | None = None) -> None:
        self.other: End | None = None
        self.transport: asyncio.Transport | None = None
        self._endpoint = endpoint
        self._early: list[bytes] = []
        self._ended_early = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment] # uvloop's class derives from none of asyncio's
        if self._endpoint is not None:
            self._endpoint.established.add(self)

    def join(self, other: End) -> None:
        """Forward to *other*, beginning with the bytes received so far."""
        self.other = other
        for data in self._early:
            self.data_received(data)
        self._early.clear()
        if self._ended_early:
            self.eof_received()

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        elif self.other.transport is not None and not self.other.transport.is_closing():
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        if self.other is None:
            self._ended_early = True
        elif self.other.transport is not None and not self.other.transport.is_closing():
            self.other.transport.write_eof()
        return True  # the other direction stays open

    def connection_lost(self, exc: Exception | None) -> None:
        if self._endpoint is not None:
            self._endpoint.established.discard(self)
        if self.other is not None and self.other.transport is not None:
            if exc is None:
                self.other.transport.close()
            else:
                reset(self.other.transport)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()


def reset(transport: asyncio.Transport) -> None:
    """End a connection with RST."""
    if not transport.is_closing():
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()


class Forwarder:
    """The endpoints, and the connections to them."""

    def __init__(self) -> None:
        self.endpoints: dict[int, Endpoint] = {}
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self) -> End:
        return Client(self)

    def choose(self) -> Endpoint | None:
        """Return the endpoint for a new connection."""
        usable = [endpoint for endpoint in self.endpoints.values() if endpoint.listed and endpoint.ready]
        self._turn += 1
        return usable[self._turn % len(usable)] if usable else None

    def spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def probe(self, endpoint: Endpoint) -> None:
        """Keep ``ready`` of *endpoint* up to date with its admin port."""
        while self.endpoints.get(endpoint.port) is endpoint and endpoint.listed:
            found = await is_ready(endpoint.admin_port)
            if endpoint.probed:
                endpoint.ready = found
            await asyncio.sleep(PROBE_EVERY_S)

    def obey(self, command: list[Any]) -> None:
        match command:
            case ["add", port, admin_port]:
                self.endpoints[port] = endpoint = Endpoint(port, admin_port)
                self.spawn(self.probe(endpoint))
            case ["remove", port]:
                self.endpoints[port].listed = False
            case ["trust", port]:
                self.endpoints[port].probed = False

    def state(self) -> dict[str, dict[str, Any]]:
        return {
            str(endpoint.port): {
                "ready": endpoint.listed and endpoint.ready,
                "established": len(endpoint.established),
                "taken": endpoint.taken,
            }
            for endpoint in self.endpoints.values()
        }


class Client(End):
    """The end at which the API server is."""

    def __init__(self, forwarder: Forwarder) -> None:
        super().__init__()
        self._forwarder = forwarder

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._forwarder.spawn(self._connect())

    async def _connect(self) -> None:
        assert self.transport is not None
        endpoint = self._forwarder.choose()
        if endpoint is None:
            reset(self.transport)
            return
        endpoint.taken += 1
        try:
            _, end = await asyncio.get_running_loop().create_connection(
                lambda: End(endpoint), endpoint.host, endpoint.port
            )
        except OSError:
            reset(self.transport)
            return
        end.join(self)
        self.join(end)
        if self.transport.is_closing():
            assert end.transport is not None
            end.transport.close()


async def is_ready(admin_port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", admin_port)
    except OSError:
        return False
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: kubelet\r\nConnection: close\r\n\r\n")
        return (await reader.read(12)).endswith(b" 200")
    except OSError:
        return False
    finally:
        writer.close()


async def main() -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    forwarder = Forwarder()
    server = await loop.create_server(forwarder.accept, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        forwarder.obey(json.loads(line))
        print(json.dumps(forwarder.state()), flush=True)  # noqa: T201


# -- its owner ------------------------------------------------------------------------------------


class ServiceProxy:
    """The process, as the tests see it. ``with ServiceProxy() as service: …``."""

    def __enter__(self) -> ServiceProxy:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.service"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._stdin, self._stdout = self._child.stdin, self._child.stdout
        self.port = int(self._stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._child.wait(PATIENCE_S)
        finally:
            self._child.kill()
            self._stdout.close()

    def _send_command(self, *command: object) -> dict[str, dict[str, Any]]:
        self._stdin.write(json.dumps(command) + "\n")
        self._stdin.flush()
        answer: dict[str, dict[str, Any]] = json.loads(self._stdout.readline())
        return answer

    def add(self, gateway: GatewayProcess) -> None:
        """List *gateway* as an endpoint, and wait until it is ready."""
        self._send_command("add", gateway.port, gateway.admin_port)
        eventually(lambda: self.is_ready(gateway))

    def remove(self, gateway: GatewayProcess) -> None:
        """Give *gateway* no new connection from now on."""
        self._send_command("remove", gateway.port)

    def trust(self, gateway: GatewayProcess) -> None:
        """Keep the present readiness of *gateway* until it is removed, as if proxies learned of it late."""
        self._send_command("trust", gateway.port)

    def is_ready(self, gateway: GatewayProcess) -> bool:
        """Return whether *gateway* gets new connections."""
        return bool(self._send_command("state")[str(gateway.port)]["ready"])

    def established(self, gateway: GatewayProcess) -> int:
        """Return how many connections to *gateway* are open."""
        return int(self._send_command("state")[str(gateway.port)]["established"])

    def taken(self, gateway: GatewayProcess) -> int:
        """Return how many connections *gateway* was given so far."""
        return int(self._send_command("state")[str(gateway.port)]["taken"])


if __name__ == "__main__":
    uvloop.run(main())
