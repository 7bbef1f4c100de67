"""Connections to a host with several addresses ("happy eyeballs").

The next address is tried when the previous one fails, or has not answered for a while. The first successful
attempt wins.

Source: RFC 8305; net/http and net/dial.go of Go (FallbackDelay).
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gateway.engine.dispatch.name_lookup import look_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.engine.dispatch.name_lookup import Address

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)

HANDSHAKE_S: Final = 10.0
NEXT_ADDRESS_AFTER_S: Final = 1.0
"""Longer than in Go, because it includes the TLS handshake, which is slow at a busy server."""


class Host:
    """A host, by name or address, and a port of it. Use it on a running event loop."""

    def __init__(self, name: str, port: int) -> None:
        self._name = name
        self._port = port
        self._lookup: asyncio.Task[list[Address]] | None = None

    async def connect(
        self, protocol: Callable[[], ProtocolT], context: ssl.SSLContext | None = None, tls_name: str = ""
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Return a connection to the first address that accepts one, with TLS if there is a *context*.

        Raises:
            OSError: none accepts one, or the look-up of the name failed.
            ValueError: the name is invalid.
        """
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if context is not None:
            tls = {"ssl": context, "server_hostname": tls_name, "ssl_handshake_timeout": HANDSHAKE_S}
        waiting = deque(await self._addresses())
        attempts: set[asyncio.Task[tuple[asyncio.Transport, ProtocolT]]] = set()
        failure: BaseException = OSError("no address")
        try:
            while waiting or attempts:
                if waiting:
                    dialling = loop.create_connection(protocol, waiting.popleft(), self._port, **tls)
                    attempts.add(loop.create_task(dialling))
                within_s = NEXT_ADDRESS_AFTER_S if waiting else None
                ended, _ = await asyncio.wait(attempts, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
                for attempt in ended:
                    attempts.discard(attempt)
                    error = attempt.exception()
                    if error is None:
                        return attempt.result()
                    if isinstance(error, ssl.SSLError):
                        raise error
                    failure = error
            raise failure
        finally:
            for attempt in attempts:
                attempt.cancel()
                # It may have succeeded at this moment.
                attempt.add_done_callback(_hang_up)

    def close(self) -> None:
        """Cancel the look-up of the name."""
        if self._lookup is not None:
            self._lookup.cancel()

    async def _addresses(self) -> list[str]:
        """Return the addresses of the name; concurrent callers share one look-up."""
        if self._lookup is None:
            self._lookup = asyncio.get_running_loop().create_task(look_up(self._name, self._port))
            self._lookup.add_done_callback(self._looked_up)
        return [address for _, address in await asyncio.shield(self._lookup)]

    def _looked_up(self, lookup: asyncio.Task[list[Address]]) -> None:
        self._lookup = None
        if not lookup.cancelled():
            # Mark the exception as retrieved: all callers may have been cancelled.
            lookup.exception()


def _hang_up(attempt: asyncio.Task[tuple[asyncio.Transport, ProtocolT]]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result()[0].abort()
