"""The transport to one worker: its stream if it serves one, and a gRPC channel for unary calls.

Whether a worker serves ReviewStream shows only when it refuses one. With transport Auto the calls of a
refused stream are sent by Review, and so are all others until the worker is lost. The channel is opened when
it is first needed.

A stream also ends for all its calls when one answer cannot be read. Calls whose webhook has no side effects
are then retried by Review, each in its own RPC and within its remaining time, so that a faulty policy fails
alone.

gRPC's exceptions end here and in the stream and the unary calls; the rest of the gateway sees only verdicts.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from gateway.engine.dispatch.calls import CallSink
from gateway.engine.dispatch.dialer import load_grpc
from gateway.engine.dispatch.rpc import CallStatus
from gateway.engine.dispatch.stream import ReviewStream
from gateway.engine.dispatch.unary import SERVICE, UnaryCalls
from gateway.engine.dispatch.verdicts import failed_status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import grpc

    from gateway.config.kinds.worker_pool import TransportMode
    from gateway.engine.dispatch.calls import CallGroup, Transport
    from gateway.engine.dispatch.dialer import Dialer
    from gateway.engine.dispatch.outlier_detection import OutlierState
    from gateway.engine.dispatch.stream_connection import StreamConnection, StreamConnectionOwner
    from gateway.observe.telemetry.metrics import PoolMetrics
    from gateway.pure.core.verdict import Failed

log = logging.getLogger(__name__)

REVIEW_STREAM: Final = f"{SERVICE}/ReviewStream"

PROBE_GRACE_S: Final = 0.1
MIN_BACKOFF_S: Final = 0.05
MAX_BACKOFF_S: Final = 1.0

_BROKEN_BY_AN_ANSWER: Final = ("INTERNAL", "RESOURCE_EXHAUSTED", "UNKNOWN", "OK")
"""Statuses of a stream whose worker is alive: an answer cannot be read or is too large, the worker raised an
exception, or it ended the stream itself, open calls or not."""


class TransportOwner(CallSink, Protocol):
    """Takes the results of calls, and the events of a transport."""

    address: str
    failed_attempts: int
    """How often the worker was lost since its last answer."""
    ban_status: CallStatus | None
    """Status of the stream that led to the last ban."""
    outlier: OutlierState

    def ready(self, transport: WorkerTransport) -> None:
        """The worker is connected."""

    def lost(self, transport: WorkerTransport, reason: str) -> None:
        """The worker was lost, or cannot be reached."""

    def banned(self, transport: WorkerTransport, status: CallStatus) -> None:
        """The worker violated the protocol."""

    def draining(self, transport: WorkerTransport, replace_reason: str = "") -> None:
        """The worker accepts no further calls there, or should get none for the reason *replace_reason*."""


class BackoffTransport:
    """Fails all calls with the status of those before, while the worker must not be connected again."""

    has_chains: Final = False

    def __init__(self, retry: Callable[[CallGroup, Failed, str], None], status: CallStatus) -> None:
        """Give calls back to *retry* with *status*."""
        self._retry = retry
        self._status = status

    def submit(self, group: CallGroup) -> None:
        """Fail the calls in a later iteration of the loop, because the caller is not reentrant."""
        asyncio.get_running_loop().call_soon(self._fail, group)

    def withdraw(self, group: CallGroup, index: int) -> None:
        """Nothing was sent."""

    def _fail(self, group: CallGroup) -> None:
        self._retry(group, failed_status(self._status.code, self._status.details), self._status.code)


class WorkerTransport:
    """The stream and the channel to one worker. Create it on a running event loop."""

    def __init__(
        self,
        dialer: Dialer,
        mode: TransportMode,
        owner: TransportOwner,
        metrics: PoolMetrics,
        now: Callable[[], float],
    ) -> None:
        self._dialer = dialer
        self._mode = mode
        self._owner = owner
        self._metrics = metrics
        self._now = now
        self._channel: grpc.aio.Channel | None = None
        self._unary = UnaryCalls(self._open_channel, dialer.account, owner, self.unavailable, now)
        self._probe: asyncio.Task[None] | None = None
        self._stream: ReviewStream | None = None
        self.is_streaming = mode != "Unary"
        """Whether calls use the stream."""
        self._is_closing = False
        self._is_lost = asyncio.Event()
        self._last_status: CallStatus | None = None
        """Status of the last stream; None before the first one has ended."""
        self._is_broken_by_an_answer = False
        self._reconnect_at = self._next_attempt_at()
        self._keeper = asyncio.get_running_loop().create_task(self._keep_connected())

    def choose(self, *, is_large: bool) -> Transport:
        """Return the transport of a group of calls; large ones would delay others on the stream."""
        ban_status = self._owner.ban_status
        if ban_status is not None and self._now() < self._owner.outlier.banned_until:
            return BackoffTransport(self._owner.retry, ban_status)
        if not self.is_streaming or is_large:
            return self._unary
        if self._stream is None:
            now = self._now()
            status = self._last_status if now < self._reconnect_at else None
            if now < self._owner.outlier.stream_after or (
                status is not None and self._is_broken_by_an_answer
            ):
                # Other policies must not be delayed by the faulty one.
                return self._unary
            if status is not None:
                return BackoffTransport(self._owner.retry, status)
            self._stream = self._open_stream()
        return self._stream

    async def close(self) -> None:
        """Close everything; open calls end as cancelled."""
        self._is_closing = True
        tasks = [task for task in (self._keeper, self._probe) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._stream is not None:
            await self._stream.close()
        await self._unary.close()
        if self._channel is not None:
            await self._channel.close()

    @property
    def _connection(self) -> StreamConnection | None:
        return None if self._stream is None else self._stream.connection

    @property
    def is_busy(self) -> bool:
        """Whether any result is expected."""
        return self._stream is not None or self._unary.is_busy

    @property
    def last_received_at(self) -> float:
        """When anything was last received from the worker, in monotonic seconds."""
        connection, unary_at = self._connection, self._unary.last_received_at
        return unary_at if connection is None else max(connection.last_received_at, unary_at)

    def probe(self) -> None:
        """Make the worker send something, which updates ``last_received_at``."""
        connection = self._connection
        is_pinged = connection is not None and connection.probe()
        if not is_pinged and (self._probe is None or self._probe.done()):
            self._probe = asyncio.get_running_loop().create_task(self._probe_address())

    def unavailable(self, reason: str) -> None:
        """The worker was lost, or could not be reached for a call."""
        self.is_streaming = self._mode != "Unary"
        if not self._is_closing and not self._is_lost.is_set():
            self._is_lost.set()
            self._owner.lost(self, reason)
            self._reconnect_at = self._next_attempt_at()

    def drop(self, reason: str) -> None:
        """End the stream, and connect again once that is allowed."""
        if self._stream is not None:
            self._stream.drop(reason)
        else:
            self.unavailable(reason)

    def opened(self) -> None:
        """The stream is connected."""
        self._is_lost.clear()
        self._owner.ready(self)

    def draining(self, replace_reason: str = "") -> None:
        """The worker announced its shutdown, or should get no more calls for the reason *replace_reason*."""
        if not self._is_closing:
            self._owner.draining(self, replace_reason)

    def finish_writing(self) -> None:
        """Send nothing more, so that a draining worker can end the stream."""
        self._keeper.cancel()
        if self._stream is not None:
            self._stream.finish_writing()

    def ended(self, status: CallStatus, unanswered: list[CallGroup]) -> None:
        """The stream has ended: retry its calls elsewhere, or by Review."""
        connection = self._connection
        # If the address was not reachable, an immediate retry there is pointless.
        may_reuse = connection is not None
        # A worker that has sent a message serves ReviewStream, and may have executed the calls.
        is_refused = status.code == "UNIMPLEMENTED" and not (
            connection is not None and connection.has_received_message
        )
        self._stream = None
        unanswered = [group for group in unanswered if self._has_calls_without_chain(group, status.code)]
        if status.is_misconduct:
            self._ban(status, unanswered)
            return
        if is_refused and self._mode == "Auto":
            log.info("worker %s serves no ReviewStream; its calls use Review", self._owner.address)
            self.is_streaming = False
            self._is_lost.set()
            for group in unanswered:
                self._resubmit_unary(group)
            return
        self._is_broken_by_an_answer = is_alive = status.code in _BROKEN_BY_AN_ANSWER
        if is_alive and status.code != "OK":
            self._owner.outlier.stream_broke(self._now())
        if status.code == "OK":
            status = CallStatus("UNAVAILABLE", "the worker ended the stream")
        self._last_status = status
        self.unavailable(f"{status.code}: {status.details}")
        failure = failed_status(status.code, status.details)
        resubmitted = []
        for group in unanswered:
            if not group.was_sent or not is_alive:
                self._owner.retry(group, failure, status.code, may_reuse=may_reuse)
                continue
            resubmitted.append(group)
            for index, call in enumerate(group.calls):
                # Each of the others gets its own RPC, so that only the call at fault fails.
                if call is not None and call.invocation.webhook.side_effects != "None":
                    self._owner.finish(group, index, failure, status.code)
        for group in resubmitted:
            # The review may have ended meanwhile.
            if group.open_count:
                self._owner.count(status.code, group.open_count, is_enforced=group.is_enforced)
                self._metrics.retries += group.open_count
                self._resubmit_unary(group)

    def _has_calls_without_chain(self, group: CallGroup, code: str) -> bool:
        """Take back the calls of chains, because only this worker had their object.

        Count them with status *code*, and return whether *group* has other calls.
        """
        for index, call in enumerate(group.calls):
            if call is not None and call.after is not None:
                self._owner.count(code, is_enforced=group.is_enforced)
                self._owner.refuse(group, index)
        return group.open_count > 0

    def _ban(self, status: CallStatus, unanswered: list[CallGroup]) -> None:
        """After a protocol violation, send the worker no more calls, neither on the stream nor by Review."""
        self._is_lost.set()
        self._owner.banned(self, status)
        self._reconnect_at = self._next_attempt_at()
        for group in unanswered:
            self._owner.retry(group, failed_status(status.code, status.details), status.code)

    def _resubmit_unary(self, group: CallGroup) -> None:
        group.transport = self._unary
        self._unary.submit(group)

    def _next_attempt_at(self) -> float:
        """Return when the worker may be connected again, on the clock of ``now``.

        The back-off prevents a tight loop with a worker that accepts connections and ends every stream.
        """
        attempts = min(self._owner.failed_attempts, 10)
        backoff_s = min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2**attempts) if attempts > 1 else 0.0
        outlier = self._owner.outlier
        return max(self._now() + backoff_s, outlier.banned_until, outlier.stream_after)

    def _open_stream(self) -> ReviewStream:
        def dial(owner: StreamConnectionOwner) -> Awaitable[StreamConnection]:
            return self._dialer.dial(REVIEW_STREAM, owner)

        return ReviewStream(dial, self._owner, self, self._metrics, self._now)

    async def _open_channel(self) -> grpc.aio.Channel:
        await load_grpc()
        if self._channel is None:
            self._channel = self._dialer.open_channel()
        return self._channel

    async def _keep_connected(self) -> None:
        """Connect before the first call, and again whenever the worker is lost."""
        while True:
            await asyncio.sleep(max(0.0, self._reconnect_at - self._now()))
            self._is_lost.clear()
            if not self.is_streaming:
                await (await self._open_channel()).channel_ready()
                self._owner.ready(self)
            elif self._stream is None:
                self._stream = self._open_stream()
            elif self._stream.connection is not None:
                # Only a unary call found the worker lost.
                self._owner.ready(self)
            await self._is_lost.wait()

    async def _probe_address(self) -> None:
        if not await self._dialer.is_reachable():
            return
        connection = self._connection
        if connection is not None and connection.owes_a_pong:
            # A worker that has just resumed answers everything at once.
            await asyncio.sleep(PROBE_GRACE_S)
            if connection is self._connection and connection.owes_a_pong:
                # Another process at the same port. The silent one keeps its calls: it may resume.
                self.draining("no response on the stream, while the address accepts connections")
                return
        self._unary.last_received_at = self._now()
