"""The way to one worker: its stream where it serves one, and beside it a channel for calls of their own.

Whether a worker serves ReviewStream shows only when it refuses one. With transport Auto the calls that were
asked on a stream that is refused are asked by Review, and so are all others until the worker was lost. The
channel for them is opened when it is first needed.

A stream also ends for all its calls when one answer cannot be read. Those whose webhook has no side effects
are then asked again by Review, each by itself and within the time that it has left, so that a policy at fault
takes nobody with it who could still answer.

gRPC's exceptions end here and in the carriers: outside there are only verdicts.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from gateway.dispatch.calls import BackoffTransport
from gateway.dispatch.rpc import CallStatus
from gateway.dispatch.stream import ReviewStream
from gateway.dispatch.stream_connection import KEEPALIVE_TIME_S, KEEPALIVE_TIMEOUT_S
from gateway.dispatch.unary import SERVICE, UnaryCalls
from gateway.dispatch.verdicts import failed_status

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

    from gateway.config.model import TransportMode
    from gateway.core.verdict import Failed, Verdict
    from gateway.dispatch.calls import CallGroup, Transport
    from gateway.dispatch.dialer import Dialer
    from gateway.dispatch.outlier_detection import OutlierState
    from gateway.dispatch.stream_connection import StreamConnection
    from gateway.telemetry.metrics import PoolMetrics

log = logging.getLogger(__name__)

REVIEW_STREAM: Final = f"{SERVICE}/ReviewStream"

KNOCK_GRACE_S: Final = 0.1
MIN_BACKOFF_S: Final = 0.05
MAX_BACKOFF_S: Final = 1.0

_BROKEN_BY_AN_ANSWER: Final = ("INTERNAL", "RESOURCE_EXHAUSTED", "UNKNOWN", "OK")
"""How a stream ends whose worker is there: by an answer that cannot be read, or is too large, by an exception
in the worker, or by its own decision, whatever it owes."""


class TransportOwner(Protocol):
    """Whom a connection reports to."""

    address: str
    failures: int
    """How often the worker was lost since it last answered."""
    ban: CallStatus | None
    """How the stream ended for which the worker is banned, or was the last time."""
    outlier: OutlierState

    def finish(self, group: CallGroup, index: int, verdict: Verdict, code: str | None = None) -> None:
        """Take the verdict of a call; *code* is its gRPC status, None if it was counted already."""

    def retry(
        self,
        group: CallGroup,
        failure: Failed,
        code: str,
        index: int | None = None,
        *,
        may_reuse: bool = False,
    ) -> None:
        """Take a call back that was lost with the worker, or all of a slot's; *code* is its gRPC status."""

    def count(self, code: str, number: int = 1) -> None:
        """Count calls that ended with gRPC status *code*."""

    def ready(self, connection: WorkerTransport) -> None:
        """The worker was reached."""

    def lost(self, connection: WorkerTransport, why: str) -> None:
        """The worker was lost, or cannot be reached."""

    def banned(self, connection: WorkerTransport, status: CallStatus) -> None:
        """The worker broke the protocol: nothing is to be asked of it for a while."""

    def draining(self, connection: WorkerTransport, distrust: str = "") -> None:
        """The worker finishes what it has, and wants nothing new; or it is not to be trusted with more."""


class WorkerTransport:
    """A stream and a channel, and what goes over them. Make it on a running event loop."""

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
        # Passed on as they are: a frame less for each of the many answers.
        self.finish = owner.finish
        self.retry = owner.retry
        self.count = owner.count
        self._metrics = metrics
        self._now = now
        self._channel: grpc.aio.Channel | None = None
        self._unary = UnaryCalls(self._open_channel, dialer.account, self, now)
        self._knocking: asyncio.Task[None] | None = None
        self._stream: ReviewStream | None = None
        self.is_streaming = mode != "Unary"
        """Whether calls go over the stream."""
        self._is_closing = False
        self._is_lost = asyncio.Event()
        self._why_lost: CallStatus | None = None
        """How the stream ended last; None while there was none that did."""
        self._is_broken_by_an_answer = False
        self._dial_at = self._when_to_dial()
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    def transport(self, *, is_large: bool) -> Transport:
        """Return what calls are to be submitted to; large ones would hold up others on the stream."""
        ban = self._owner.ban
        if ban is not None and self._now() < self._owner.outlier.banned_until:
            return BackoffTransport(self.retry, ban)
        if not self.is_streaming or is_large:
            return self._unary
        if self._stream is None:
            if self._why_lost is not None and self._now() < self._dial_at:
                if self._is_broken_by_an_answer:
                    # Who did nothing to break it must not wait with whoever did.
                    return self._unary
                return BackoffTransport(self.retry, self._why_lost)
            self._stream = self._open_stream()
        return self._stream

    async def close(self) -> None:
        """End everything; calls still out end as cancelled."""
        self._is_closing = True
        tasks = [task for task in (self._keeper, self._knocking) if task is not None]
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
        """Whether anything is still expected over it."""
        return self._stream is not None or self._unary.is_busy

    @property
    def last_received_at(self) -> float:
        """When the worker gave a sign of life last, in monotonic seconds."""
        connection = self._connection
        return (
            self._unary.last_received_at
            if connection is None
            else max(connection.last_received_at, self._unary.last_received_at)
        )

    def probe(self) -> None:
        """Ask for a sign of life, which shows in ``last_received_at``."""
        connection = self._connection
        is_asked = connection is not None and connection.probe()
        if not is_asked and (self._knocking is None or self._knocking.done()):
            self._knocking = asyncio.get_running_loop().create_task(self._knock())

    def unavailable(self, why: str) -> None:
        """The worker was lost, or could not be reached for a call."""
        self.is_streaming = self._mode != "Unary"
        if not self._is_closing and not self._is_lost.is_set():
            self._is_lost.set()
            self._owner.lost(self, why)
            self._dial_at = self._when_to_dial()

    def drop(self, why: str) -> None:
        """Give the worker up, and reach it anew once that is allowed."""
        if self._stream is not None:
            self._stream.lose(why)
        else:
            self.unavailable(why)

    def opened(self) -> None:
        """The stream reached the worker."""
        self._is_lost.clear()
        self._owner.ready(self)

    def draining(self, distrust: str = "") -> None:
        """The worker said on its stream that it is going away, or what shows that it is not to be trusted."""
        if not self._is_closing:
            self._owner.draining(self, distrust)

    def leave(self) -> None:
        """Ask nothing more over this connection, so that a worker that drains can end it."""
        self._keeper.cancel()
        if self._stream is not None:
            self._stream.finish_writing()

    def ended(self, status: CallStatus, unanswered: list[CallGroup]) -> None:
        """Take back the calls of the stream, which is over."""
        connection = self._connection
        # Where nobody was reached, there is no use in looking there again at once.
        may_reuse = connection is not None
        # Whoever has answered serves it, and may have done what it was asked.
        is_refused = status.code == "UNIMPLEMENTED" and not (connection is not None and connection.has_spoken)
        self._stream = None
        if status.is_misconduct:
            self._leave_alone(status, unanswered)
            return
        if is_refused and self._mode == "Auto":
            log.info("worker %s serves no ReviewStream: calling it by Review", self._owner.address)
            self.is_streaming = False
            self._is_lost.set()
            for group in unanswered:
                self._resubmit_unary(group)
            return
        self._is_broken_by_an_answer = is_there = status.code in _BROKEN_BY_AN_ANSWER
        if is_there and status.code != "OK":
            self._owner.outlier.broke(self._now())
        if status.code == "OK":
            status = CallStatus("UNAVAILABLE", "the worker ended the stream")
        self._why_lost = status
        self.unavailable(f"{status.code}: {status.details}")
        failure = failed_status(status.code, status.details)
        asked_again = []
        for group in unanswered:
            if not group.was_sent or not is_there:
                self._owner.retry(group, failure, status.code, may_reuse=may_reuse)
                continue
            asked_again.append(group)
            for index, call in enumerate(group.calls):
                # If the others are asked each by itself, only the call at fault will fail.
                if call is not None and call.invocation.webhook.side_effects != "None":
                    self._owner.finish(group, index, failure, status.code)
        for group in asked_again:
            # Those whose review has not ended meanwhile.
            if group.open_count:
                self._owner.count(status.code, group.open_count)
                self._metrics.retries += group.open_count
                self._resubmit_unary(group)

    def _leave_alone(self, status: CallStatus, unanswered: list[CallGroup]) -> None:
        """Ask nothing of a worker that broke the protocol, by Review neither."""
        self._is_lost.set()
        self._owner.banned(self, status)
        self._dial_at = self._when_to_dial()
        for group in unanswered:
            self._owner.retry(group, failed_status(status.code, status.details), status.code)

    def _resubmit_unary(self, group: CallGroup) -> None:
        group.transport = self._unary
        self._unary.submit(group)

    def _when_to_dial(self) -> float:
        """Return when the worker may be called upon again, on the clock of ``now``.

        One that takes connections and ends every stream must not be asked in a tight loop, and one that broke
        the protocol not before its ban ends.
        """
        failures = min(self._owner.failures, 10)
        backoff_s = min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2**failures) if failures > 1 else 0.0
        outlier = self._owner.outlier
        return max(self._now() + backoff_s, outlier.banned_until, outlier.stream_after)

    def _open_stream(self) -> ReviewStream:
        return ReviewStream(
            lambda owner: self._dialer.dial(REVIEW_STREAM, owner), self, self._metrics, self._now
        )

    def _open_channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = self._dialer.open_channel()
        return self._channel

    async def _keep(self) -> None:
        """Reach the worker before it is needed, and again whenever it is lost."""
        while True:
            await asyncio.sleep(max(0.0, self._dial_at - self._now()))
            self._is_lost.clear()
            if not self.is_streaming:
                await self._open_channel().channel_ready()
                self._owner.ready(self)
            elif self._stream is None:
                self._stream = self._open_stream()
            elif self._stream.connection is not None:
                # It was a call of its own that found the worker gone.
                self._owner.ready(self)
            await self._until_lost()

    async def _knock(self) -> None:
        if not await self._dialer.knock():
            return
        connection = self._connection
        if connection is not None and connection.owes_a_pong:
            # One that has just gone on answers all at once.
            await asyncio.sleep(KNOCK_GRACE_S)
            if connection is self._connection and connection.owes_a_pong:
                # Another process at the same port. What the silent one has is left to it: it may go on.
                self.draining("takes connections, and says nothing on the one that it has")
                return
        self._unary.last_received_at = self._now()

    async def _until_lost(self) -> None:
        """Return when the worker is lost, which a silence of some length is taken for."""
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(self._is_lost.wait())
        try:
            while not waiting.done():
                stream = self._stream
                connection = None if stream is None else stream.connection
                last_received_at = loop.time() if connection is None else connection.last_received_at
                await asyncio.wait(
                    [waiting], timeout=max(0.0, last_received_at + KEEPALIVE_TIME_S - loop.time())
                )
                if stream is None or connection is None or stream is not self._stream:
                    continue
                stream.reset_window()
                if connection.last_received_at != last_received_at:
                    continue
                connection.ping()
                await asyncio.wait([waiting], timeout=KEEPALIVE_TIMEOUT_S)
                if stream is self._stream and connection.last_received_at == last_received_at:
                    stream.lose(f"no sign of life for {KEEPALIVE_TIME_S + KEEPALIVE_TIMEOUT_S:g}s")
        finally:
            waiting.cancel()
