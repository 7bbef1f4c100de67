"""Unary calls: one task and one RPC for each call, for workers without streams and for large requests."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from admission_gateway_worker.pb import worker_pb2
from gateway.base.work_queue import WorkQueue
from gateway.engine.dispatch.bounded_messages import WHOLE_BYTES, TooManyPartsError, read_response
from gateway.engine.dispatch.cpu_budget import run_in_slices
from gateway.engine.dispatch.review_batch import varint
from gateway.engine.dispatch.verdicts import failed_deadline, failed_malformed, failed_status, verdict_of
from gateway.pure.core.verdict import Failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator

    import grpc

    from gateway.engine.dispatch.calls import CallGroup, CallSink
    from gateway.engine.dispatch.cpu_budget import CpuAccount
    from gateway.pure.core.call import Call
    from gateway.pure.core.verdict import Verdict

    CallKey = tuple[CallGroup, int]
    """A group and an index in it."""
    Method = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]

SERVICE: Final = "/admissiongateway.worker.v1.PolicyWorker"
REVIEW: Final = f"{SERVICE}/Review"

MAX_REQUEST_BYTES: Final = 32 * 1024 * 1024
"""Requests that gRPC holds at once for one channel. Each call has its own copy, which does not count as bytes
in flight. Further calls wait, within their deadlines, until others have ended."""

LARGE_BYTES: Final = 256 * 1024
"""A longer request is copied in a step of its own: 6 MiB take some milliseconds for each webhook."""

_ADMISSION_REQUEST: Final = b"\x12"
"""The tag of ``ReviewRequest.admission_request``: field 2, length-delimited."""


class ByteLimiter:
    """Limits the bytes that are held at once; callers wait for their turn in order of arrival."""

    def __init__(self, max_bytes: int) -> None:
        self._free = max_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Hold *size* bytes, at most the limit, while the block runs."""
        if self._waiting or size > self._free:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._release(size)
                raise
        else:
            self._free -= size
        try:
            yield
        finally:
            self._release(size)

    def _release(self, size: int) -> None:
        self._free += size
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= self._free):
            wanted, turn = self._waiting.popleft()
            if not turn.done():
                self._free -= wanted
                turn.set_result(None)


class UnaryCalls:
    """The ``Review`` method of one worker."""

    has_chains: Final = False

    def __init__(
        self,
        open_channel: Callable[[], Awaitable[grpc.aio.Channel]],
        account: CpuAccount,
        sink: CallSink,
        unavailable: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        """*unavailable* is called with the reason when the worker cannot be reached."""
        self._open_channel = open_channel
        self._account = account
        self._method: Method | None = None
        self._sink = sink
        self._unavailable = unavailable
        self._now = now
        self._limiter = ByteLimiter(MAX_REQUEST_BYTES)
        self._queue = WorkQueue()
        self._tasks: dict[CallKey, asyncio.Task[None]] = {}
        self.last_received_at = now()
        """When the worker last answered, on the clock of ``now``."""

    @property
    def is_busy(self) -> bool:
        """Whether any call is open."""
        return bool(self._tasks)

    def submit(self, group: CallGroup) -> None:
        """Send the open calls of *group*."""
        group.was_sent = True
        for index, call in enumerate(group.calls):
            if call is not None:
                self._start((group, index), call)

    def withdraw(self, group: CallGroup, index: int) -> None:
        """Cancel a call."""
        task = self._tasks.get((group, index))
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all calls; their status is CANCELLED."""
        tasks = dict(self._tasks)
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        for group, index in tasks:
            closed = failed_status("CANCELLED", "the connection to the worker was closed")
            self._sink.finish(group, index, closed, "CANCELLED")

    def _start(self, key: CallKey, call: Call) -> None:
        self._tasks[key] = task = asyncio.get_running_loop().create_task(self._call(key, call))
        # Not in the task itself: a task that is cancelled before its first step never gets there.
        task.add_done_callback(lambda _: self._tasks.pop(key))

    async def _call(self, key: CallKey, call: Call) -> None:
        group, index = key
        code, verdict = await self._review(group, call)
        if code == "UNAVAILABLE" and isinstance(verdict, Failed):
            self._unavailable(verdict.cause)
            self._sink.retry(group, verdict, code, index)
            return
        if code != "DEADLINE_EXCEEDED":
            self.last_received_at = self._now()
        self._sink.finish(group, index, verdict, code)

    async def _review(self, group: CallGroup, call: Call) -> tuple[str, Verdict]:
        if self._method is None:
            self._method = (await self._open_channel()).unary_unary(REVIEW)
        import grpc  # by now it is loaded, see gateway.engine.dispatch.dialer.load_grpc

        size = len(call.payload.json) + len(group.namespace_json) + len(call.parameters)
        size = min(MAX_REQUEST_BYTES, size)
        try:
            async with self._limiter.hold(size):
                if size <= LARGE_BYTES:
                    request = _request(group, call)
                else:
                    request = await self._queue.run(_request_in_steps(group, call))
                timeout_s = max(0.0, group.deadline.remaining_s(self._now()))
                metadata = None
                if call.traceparent:
                    metadata, call.sent_at = (
                        (("traceparent", call.traceparent),),
                        self._now(),
                    )
                answer = await self._method(request, timeout=timeout_s, metadata=metadata)
            assert isinstance(answer, bytes)
            if len(answer) <= WHOLE_BYTES:
                response = worker_pb2.ReviewResponse.FromString(answer)
            else:
                response = await run_in_slices(read_response(answer), self._account)
                self._account.pay(1)
            return "OK", verdict_of(response, has_parameters=call.parameters != b"")
        except grpc.aio.AioRpcError as error:
            code, details = error.code().name, error.details() or ""
            if code == "DEADLINE_EXCEEDED":
                # gRPC's timer and the gateway's have the same deadline; the text must not depend on which is
                # first.
                return code, failed_deadline(group.deadline)
            return code, failed_status(code, details)
        except TooManyPartsError as error:
            return "RESOURCE_EXHAUSTED", failed_status("RESOURCE_EXHAUSTED", str(error))
        except DecodeError:
            return "OK", failed_malformed("no ReviewResponse")


def _request(group: CallGroup, call: Call) -> bytes:
    """Return the ReviewRequest; its JSON is copied once, where protobuf would copy it twice."""
    other = worker_pb2.ReviewRequest(
        policy=call.invocation.webhook.worker.policy,
        namespace_object=group.namespace_json,
        parameters=call.parameters,
    )
    json = call.payload.json
    return b"".join((other.SerializeToString(), _ADMISSION_REQUEST, varint(len(json)), json))


def _request_in_steps(group: CallGroup, call: Call) -> Generator[None, None, bytes]:
    request = _request(group, call)
    yield
    return request
