"""One address of a pool: its channel, its stream, and the calls in flight on it.

gRPC's exceptions end here and in ``stream``: outside there are only verdicts.

Whether a worker serves ReviewStream shows only when it refuses one, and a message written before that would
be lost with an error that does not say so. With transport Auto calls therefore go by Review until the stream
has outlived a ListPolicies call made after it on the same connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final, Literal

import grpc
from google.protobuf.message import DecodeError

from gateway.dispatch.stream import ReviewStream
from gateway.dispatch.verdicts import failed_deadline, failed_malformed, failed_status, verdict_of
from gateway.pb import worker_pb2

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from gateway.config.model import WorkerPool
    from gateway.core.verdict import Verdict
    from gateway.dispatch.deadlines import Deadlines
    from gateway.dispatch.pending import Pending
    from gateway.telemetry.metrics import PoolMetrics

    Unary = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
    Stream = grpc.aio.StreamStreamMultiCallable[bytes, bytes]

log = logging.getLogger(__name__)

_SERVICE: Final = "/admissiongateway.worker.v1.PolicyWorker"

MAX_STREAM_PAYLOAD_BYTES: Final = 64 * 1024
"""Larger requests go by a call of their own, so that those behind them on the stream do not wait."""

LIST_POLICIES_WITHIN_S: Final = 2.0

MIN_BACKOFF_S: Final = 0.05
MAX_BACKOFF_S: Final = 1.0

State = Literal["ready", "connecting", "down", "draining"]


class Endpoint:
    """A worker, as far as the gateway can see it. Make it on a running event loop."""

    def __init__(
        self,
        address: str,
        channel: grpc.aio.Channel,
        settings: WorkerPool,
        deadlines: Deadlines,
        metrics: PoolMetrics,
    ) -> None:
        self.address = address
        self.in_flight = 0
        self.state: State = "connecting"
        self._channel = channel
        self._transport = settings.transport
        self._is_streaming = settings.transport == "Stream"
        self._max_in_flight = settings.max_in_flight
        self._failures = 0
        """Streams lost in a row without a verdict in between."""
        self._deadlines = deadlines
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._review: Unary = channel.unary_unary(f"{_SERVICE}/Review")
        self._list: Unary = channel.unary_unary(f"{_SERVICE}/ListPolicies")
        self._review_stream: Stream = channel.stream_stream(f"{_SERVICE}/ReviewStream")
        self._stream: ReviewStream | None = None
        self._unary_calls: dict[Pending, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        metrics.remember(address)
        self._is_closing = False
        self._idle: asyncio.Event | None = None
        self._is_lost = asyncio.Event()
        self._spawn(self._keep_connected())

    def __repr__(self) -> str:
        transport = "stream" if self._is_streaming else "unary"
        return f"<Endpoint {self.address} {self.state} {transport}, {self.in_flight} in flight>"

    @property
    def is_full(self) -> bool:
        """Whether it has as many calls in flight as the pool's ``maxInFlight`` allows."""
        return self.in_flight >= self._max_in_flight

    def submit(self, pending: Pending) -> None:
        """Ask the worker; the verdict comes through ``pending.settle``, at the deadline at the latest."""
        pending.carrier = self
        self.in_flight += 1
        self._deadlines.add(pending)
        if self._is_streaming and len(pending.call.payload.json) <= MAX_STREAM_PAYLOAD_BYTES:
            if self._stream is None:
                self._open_stream()
            assert self._stream is not None
            self._stream.submit(pending)
        else:
            self._ask_unary(pending)

    def withdraw(self, pending: Pending, code: str) -> None:
        """Forget a call whose answer is no longer wanted; it is counted as *code*, and not settled."""
        self.count(code)
        self._leave(pending)
        task = self._unary_calls.pop(pending, None)
        if task is not None:
            task.cancel()
        elif self._stream is not None:
            self._stream.withdraw(pending)

    def finish(self, pending: Pending, verdict: Verdict) -> None:
        """Settle a call by the worker's own word."""
        self._failures = 0
        self._leave(pending)
        pending.settle(verdict)

    def count(self, code: str, number: int = 1) -> None:
        """Count calls that ended with gRPC status *code*."""
        self._metrics.called(self.address, code, number)

    def draining(self, stream: ReviewStream) -> None:
        """The worker wants nothing new."""
        if stream is self._stream and self.state != "draining":
            log.info("worker %s is draining", self.address)
            self.state = "draining"

    def ended(self, stream: ReviewStream, code: str, details: str, unanswered: list[Pending]) -> None:
        """Take back the calls of a stream that is over, and find out when the worker is there again."""
        if stream is self._stream:
            self._stream = None
        self._is_streaming = self._transport == "Stream"
        if code == "UNIMPLEMENTED" and self._transport == "Auto":
            log.info("worker %s serves no ReviewStream: calling it by Review", self.address)
        elif not self._is_closing:
            self._lost(f"{code}: {details}")
        failure = failed_status(code, details)
        for pending in unanswered:
            if pending.carrier is not None:
                self.count(code)
                self._leave(pending)
                pending.settle(failure)

    async def close(self, grace_s: float) -> None:
        """Let calls in flight end for up to *grace_s* seconds, then end them and the channel."""
        self._is_closing = True
        self.state = "draining"
        if self.in_flight:
            self._idle = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace_s)
        for task in self._tasks:
            task.cancel()
        if self._stream is not None:
            await self._stream.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close()
        self._metrics.forget(self.address)

    def _leave(self, pending: Pending) -> None:
        self.in_flight -= 1
        pending.carrier = None
        self._deadlines.remove(pending)
        if self._idle is not None and not self.in_flight:
            self._idle.set()

    def _open_stream(self) -> None:
        self._stream = ReviewStream(self._review_stream(), self, self._metrics, self._deadlines.now)

    def _lost(self, why: str) -> None:
        if self.state not in ("down", "draining"):
            log.warning("worker %s is down: %s", self.address, why)
        if self.state != "down":
            self.state = "down"
            self._failures += 1
            self._is_lost.set()

    async def _keep_connected(self) -> None:
        """Reach the worker, open its stream before it is needed, and do so again whenever it is lost."""
        while True:
            if self._failures > 1:
                # A worker that takes connections and ends every stream must not be asked in a tight loop.
                await asyncio.sleep(min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2 ** min(self._failures, 10)))
            await self._channel.channel_ready()
            self._is_lost.clear()
            if self._transport != "Unary" and self._stream is None:
                self._open_stream()
            if self._transport == "Auto":
                await self._list_policies()
                self._is_streaming = self._stream is not None
            if not self._is_lost.is_set():
                if self.state == "down":
                    log.info("worker %s is back", self.address)
                self.state = "ready"
            await self._is_lost.wait()

    async def _list_policies(self) -> None:
        try:
            answer = await self._list(b"", timeout=LIST_POLICIES_WITHIN_S)
            assert isinstance(answer, bytes)
            policies = worker_pb2.ListPoliciesResponse.FromString(answer).policies
        except (grpc.aio.AioRpcError, DecodeError):
            # Optional for a worker, and of no consequence here.
            return
        log.debug("worker %s serves %s", self.address, ", ".join(policy.name for policy in policies))

    def _ask_unary(self, pending: Pending) -> None:
        task = self._spawn(self._call_unary(pending))
        self._unary_calls[pending] = task

    async def _call_unary(self, pending: Pending) -> None:
        request = worker_pb2.ReviewRequest(
            policy=pending.call.invocation.webhook.worker.policy,
            admission_request=pending.call.payload.json,
            namespace_object=pending.namespace_json,
        )
        code = "OK"
        verdict: Verdict
        try:
            answer = await self._review(
                request.SerializeToString(), timeout=max(0.0, pending.deadline - self._deadlines.now())
            )
            assert isinstance(answer, bytes)
            verdict = verdict_of(worker_pb2.ReviewResponse.FromString(answer))
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            if code == "DEADLINE_EXCEEDED":
                # gRPC's timer and ours are set alike; whichever strikes first says the same.
                verdict = failed_deadline(pending.timeout_s)
            else:
                verdict = failed_status(code, error.details() or "")
            if code == "UNAVAILABLE" and not self._is_closing:
                self._lost(str(error.details()))
        except DecodeError:
            verdict = failed_malformed("no ReviewResponse")
        self._unary_calls.pop(pending, None)
        if pending.carrier is not None:
            self.count(code)
            self.finish(pending, verdict)

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
