"""One ReviewStream: calls are sent in batches, verdicts come back in any order.

Calls made while the loop processes input, or while flow control blocks the stream, share the next message:
batches grow with the load, and no call waits for a batch to fill. Where reviews come one at a time, each is
written at once. A review has an entry in a table; there is
no task, future or timer for each call, and none for each message.

Source: the worker contract (protos/README.md).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from google.protobuf.message import DecodeError

from admission_gateway_worker.pb import worker_pb2
from gateway.engine.dispatch.bounded_messages import WHOLE_BYTES, pieces
from gateway.engine.dispatch.calls import with_followers
from gateway.engine.dispatch.dialer import Unreachable
from gateway.engine.dispatch.parameter_ids import ParameterIds
from gateway.engine.dispatch.review_batch import (
    MAX_CALLS,
    GroupEncoder,
    encoded_allows,
    encoded_cancelled,
    encoded_payload,
    group_of_first_verdict,
)
from gateway.engine.dispatch.rpc import CallStatus
from gateway.engine.dispatch.unsolicited import Flood, UnsolicitedLimiter
from gateway.engine.dispatch.verdicts import (
    failed_deadline,
    failed_malformed,
    failed_status,
    status_name,
    verdict_of,
)
from gateway.pure.core.verdict import ALLOWED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from gateway.engine.dispatch.calls import CallGroup, CallSink
    from gateway.engine.dispatch.stream_connection import StreamConnection, StreamConnectionOwner
    from gateway.observe.telemetry.metrics import PoolMetrics
    from gateway.pure.core.call import Call, Payload
    from gateway.pure.core.deadline import Deadline
    from gateway.pure.core.verdict import Failed, Verdict

log = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 1024 * 1024
"""Payload bytes at which a batch is full: well below gRPC's limit of 8 MiB, and little enough that the next
batch does not wait long."""

MAX_BATCH_CALLS: Final = 2048
"""Calls and cancelled ids at which a batch is full; a review and its chains are not split. Workers accept
4,096 of each (protos/README.md)."""

STEP_VERDICTS: Final = 32
"""Verdicts in one step: each ends a call, which may end a review."""
SMALL_BYTES: Final = 1024
"""Messages up to this size are taken in one step, unless they have more verdicts than that."""


class StreamOwner(Protocol):
    """Receives the events of a stream; a ``CallSink`` takes the results of its calls."""

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
        sink: CallSink,
        owner: StreamOwner,
        metrics: PoolMetrics,
        now: Callable[[], float],
    ) -> None:
        self.connection: StreamConnection | None = None
        """None before the worker is connected."""
        self.has_chains = True
        """Whether the worker may have chains; False after a verdict in a chain that is not marked so."""
        self._sink = sink
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
        self._parameter_ids = ParameterIds()
        self._last_number = 0
        self._had_one_group = False
        """Whether the last message had the calls of one review, as most do where there are few reviews. Then
        nothing is gained by waiting for more."""
        self._is_finishing = self._is_woken = self._is_over = False
        self._dialing = self._loop.create_task(self._dial(dial))

    def submit(self, group: CallGroup) -> None:
        """Send the open calls of *group* and of its followers, at once or with the next batch."""
        self._queue[group] = None
        if self._is_woken or self._written or group.has_siblings or not self._had_one_group:
            self._wake()
        else:
            self._flush()

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

    def received(self, message: bytes | bytearray) -> Iterator[int] | int:
        """Take a batch of verdicts, and return how many calls it has answered; in steps if it is large."""
        if self._is_over:
            return 0
        try:
            if len(message) <= WHOLE_BYTES and (groups := self._allowed_groups(message)):
                if sum(group.open_count for group in groups) <= STEP_VERDICTS:
                    return sum(self._allow(groups))
                return self._guarded(self._allow(groups))
            if len(message) <= SMALL_BYTES:
                batch = worker_pb2.VerdictBatch.FromString(message)  # type: ignore[arg-type] # a buffer
                if len(batch.verdicts) <= STEP_VERDICTS:
                    used = self._take(batch.verdicts)
                    self._end_batch(batch)
                    return used
        except Exception as error:
            self._fail(error)
            return 0
        return self._guarded(self._read(message))

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
                connection.send(*self._next_batch())
        except Exception:
            log.exception("internal error while writing to a worker; its stream is ended")
            # Later, because the caller of submit() is not reentrant.
            status = CallStatus("INTERNAL", "internal error while writing the calls")
            self._loop.call_soon(self._break, status)
        if self._is_finishing and not (self._written or self._queue or self._cancelled or self._is_over):
            connection.finish_writing()

    def _break(self, status: CallStatus) -> None:
        if self.connection is not None:
            self.connection.abort()
        self.ended(status)

    def _next_batch(self) -> list[bytes]:
        """Return the next message in parts: queued calls up to the size of a batch."""
        queue, now, batch = self._queue, self._now(), _Batch(self._parameter_ids)
        cancelled = self._cancelled[:MAX_BATCH_CALLS]
        del self._cancelled[:MAX_BATCH_CALLS]
        groups = calls = 0
        while queue and batch.size < MAX_BATCH_BYTES:
            group = next(iter(queue))
            calls += (size := _size(group))
            if groups and (calls > MAX_BATCH_CALLS or not self._parameter_ids.has_room(size)):
                break
            del queue[group]
            if not groups:
                self._metrics.queue_seconds.observe(now - group.started_at)
            groups += 1
            # A chain has one payload, and is not split.
            members = [(group, 0)]
            for member, after in members:
                self._last_number = member.number = self._last_number + 1
                member.was_sent = True
                self._written[member.number] = member
                batch.add(member, after, now)
                if member.followers:
                    members += _followers(member)
        if groups:
            self._metrics.batch_size.observe(batch.calls)
            self._had_one_group = groups == 1
        return batch.message(cancelled)

    # -- reading ----------------------------------------------------------------------------------

    def _allowed_groups(self, message: bytes | bytearray) -> list[CallGroup]:
        """Return the groups that *message* answers, if it only allows all calls of each; otherwise none.

        Most answers only allow. Comparing their bytes takes a fraction of the time of reading them.
        """
        groups: dict[CallGroup, None] = {}
        position, end = 0, len(message)
        while position < end:
            group = self._written.get(group_of_first_verdict(message, position))
            if group is None or group.after is not None or group in groups:
                return []
            for call in group.calls:
                if call is None or call.parameters:
                    return []
            allows = encoded_allows(group.number, len(group.calls))
            if not message.startswith(allows, position):
                return []
            position += len(allows)
            groups[group] = None
        return list(groups)

    def _allow(self, groups: list[CallGroup]) -> Iterator[int]:
        """Take the verdicts that allow all calls of *groups*, in steps as :meth:`_read`."""
        answered = used = 0
        for group in reversed(groups):
            allowed: dict[int, tuple[Call, Verdict]] = {}
            for index, call in enumerate(group.calls):
                if call is not None:
                    allowed[index] = call, ALLOWED
                else:
                    # It was withdrawn in a step before this one.
                    used += self._is_of_withdrawn_call(group.number * MAX_CALLS + index)
            answered += len(allowed)
            self._finish({group: allowed} if allowed else {})
            if answered >= STEP_VERDICTS:
                self._sink.count("OK", answered)
                yield used + answered
                if self._is_over:
                    return
                answered = used = 0
        if answered:
            self._sink.count("OK", answered)
        if self._is_finishing and not self._written:
            self._wake()
        yield used + answered

    def _read(self, message: bytes | bytearray) -> Iterator[int]:
        """Take a batch in steps; each yields how many calls it has answered."""
        for piece in pieces(message):
            if not piece:
                yield 0
                continue
            batch = worker_pb2.VerdictBatch.FromString(piece)  # type: ignore[arg-type] # a buffer
            for start in range(0, len(batch.verdicts), STEP_VERDICTS):
                yield self._take(batch.verdicts[start : start + STEP_VERDICTS])
                if self._is_over:
                    return
            self._end_batch(batch)

    def _guarded(self, steps: Iterator[int]) -> Iterator[int]:
        """Yield *steps*; an error in one of them ends the stream."""
        try:
            yield from steps
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End the stream for an *error* in a message."""
        match error:
            case Flood():
                self._break(CallStatus("INTERNAL", str(error), error.is_misconduct))
            case DecodeError():
                self._break(CallStatus("INTERNAL", f"the worker sent no valid VerdictBatch: {error}"))
            case _:
                # Otherwise the stream would stay open and answer nothing.
                log.error(
                    "internal error while reading a worker's answer; its stream is ended", exc_info=error
                )
                self._break(CallStatus("INTERNAL", "internal error while reading the answer"))

    def _take(self, verdicts: Sequence[worker_pb2.Verdict]) -> int:
        """Take *verdicts* in one step, and return how many calls they answer.

        Verdicts of a review that follow each other are taken together, and all in reverse: then the first
        webhook of a review settles all of them in one go, which needs the object parsed once.
        """
        written = self._written
        answered = used = number = 0
        group: CallGroup | None = None
        taken: dict[CallGroup, dict[int, tuple[Call, Verdict]]] = {}
        try:
            for verdict in reversed(verdicts):
                last, (number, index) = number, divmod(verdict.id, MAX_CALLS)
                if number != last:
                    group = written.get(number)
                    if group is not None and any(group.observer is not other.observer for other in taken):
                        ended, taken = taken, {}
                        self._finish(ended)
                call = None if group is None or index >= len(group.calls) else group.calls[index]
                if group is None or call is None or index in taken.get(group, ()):
                    used += self._is_of_withdrawn_call(verdict.id)
                    continue
                used += 1
                if group.after is not None and not verdict.chained:
                    ended, taken = taken, {}
                    self._finish(ended)
                    self._refuse(group, index)
                    answered += 1
                    continue
                # An unset response reads as not allowed, so that WhichOneof is needed for few verdicts.
                response = verdict.response
                found: Verdict
                if response.allowed or (outcome := verdict.WhichOneof("outcome")) == "response":
                    answered += 1
                    found = verdict_of(response, has_parameters=call.parameters != b"")
                elif outcome == "error":
                    found, code = _failure_of(verdict.error, group.deadline)
                    self._sink.count_one(group, code)
                else:
                    answered += 1
                    found = failed_malformed("a verdict without an outcome")
                taken.setdefault(group, {})[index] = call, found
        finally:
            # Also those before a Flood.
            self._finish(taken)
            if answered:
                self._sink.count("OK", answered)
        return used

    def _finish(self, answered: Mapping[CallGroup, Mapping[int, tuple[Call, Verdict]]]) -> None:
        """End calls of one observer, if there are any."""
        for group, calls in answered.items():
            if group.open_count == len(calls):
                del self._written[group.number]
        if answered:
            self._sink.finish_calls(answered)

    def _refuse(self, group: CallGroup, index: int) -> None:
        """Take back a call whose worker has no chains, unless it has ended."""
        self.has_chains = False
        if group.calls[index] is not None:
            if group.open_count == 1:
                del self._written[group.number]
            self._sink.refuse(group, index)

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


class _Batch:
    """One message: the parts of its payloads, and the bytes of its calls."""

    __slots__ = ("_encoded_calls", "_ids", "_parameters", "_payload_indices", "_payloads", "calls", "size")

    def __init__(self, ids: ParameterIds) -> None:
        """*ids* are those of the stream's parameters."""
        ids.begin_batch()
        self._ids = ids
        self._payload_indices: dict[Payload, int] = {}
        self._payloads: list[bytes] = []
        self._encoded_calls: list[bytes] = []
        self._parameters: list[bytes] = []
        self.calls = self.size = 0
        """The number of calls, and the bytes of what was added, without ids."""

    def add(self, group: CallGroup, after: int, now: float) -> None:
        """Add the open calls of *group*, which has a number; *after* is the id of the call before, or 0."""
        encoder: GroupEncoder | None = None
        for index, call in enumerate(group.calls):
            if call is None:
                continue
            if encoder is None:
                position = self._add_payload(call.payload, group.namespace_json)
                timeout_ms = max(int(min(group.expires_at - now, group.timeout_s) * 1000), 1)
                encoder = GroupEncoder(group.number, position, timeout_ms, after)
            policy, parameters = call.invocation.worker_policy, 0
            if call.traceparent:
                call.sent_at = now
            if call.parameters:
                parameters, added_bytes = self._ids.of(call.parameters, self._parameters)
                self.size += added_bytes
            encoder.add(self._encoded_calls, index, policy, call.traceparent, parameters)
            self.size += len(policy)
            self.calls += 1

    def message(self, cancelled: Sequence[int]) -> list[bytes]:
        """Return the message in parts, with the ids of *cancelled* calls."""
        if cancelled:
            self._encoded_calls.append(encoded_cancelled(cancelled))
        return [*self._payloads, b"".join(self._encoded_calls + self._parameters)]

    def _add_payload(self, payload: Payload, namespace_json: bytes) -> int:
        """Return the index of *payload*, which is added unless it is there."""
        found = self._payload_indices.get(payload)
        if found is None:
            found = self._payload_indices[payload] = len(self._payload_indices)
            self._payloads += encoded_payload(payload, namespace_json)
            self.size += len(payload.json) + len(namespace_json)
        return found


def _size(group: CallGroup) -> int:
    """Return the number of calls of *group* and of all groups of its chains."""
    return sum(member.open_count for member in with_followers(group)) if group.followers else group.open_count


def _followers(group: CallGroup) -> Iterator[tuple[CallGroup, int]]:
    """Yield the groups that follow *group*, each with the id of the call before it."""
    for follower in group.followers:
        # Not if the call before it has ended: then the follower will be withdrawn.
        if follower.open_count and follower.after in group.calls:
            yield follower, group.number * MAX_CALLS + group.calls.index(follower.after)


def _failure_of(error: worker_pb2.Error, deadline: Deadline) -> tuple[Failed, str]:
    """Return the verdict for *error*, and the name of its status."""
    code = status_name(error.code)
    # The text must not depend on whether the worker's timer or the gateway's is first.
    is_late = code == "DEADLINE_EXCEEDED"
    return failed_deadline(deadline) if is_late else failed_status(code, error.message), code
