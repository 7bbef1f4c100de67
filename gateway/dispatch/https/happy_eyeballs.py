"""TCP connections to a host: its name looked up aside, its addresses tried as Go tries them.

An event loop looks names up in threads of few (two of libuv's), and a name server that does not answer takes
each for many seconds: a few dead names would keep all others waiting, those of workers too. So every host has
a thread of its own for it, one at a time. A further address is tried where the one before refuses, or stays
silent for a while; all go on until one takes the connection.

Source: RFC 8305; net/http and net/dial.go of Go (FallbackDelay).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    Answer = list[str] | Exception

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)

HANDSHAKE_S: Final = 10.0
NEXT_ADDRESS_AFTER_S: Final = 1.0
"""Longer than Go waits: the TLS handshake, which a busy server takes its time for, is part of it."""


class Host:
    """A host, by name or address, and a port of it. Use it on a running event loop."""

    def __init__(self, name: str, port: int) -> None:
        self._name = name
        self._port = port
        self._lookup: asyncio.Future[list[str]] | None = None

    async def connect(
        self, protocol: Callable[[], ProtocolT], context: ssl.SSLContext | None = None, tls_name: str = ""
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Return a connection to the first address that takes one, with TLS if there is a *context*.

        Raises:
            OSError: none does, or the name cannot be looked up.
            ValueError: it is no name.
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
                # One may have come just now.
                attempt.add_done_callback(_hang_up)

    def close(self) -> None:
        """Let nobody wait for the name any more."""
        if self._lookup is not None:
            self._lookup.cancel()

    async def _addresses(self) -> list[str]:
        """Return what the name stands for; all who wait share one question."""
        with contextlib.suppress(ValueError):
            return [str(ipaddress.ip_address(self._name))]
        if self._lookup is None:
            self._lookup = asyncio.get_running_loop().create_future()
            self._lookup.add_done_callback(self._looked_up)
            # Not waited for when the gateway ends, as an executor's threads would be.
            thread = threading.Thread(target=self._look_up, args=(self._lookup,), daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                _settle(self._lookup, OSError(str(error)))
        return await asyncio.shield(self._lookup)

    def _looked_up(self, lookup: asyncio.Future[list[str]]) -> None:
        self._lookup = None
        if not lookup.cancelled():
            # Perhaps nobody waits any more.
            lookup.exception()

    def _look_up(self, lookup: asyncio.Future[list[str]]) -> None:
        answer: Answer
        try:
            found = socket.getaddrinfo(self._name, self._port, type=socket.SOCK_STREAM)
            answer = [str(address[0]) for *_, address in found]
        except (OSError, ValueError) as error:
            answer = error
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            lookup.get_loop().call_soon_threadsafe(_settle, lookup, answer)


def _settle(lookup: asyncio.Future[list[str]], answer: Answer) -> None:
    if lookup.done():
        return
    if isinstance(answer, Exception):
        lookup.set_exception(answer)
    else:
        lookup.set_result(answer)


def _hang_up(attempt: asyncio.Task[tuple[asyncio.Transport, ProtocolT]]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result()[0].abort()
