"""One channel to a worker: its stream where it serves one, and calls of their own beside it.

Whether a worker serves ReviewStream shows only when it refuses one, and a message written before that would
be lost with an error that does not say so. With transport Auto calls therefore go by Review until the stream
has outlived a ListPolicies call made after it on the same connection.

A stream also ends for all its calls when one answer cannot be read. Those whose webhook has no side effects
are then asked again by Review, each by itself and within the time that it has left, so that a policy at fault
takes nobody with it who could still answer.

gRPC's exceptions end here and in the carriers: outside there are only verdicts.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

import grpc
from google.protobuf.message import DecodeError

from gateway.dispatch.stream import ReviewStream
from gateway.dispatch.unary import UnaryCalls
from gateway.dispatch.verdicts import failed_status
from gateway.pb import worker_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config.model import Transport
    from gateway.core.verdict import Verdict
    from gateway.dispatch.pending import Carrier, Pending
    from gateway.dispatch.unary import Method
    from gateway.telemetry.metrics import PoolMetrics

    StreamMethod = grpc.aio.StreamStreamMultiCallable[bytes, bytes]

log = logging.getLogger(__name__)

_SERVICE: Final = "/admissiongateway.worker.v1.PolicyWorker"

MAX_STREAM_PAYLOAD_BYTES: Final = 64 * 1024
"""Larger requests go by a call of their own, so that those behind them on the stream do not wait."""

LIST_POLICIES_WITHIN_S: Final = 2.0
REFUSAL_WITHIN_S: Final = 0.02
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

    def finish(self, pending: Pending, verdict: Verdict, code: str | None = None) -> None:
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
    """A channel and what goes over it. Make it on a running event loop."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        transport: Transport,
        owner: ConnectionOwner,
        metrics: PoolMetrics,
        now: Callable[[], float],
    ) -> None:
        self._channel = channel
        self._transport = transport
        self._owner = owner
        # Passed on as they are: a frame less for each of the many answers.
        self.finish = owner.finish
        self.count = owner.count
        self._metrics = metrics
        self._now = now
        self._list: Method = channel.unary_unary(f"{_SERVICE}/ListPolicies")
        self._review_stream: StreamMethod = channel.stream_stream(f"{_SERVICE}/ReviewStream")
        review: Method = channel.unary_unary(f"{_SERVICE}/Review")
        self._unary = UnaryCalls(review, self, now)
        self._stream: ReviewStream | None = None
        self._is_proved = transport == "Stream"
        """Whether calls may go over the stream."""
        self._is_closing = False
        self._is_lost = asyncio.Event()
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    @property
    def is_streaming(self) -> bool:
        """Whether calls go over the stream."""
        return self._is_proved and self._transport != "Unary"

    def carrier(self, payload_bytes: int) -> Carrier:
        """Return what a call with a request of this size is to be submitted to."""
        if not self.is_streaming or payload_bytes > MAX_STREAM_PAYLOAD_BYTES:
            return self._unary
        if self._stream is None:
            self._stream = self._open_stream()
        return self._stream

    async def close(self) -> None:
        """End everything on the channel, and the channel; calls still on it end as cancelled."""
        self._is_closing = True
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        if self._stream is not None:
            await self._stream.close()
        await self._unary.close()
        await self._channel.close()

    def unavailable(self, details: str) -> None:
        """A call of its own could not reach the worker."""
        self._lose(f"UNAVAILABLE: {details}")

    def draining(self) -> None:
        """The worker said on its stream that it is going away."""
        if not self._is_closing:
            self._owner.draining(self)

    def leave(self) -> None:
        """Ask nothing more over this connection, so that a worker that drains can end it."""
        self._keeper.cancel()
        if self._stream is not None:
            self._stream.finish_writing()

    def ended(self, code: str, details: str, unanswered: list[Pending]) -> None:
        """Take back the calls of the stream, which is over."""
        self._stream = None
        if code == "UNIMPLEMENTED" and self._transport == "Auto":
            log.info("worker %s serves no ReviewStream: calling it by Review", self._owner.address)
            self._is_proved = False
            for pending in unanswered:
                self._ask_by_itself(pending)
            return
        self._is_proved = self._transport == "Stream"
        self._lose(f"{code}: {details}")
        failure = failed_status(code, details)
        for pending in unanswered:
            if pending.endpoint is None:
                continue
            if code in _BROKEN_BY_AN_ANSWER and pending.call.invocation.webhook.side_effects == "None":
                # It ended for all; asked by themselves, only the call at fault will fail.
                self._owner.count(code)
                self._ask_by_itself(pending)
            else:
                self._owner.finish(pending, failure, code)

    def _ask_by_itself(self, pending: Pending) -> None:
        pending.carrier = self._unary
        self._unary.submit(pending)

    def _lose(self, why: str) -> None:
        if not self._is_closing and not self._is_lost.is_set():
            self._is_lost.set()
            self._owner.lost(self, why)

    def _open_stream(self) -> ReviewStream:
        return ReviewStream(self._review_stream(), self, self._metrics, self._now)

    async def _keep(self) -> None:
        """Reach the worker, open its stream before it is needed, and do so again whenever it is lost."""
        while True:
            if self._owner.failures > 1:
                # A worker that takes connections and ends every stream must not be asked in a tight loop.
                exponent = min(self._owner.failures, 10)
                await asyncio.sleep(min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2**exponent))
            await self._channel.channel_ready()
            self._is_lost.clear()
            if self._transport != "Unary" and self._stream is None:
                self._stream = self._open_stream()
            if self._transport == "Auto":
                await self._list_policies()
                # A refusal may be a moment behind the answer; one that comes later still costs a detour only.
                await asyncio.sleep(REFUSAL_WITHIN_S)
                self._is_proved = self._stream is not None
            if not self._is_lost.is_set():
                self._owner.ready(self)
            await self._is_lost.wait()

    async def _list_policies(self) -> None:
        try:
            answer = await self._list(b"", timeout=LIST_POLICIES_WITHIN_S)
            assert isinstance(answer, bytes)
            policies = worker_pb2.ListPoliciesResponse.FromString(answer).policies
            names = ", ".join(policy.name for policy in policies)
            log.debug("worker %s serves %s", self._owner.address, names)
        except grpc.aio.AioRpcError as error:
            # Optional for a worker: what counts is whether there was an answer at all.
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self._lose(f"UNAVAILABLE: {error.details()}")
        except DecodeError:
            log.debug("worker %s answers ListPolicies with something else", self._owner.address)
