"""Calls of their own: a task and an RPC each, for workers without streams and for large requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import grpc
from google.protobuf.message import DecodeError

from gateway.dispatch.verdicts import failed_deadline, failed_malformed, failed_status, verdict_of
from gateway.pb import worker_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.core.verdict import Verdict
    from gateway.dispatch.pending import Pending

    Method = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]


class UnaryOwner(Protocol):
    """Whom the calls report to."""

    def finish(self, pending: Pending, verdict: Verdict, code: str) -> None:
        """Take the verdict of a call, and its gRPC status."""

    def unavailable(self, details: str) -> None:
        """The worker could not be reached."""


class UnaryCalls:
    """The ``Review`` method of one connection."""

    def __init__(self, method: Method, owner: UnaryOwner, now: Callable[[], float]) -> None:
        self._method = method
        self._owner = owner
        self._now = now
        self._tasks: dict[Pending, asyncio.Task[None]] = {}

    def submit(self, pending: Pending) -> None:
        """Send a call."""
        self._tasks[pending] = task = asyncio.get_running_loop().create_task(self._call(pending))
        # Not at the end of the task's own work: one that is cancelled before it began never gets there.
        task.add_done_callback(lambda _: self._tasks.pop(pending))

    def withdraw(self, pending: Pending) -> None:
        """Cancel a call."""
        task = self._tasks.get(pending)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all calls, which end as cancelled."""
        tasks = dict(self._tasks)
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        for pending in tasks:
            if pending.endpoint is not None:
                closed = failed_status("CANCELLED", "the connection to the worker was closed")
                self._owner.finish(pending, closed, "CANCELLED")

    async def _call(self, pending: Pending) -> None:
        code, verdict = await self._review(pending)
        if pending.endpoint is not None:
            self._owner.finish(pending, verdict, code)

    async def _review(self, pending: Pending) -> tuple[str, Verdict]:
        request = worker_pb2.ReviewRequest(
            policy=pending.call.invocation.webhook.worker.policy,
            admission_request=pending.call.payload.json,
            namespace_object=pending.namespace_json,
        )
        try:
            answer = await self._method(
                request.SerializeToString(), timeout=max(0.0, pending.deadline - self._now())
            )
            assert isinstance(answer, bytes)
            return "OK", verdict_of(worker_pb2.ReviewResponse.FromString(answer))
        except grpc.aio.AioRpcError as error:
            code, details = error.code().name, error.details() or ""
            if code == "UNAVAILABLE":
                self._owner.unavailable(details)
            if code == "DEADLINE_EXCEEDED":
                # gRPC's timer and ours are set alike; whichever strikes first says the same.
                return code, failed_deadline(pending.timeout_s)
            return code, failed_status(code, details)
        except DecodeError:
            return "OK", failed_malformed("no ReviewResponse")
