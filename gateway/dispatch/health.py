"""What a worker says of its own health, as long as it says anything: gRPC's Watch of the whole server.

Only a worker that says NOT_SERVING is not to be asked. Everything else counts as serving: no word yet, a
server that knows nothing of itself, one that serves no health, and a watch that broke, since whether the
worker is there at all shows on its stream. So a fault of the watch never takes an endpoint out.

Source: gRPC's health checking protocol (grpc/doc/health-checking.md), and gRFC A17 for its clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]

from gateway.dispatch.dialer import Unreachable
from gateway.dispatch.rpc import CallStatus
from gateway.dispatch.stream_connection import KEEPALIVE_TIME_S, KEEPALIVE_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.dispatch.dialer import Dialer
    from gateway.dispatch.stream_connection import StreamConnection

log = logging.getLogger(__name__)

WATCH: Final = "/grpc.health.v1.Health/Watch"

MIN_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 30.0
"""Also how long a watch has to last for the next one not to wait longer than the one before."""

MAX_MESSAGES: Final = 100
"""Within ``KEEPALIVE_TIME_S``. Each change is a log line; a health that changes more often is useless."""
_MAX_MESSAGE_BYTES: Final = 1024
"""A status is two bytes."""

_OF_A_LOST_WORKER: Final = ("OK", "CANCELLED", "UNAVAILABLE")
"""How a watch ends when the worker goes away, which is for the endpoint to report."""


class HealthWatch:
    """Follows the health of one worker until it is closed. Make it on a running event loop."""

    def __init__(self, dialer: Dialer, told: Callable[[bool], None]) -> None:
        """Watch at *dialer*, beginning with the belief that the worker serves.

        *told* takes every change of that belief: False when the worker says that it does not serve, True when
        that is over.
        """
        self._dialer = dialer
        self._told = told
        self._is_serving = True
        self._watch: _Watch | None = None
        self._connection: StreamConnection | None = None
        self._is_anew = asyncio.Event()
        self._last_complaint: str | None = None
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    def __repr__(self) -> str:
        watching = "watching" if self._watch is not None else "not watching"
        return f"<HealthWatch {self._dialer.address} {watching}, {'' if self._is_serving else 'not '}serving>"

    def again(self) -> None:
        """Begin anew and at once: the worker was reached, which may be another one than the one watched.

        What was said last counts until the new one says something, or the new watch ends.
        """
        self._is_anew.set()
        if self._watch is not None:
            self._watch.ended(CallStatus("CANCELLED", "the worker is watched anew"))

    async def close(self) -> None:
        """End the watch and its connection; *told* is not called any more."""
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        backoff_s = MIN_BACKOFF_S
        while True:
            began = loop.time()
            status = await self._follow()
            if not self._is_anew.is_set():
                self._lost(status)
                if loop.time() - began >= MAX_BACKOFF_S:
                    backoff_s = MIN_BACKOFF_S
                is_served = status.code != "UNIMPLEMENTED"
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._is_anew.wait(), backoff_s if is_served else None)
                backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)
            if self._is_anew.is_set():
                backoff_s = MIN_BACKOFF_S

    async def _follow(self) -> CallStatus:
        """Watch until the watch ends, and return how it did."""
        watch = _Watch(self._heard)
        self._is_anew.clear()
        try:
            self._connection = connection = await self._dialer.dial(WATCH, watch)
        except Unreachable as error:
            return CallStatus("UNAVAILABLE", str(error))
        except Exception as error:
            log.exception("the health of a worker cannot be watched: internal error")
            return CallStatus("INTERNAL", f"the gateway cannot connect: {type(error).__name__}")
        # Whoever was reached meanwhile is the one that answered here.
        self._is_anew.clear()
        self._watch = watch
        try:
            connection.send(health_pb2.HealthCheckRequest(service="").SerializeToString())
            connection.finish_writing()
            await _until_over(watch, connection)
        finally:
            self._watch = None
            connection.abort()
        return watch.over.result()

    def _heard(self, is_serving: bool) -> None:
        self._last_complaint = None
        if is_serving != self._is_serving:
            text = "worker %s is serving again" if is_serving else "worker %s says that it is not serving"
            log.info(text, self._dialer.address)
            self._believe(is_serving=is_serving)

    def _lost(self, status: CallStatus) -> None:
        """The watch ended, and says nothing of the worker any more."""
        if status.code not in (*_OF_A_LOST_WORKER, "UNIMPLEMENTED"):
            complaint = f"{status.code}: {status.details}"
            if complaint != self._last_complaint:
                log.info("the health of worker %s cannot be watched: %s", self._dialer.address, complaint)
            self._last_complaint = complaint
        if not self._is_serving:
            log.info("worker %s does not say any more that it is not serving", self._dialer.address)
            self._believe(is_serving=True)

    def _believe(self, *, is_serving: bool) -> None:
        self._is_serving = is_serving
        try:
            self._told(is_serving)
        except Exception:
            # Who follows what the worker says next must not end with it.
            log.exception("internal error after a worker's health changed; the health watch goes on")


class _Watch:
    """What comes on one call of Watch."""

    def __init__(self, heard: Callable[[bool], None]) -> None:
        self.over: asyncio.Future[CallStatus] = asyncio.get_running_loop().create_future()
        """Done when nothing more is to be expected."""
        self.has_spoken = False
        self._heard = heard
        self._messages = 0

    def reset_window(self) -> None:
        """Count messages anew."""
        self._messages = 0

    # -- called by the connection -----------------------------------------------------------------------

    def received(self, message: bytes | bytearray) -> None:
        """Take a status."""
        if self.over.done():
            return
        self._messages += 1
        if self._messages > MAX_MESSAGES:
            self.ended(CallStatus("RESOURCE_EXHAUSTED", "a flood of messages from the worker"))
            return
        try:
            if len(message) > _MAX_MESSAGE_BYTES:
                raise DecodeError(f"{len(message)} bytes")
            status = health_pb2.HealthCheckResponse.FromString(bytes(message)).status
        except DecodeError as error:
            text = f"the worker sent something that is no HealthCheckResponse: {error}"
            self.ended(CallStatus("INTERNAL", text))
            return
        self.has_spoken = True
        self._heard(status != health_pb2.HealthCheckResponse.NOT_SERVING)

    def writable(self) -> None:
        """There is room for another message; all is said."""

    def leaving(self) -> None:
        """Let the worker go: one that stops gracefully would wait for this call until its grace is over."""
        self.ended(CallStatus("UNAVAILABLE", "the worker takes no more calls on this connection"))

    def ended(self, status: CallStatus) -> None:
        """The call is over."""
        if not self.over.done():
            self.over.set_result(status)


async def _until_over(watch: _Watch, connection: StreamConnection) -> None:
    """Return when *watch* is over, which a silence of some length also makes it."""
    loop = asyncio.get_running_loop()
    while not watch.over.done():
        last_received_at = connection.last_received_at
        await asyncio.wait([watch.over], timeout=max(0.0, last_received_at + KEEPALIVE_TIME_S - loop.time()))
        connection.reset_window()
        watch.reset_window()
        if not watch.has_spoken:
            # What the worker before it said would count for ever.
            watch.ended(CallStatus("UNAVAILABLE", "the worker does not say how it is"))
        if watch.over.done() or connection.last_received_at != last_received_at:
            continue
        connection.ping()
        await asyncio.wait([watch.over], timeout=KEEPALIVE_TIMEOUT_S)
        if connection.last_received_at == last_received_at:
            watch.ended(
                CallStatus("UNAVAILABLE", f"no sign of life for {KEEPALIVE_TIME_S + KEEPALIVE_TIMEOUT_S:g}s")
            )
