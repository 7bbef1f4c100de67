"""Connections to one address of a worker: its TLS, gRPC channels, and connections for streams.

grpcio takes 8 MiB of memory, and a gateway whose workers serve the stream does not need it: it is imported
before the first channel is opened.

Source: gRPC core's channel arguments (grpc/impl/channel_arg_names.h) and the keepalive guide.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.http2.messages import MAX_MESSAGE_BYTES
from gateway.base.errors import ConfigError, Problem
from gateway.engine.dispatch.cpu_budget import CpuAccount
from gateway.engine.dispatch.keepalive import KEEPALIVE_TIME_S, KEEPALIVE_TIMEOUT_S
from gateway.engine.dispatch.rpc import StreamingCall
from gateway.engine.dispatch.stream_connection import StreamConnection

if TYPE_CHECKING:
    from pathlib import Path

    import grpc

    from gateway.config.kinds.worker_pool import WorkerTls
    from gateway.engine.dispatch.rpc import CallStatus
    from gateway.engine.dispatch.stream_connection import StreamConnectionOwner

CONNECT_TIMEOUT_S: Final = 5.0
"""The time for the connection, its TLS, and the worker's SETTINGS."""

_OPTIONS: Final[tuple[tuple[str, int | str], ...]] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # A dead peer is detected within 40 s; servers must allow a ping every 30 s without data.
    ("grpc.keepalive_time_ms", int(KEEPALIVE_TIME_S * 1000)),
    ("grpc.keepalive_timeout_ms", int(KEEPALIVE_TIMEOUT_S * 1000)),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A worker that restarts is used again at once, not after gRPC's two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # The driver retries: it has the deadline and the webhook's sideEffects.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    # Each endpoint has its own connection, also where two pools name the same address.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


# cygrpc logs a traceback for every grpc-message that is not UTF-8: a worker could fill the log.
logging.getLogger("grpc._cython.cygrpc").setLevel(logging.CRITICAL)


async def load_grpc() -> None:
    """Import grpcio, in a thread: the first import takes as long as hundreds of reviews."""
    if "grpc" not in sys.modules:
        await asyncio.to_thread(import_module, "grpc")


class Unreachable(Exception):
    """No stream could be opened; the text has the reason."""


class Dialer:
    """Opens connections to one address, with the TLS files as they were at construction."""

    def __init__(self, address: str, tls: WorkerTls | None, server_name: str | None) -> None:
        """Prepare connections to *address*, a gRPC name of a single address.

        *server_name* is the name that the worker's certificate must have, by default that in the address.

        Raises:
            ConfigError: a file in *tls* cannot be used, or *server_name* is not a host name.
        """
        self.address = address
        self.account = CpuAccount()
        self._server_name = server_name
        self._connections: set[StreamConnection] = set()
        """Connections that may still be open."""
        self._tls_files: tuple[bytes | None, bytes | None, bytes | None] | None = None
        """CA certificates, key and certificate chain for channels."""
        self._ssl: ssl.SSLContext | None = None
        if tls is not None:
            _check_name(server_name or "", address)
            self._ssl = _ssl_context(tls)
            roots = tls.ca_bundle or _content(tls.ca_file)
            self._tls_files = roots, _content(tls.key_file), _content(tls.cert_file)

    def open_channel(self) -> grpc.aio.Channel:
        """Return a new channel for unary calls. Call :func:`load_grpc` before."""
        import grpc

        options = list(_OPTIONS)
        if self._tls_files is None:
            # The :authority of the calls; the default would be a percent-encoded socket path.
            options.append(("grpc.default_authority", self._server_name or "localhost"))
            return grpc.aio.insecure_channel(self.address, options=options)
        if self._server_name is not None:
            options.append(("grpc.ssl_target_name_override", self._server_name))
        credentials = grpc.ssl_channel_credentials(*self._tls_files)
        return grpc.aio.secure_channel(self.address, credentials, options=options)

    async def dial(self, path: str, owner: StreamConnectionOwner) -> StreamConnection:
        """Return a new connection on which a call of the streaming method *path* has started.

        Raises:
            Unreachable: no connection, or no HTTP/2.
        """
        loop = asyncio.get_running_loop()
        scheme, _, rest = self.address.partition(":")
        host, _, port = rest.rpartition(":")
        is_unix = scheme.startswith("unix")
        host = host.strip("[]")
        name = (self._server_name or ("localhost" if is_unix else host)).removesuffix(".")
        authority = f"[{name}]" if ":" in name else name
        connection = StreamConnection(
            StreamingCall(path, authority, "http" if self._ssl is None else "https"), owner, self.account
        )
        server_hostname = None if self._ssl is None else name
        is_up = False
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                if is_unix:
                    sock = await _connected(_socket_path(scheme, rest))
                    # asyncio's own loops keep the socket and close it. uvloop has only its number until the
                    # connection is made: closed twice, the number may belong to another socket.
                    is_kept = isinstance(loop, asyncio.BaseEventLoop)
                    try:
                        await loop.create_unix_connection(
                            lambda: connection, sock=sock, ssl=self._ssl, server_hostname=server_hostname
                        )
                        is_kept = is_kept or not connection.closed.done()
                    finally:
                        if not is_kept:
                            sock.detach()
                else:
                    await loop.create_connection(
                        lambda: connection, host, int(port), ssl=self._ssl, server_hostname=server_hostname
                    )
                self._connections.add(connection)
                connection.closed.add_done_callback(lambda _: self._connections.discard(connection))
                await connection.settled
            is_up = True
        except TimeoutError:
            raise Unreachable(f"{self.address}: no answer within {CONNECT_TIMEOUT_S:g}s") from None
        except (OSError, EOFError) as error:
            raise Unreachable(f"{self.address}: {_reason(error)}") from None
        finally:
            if not is_up and connection in self._connections:
                connection.abort()
            elif not is_up:
                connection.discard()
        return connection

    async def is_reachable(self) -> bool:
        """Return whether the address accepts a connection with HTTP/2."""
        try:
            connection = await self.dial("/", _IgnoreEvents())
        except Unreachable:
            return False
        await connection.close()
        return True

    async def close(self) -> None:
        """Close all connections for streams; channels close their own."""
        await asyncio.gather(*(connection.close() for connection in tuple(self._connections)))


class _IgnoreEvents:
    """The owner of a connection that only has to reach the worker's SETTINGS."""

    def received(self, message: bytes | bytearray) -> None:
        """Ignored."""

    def writable(self) -> None:
        """Ignored."""

    def leaving(self) -> None:
        """Ignored."""

    def ended(self, status: CallStatus) -> None:
        """Ignored."""


async def _connected(path: str) -> socket.socket:
    """Return a socket connected to *path*; uvloop itself would cut the path at a NUL."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        await asyncio.get_running_loop().sock_connect(sock, path)
    except BaseException:
        sock.close()
        raise
    return sock


def _socket_path(scheme: str, path: str) -> str:
    """Return the path of a socket as in unix(7): an abstract one begins with a NUL."""
    if scheme == "unix-abstract":
        return f"\0{path}"
    return path.removeprefix("//") if path.startswith("///") else path


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or "the connection was closed"


def _check_name(name: str, address: str) -> None:
    # Otherwise every connection would fail on it, and leave a socket behind.
    try:
        name.removesuffix(".").encode("idna")
    except UnicodeError as error:
        text = f"expected the name in a certificate, found {name[:80]!r} ({error})"
        raise ConfigError([Problem(address, "tls.serverName", text)]) from None


def _ssl_context(tls: WorkerTls) -> ssl.SSLContext:
    file = tls.ca_file
    try:
        roots = None if tls.ca_bundle is None else tls.ca_bundle.decode("ascii", errors="ignore")
        context = ssl.create_default_context(cafile=file, cadata=roots)
        if tls.cert_file is not None:
            file = tls.cert_file
            # An empty password, so that OpenSSL does not prompt for one on a terminal.
            context.load_cert_chain(tls.cert_file, tls.key_file, password="")
    except OSError as error:  # ssl.SSLError is one
        reason = error.strerror if error.filename or not isinstance(error, ssl.SSLError) else str(error)
        raise ConfigError([Problem(str(file), "", f"cannot be used: {reason}")]) from None
    context.set_alpn_protocols(["h2"])
    # As gRPC does for unary calls: each certificate in caFile is trusted, also an intermediate one.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _content(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError([Problem(str(file), "", f"cannot be read: {error.strerror}")]) from None
