"""The connections to one server: kept while idle, dialled where there is none, through a proxy or not.

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

from gateway.dispatch.https.connection import ExchangeError, HttpConnection
from gateway.dispatch.https.happy_eyeballs import HANDSHAKE_S, Host
from gateway.dispatch.https.proxy import open_tunnel
from gateway.dispatch.https.self_issued import SELF_SIGNED, trust, unverified

if TYPE_CHECKING:
    from gateway.dispatch.https.proxy import Proxy

IDLE_S: Final = 90.0
MAX_IDLE: Final = 100
"""Idle connections kept. The API server keeps 25, but does not call four webhooks of one server at
once for a review: 16 such reviews at a time would pay for a handshake in most calls, four times the CPU."""


class ConnectionPool:
    """Lends connections to *address*, host and port. Use it on a running event loop."""

    def __init__(self, address: tuple[str, int], proxy: Proxy | None) -> None:
        self._proxy = proxy
        host, port = address
        self._host = Host(host, port) if proxy is None else Host(proxy.host, proxy.port)
        """Whom to connect to."""
        self._tls_name = host.rstrip(".")
        self._name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._idle: dict[HttpConnection, None] = {}
        """Those that were given back last come last."""
        self._lent: dict[HttpConnection, ssl.SSLContext] = {}
        """Each with what it was made with."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._context: ssl.SSLContext | None = None
        """That the kept connections were made with."""

    @property
    def idle(self) -> int:
        """How many are kept that nobody uses."""
        return len(self._idle)

    async def take(self, context: ssl.SSLContext, *, is_fresh: bool = False) -> HttpConnection:
        """Return a connection that was kept, or a new one; always that if *is_fresh*.

        Raises:
            ExchangeError: the server cannot be reached, or does not prove who it is.
        """
        if context is not self._context:
            # The gateway has become somebody else meanwhile.
            self.drop_idle()
            self._context = context
        if self._idle and not is_fresh:
            connection = self._idle.popitem()[0]
        else:
            connection = await self._dial(context)
        self._lent[connection] = context
        return connection

    def give_back(self, connection: HttpConnection) -> None:
        """Keep *connection* for the next call where it can be used again."""
        is_current = self._lent.pop(connection) is self._context
        if not (connection.is_reusable and is_current) or self._is_closed or len(self._idle) >= MAX_IDLE:
            connection.abort()
            return
        connection.idle_since = time.monotonic()
        self._idle[connection] = None
        if self._sweeper is None:
            self._sweep_in(IDLE_S)

    def close(self) -> None:
        """End all connections, the lent ones included."""
        self._is_closed = True
        self.drop_idle()
        for connection in tuple(self._lent):
            connection.abort()
        self._host.close()

    def drop_idle(self) -> None:
        """End those that nobody uses."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        while self._idle:
            self._idle.popitem()[0].abort()

    def _gone(self, connection: HttpConnection) -> None:
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

    async def _dial(self, context: ssl.SSLContext) -> HttpConnection:
        try:
            try:
                return await self._dial_securely(context)
            except ssl.SSLCertVerificationError as error:
                if error.verify_code != SELF_SIGNED or not await self._trusts(context):
                    raise
                return await self._dial_securely(context)
        except (OSError, ValueError, RuntimeError) as error:
            # ValueError: what OpenSSL or the resolver take for no name. RuntimeError: uvloop's, where a
            # tunnel has just ended.
            raise ExchangeError(_why(self._name, error), is_unsent=True) from error

    async def _trusts(self, context: ssl.SSLContext) -> bool:
        """Whether a CA of *context* has signed the server's certificate, which is trusted from now on."""
        connection = await self._dial_securely(unverified(context))
        try:
            return trust(context, connection.certificate)
        finally:
            connection.abort()

    async def _dial_securely(self, context: ssl.SSLContext) -> HttpConnection:
        if self._proxy is None:
            # Not in two steps: uvloop takes a connection that ends between them for a bug.
            _, direct = await self._host.connect(lambda: HttpConnection(self._gone), context, self._tls_name)
            return direct
        connection = HttpConnection(self._gone)
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


def _why(name: str, error: Exception) -> str:
    """Return why *name* cannot be reached, as Go would say it where that is known."""
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
