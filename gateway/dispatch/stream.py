"""One ReviewStream: calls are sent in batches, verdicts come back in any order.

Calls made while the loop processes input, or while flow control blocks the stream, share the next message:
batches grow with the load, and no call waits for a batch to fill. A review has an entry in a table; there is
no task, future or timer for each call, and none for each message.

Source: the worker contract (protos/README.md).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from google.protobuf.message import DecodeError

from gateway.dispatch.bounded_messages import pieces
from gateway.dispatch.calls import MAX_CALLS, with_followers
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
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from gateway.core.deadline import Deadline
    from gateway.core.verdict import Failed, Verdict
    from gateway.dispatch.calls import CallGroup
    from gateway.dispatch.stream_connection import StreamConnection, StreamConnectionOwner
    from gateway.telemetry.metrics import PoolMetrics

log = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 1024 * 1024
"""Payload bytes at which a batch is full: well below gRPC's limit of 8 MiB, and little enough that the next
batch does not wait long."""

STEP_VERDICTS: Final = 32
"""Verdicts in one step: each ends a call, which may end a review."""


class StreamOwner(Protocol):
    """Receives the results and events of a stream."""

    def finish(self, group: CallGroup, index: int, verdict: Verdict, code: str | None = None) -> None:
        """Take the verdict of a call; *code* is its gRPC status, None if it was counted already."""

    def refuse(self, group: CallGroup, index: int) -> None:
        """Take back a call of a chain that was not evaluated as a part of it."""

    def count(self, code: str, number: int = 1) -> None:
        """Count calls that ended with gRPC status *code*."""

    def opened(self) -> None:
        """The stream is connected."""

    def draining(self, replace_reason: str = "") -> None:
        """The worker accepts no further calls, or should get none for the reason *replace_reason*."""

    def ended(self, status: CallStatus, unanswered: list[CallGroup]) -> None:
        """The stream has ended; *unanswered* groups have open calls."""


class ReviewStream:
    """A stream from before its connection to its end. Create it on a running event loop."""

    def __init__(
        self,
        dial: Callable[[StreamConnectionOwner], Awaitable[StreamConnection]],
        owner: StreamOwner,
        metrics: PoolMetrics,
        now: Callable[[], float],
    ) -> None:
        self.connection: StreamConnection | None = None
        """None before the worker is connected."""
        self.has_chains = True
        """Whether the worker may have chains; False after a verdict in a chain that is not marked so."""
        self._owner = owner
        self._metrics = metrics
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._queue: dict[CallGroup, None] = {}
        """Groups to be written, in order of arrival. A dictionary, because withdrawn groups are removed."""
        self._written: dict[int, CallGroup] = {}
        """Groups by number. The id of a call is the number times ``MAX_CALLS``, plus its index."""
        self._cancelled: list[int] = []
        self._unsolicited = UnsolicitedLimiter()
        self._last_number = 0
        self._is_finishing = self._is_woken = self._is_over = False
        self._dialing = self._loop.create_task(self._dial(dial))

    def submit(self, group: CallGroup) -> None:
        """Send the open calls of *group* and of its followers with the next batch."""
        self._queue[group] = None
        self._wake()

    def withdraw(self, group: CallGroup, index: int) -> None:
        """Drop a call; a worker that has received it is notified."""
        if group.number in self._written:
            call_id = group.number * MAX_CALLS + index
            self._cancelled.append(call_id)
            self._unsolicited.withdrawn(call_id)
            if group.open_count == 1:
                del self._written[group.number]
            self._wake()
        elif group.open_count == 1:
            self._queue.pop(group, None)

    def finish_writing(self) -> None:
        """Half-close the stream once all calls are answered.

        Not before: a simple worker may end the stream at the end of its input, although calls are open.
        Queued calls are still sent: to a draining worker they are a batch that crossed its notice, and its
        successor may not be reachable yet.
        """
        self._is_finishing = True
        self._wake()

    def drop(self, reason: str) -> None:
        """End the stream as UNAVAILABLE."""
        self._break(CallStatus("UNAVAILABLE", reason))

    async def close(self) -> None:
        """End the stream as CANCELLED."""
        self._dialing.cancel()
        await asyncio.gather(self._dialing, return_exceptions=True)
        self._break(CallStatus("CANCELLED", "the stream was closed"))

    # -- called by the connection -----------------------------------------------------------------

    def received(self, message: bytes | bytearray) -> Iterator[int]:
        """Take a batch of verdicts in steps; each yields how many calls it has answered."""
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
            self._break(CallStatus("INTERNAL", f"the worker sent no valid VerdictBatch: {error}"))
        except Exception:
            # Otherwise the stream would stay open and answer nothing.
            log.exception("internal error while reading a worker's answer; its stream is ended")
            self._break(CallStatus("INTERNAL", "internal error while reading the answer"))

    def writable(self) -> None:
        """There is room for another batch."""
        self._wake()

    def leaving(self) -> None:
        """The worker accepts no further calls on this connection."""
        self._owner.draining()

    def ended(self, status: CallStatus) -> None:
        """The stream has ended."""
        if self._is_over:
            return
        self._is_over = True
        queued = [member for group in self._queue for member in with_followers(group)]
        unanswered = [*self._written.values(), *queued]
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
            log.exception("internal error while connecting to a worker; it is tried again")
            self.ended(CallStatus("INTERNAL", f"internal error while connecting: {type(error).__name__}"))
        else:
            if self._is_over:
                # The first message could not be read, and arrived before this coroutine was resumed.
                self.connection.abort()
                return
            self.connection.start_keepalive(self._unsolicited.begin_period)
            self._owner.opened()
            self._flush()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write all queued calls, as far as there is room."""
        self._is_woken = False
        connection = self.connection
        if connection is None or self._is_over:
            return
        try:
            while (self._queue or self._cancelled) and connection.can_send:
                connection.send(self._next_batch())
        except Exception:
            log.exception("internal error while writing to a worker; its stream is ended")
            self._break(CallStatus("INTERNAL", "internal error while writing the calls"))
        if self._is_finishing and not (self._written or self._queue or self._cancelled or self._is_over):
            connection.finish_writing()

    def _break(self, status: CallStatus) -> None:
        if self.connection is not None:
            self.connection.abort()
        self.ended(status)

    def _next_batch(self) -> bytes:
        """Return the next message: queued calls up to the size of a batch."""
        batch = worker_pb2.ReviewBatch(cancelled=self._cancelled)
        self._cancelled = []
        add_call, queue, now = batch.calls.add, self._queue, self._now()
        payload_indices: dict[int, int] = {}
        batch_bytes = count = 0
        while queue and batch_bytes < MAX_BATCH_BYTES:
            group = next(iter(queue))
            del queue[group]
            if not count:
                self._metrics.queue_seconds.observe(now - group.started_at)
            # A chain has one payload, and is not split.
            for member, after in self._numbered(group):
                timeout_ms = max(int(min(member.expires_at - now, member.timeout_s) * 1000), 1)
                payload_index = -1
                for index, call in enumerate(member.calls):
                    if call is None:
                        continue
                    if payload_index < 0:
                        payload = call.payload
                        payload_index = payload_indices.setdefault(id(payload), len(payload_indices))
                        if payload_index == len(batch.payloads):
                            json = payload.json
                            batch.payloads.add(admission_request=json, namespace_object=member.namespace_json)
                            batch_bytes += len(json) + len(member.namespace_json)
                    policy = call.invocation.webhook.worker.policy
                    batch_bytes += len(policy)
                    added = add_call(
                        id=member.number * MAX_CALLS + index,
                        payload=payload_index,
                        policy=policy,
                        timeout_millis=timeout_ms,
                    )
                    if after:
                        added.after = after
                    if call.traceparent:
                        added.traceparent, call.sent_at = call.traceparent, now
                    count += 1
        if count:
            self._metrics.batch_size.observe(count)
        return batch.SerializeToString()

    def _numbered(self, group: CallGroup) -> Iterator[tuple[CallGroup, int]]:
        """Yield *group* and its followers, now written, each with the id of the call before it; 0: none."""
        members = [(group, 0)]
        for member, after in members:
            self._last_number = member.number = self._last_number + 1
            member.was_sent = True
            self._written[member.number] = member
            yield member, after
            for follower in member.followers:
                # Not if the call before it has ended: then the follower will be withdrawn.
                if follower.open_count and follower.after in member.calls:
                    index = member.calls.index(follower.after)
                    members.append((follower, member.number * MAX_CALLS + index))

    # -- reading ----------------------------------------------------------------------------------

    def _take(self, batch: worker_pb2.VerdictBatch) -> Iterator[int]:
        written, finish = self._written, self._owner.finish
        answered = used = 0
        try:
            for count, verdict in enumerate(_in_steps(batch.verdicts)):
                if count and not count % STEP_VERDICTS:
                    yield used
                    used = 0
                    if self._is_over:
                        return
                number, index = divmod(verdict.id, MAX_CALLS)
                group = written.get(number)
                if group is None or index >= len(group.calls) or group.calls[index] is None:
                    used += self._is_of_withdrawn_call(verdict.id)
                    continue
                used += 1
                if group.open_count == 1:
                    del written[number]
                if group.after is not None and not verdict.chained:
                    answered += 1
                    self.has_chains = False
                    self._owner.refuse(group, index)
                    continue
                # An unset response reads as not allowed, so that WhichOneof is needed for few verdicts.
                response = verdict.response
                if response.allowed or (outcome := verdict.WhichOneof("outcome")) == "response":
                    answered += 1
                    finish(group, index, verdict_of(response))
                elif outcome == "error":
                    finish(group, index, *_failure_of(verdict.error, group.deadline))
                else:
                    answered += 1
                    finish(group, index, failed_malformed("a verdict without an outcome"))
        finally:
            # Also those before a Flood.
            if answered:
                self._owner.count("OK", answered)
        self._end_batch(batch)
        yield used

    def _end_batch(self, batch: worker_pb2.VerdictBatch) -> None:
        """Process the rest of *batch*, after its verdicts."""
        if not (batch.verdicts or batch.draining):
            self._unsolicited.count("batches without a verdict", is_misconduct=True)
        if self._is_finishing and not self._written:
            self._wake()
        if batch.draining:
            self._owner.draining()

    def _is_of_withdrawn_call(self, call_id: int) -> bool:
        """Take a verdict that belongs to no call in flight; return whether it answers a withdrawn call."""
        if self._unsolicited.is_late(call_id):
            return True
        # Other verdicts of this worker may be wrong too. It keeps its calls and gets no new ones.
        self._owner.draining(f"unsolicited verdict (id {call_id})")
        self._unsolicited.count("unsolicited verdicts")
        return False


def _failure_of(error: worker_pb2.Error, deadline: Deadline) -> tuple[Failed, str]:
    """Return the verdict for *error*, and the name of its status."""
    code = status_name(error.code)
    # The text must not depend on whether the worker's timer or the gateway's is first.
    is_late = code == "DEADLINE_EXCEEDED"
    return failed_deadline(deadline) if is_late else failed_status(code, error.message), code


def _in_steps(verdicts: Sequence[worker_pb2.Verdict]) -> Iterator[worker_pb2.Verdict]:
    """Yield *verdicts* in steps of ``STEP_VERDICTS``, each in reverse.

    The first verdict of a review then settles all of them in one go, which needs the object parsed once.
    """
    for start in range(0, len(verdicts), STEP_VERDICTS):
        yield from reversed(verdicts[start : start + STEP_VERDICTS])
