"""Clients that call a worker without a gateway, and measure the worker's CPU for a review.

A *review* is one policy applied to one request. CPU is user and system time of the worker process, all
threads, divided by the reviews answered meanwhile. Every answer is checked.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from grpc import aio

from admission_gateway_worker.pb import worker_pb2 as pb
from gateway.engine.dispatch.transport import REVIEW_STREAM
from loadtest.servers import BenchError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

ANSWER_TIMEOUT_S: Final = 10.0
"""Also the timeout of the calls."""
REVIEW: Final = "/admissiongateway.worker.v1.PolicyWorker/Review"
_Done = TypeVar("_Done")


@dataclass(frozen=True, slots=True)
class Load:
    """How many reviews are in flight, and in which batches."""

    policies: tuple[str, ...]
    """Applied to each request."""
    requests: int = 1
    """In a batch."""
    batches: int = 1
    """In flight at the same time."""

    @property
    def reviews(self) -> int:
        """Reviews in a batch."""
        return self.requests * len(self.policies)


def is_allowed(response: pb.ReviewResponse) -> bool:
    """Return whether *response* allows the request."""
    return response.allowed


class Client(Protocol):
    """A client over a stream or with unary calls."""

    async def review(self, policy: str) -> pb.ReviewResponse:
        """Return the answer of *policy*.

        Raises:
            BenchError: the answer was wrong or missing.
        """

    async def review_us(self, load: Load, clock: int, seconds: float) -> float:
        """Call for *seconds* and return the CPU of a review in microseconds, by the CPU clock of a process.

        Raises:
            BenchError: an answer was wrong or missing.
        """


class StreamClient:
    """Calls over one ReviewStream."""

    def __init__(
        self,
        channel: aio.Channel,
        request: bytes,
        is_right: Callable[[pb.ReviewResponse], bool] = is_allowed,
    ) -> None:
        """Open the stream. *request* is the JSON of an AdmissionRequest, *is_right* checks every answer."""
        self._call: Any = channel.stream_stream(REVIEW_STREAM)()
        self._request = request
        self._is_right = is_right
        self._last_id = 0

    async def review(self, policy: str) -> pb.ReviewResponse:
        """See ``Client``."""
        await _within(self._call.write(self._batch(Load((policy,)))))
        [verdict] = await self._verdicts()
        return verdict.response

    async def review_us(self, load: Load, clock: int, seconds: float) -> float:
        """See ``Client``."""
        wanted = answered = 0
        started, end = time.clock_gettime(clock), time.monotonic() + seconds
        while (is_open := time.monotonic() < end) or answered < wanted:
            while is_open and wanted - answered <= load.reviews * (load.batches - 1):
                await _within(self._call.write(self._batch(load)))
                wanted += load.reviews
            answered += len(await self._verdicts())
        return (time.clock_gettime(clock) - started) / answered * 1e6

    def _batch(self, load: Load) -> bytes:
        batch = pb.ReviewBatch()
        timeout_ms = int(ANSWER_TIMEOUT_S * 1000)
        for payload in range(load.requests):
            batch.payloads.add(admission_request=self._request)
            for policy in load.policies:
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
                raise BenchError(f"wrong answer: {verdict}")
        return verdicts


class UnaryClient:
    """Calls each review with a unary call."""

    def __init__(
        self,
        channel: aio.Channel,
        request: bytes,
        is_right: Callable[[pb.ReviewResponse], bool] = is_allowed,
    ) -> None:
        """*request* is the JSON of an AdmissionRequest, *is_right* checks every answer."""
        self._method: Any = channel.unary_unary(REVIEW)
        self._request = request
        self._is_right = is_right

    async def review(self, policy: str) -> pb.ReviewResponse:
        """See ``Client``."""
        return await self._call(self._message(policy))

    async def review_us(self, load: Load, clock: int, seconds: float) -> float:
        """See ``Client``. As many calls are in flight as the batches have reviews."""
        messages = [self._message(policy) for policy in load.policies]
        started, end = time.clock_gettime(clock), time.monotonic() + seconds

        async def keep_calling(number: int) -> int:
            answered = 0
            while not answered or time.monotonic() < end:
                await self._call(messages[(number + answered) % len(messages)])
                answered += 1
            return answered

        width = load.reviews * load.batches
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(keep_calling(number)) for number in range(width)]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        answered = sum(task.result() for task in tasks)
        return (time.clock_gettime(clock) - started) / answered * 1e6

    def _message(self, policy: str) -> bytes:
        return pb.ReviewRequest(policy=policy, admission_request=self._request).SerializeToString()

    async def _call(self, request: bytes) -> pb.ReviewResponse:
        try:
            message = await _within(self._method(request, timeout=ANSWER_TIMEOUT_S))
        except aio.AioRpcError as error:
            raise BenchError(f"a call failed: {error.code().name}: {error.details()}") from None
        response = pb.ReviewResponse.FromString(message)
        if not self._is_right(response):
            raise BenchError(f"wrong answer: {response}")
        return response


async def _within(step: Awaitable[_Done]) -> _Done:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await step
    except TimeoutError:
        raise BenchError(f"the worker did not read or answer for {ANSWER_TIMEOUT_S:g} s") from None
