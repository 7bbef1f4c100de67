"""Calls of their own: a task and an RPC each, for workers without streams and for large requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import grpc
from google.protobuf.message import DecodeError

from gateway.core.verdict import Failed
from gateway.dispatch.answers import WHOLE_BYTES, TooManyPartsError, read_response
from gateway.dispatch.share import in_slices
from gateway.dispatch.verdicts import failed_deadline, failed_malformed, failed_status, verdict_of
from gateway.pb import worker_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.core.call import Call
    from gateway.core.verdict import Verdict
    from gateway.dispatch.pending import Pending
    from gateway.dispatch.share import Account

    Method = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]

SERVICE: Final = "/admissiongateway.worker.v1.PolicyWorker"
REVIEW: Final = f"{SERVICE}/Review"


class UnaryOwner(Protocol):
    """Whom the calls report to."""

    def finish(self, pending: Pending, index: int, verdict: Verdict, code: str) -> None:
        """Take the verdict of a call, and its gRPC status."""

    def lose(self, pending: Pending, failure: Failed, code: str, index: int) -> None:
        """Take back a call that was lost with the worker."""

    def unavailable(self, why: str) -> None:
        """The worker could not be reached."""


class UnaryCalls:
    """The ``Review`` method of one connection."""

    def __init__(
        self,
        open_channel: Callable[[], grpc.aio.Channel],
        account: Account,
        owner: UnaryOwner,
        now: Callable[[], float],
    ) -> None:
        self._open_channel = open_channel
        self._account = account
        self._method: Method | None = None
        self._owner = owner
        self._now = now
        self._tasks: dict[tuple[Pending, int], asyncio.Task[None]] = {}
        self.heard_at = now()
        """When the worker answered last, on the clock of ``now``."""

    @property
    def is_busy(self) -> bool:
        """Whether any call is out."""
        return bool(self._tasks)

    def submit(self, pending: Pending) -> None:
        """Send calls."""
        pending.was_sent = True
        for index, call in enumerate(pending.calls):
            if call is not None:
                self._start((pending, index), call)

    def withdraw(self, pending: Pending, index: int) -> None:
        """Cancel a call."""
        task = self._tasks.get((pending, index))
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all calls, which end as cancelled."""
        tasks = dict(self._tasks)
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        for pending, index in tasks:
            closed = failed_status("CANCELLED", "the connection to the worker was closed")
            self._owner.finish(pending, index, closed, "CANCELLED")

    def _start(self, place: tuple[Pending, int], call: Call) -> None:
        self._tasks[place] = task = asyncio.get_running_loop().create_task(self._call(place, call))
        # Not at the end of the task's own work: one that is cancelled before it began never gets there.
        task.add_done_callback(lambda _: self._tasks.pop(place))

    async def _call(self, place: tuple[Pending, int], call: Call) -> None:
        pending, index = place
        code, verdict = await self._review(pending, call)
        if code == "UNAVAILABLE" and isinstance(verdict, Failed):
            self._owner.unavailable(verdict.cause)
            self._owner.lose(pending, verdict, code, index)
            return
        if code != "DEADLINE_EXCEEDED":
            self.heard_at = self._now()
        self._owner.finish(pending, index, verdict, code)

    async def _review(self, pending: Pending, call: Call) -> tuple[str, Verdict]:
        if self._method is None:
            self._method = self._open_channel().unary_unary(REVIEW)
        request = worker_pb2.ReviewRequest(
            policy=call.invocation.webhook.worker.policy,
            admission_request=call.payload.json,
            namespace_object=pending.namespace_json,
        )
        try:
            answer = await self._method(
                request.SerializeToString(), timeout=max(0.0, pending.deadline - self._now())
            )
            assert isinstance(answer, bytes)
            if len(answer) <= WHOLE_BYTES:
                return "OK", verdict_of(worker_pb2.ReviewResponse.FromString(answer))
            response = await in_slices(read_response(answer), self._account)
            self._account.pay(1)
            return "OK", verdict_of(response)
        except grpc.aio.AioRpcError as error:
            code, details = error.code().name, error.details() or ""
            if code == "DEADLINE_EXCEEDED":
                # gRPC's timer and ours are set alike; whichever strikes first says the same.
                return code, failed_deadline(pending.timeout_s)
            return code, failed_status(code, details)
        except TooManyPartsError as error:
            return "RESOURCE_EXHAUSTED", failed_status("RESOURCE_EXHAUSTED", str(error))
        except DecodeError:
            return "OK", failed_malformed("no ReviewResponse")
