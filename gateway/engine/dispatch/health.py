"""The health that a worker reports: gRPC's Watch of the whole server.

Only a worker that reports NOT_SERVING gets no calls. Everything else counts as serving: no report yet, an
unknown status, a worker without health checks, and a lost watch, since the stream shows whether the worker is
reachable. So a failure of the watch alone never takes an endpoint out.

Source: gRPC's health checking protocol (grpc/doc/health-checking.md), and gRFC A17 for its clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]

from gateway.engine.dispatch.dialer import Unreachable
from gateway.engine.dispatch.rpc import CallStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.engine.dispatch.dialer import Dialer
    from gateway.engine.dispatch.stream_connection import StreamConnection

log = logging.getLogger(__name__)

WATCH: Final = "/grpc.health.v1.Health/Watch"

MIN_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 30.0
"""Also the duration of a watch after which the back-off starts over."""

MAX_MESSAGES: Final = 100
"""Within ``KEEPALIVE_TIME_S``. Each change is a log line. The watch ends if there are more."""
_MAX_MESSAGE_BYTES: Final = 1024
"""A status has two bytes."""

_OF_A_LOST_WORKER: Final = ("OK", "CANCELLED", "UNAVAILABLE")
"""Statuses of a watch whose worker was lost. The endpoint logs that."""


class HealthWatch:
    """Watches the health of one worker until it is closed. Create it on a running event loop."""

    def __init__(self, dialer: Dialer, on_change: Callable[[bool], None]) -> None:
        """Watch the worker at *dialer*, which counts as serving at first.

        *on_change* gets False when the worker reports NOT_SERVING, and True when that no longer holds.
        """
        self._dialer = dialer
        self._on_change = on_change
        self._is_serving = True
        self._watch: _Watch | None = None
        self._connection: StreamConnection | None = None
        self._is_restarted = asyncio.Event()
        self._last_failure: str | None = None
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    def __repr__(self) -> str:
        watching = "watching" if self._watch is not None else "not watching"
        return f"<HealthWatch {self._dialer.address} {watching}, {'' if self._is_serving else 'not '}serving>"

    def restart(self) -> None:
        """Watch again without delay: a worker was connected, perhaps another one than before.

        The last report counts until the first report of the new watch, or its end.
        """
        self._is_restarted.set()
        if self._watch is not None:
            self._watch.ended(CallStatus("CANCELLED", "the watch is restarted"))

    async def close(self) -> None:
        """End the watch and its connection; *on_change* is not called any more."""
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
            if not self._is_restarted.is_set():
                self._lost(status)
                if loop.time() - began >= MAX_BACKOFF_S:
                    backoff_s = MIN_BACKOFF_S
                is_served = status.code != "UNIMPLEMENTED"
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._is_restarted.wait(), backoff_s if is_served else None)
                backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)
            if self._is_restarted.is_set():
                backoff_s = MIN_BACKOFF_S

    async def _follow(self) -> CallStatus:
        """Watch until the call ends, and return its status."""
        watch = _Watch(self._on_report)
        self._is_restarted.clear()
        try:
            self._connection = connection = await self._dialer.dial(WATCH, watch)
        except Unreachable as error:
            return CallStatus("UNAVAILABLE", str(error))
        except Exception as error:
            log.exception("internal error while connecting a health watch; it is tried again")
            return CallStatus("INTERNAL", f"internal error while connecting: {type(error).__name__}")
        # A restart during the connection is satisfied by it.
        self._is_restarted.clear()
        self._watch = watch
        try:
            connection.send(health_pb2.HealthCheckRequest(service="").SerializeToString())
            connection.finish_writing()
            connection.start_keepalive(watch.on_period)
            await watch.over
        finally:
            self._watch = None
            connection.abort()
        return watch.over.result()

    def _on_report(self, is_serving: bool) -> None:
        self._last_failure = None
        if is_serving != self._is_serving:
            text = (
                "worker %s reports SERVING; it gets calls again"
                if is_serving
                else "worker %s reports NOT_SERVING; it gets no calls"
            )
            log.info(text, self._dialer.address)
            self._set(is_serving=is_serving)

    def _lost(self, status: CallStatus) -> None:
        """The watch ended: the worker counts as serving."""
        if status.code not in (*_OF_A_LOST_WORKER, "UNIMPLEMENTED"):
            failure = f"{status.code}: {status.details}"
            if failure != self._last_failure:
                log.info("health watch of worker %s failed: %s", self._dialer.address, failure)
            self._last_failure = failure
        if not self._is_serving:
            log.info("health watch of worker %s lost; assuming SERVING", self._dialer.address)
            self._set(is_serving=True)

    def _set(self, *, is_serving: bool) -> None:
        self._is_serving = is_serving
        try:
            self._on_change(is_serving)
        except Exception:
            # The watch must continue.
            log.exception("internal error in health callback; the health watch continues")


class _Watch:
    """The messages of one call of Watch."""

    def __init__(self, on_report: Callable[[bool], None]) -> None:
        self.over: asyncio.Future[CallStatus] = asyncio.get_running_loop().create_future()
        """Done when the call has ended."""
        self.has_report = False
        self._on_report = on_report
        self._messages = 0

    def on_period(self) -> None:
        """The keepalive time has passed: count messages from 0, and require a report by now."""
        self._messages = 0
        if not self.has_report:
            # The report of the worker before it would count for ever.
            self.ended(CallStatus("UNAVAILABLE", "no health report"))

    # -- called by the connection -----------------------------------------------------------------

    def received(self, message: bytes | bytearray) -> None:
        """Take a status."""
        if self.over.done():
            return
        self._messages += 1
        if self._messages > MAX_MESSAGES:
            self.ended(CallStatus("RESOURCE_EXHAUSTED", "too many health reports from the worker"))
            return
        try:
            if len(message) > _MAX_MESSAGE_BYTES:
                raise DecodeError(f"{len(message)} bytes")
            status = health_pb2.HealthCheckResponse.FromString(bytes(message)).status
        except DecodeError as error:
            text = f"the worker sent no valid HealthCheckResponse: {error}"
            self.ended(CallStatus("INTERNAL", text))
            return
        self.has_report = True
        self._on_report(status != health_pb2.HealthCheckResponse.NOT_SERVING)

    def writable(self) -> None:
        """Ignored: the only message is sent."""

    def leaving(self) -> None:
        """End the call, for which a gracefully stopping worker would wait."""
        self.ended(CallStatus("UNAVAILABLE", "the worker accepts no further calls on this connection"))

    def ended(self, status: CallStatus) -> None:
        """The call has ended."""
        if not self.over.done():
            self.over.set_result(status)
