"""The connections to one server: idle ones are reused, others opened, directly or through a proxy.

Source: net/http transport.go of Go and k8s.io/apimachinery pkg/util/net/http.go (how long and how many are
kept); k8s.io/client-go transport.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from typing import TYPE_CHECKING, Final

from gateway.engine.dispatch.https.connection import ClientConnection, ExchangeError
from gateway.engine.dispatch.https.happy_eyeballs import HANDSHAKE_S, Host
from gateway.engine.dispatch.https.proxy import open_tunnel
from gateway.engine.dispatch.https.self_issued import SELF_SIGNED, trust, unverified

if TYPE_CHECKING:
    from gateway.engine.dispatch.https.proxy import Proxy

IDLE_S: Final = 90.0
MAX_IDLE: Final = 100
"""The API server keeps 25, but it does not call four webhooks of one server at once for one review. With 25,
16 such reviews at a time would need a handshake for most calls, which costs four times the CPU."""


class ConnectionPool:
    """The connections to *address*, host and port. Use it on a running event loop."""

    def __init__(
        self, address: tuple[str, int], proxy: Proxy | None, connect_to: tuple[str, int] | None = None
    ) -> None:
        """*connect_to* is connected to instead of *address*, whose host the certificate has to be for."""
        self._proxy = proxy
        host, port = address
        self._host = Host(*(connect_to or address)) if proxy is None else Host(proxy.host, proxy.port)
        """The server, or its proxy."""
        self._tls_name = host.rstrip(".")
        self._name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._idle: dict[ClientConnection, None] = {}
        """The most recently used is last."""
        self._in_use: dict[ClientConnection, ssl.SSLContext] = {}
        """By connection, the context that it was opened with."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._context: ssl.SSLContext | None = None
        """The one that the idle connections were opened with."""

    @property
    def idle(self) -> int:
        """The number of idle connections."""
        return len(self._idle)

    async def acquire(self, context: ssl.SSLContext, *, is_fresh: bool = False) -> ClientConnection:
        """Return an idle connection, or a new one; always a new one if *is_fresh*.

        Raises:
            ExchangeError: the server cannot be reached, or its certificate is not accepted.
        """
        if context is not self._context:
            # The gateway's certificate has changed.
            self.drop_idle()
            self._context = context
        if self._idle and not is_fresh:
            connection = self._idle.popitem()[0]
        else:
            connection = await self._dial(context)
        self._in_use[connection] = context
        return connection

    def release(self, connection: ClientConnection) -> None:
        """Keep *connection* for the next call if it is reusable; close it otherwise."""
        is_current = self._in_use.pop(connection) is self._context
        if not (connection.is_reusable and is_current) or self._is_closed or len(self._idle) >= MAX_IDLE:
            connection.abort()
            return
        connection.idle_since = time.monotonic()
        self._idle[connection] = None
        if self._sweeper is None:
            self._sweep_in(IDLE_S)

    def close(self) -> None:
        """Close all connections, also those in use."""
        self._is_closed = True
        self.drop_idle()
        for connection in tuple(self._in_use):
            connection.abort()
        self._host.close()

    def drop_idle(self) -> None:
        """Close the idle connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        while self._idle:
            self._idle.popitem()[0].abort()

    def _forget(self, connection: ClientConnection) -> None:
        self._idle.pop(connection, None)

    def _sweep_in(self, seconds: float) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(seconds, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        old = time.monotonic() - IDLE_S
        while self._idle:
            oldest = next(iter(self._idle))
            if oldest.idle_since > old:
                self._sweep_in(oldest.idle_since - old)
                return
            del self._idle[oldest]
            oldest.abort()

    async def _dial(self, context: ssl.SSLContext) -> ClientConnection:
        try:
            try:
                return await self._dial_securely(context)
            except ssl.SSLCertVerificationError as error:
                if error.verify_code != SELF_SIGNED or not await self._trusts(context):
                    raise
                return await self._dial_securely(context)
        except (OSError, ValueError, RuntimeError) as error:
            # ValueError: OpenSSL or the resolver reject the name. RuntimeError: uvloop's, if a tunnel has
            # just ended.
            raise ExchangeError(_reason(self._name, error), is_unsent=True) from error

    async def _trusts(self, context: ssl.SSLContext) -> bool:
        """Whether a CA of *context* signed the server's certificate; if so, *context* now trusts that."""
        connection = await self._dial_securely(unverified(context))
        try:
            return trust(context, connection.certificate)
        finally:
            connection.abort()

    async def _dial_securely(self, context: ssl.SSLContext) -> ClientConnection:
        if self._proxy is None:
            # In one step: uvloop raises an internal error if the connection ends between TCP and TLS.
            _, direct = await self._host.connect(
                lambda: ClientConnection(self._forget), context, self._tls_name
            )
            return direct
        connection = ClientConnection(self._forget)
        bare = await open_tunnel(self._host, self._proxy, self._name)
        try:
            transport = await asyncio.get_running_loop().start_tls(
                bare,
                connection,
                context,
                server_hostname=self._tls_name,
                ssl_handshake_timeout=HANDSHAKE_S,
            )
        except BaseException:
            bare.abort()
            raise
        assert transport is not None
        connection.connection_made(transport)
        return connection


def _reason(name: str, error: Exception) -> str:
    """Return why *name* cannot be reached, in Go's words where they are known."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"tls: failed to verify certificate: x509: {error.verify_message or error.reason}"
        case ssl.SSLError():
            return f"tls: {error.reason or error}"
        case socket.gaierror():
            return f"dial tcp: lookup {name.rpartition(':')[0]}: {(error.strerror or str(error)).lower()}"
        case TimeoutError() | ConnectionAbortedError() if "handshake" in str(error):
            return "net/http: TLS handshake timeout"
        case OSError(errno=int(number)):
            return f"dial tcp {name}: connect: {os.strerror(number).lower()}"
        case _:
            return f"dial tcp {name}: {str(error) or 'EOF'}"
