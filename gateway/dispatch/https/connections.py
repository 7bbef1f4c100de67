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
from typing import TYPE_CHECKING, Any, Final

from gateway.dispatch.https.connection import Connection, ExchangeError
from gateway.dispatch.https.proxies import open_tunnel

if TYPE_CHECKING:
    from gateway.dispatch.https.proxies import Proxy

IDLE_S: Final = 90.0
MAX_IDLE: Final = 100
"""Connections kept that nobody uses. The API server keeps 25, and does not ask four webhooks of one server at
once for a review: 16 such reviews at a time would pay for a handshake in most calls, four times the CPU."""
HANDSHAKE_S: Final = 10.0


class Connections:
    """Lends connections to *address*, host and port. Use it on a running event loop."""

    def __init__(self, address: tuple[str, int], proxy: Proxy | None) -> None:
        self._address = address
        self._proxy = proxy
        host, port = address
        self._tls_name = host.rstrip(".")
        self._name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._lookup: asyncio.Future[Any] | None = None
        self._idle: dict[Connection, None] = {}
        """Those that were given back last come last."""
        self._lent: dict[Connection, ssl.SSLContext] = {}
        """Each with what it was made with."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._context: ssl.SSLContext | None = None
        """That the kept connections were made with."""

    @property
    def idle(self) -> int:
        """How many are kept that nobody uses."""
        return len(self._idle)

    async def take(self, context: ssl.SSLContext, *, is_fresh: bool = False) -> Connection:
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

    def give_back(self, connection: Connection) -> None:
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
        if self._lookup is not None:
            self._lookup.cancel()

    def drop_idle(self) -> None:
        """End those that nobody uses."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        while self._idle:
            self._idle.popitem()[0].abort()

    def _gone(self, connection: Connection) -> None:
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

    async def _dial(self, context: ssl.SSLContext) -> Connection:
        try:
            if self._proxy is not None:
                return await self._dial_through(self._proxy, context)
            return await self._dial_directly(context)
        except (OSError, ValueError) as error:
            # ValueError: what OpenSSL or the resolver take for no name.
            raise ExchangeError(_why(self._name, error), is_unsent=True) from error

    async def _dial_directly(self, context: ssl.SSLContext) -> Connection:
        """Return a connection to the first address of the server that takes one."""
        failure: OSError | None = None
        for address in await self._addresses():
            try:
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._gone),
                    address,
                    self._address[1],
                    ssl=context,
                    server_hostname=self._tls_name,
                    ssl_handshake_timeout=HANDSHAKE_S,
                )
            except ssl.SSLError:
                raise
            except OSError as error:
                failure = error
            else:
                return connection
        raise failure or OSError("no address")

    async def _dial_through(self, proxy: Proxy, context: ssl.SSLContext) -> Connection:
        connection = Connection(self._gone)
        tunnel = await open_tunnel(proxy, self._name)
        try:
            transport = await asyncio.get_running_loop().start_tls(
                tunnel,
                connection,
                context,
                server_hostname=self._tls_name,
                ssl_handshake_timeout=HANDSHAKE_S,
            )
        except BaseException:
            tunnel.abort()
            raise
        assert transport is not None
        connection.connection_made(transport)
        return connection

    async def _addresses(self) -> list[str]:
        """Return what the host's name stands for.

        All who wait share one question: resolving takes a thread of few, and a name server that does not
        answer is not to take those of other servers.
        """
        if self._lookup is None:
            loop = asyncio.get_running_loop()
            self._lookup = asyncio.ensure_future(loop.getaddrinfo(*self._address, type=socket.SOCK_STREAM))
            self._lookup.add_done_callback(self._looked_up)
        return [str(found[4][0]) for found in await asyncio.shield(self._lookup)]

    def _looked_up(self, lookup: asyncio.Future[Any]) -> None:
        self._lookup = None
        if not lookup.cancelled():
            # Perhaps nobody waits any more.
            lookup.exception()


def _why(name: str, error: OSError | ValueError) -> str:
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
            return f"dial tcp {name}: {error or 'connection lost'}"
