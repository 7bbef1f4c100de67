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

from gateway.dispatch.stream import ReviewStream
from gateway.dispatch.unary import UnaryCalls
from gateway.dispatch.verdicts import failed_status

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

    from gateway.config.model import Transport
    from gateway.core.verdict import Verdict
    from gateway.dispatch.channel import Link
    from gateway.dispatch.pending import Carrier, Pending
    from gateway.dispatch.rpc import CallStatus
    from gateway.telemetry.metrics import PoolMetrics

log = logging.getLogger(__name__)

REVIEW_STREAM: Final = "/admissiongateway.worker.v1.PolicyWorker/ReviewStream"

MAX_STREAM_PAYLOAD_BYTES: Final = 64 * 1024
"""Larger requests go by a call of their own, so that those behind them on the stream do not wait."""

PING_AFTER_S: Final = 30.0
"""Of silence on a stream; servers must allow that, see protos/README.md."""
PONG_WITHIN_S: Final = 10.0
MIN_BACKOFF_S: Final = 0.05
MAX_BACKOFF_S: Final = 1.0

_BROKEN_BY_AN_ANSWER: Final = ("INTERNAL", "RESOURCE_EXHAUSTED", "UNKNOWN")
"""How a stream ends whose worker is there: by an answer that cannot be read, or is too large, or by an
exception in the worker."""


class ConnectionOwner(Protocol):
    """Whom a connection reports to."""

    address: str
    failures: int
    """How often the worker was lost since it last answered."""

    def finish(self, pending: Pending, index: int, verdict: Verdict, code: str | None = None) -> None:
        """Take the verdict of a call; *code* is its gRPC status, None if it was counted already."""

    def count(self, code: str, number: int = 1) -> None:
        """Count calls that ended with gRPC status *code*."""

    def ready(self, connection: Connection) -> None:
        """The worker was reached."""

    def lost(self, connection: Connection, why: str) -> None:
        """The worker was lost, or cannot be reached."""

    def draining(self, connection: Connection) -> None:
        """The worker is going away: it finishes what it has, and wants nothing new."""


class Connection:
    """A stream and a channel, and what goes over them. Make it on a running event loop."""

    def __init__(
        self,
        link: Link,
        transport: Transport,
        owner: ConnectionOwner,
        metrics: PoolMetrics,
        now: Callable[[], float],
    ) -> None:
        self._link = link
        self._transport = transport
        self._owner = owner
        # Passed on as they are: a frame less for each of the many answers.
        self.finish = owner.finish
        self.count = owner.count
        self._metrics = metrics
        self._now = now
        self._channel: grpc.aio.Channel | None = None
        self._unary = UnaryCalls(self._open_channel, self, now)
        self._stream: ReviewStream | None = None
        self.is_streaming = transport != "Unary"
        """Whether calls go over the stream."""
        self._is_closing = False
        self._is_lost = asyncio.Event()
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    def carrier(self, payload_bytes: int) -> Carrier:
        """Return what calls with a request of this size are to be submitted to."""
        if not self.is_streaming or payload_bytes > MAX_STREAM_PAYLOAD_BYTES:
            return self._unary
        if self._stream is None:
            self._stream = self._open_stream()
        return self._stream

    async def close(self) -> None:
        """End everything; calls still out end as cancelled."""
        self._is_closing = True
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        if self._stream is not None:
            await self._stream.close()
        await self._unary.close()
        if self._channel is not None:
            await self._channel.close()

    def unavailable(self, details: str) -> None:
        """A call of its own could not reach the worker."""
        self._lose(f"UNAVAILABLE: {details}")

    def opened(self) -> None:
        """The stream reached the worker."""
        self._is_lost.clear()
        self._owner.ready(self)

    def draining(self) -> None:
        """The worker said on its stream that it is going away."""
        if not self._is_closing:
            self._owner.draining(self)

    def leave(self) -> None:
        """Ask nothing more over this connection, so that a worker that drains can end it."""
        self._keeper.cancel()
        if self._stream is not None:
            self._stream.finish_writing()

    def ended(self, status: CallStatus, unanswered: list[Pending]) -> None:
        """Take back the calls of the stream, which is over."""
        self._stream = None
        if status.code == "UNIMPLEMENTED" and self._transport == "Auto":
            log.info("worker %s serves no ReviewStream: calling it by Review", self._owner.address)
            self.is_streaming = False
            self._is_lost.set()
            for pending in unanswered:
                self._ask_by_itself(pending)
            return
        self._lose(f"{status.code}: {status.details}")
        for pending in unanswered:
            self._take_back(pending, status)

    def _take_back(self, pending: Pending, status: CallStatus) -> None:
        """Have the calls of *pending* asked again where that helps, and fail the others."""
        failure = failed_status(status.code, status.details)
        for index, call in enumerate(pending.calls):
            if call is None:
                continue
            if status.code in _BROKEN_BY_AN_ANSWER and call.invocation.webhook.side_effects == "None":
                # It ended for all; asked by themselves, only the call at fault will fail.
                self._owner.count(status.code)
            else:
                self._owner.finish(pending, index, failure, status.code)
        self._ask_by_itself(pending)

    def _ask_by_itself(self, pending: Pending) -> None:
        pending.carrier = self._unary
        self._unary.submit(pending)

    def _lose(self, why: str) -> None:
        self.is_streaming = self._transport != "Unary"
        if not self._is_closing and not self._is_lost.is_set():
            self._is_lost.set()
            self._owner.lost(self, why)

    def _open_stream(self) -> ReviewStream:
        return ReviewStream(
            lambda owner: self._link.dial(REVIEW_STREAM, owner), self, self._metrics, self._now
        )

    def _open_channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = self._link.open_channel()
        return self._channel

    async def _keep(self) -> None:
        """Reach the worker before it is needed, and again whenever it is lost."""
        while True:
            if self._owner.failures > 1:
                # A worker that takes connections and ends every stream must not be asked in a tight loop.
                exponent = min(self._owner.failures, 10)
                await asyncio.sleep(min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2**exponent))
            self._is_lost.clear()
            if not self.is_streaming:
                await self._open_channel().channel_ready()
                self._owner.ready(self)
            elif self._stream is None:
                self._stream = self._open_stream()
            await self._until_lost()

    async def _until_lost(self) -> None:
        """Return when the worker is lost, which a silence of some length is taken for."""
        waiting = asyncio.ensure_future(self._is_lost.wait())
        try:
            while not self._is_lost.is_set():
                stream, before = self._stream, self._received_bytes
                await asyncio.wait([waiting], timeout=PING_AFTER_S)
                if stream is None or stream.wire is None or stream is not self._stream:
                    continue
                if self._received_bytes != before:
                    continue
                stream.wire.ping()
                await asyncio.wait([waiting], timeout=PONG_WITHIN_S)
                if stream is self._stream and self._received_bytes == before:
                    stream.lose(f"no sign of life for {PING_AFTER_S + PONG_WITHIN_S:g}s")
        finally:
            waiting.cancel()

    @property
    def _received_bytes(self) -> int:
        stream = self._stream
        return 0 if stream is None or stream.wire is None else stream.wire.received_bytes
