"""One ReviewStream: calls go out in batches, verdicts come back in any order.

What is submitted while a message is being written goes out together in the next one, so batches grow with
the load and nothing ever waits for company. Per call there is an entry in a table and no task or future;
per stream there are two tasks, one that writes and one that reads.

Source: the worker contract (protos/README.md).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

import grpc
from google.protobuf.message import DecodeError

from gateway.dispatch.verdicts import (
    failed_deadline,
    failed_malformed,
    failed_status,
    status_name,
    verdict_of,
)
from gateway.pb import worker_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.core.verdict import Verdict
    from gateway.dispatch.pending import Pending
    from gateway.telemetry.metrics import PoolMetrics

log = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 1024 * 1024
"""Payload bytes after which a batch is full: well below gRPC's limit of 8 MiB, and short enough on the wire
that the next batch does not wait long behind it."""

_LOST_STATUS: Final = "Internal error from Core"
"""What grpc.aio says when a write met a stream that had just ended, in place of the status it ended with."""

StreamCall = grpc.aio.StreamStreamCall[bytes, bytes]


class StreamOwner(Protocol):
    """Whom a stream reports to."""

    def finish(self, pending: Pending, verdict: Verdict, code: str | None = None) -> None:
        """Take the verdict of a call; *code* is its gRPC status, None if it was counted already."""

    def count(self, code: str, number: int = 1) -> None:
        """Count calls that ended with gRPC status *code*."""

    def draining(self) -> None:
        """The worker is going away and wants nothing new."""

    def ended(self, code: str, details: str, unanswered: list[Pending]) -> None:
        """The stream is over, with this gRPC status; *unanswered* calls are given back."""


class ReviewStream:
    """An open stream. Make it on a running event loop; it lives until the RPC ends or :meth:`close`."""

    def __init__(
        self, rpc: StreamCall, owner: StreamOwner, metrics: PoolMetrics, now: Callable[[], float]
    ) -> None:
        self._rpc = rpc
        self._owner = owner
        self._metrics = metrics
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._queue: dict[Pending, None] = {}
        """In the order of arrival. A dictionary, so that a call that is withdrawn leaves it at once."""
        self._written: dict[int, Pending] = {}
        self._cancelled: list[int] = []
        self._last_id = 0
        self._is_finishing = False
        self._wakeup: asyncio.Future[None] | None = None
        self._writer = self._loop.create_task(self._write())
        self._reader = self._loop.create_task(self._read())

    def submit(self, pending: Pending) -> None:
        """Send a call with the next batch."""
        self._queue[pending] = None
        self._wake()

    def withdraw(self, pending: Pending) -> None:
        """Forget a call; the worker is told if it has seen it."""
        self._queue.pop(pending, None)
        if self._written.pop(pending.id, None) is not None:
            self._cancelled.append(pending.id)
            self._wake()

    def finish_writing(self) -> None:
        """Tell the worker, once all calls are answered, that nothing more will come.

        Not before: a plain worker may end the stream at the end of its input, whatever it still owes.
        """
        self._is_finishing = True
        self._wake()

    async def close(self) -> None:
        """End the stream; calls still on it are given back to the owner."""
        self._rpc.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    def _wake(self) -> None:
        if self._wakeup is not None:
            self._wakeup.set_result(None)
            self._wakeup = None

    async def _write(self) -> None:
        try:
            while True:
                message = self._next_batch()
                if message is not None:
                    await self._rpc.write(message)
                elif self._is_finishing and not self._written:
                    await self._rpc.done_writing()
                    return
                else:
                    self._wakeup = self._loop.create_future()
                    await self._wakeup
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The RPC is over; the reader learns why and reports it.
            return
        except Exception:
            # A writer that dies would leave a stream that looks well and answers nothing.
            log.exception("the stream to a worker is ended: a fault of the gateway")
            self._rpc.cancel()
        finally:
            self._wakeup = None

    def _next_batch(self) -> bytes | None:
        """Return the message for all that is queued, or None if nothing is."""
        if not self._queue and not self._cancelled:
            return None
        batch = worker_pb2.ReviewBatch(cancelled=self._cancelled)
        self._cancelled = []
        add_call, queue, now = batch.calls.add, self._queue, self._now()
        places: dict[int, int] = {}
        batch_bytes = count = 0
        while queue and batch_bytes < MAX_BATCH_BYTES:
            pending = next(iter(queue))
            del queue[pending]
            if not count:
                self._metrics.queue_seconds.observe(now - pending.started)
            call = pending.call
            payload = call.payload
            place = places.get(id(payload))
            if place is None:
                place = places[id(payload)] = len(places)
                json = payload.json
                batch.payloads.add(admission_request=json, namespace_object=pending.namespace_json)
                batch_bytes += len(json) + len(pending.namespace_json)
            self._last_id = number = self._last_id + 1
            pending.id = number
            self._written[number] = pending
            timeout_ms = int((pending.deadline - now) * 1000)
            policy = call.invocation.webhook.worker.policy
            batch_bytes += len(policy)
            add_call(
                id=number,
                payload=place,
                policy=policy,
                timeout_millis=timeout_ms if timeout_ms > 0 else 1,
            )
            count += 1
        if count:
            self._metrics.batch_size.observe(count)
        return batch.SerializeToString()

    async def _read(self) -> None:
        code, details = "UNAVAILABLE", "the worker ended the stream"
        try:
            while (message := await self._rpc.read()) is not grpc.aio.EOF:
                assert isinstance(message, bytes)
                self._take(worker_pb2.VerdictBatch.FromString(message))
            status = await self._rpc.code()
            if status is not grpc.StatusCode.OK:
                code, details = status.name, await self._rpc.details() or ""
        except grpc.aio.AioRpcError as error:
            code, details = error.code().name, error.details() or ""
        except DecodeError as error:
            code, details = "INTERNAL", f"the worker sent something that is no VerdictBatch: {error}"
            self._rpc.cancel()
        except asyncio.CancelledError:
            # Raised by grpc for an RPC that was cancelled from this side, also by close().
            code, details = "CANCELLED", "the stream was closed"
        except Exception:
            log.exception("the stream to a worker is ended: a fault of the gateway")
            code, details = "INTERNAL", "the gateway could not read the worker's answer"
            self._rpc.cancel()
        if details == _LOST_STATUS:
            code, details = "UNAVAILABLE", "the stream to the worker broke"
        self._writer.cancel()
        unanswered = [*self._written.values(), *self._queue]
        self._written.clear()
        self._queue.clear()
        self._owner.ended(code, details, unanswered)

    def _take(self, batch: worker_pb2.VerdictBatch) -> None:
        written, finish = self._written, self._owner.finish
        answered = 0
        for verdict in batch.verdicts:
            pending = written.pop(verdict.id, None)
            if pending is None:
                # Answered twice, too late, or never asked.
                continue
            outcome = verdict.WhichOneof("outcome")
            if outcome == "error":
                code = status_name(verdict.error.code)
                is_late = code == "DEADLINE_EXCEEDED"
                failure = failed_status(code, verdict.error.message)
                # Whether the worker's clock or ours strikes first must not show.
                finish(pending, failed_deadline(pending.timeout_s) if is_late else failure, code)
                continue
            answered += 1
            if outcome == "response":
                finish(pending, verdict_of(verdict.response))
            else:
                finish(pending, failed_malformed("a verdict without an outcome"))
        if answered:
            self._owner.count("OK", answered)
        if self._is_finishing and not written:
            self._wake()
        if batch.draining:
            self._owner.draining()
