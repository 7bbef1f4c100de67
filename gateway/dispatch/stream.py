"""One ReviewStream: calls go out in batches, verdicts come back in any order.

What is asked while the loop reads what has come, or while the worker has no room, goes out together in the
next message, so batches grow with the load and nothing ever waits for company. Per review there is an entry
in a table; no task, future or timer per call, and none per message.

Source: the worker contract (protos/README.md).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from google.protobuf.message import DecodeError

from gateway.dispatch.bounded_messages import pieces
from gateway.dispatch.calls import MAX_CALLS
from gateway.dispatch.dialer import Unreachable
from gateway.dispatch.rpc import CallStatus
from gateway.dispatch.unsolicited import Flood, UnsolicitedLimiter
from gateway.dispatch.verdicts import (
    failed_deadline,
    failed_malformed,
    failed_status,
    status_name,
    verdict_of,
)
from gateway.pb import worker_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from gateway.core.verdict import Verdict
    from gateway.dispatch.calls import CallGroup
    from gateway.dispatch.stream_connection import StreamConnection, StreamConnectionOwner
    from gateway.telemetry.metrics import PoolMetrics

log = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 1024 * 1024
"""Payload bytes after which a batch is full: well below gRPC's limit of 8 MiB, and short enough on the wire
that the next batch does not wait long behind it."""

STEP_VERDICTS: Final = 32
"""After which others may go on: each ends a call, which may end a review."""


class StreamOwner(Protocol):
    """Whom a stream reports to."""

    def finish(self, group: CallGroup, index: int, verdict: Verdict, code: str | None = None) -> None:
        """Take the verdict of a call; *code* is its gRPC status, None if it was counted already."""

    def count(self, code: str, number: int = 1) -> None:
        """Count calls that ended with gRPC status *code*."""

    def opened(self) -> None:
        """The worker was reached."""

    def draining(self, distrust: str = "") -> None:
        """The worker is going away and wants nothing new; or what it did, for which it is to get no more."""

    def ended(self, status: CallStatus, unanswered: list[CallGroup]) -> None:
        """The stream is over; *unanswered* calls are given back."""


class ReviewStream:
    """A stream, from when it is wanted to its end. Make it on a running event loop."""

    def __init__(
        self,
        dial: Callable[[StreamConnectionOwner], Awaitable[StreamConnection]],
        owner: StreamOwner,
        metrics: PoolMetrics,
        now: Callable[[], float],
    ) -> None:
        self.connection: StreamConnection | None = None
        """None before the worker was reached."""
        self._owner = owner
        self._metrics = metrics
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._queue: dict[CallGroup, None] = {}
        """In the order of arrival. A dictionary, so that calls that are withdrawn leave it at once."""
        self._written: dict[int, CallGroup] = {}
        """By number. The id of a call is the number times ``MAX_CALLS`` and its index."""
        self._cancelled: list[int] = []
        self._unsolicited = UnsolicitedLimiter()
        self._last_number = 0
        self._is_finishing = self._is_woken = self._is_over = False
        self._dialing = self._loop.create_task(self._dial(dial))

    def submit(self, group: CallGroup) -> None:
        """Send calls with the next batch."""
        self._queue[group] = None
        self._wake()

    def withdraw(self, group: CallGroup, index: int) -> None:
        """Forget a call; the worker is told if it has seen it."""
        if group.number in self._written:
            number = group.number * MAX_CALLS + index
            self._cancelled.append(number)
            self._unsolicited.expect(number)
            if group.open_count == 1:
                del self._written[group.number]
            self._wake()
        elif group.open_count == 1:
            self._queue.pop(group, None)

    def finish_writing(self) -> None:
        """Tell the worker, once all calls are answered, that nothing more will come.

        Not before: a plain worker may end the stream at the end of its input, whatever it still owes. What is
        queued still goes: to a worker that drains it is a batch that crossed the notice, and whoever comes
        after it may not be there yet.
        """
        self._is_finishing = True
        self._wake()

    def reset_window(self) -> None:
        """Count anew what the worker says for nothing."""
        self._unsolicited.reset_window()
        if self.connection is not None:
            self.connection.reset_window()

    def lose(self, why: str) -> None:
        """End the stream, whose worker is not there any more."""
        self._break(CallStatus("UNAVAILABLE", why))

    async def close(self) -> None:
        """End the stream; calls still on it are given back to the owner."""
        self._dialing.cancel()
        await asyncio.gather(self._dialing, return_exceptions=True)
        self._break(CallStatus("CANCELLED", "the stream was closed"))

    # -- called by the connection -----------------------------------------------------------------------

    def received(self, message: bytes | bytearray) -> Iterator[int]:
        """Take a batch of verdicts, in steps that each yield how many calls they have answered."""
        if self._is_over:
            return
        try:
            for piece in pieces(message):
                if piece:
                    batch = worker_pb2.VerdictBatch.FromString(piece)  # type: ignore[arg-type] # a buffer
                    yield from self._take(batch)
                else:
                    yield 0
        except Flood as flood:
            self._break(CallStatus("INTERNAL", str(flood), flood.is_misconduct))
        except DecodeError as error:
            self._break(CallStatus("INTERNAL", f"the worker sent something that is no VerdictBatch: {error}"))
        except Exception:
            # A stream that looks well and answers nothing would be worse.
            log.exception("the stream to a worker is ended: internal error")
            self._break(CallStatus("INTERNAL", "the gateway could not read the worker's answer"))

    def writable(self) -> None:
        """The worker has room again."""
        self._wake()

    def leaving(self) -> None:
        """The worker takes no more calls on this connection."""
        self._owner.draining()

    def ended(self, status: CallStatus) -> None:
        """The stream is over."""
        if self._is_over:
            return
        self._is_over = True
        unanswered = [*self._written.values(), *self._queue]
        self._written.clear()
        self._queue.clear()
        self._owner.ended(status, unanswered)

    # -- writing ----------------------------------------------------------------------------------

    async def _dial(self, dial: Callable[[StreamConnectionOwner], Awaitable[StreamConnection]]) -> None:
        try:
            self.connection = await dial(self)
        except Unreachable as error:
            self.ended(CallStatus("UNAVAILABLE", str(error)))
        except Exception as error:
            log.exception("no stream to a worker can be opened: internal error")
            self.ended(CallStatus("INTERNAL", f"the gateway cannot connect: {type(error).__name__}"))
        else:
            if self._is_over:
                # Told off before it was known: the first that it said could not be read.
                self.connection.abort()
                return
            self._owner.opened()
            self._flush()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write all that is queued, as far as there is room."""
        self._is_woken = False
        connection = self.connection
        if connection is None or self._is_over:
            return
        try:
            while (self._queue or self._cancelled) and connection.can_send:
                connection.send(self._next_batch())
        except Exception:
            log.exception("the stream to a worker is ended: internal error")
            self._break(CallStatus("INTERNAL", "the gateway could not write to the worker"))
        if self._is_finishing and not (self._written or self._queue or self._cancelled or self._is_over):
            connection.finish_writing()

    def _break(self, status: CallStatus) -> None:
        if self.connection is not None:
            self.connection.abort()
        self.ended(status)

    def _next_batch(self) -> bytes:
        """Return the message for what is queued, as much as one batch holds."""
        batch = worker_pb2.ReviewBatch(cancelled=self._cancelled)
        self._cancelled = []
        add_call, queue, now = batch.calls.add, self._queue, self._now()
        places: dict[int, int] = {}
        batch_bytes = count = 0
        while queue and batch_bytes < MAX_BATCH_BYTES:
            group = next(iter(queue))
            del queue[group]
            if not count:
                self._metrics.queue_seconds.observe(now - group.started)
            self._last_number = number = self._last_number + 1
            group.number = number
            group.was_sent = True
            self._written[number] = group
            number *= MAX_CALLS
            timeout_ms = max(int((group.expires_at - now) * 1000), 1)
            place = -1
            for index, call in enumerate(group.calls):
                if call is None:
                    continue
                if place < 0:
                    payload = call.payload
                    place = places.setdefault(id(payload), len(places))
                    if place == len(batch.payloads):
                        json = payload.json
                        batch.payloads.add(admission_request=json, namespace_object=group.namespace_json)
                        batch_bytes += len(json) + len(group.namespace_json)
                policy = call.invocation.webhook.worker.policy
                batch_bytes += len(policy)
                add_call(id=number + index, payload=place, policy=policy, timeout_millis=timeout_ms)
                count += 1
        if count:
            self._metrics.batch_size.observe(count)
        return batch.SerializeToString()

    # -- reading ----------------------------------------------------------------------------------

    def _take(self, batch: worker_pb2.VerdictBatch) -> Iterator[int]:
        written, finish = self._written, self._owner.finish
        answered = used = 0
        try:
            for place, verdict in enumerate(batch.verdicts):
                if place and not place % STEP_VERDICTS:
                    yield used
                    used = 0
                    if self._is_over:
                        return
                number, index = divmod(verdict.id, MAX_CALLS)
                group = written.get(number)
                if group is None or index >= len(group.calls) or group.calls[index] is None:
                    used += self._was_withdrawn(verdict.id)
                    continue
                used += 1
                if group.open_count == 1:
                    del written[number]
                # What is not set reads as not allowed, so that nearly every verdict needs no second question.
                response = verdict.response
                if response.allowed or (outcome := verdict.WhichOneof("outcome")) == "response":
                    answered += 1
                    finish(group, index, verdict_of(response))
                elif outcome == "error":
                    code = status_name(verdict.error.code)
                    is_late = code == "DEADLINE_EXCEEDED"
                    failure = failed_status(code, verdict.error.message)
                    # Whether the worker's clock or ours strikes first must not show.
                    finish(group, index, failed_deadline(group.deadline) if is_late else failure, code)
                else:
                    answered += 1
                    finish(group, index, failed_malformed("a verdict without an outcome"))
        finally:
            # Also of those that came before a flood.
            if answered:
                self._owner.count("OK", answered)
        if not (batch.verdicts or batch.draining):
            self._unsolicited.count("batches without a verdict", is_misconduct=True)
        if self._is_finishing and not written:
            self._wake()
        if batch.draining:
            self._owner.draining()
        yield used

    def _was_withdrawn(self, number: int) -> bool:
        """Take a verdict on no call in flight; return whether it answers one that was withdrawn."""
        if self._unsolicited.is_late(number):
            return True
        # What else this worker says of its calls may be as wrong. Those that it has are left to it.
        self._owner.draining(f"answered a call that it was not asked, or had answered (id {number})")
        self._unsolicited.count("verdicts that nobody asked for")
        return False
