"""The address of the worker under test: gRPC channels to it, and connections of the gateway's own client."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import grpc

from gateway.base.errors import GatewayError
from gateway.engine.dispatch.dialer import Dialer, Unreachable
from gateway.engine.dispatch.targets import addresses_of, parse_target

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config.kinds.worker_pool import WorkerTls
    from gateway.engine.dispatch.rpc import CallStatus
    from gateway.engine.dispatch.stream_connection import StreamConnection

_OPTIONS: Final[tuple[tuple[str, int | str], ...]] = (
    # Limits of the client are off, so that only limits of the worker show.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class Recorder:
    """Records the events of a connection of the gateway's client. Create it on a running event loop."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.is_leaving = False
        """Whether the worker has sent GOAWAY."""
        self.status: CallStatus | None = None
        """Status of the call; None while the call is open."""
        self._news = asyncio.Event()

    async def until(self, happened: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until *happened* is true after an event; return whether it is true in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not happened():
                    self._news.clear()
                    await self._news.wait()
        return happened()

    # -- called by the connection -----------------------------------------------------------------

    def received(self, message: bytes | bytearray) -> None:
        """Record a message."""
        self.messages.append(bytes(message))
        self._news.set()

    def writable(self) -> None:
        """Ignored: all messages are small enough to be written at once."""

    def leaving(self) -> None:
        """Record a GOAWAY."""
        self.is_leaving = True
        self._news.set()

    def ended(self, status: CallStatus) -> None:
        """Record the status of the call."""
        self.status = status
        self._news.set()


@dataclass(frozen=True, slots=True)
class Target:
    """One address of the worker with its TLS settings; a context manager."""

    dialer: Dialer
    tls: WorkerTls | None

    async def __aenter__(self) -> Target:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.dialer.close()

    def open_channel(self, keepalive_ms: int = 0) -> grpc.aio.Channel:
        """Return a channel with a separate connection; *keepalive_ms* is the idle time before a ping."""
        options = list(_OPTIONS)
        if keepalive_ms:
            options += [("grpc.keepalive_time_ms", keepalive_ms), ("grpc.keepalive_timeout_ms", 10_000)]
        if self.tls is None:
            options.append(("grpc.default_authority", "localhost"))
            return grpc.aio.insecure_channel(self.dialer.address, options=options)
        if self.tls.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self.tls.server_name))
        files = (self.tls.ca_file, self.tls.key_file, self.tls.cert_file)
        # The files were readable when the connection was opened.
        credentials = grpc.ssl_channel_credentials(
            *(None if file is None else file.read_bytes() for file in files)
        )
        return grpc.aio.secure_channel(self.dialer.address, credentials, options=options)

    async def dial(self, path: str, recorder: Recorder) -> StreamConnection:
        """Return a connection of the gateway's own client, with a call of *path* started.

        Raises:
            Unreachable: no connection, or no HTTP/2.
        """
        return await self.dialer.dial(path, recorder)

    async def is_answered(self) -> bool:
        """Return whether the address accepts connections."""
        return await self.dialer.is_reachable()


async def find_target(address: str, tls: WorkerTls | None) -> Target:
    """Return the first endpoint of *address* that accepts a connection.

    Raises:
        ConfigError: the TLS files cannot be used.
        GatewayError: no endpoint can be reached.
    """
    try:
        addresses = await addresses_of(parse_target(address))
    except OSError as error:
        raise GatewayError(f"{address} cannot be resolved: {error.strerror}") from None
    why = f"{address} has no address"
    for endpoint, host in addresses.items():
        name = host if tls is None or tls.server_name is None else tls.server_name
        dialer = Dialer(endpoint, tls, name)
        try:
            connection = await dialer.dial("/", Recorder())
        except Unreachable as error:
            why = f"the worker cannot be reached: {error}"
            await dialer.close()
            continue
        await connection.close()
        return Target(dialer, None if tls is None else replace(tls, server_name=name))
    raise GatewayError(why)
