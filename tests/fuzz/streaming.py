"""A stream without a socket, whose owner checks that every call ends exactly once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from gateway.engine.dispatch.calls import CallGroup
from gateway.engine.dispatch.dialer import Unreachable
from gateway.engine.dispatch.rpc import CallStatus, StreamingCall
from gateway.engine.dispatch.stream import ReviewStream
from gateway.engine.dispatch.stream_connection import StreamConnection
from gateway.observe.telemetry.metrics import Metrics
from gateway.pure.core.call import Call, Payload
from gateway.pure.core.deadline import Deadline
from gateway.pure.core.matching import WebhookInvocation
from gateway.pure.core.verdict import Allowed, Denied, Failed
from tests.core.build import request, webhook

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.engine.dispatch.stream_connection import StreamConnectionOwner
    from gateway.pure.core.verdict import Verdict

_METRICS: Final = Metrics().pool("pool")
_REQUEST: Final = request()
_INVOCATION: Final = WebhookInvocation(webhook(), 0, has_matched_selectors=True, has_matched_namespace=True)
MAX_UNREAD_BYTES: Final = 100_000
"""Bytes written to a worker that does not read: at most two windows, with the lowered bound, and a batch."""


class Transport:
    """A transport that counts the written bytes."""

    def __init__(self) -> None:
        self.unread_bytes = 0
        self.is_peer_reading = True
        self.is_closed = False
        self.is_reading = True

    def write(self, payload: bytes) -> None:
        assert not self.is_closed, "written after the end"
        if not self.is_peer_reading:
            self.unread_bytes += len(payload)
            assert self.unread_bytes < MAX_UNREAD_BYTES

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def get_extra_info(self, name: str) -> Any:
        return None


class FuzzedStream:
    """A stream with its owner, endpoint and observer. It needs a running loop."""

    def __init__(self) -> None:
        self.call: StreamingCall | None = None
        self._transport = Transport()
        self._connection: StreamConnection | None = None
        self._is_lost = self._is_over = False
        self._submitted: list[CallGroup] = []
        self._open = 0
        self._unread: list[bytes] = []
        self.stream = ReviewStream(self._dial, self, self, _METRICS, lambda: 0.0)

    async def _dial(self, owner: StreamConnectionOwner) -> StreamConnection:
        self.call = StreamingCall("/a.B/C", "worker.test", "http")
        self._connection = connection = StreamConnection(self.call, owner)
        connection.connection_made(self._transport)  # type: ignore[arg-type]
        try:
            await connection.settled
        except EOFError as error:
            raise Unreachable(str(error)) from None
        except asyncio.CancelledError:
            connection.abort()
            raise
        return connection

    @property
    def written(self) -> list[int]:
        """Numbers of the slots that were sent."""
        return [group.number for group in self._submitted if group.number]

    # -- events -----------------------------------------------------------------------------------

    def submit(self, count: int) -> None:
        """Submit *count* calls with one payload."""
        if self._is_over:
            return
        group = CallGroup(self, self, b"", 0.0, Deadline(1.0, 1.0))  # type: ignore[arg-type]
        payload = Payload(_REQUEST)
        for index in range(count):
            group.calls.append(Call(index, _INVOCATION, payload, is_ahead=False))
        group.open_count = count
        self._open += count
        self._submitted.append(group)
        self.stream.submit(group)

    def withdraw(self, choice: int) -> None:
        """Withdraw an open call."""
        out = [group for group in self._submitted if group.open_count]
        if out and not self._is_over:
            group = out[choice % len(out)]
            self._withdraw(group, next(index for index, call in enumerate(group.calls) if call is not None))

    def expire(self, choice: int) -> None:
        """Withdraw all calls of a slot."""
        out = [group for group in self._submitted if group.open_count]
        if out and not self._is_over:
            group = out[choice % len(out)]
            for index, call in enumerate(group.calls):
                if call is not None:
                    self._withdraw(group, index)

    def _withdraw(self, group: CallGroup, index: int) -> None:
        self.stream.withdraw(group, index)
        self._settle(group, index)

    def receive(self, pieces: Iterable[bytes]) -> None:
        """Receive bytes of the worker, in *pieces*; while reading is paused, they wait."""
        self._unread += pieces
        while self._unread and self._transport.is_reading:
            if self._connection is None or self._transport.is_closed or self._is_lost:
                break
            self._connection.data_received(self._unread.pop(0))
        if self._transport.is_closed:
            self.break_connection()

    def pause(self, *, is_paused: bool) -> None:
        """Pause or resume the worker's reading."""
        if (
            self._connection is not None
            and not self._transport.is_closed
            and is_paused is self._transport.is_peer_reading
        ):
            self._transport.is_peer_reading = not is_paused
            self._transport.unread_bytes = 0
            if is_paused:
                self._connection.pause_writing()
            else:
                self._connection.resume_writing()

    def keep_alive(self) -> None:
        """Do the keepalive's work: send a ping, and reset the counters of the period."""
        if self._connection is not None and not self._transport.is_closed:
            self._connection.ping()
            self._connection.begin_period()
            self.stream._unsolicited.begin_period()

    def break_connection(self) -> None:
        """Lose the connection."""
        if self._connection is not None and not self._is_lost:
            self._is_lost = self._transport.is_closed = True
            self._connection.connection_lost(None)

    async def end(self) -> None:
        """Close the stream, and check that nothing is left."""
        await asyncio.sleep(0)
        await self.stream.close()
        assert self._is_over
        assert self._open == 0, "calls that never ended"
        assert not any(group.open_count for group in self._submitted)
        assert self._connection is None or self._transport.is_closed
        self.break_connection()

    # -- the owner of the stream ------------------------------------------------------------------

    def finish(self, group: CallGroup, index: int, verdict: Verdict, code: str) -> None:
        raise AssertionError("a stream ends calls in batches")

    def retry(
        self,
        group: CallGroup,
        failure: Failed,
        code: str,
        index: int | None = None,
        *,
        may_reuse: bool = False,
    ) -> None:
        raise AssertionError("the owner of the stream decides what is retried")

    def refuse(self, group: CallGroup, index: int) -> None:
        raise AssertionError("there are no chains")

    def finish_calls(self, answered: Mapping[CallGroup, Mapping[int, tuple[Call, Verdict]]]) -> None:
        assert not self._is_over, "a verdict after the end"
        assert answered
        for group, calls in answered.items():
            assert calls
            for index, (call, verdict) in calls.items():
                assert call is group.calls[index]
                assert isinstance(verdict, Allowed | Denied | Failed)
                self._settle(group, index)

    def count(self, code: str, number: int = 1, *, is_enforced: bool = True) -> None:
        assert number > 0

    def count_one(self, group: CallGroup, code: str) -> None:
        assert code != "OK"

    def opened(self) -> None:
        assert not self._is_over

    def draining(self, replace_reason: str = "") -> None:
        """The owner would open another stream; this one stays open for its calls."""

    def ended(self, status: CallStatus, unanswered: list[CallGroup]) -> None:
        assert not self._is_over, "ended twice"
        self._is_over = True
        for group in unanswered:
            for index, call in enumerate(group.calls):
                if call is not None:
                    self._settle(group, index)

    def _settle(self, group: CallGroup, index: int) -> None:
        assert group.calls[index] is not None, "ended twice"
        group.calls[index] = None
        group.open_count -= 1
        self._open -= 1
