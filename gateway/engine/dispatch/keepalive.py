"""HTTP/2 keepalive: a connection without input is pinged, and ended if no input follows.

Source: gRPC's keepalive guide (grpc.io/docs/guides/keepalive).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

KEEPALIVE_TIME_S: Final = 30.0
"""Time without input after which a ping is sent; servers must allow such pings, see protos/README.md."""
KEEPALIVE_TIMEOUT_S: Final = 10.0
"""Time without input after that ping which ends the connection."""


class Pingable(Protocol):
    """A connection."""

    last_received_at: float
    """When any bytes were last received, in seconds on the loop's clock."""

    def ping(self) -> None:
        """Send a PING frame, which the worker must acknowledge."""


class Keepalive:
    """The keepalive of one connection, until it is stopped. Create it on a running event loop."""

    def __init__(
        self, connection: Pingable, on_period: Callable[[], None], on_timeout: Callable[[str], None]
    ) -> None:
        """Watch *connection*.

        *on_period* is called each time the keepalive time has passed, with input or without. *on_timeout* is
        called once, with a text, if a ping had no effect.
        """
        self._connection = connection
        self._on_period = on_period
        self._on_timeout = on_timeout
        self._loop = asyncio.get_running_loop()
        self._is_stopped = False
        self._schedule()

    def stop(self) -> None:
        """Call nothing any more."""
        self._is_stopped = True
        self._timer.cancel()

    def _schedule(self) -> None:
        last = self._connection.last_received_at
        delay_s = max(0.0, last + KEEPALIVE_TIME_S - self._loop.time())
        self._timer = self._loop.call_later(delay_s, self._check, last)

    def _check(self, last_received_at: float) -> None:
        self._on_period()
        if self._is_stopped:
            return
        if self._connection.last_received_at != last_received_at:
            self._schedule()
            return
        self._connection.ping()
        self._timer = self._loop.call_later(KEEPALIVE_TIMEOUT_S, self._check_response, last_received_at)

    def _check_response(self, last_received_at: float) -> None:
        if self._connection.last_received_at != last_received_at:
            self._schedule()
            return
        silence_s = KEEPALIVE_TIME_S + KEEPALIVE_TIMEOUT_S
        self._on_timeout(f"keepalive timed out after {silence_s:g}s")
