"""A gateway's side of a worker without its cost: asks policies about one request, measures what that takes.

A *review* is what the SDKs call one: a policy asked about a request. CPU is of the worker process, user and
system, all threads, divided by the reviews answered meanwhile. Every answer is checked.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from grpc import aio

from gateway.dispatch.transport import REVIEW_STREAM
from gateway.pb import worker_pb2 as pb
from loadtest.launch import BenchError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

ANSWER_WITHIN_S: Final = 10.0
"""Also the timeout of the calls."""
REVIEW: Final = "/admissiongateway.worker.v1.PolicyWorker/Review"
_Done = TypeVar("_Done")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked, and how much of it at a time."""

    policies: tuple[str, ...]
    """About each request."""
    requests: int = 1
    """In a batch."""
    batches: int = 1
    """Out at a time."""

    @property
    def reviews(self) -> int:
        """Reviews in a batch."""
        return self.requests * len(self.policies)


def is_allowed(response: pb.ReviewResponse) -> bool:
    """Return whether *response* allows."""
    return response.allowed


class Client(Protocol):
    """Either way of asking."""

    async def ask(self, policy: str) -> pb.ReviewResponse:
        """Return the answer of *policy*.

        Raises:
            BenchError: it was wrong, or did not come.
        """

    async def review_us(self, asked: Asked, clock: int, seconds: float) -> float:
        """Ask for *seconds*, and return the CPU of each review in microseconds, by the clock of a process.

        Raises:
            BenchError: an answer was wrong, or did not come.
        """


class StreamClient:
    """Asks over one ReviewStream."""

    def __init__(
        self,
        channel: aio.Channel,
        request: bytes,
        is_right: Callable[[pb.ReviewResponse], bool] = is_allowed,
    ) -> None:
        """Open the stream. *request* is the JSON of an AdmissionRequest, *is_right* looks at every answer."""
        self._call: Any = channel.stream_stream(REVIEW_STREAM)()
        self._request = request
        self._is_right = is_right
        self._last_id = 0

    async def ask(self, policy: str) -> pb.ReviewResponse:
        """See ``Client``."""
        await _within(self._call.write(self._batch(Asked((policy,)))))
        [verdict] = await self._verdicts()
        return verdict.response

    async def review_us(self, asked: Asked, clock: int, seconds: float) -> float:
        """See ``Client``."""
        wanted = answered = 0
        started, end = time.clock_gettime(clock), time.monotonic() + seconds
        while (is_open := time.monotonic() < end) or answered < wanted:
            while is_open and wanted - answered <= asked.reviews * (asked.batches - 1):
                await _within(self._call.write(self._batch(asked)))
                wanted += asked.reviews
            answered += len(await self._verdicts())
        return (time.clock_gettime(clock) - started) / answered * 1e6

    def _batch(self, asked: Asked) -> bytes:
        batch = pb.ReviewBatch()
        timeout_ms = int(ANSWER_WITHIN_S * 1000)
        for payload in range(asked.requests):
            batch.payloads.add(admission_request=self._request)
            for policy in asked.policies:
                self._last_id += 1
                batch.calls.add(id=self._last_id, payload=payload, policy=policy, timeout_millis=timeout_ms)
        return batch.SerializeToString()

    async def _verdicts(self) -> Sequence[pb.Verdict]:
        message = await _within(self._call.read())
        if not isinstance(message, bytes):
            raise BenchError(f"the worker ended the stream: {await self._call.code()}")
        verdicts = pb.VerdictBatch.FromString(message).verdicts
        for verdict in verdicts:
            if not self._is_right(verdict.response):
                raise BenchError(f"a review was not answered as it should be: {verdict}")
        return verdicts


class UnaryClient:
    """Asks by calls of their own."""

    def __init__(
        self,
        channel: aio.Channel,
        request: bytes,
        is_right: Callable[[pb.ReviewResponse], bool] = is_allowed,
    ) -> None:
        """*request* is the JSON of an AdmissionRequest, *is_right* looks at every answer."""
        self._method: Any = channel.unary_unary(REVIEW)
        self._request = request
        self._is_right = is_right

    async def ask(self, policy: str) -> pb.ReviewResponse:
        """See ``Client``."""
        return await self._ask(self._written(policy))

    async def review_us(self, asked: Asked, clock: int, seconds: float) -> float:
        """See ``Client``. As many calls are out at a time as batches would have."""
        written = [self._written(policy) for policy in asked.policies]
        started, end = time.clock_gettime(clock), time.monotonic() + seconds

        async def keep_asking(number: int) -> int:
            answered = 0
            while not answered or time.monotonic() < end:
                await self._ask(written[(number + answered) % len(written)])
                answered += 1
            return answered

        width = asked.reviews * asked.batches
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(keep_asking(number)) for number in range(width)]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        answered = sum(task.result() for task in tasks)
        return (time.clock_gettime(clock) - started) / answered * 1e6

    def _written(self, policy: str) -> bytes:
        return pb.ReviewRequest(policy=policy, admission_request=self._request).SerializeToString()

    async def _ask(self, written: bytes) -> pb.ReviewResponse:
        try:
            message = await _within(self._method(written, timeout=ANSWER_WITHIN_S))
        except aio.AioRpcError as error:
            raise BenchError(f"a call failed: {error.code().name}: {error.details()}") from None
        response = pb.ReviewResponse.FromString(message)
        if not self._is_right(response):
            raise BenchError(f"a review was not answered as it should be: {response}")
        return response


async def _within(step: Awaitable[_Done]) -> _Done:
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            return await step
    except TimeoutError:
        raise BenchError(f"the worker neither read nor answered for {ANSWER_WITHIN_S:g} s") from None
