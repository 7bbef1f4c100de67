"""Client side of a ReviewStream, which records every message.

Some violations are detected in every rule: an unsolicited verdict, a second verdict for a call, a verdict
without an outcome, a chained verdict for a call that follows none, a message that is not a VerdictBatch.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

import grpc
from google.protobuf.message import DecodeError

from admission_gateway_conformance.answers import Answer, describe
from admission_gateway_conformance.requests import MAX_MESSAGE_BYTES
from admission_gateway_conformance.rule import ANSWER_S, Violation
from admission_gateway_worker.pb import worker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Call = grpc.aio.StreamStreamCall[bytes, bytes]

TIMEOUT_MS: Final = 20_000
"""Timeout of calls in rules that are not about deadlines."""

_EXACTLY_ONE: Final = "exactly one verdict for each call, with a response or an error"


class CallSpec(NamedTuple):
    """A call of a batch."""

    number: int
    """Its id."""
    policy: str
    payload: int = 0
    """Index of the payload in the batch."""
    after: int = 0
    """Id of the call that leaves the object; 0 if there is none."""
    traceparent: str = ""
    parameters: int = 0
    """Id of its parameters; 0 if there are none."""
    timeout_ms: int | None = None
    """None: that of the batch."""


class Message(NamedTuple):
    """A received VerdictBatch."""

    at: float
    """Time of the event loop, in seconds."""
    size: int
    ids: tuple[int, ...]
    draining: bool


class Stream:
    """One ReviewStream, a context manager that raises a Violation if a forbidden message was received."""

    def __init__(self, call: Call, mutating: set[str], patience: float) -> None:
        """*mutating* gets the policies that send a patch; *patience* is a factor of all timeouts."""
        self.answers: dict[int, Answer] = {}
        """Verdicts by call id; ``forget`` allows an id to be used again."""
        self.came_at: dict[int, float] = {}
        self.chained: set[int] = set()
        """Ids of calls whose verdicts are marked as chained."""
        self.after: dict[int, int] = {}
        """By call id, the id of the call that it follows; 0 if it follows none."""
        self.messages: list[Message] = []
        self.ended: pb.Error | None = None
        """The status at the end as an Error, code 0 for OK; None while the stream is open."""
        self.ended_at = 0.0
        self.action = "a ReviewStream"
        """Description of the last action, for violations."""
        self._call = call
        self._mutating = mutating
        self._patience = patience
        self._policies: dict[int, str] = {}
        self._fault = ""
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._reader = self._loop.create_task(self._read())

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._call.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        if kind is None:
            self._check()

    # -- sending ----------------------------------------------------------------------------------

    async def send(
        self,
        calls: Iterable[CallSpec | tuple[int, str] | tuple[int, str, int]],
        payloads: Sequence[bytes | tuple[bytes, bytes]],
        *,
        cancelled: Iterable[int] = (),
        parameters: Iterable[tuple[int, bytes]] = (),
        timeout_ms: int = TIMEOUT_MS,
        action: str = "",
    ) -> None:
        """Write one batch of calls, each as a CallSpec or the start of one.

        *parameters* have their ids. *action* describes the batch in the report.
        """
        batch = pb.ReviewBatch(cancelled=cancelled)
        for payload in payloads:
            request, namespace = payload if isinstance(payload, tuple) else (payload, b"")
            batch.payloads.add(admission_request=request, namespace_object=namespace)
        for number, json in parameters:
            batch.parameters.add(id=number, json=json)
        for call in calls:
            spec = CallSpec(*call)
            batch.calls.add(
                id=spec.number,
                policy=spec.policy,
                payload=spec.payload,
                timeout_millis=timeout_ms if spec.timeout_ms is None else spec.timeout_ms,
                after=spec.after,
                traceparent=spec.traceparent,
                parameters=spec.parameters,
            )
            self._policies[spec.number] = spec.policy
            self.after[spec.number] = spec.after
        self.action = action or f"a batch of {len(batch.calls)} calls"
        await self.write(batch.SerializeToString())

    def expect_id(self, number: int, policy: str) -> None:
        """Expect a verdict for a call that the rule encodes itself."""
        self._policies[number] = policy

    async def write(self, message: bytes) -> None:
        """Write a message, which need not be a ReviewBatch."""
        try:
            await self._call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            # The stream has ended; the reader gets its status.
            await asyncio.wait([self._reader])

    async def half_close(self) -> None:
        """Half-close the stream."""
        try:
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            await asyncio.wait([self._reader])

    def cancel(self) -> None:
        """Cancel the whole stream."""
        self._call.cancel()

    def forget(self, *numbers: int) -> None:
        """Forget the verdicts of these calls, so that their ids can be used again."""
        for number in numbers:
            self.answers.pop(number, None)
            self.chained.discard(number)

    # -- receiving --------------------------------------------------------------------------------

    async def verdicts(self, numbers: Iterable[int], timeout_s: float = ANSWER_S) -> dict[int, Answer]:
        """Wait for the verdicts of these calls and return all received verdicts.

        Raises:
            Violation: a verdict is missing, or a forbidden message is received.
        """
        wanted = set(numbers)
        if not await self.until(lambda: wanted <= self.answers.keys(), timeout_s):
            missing = sorted(wanted - self.answers.keys())
            how = (
                f"no verdict within {timeout_s * self._patience:g} s"
                if self.ended is None
                else self.describe_end()
            )
            text = f"{how}; {len(missing)} of {len(wanted)} verdicts are missing, first of call {missing[0]}"
            raise Violation(self.action, text, _EXACTLY_ONE)
        return self.answers

    async def verdict(self, number: int, timeout_s: float = ANSWER_S) -> Answer:
        """Wait for the verdict of one call; like ``verdicts``."""
        return (await self.verdicts([number], timeout_s))[number]

    async def end(self, timeout_s: float = ANSWER_S) -> pb.Error:
        """Wait for the end of the stream and return its status.

        Raises:
            Violation: the stream does not end in time.
        """
        if not await self.until(lambda: self.ended is not None, timeout_s):
            text = f"the stream is still open after {timeout_s * self._patience:g} s"
            raise Violation(self.action, text, "its end")
        assert self.ended is not None
        return self.ended

    async def until(self, happened: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until *happened* is true after a received message; return whether it is true in time.

        Raises:
            Violation: a forbidden message was received.
        """
        deadline = self._loop.time() + timeout_s * self._patience
        while not happened():
            self._check()
            if self._reader.done():
                return happened()
            self._news.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                break
        self._check()
        return happened()

    def describe_end(self) -> str:
        """Return a description of the end of the stream."""
        if self.ended is None:
            return "the stream is open"
        return f"the stream ended with {describe(self.ended)}"

    def _check(self) -> None:
        if self._fault:
            raise Violation(self.action, self._fault, _EXACTLY_ONE)

    async def _read(self) -> None:
        try:
            while isinstance(message := await self._call.read(), bytes):
                self._take(message)
                self._news.set()
            code, details = await self._call.code(), await self._call.details()
            self.ended = pb.Error(code=code.value[0], message=details or "")
        except grpc.aio.AioRpcError as error:
            self.ended = pb.Error(code=error.code().value[0], message=error.details() or "")
        finally:
            self.ended_at = self._loop.time()
            self._news.set()

    def _take(self, message: bytes) -> None:
        try:
            batch = pb.VerdictBatch.FromString(message)
        except DecodeError as error:
            self._fault = self._fault or f"a message of {len(message)} bytes, not a VerdictBatch: {error}"
            return
        now = self._loop.time()
        if len(message) > MAX_MESSAGE_BYTES:
            self._fault = f"a message of {len(message)} bytes, above the limit of {MAX_MESSAGE_BYTES}"
        ids = tuple(verdict.id for verdict in batch.verdicts)
        self.messages.append(Message(now, len(message), ids, batch.draining))
        for verdict in batch.verdicts:
            self._take_verdict(verdict, now)

    def _take_verdict(self, verdict: pb.Verdict, now: float) -> None:
        number, fault = verdict.id, ""
        answer: Answer
        if verdict.HasField("response"):
            answer = verdict.response
            if answer.patch:
                self._mutating.add(self._policies.get(number, ""))
        elif verdict.HasField("error"):
            answer = verdict.error
            if not 0 < answer.code <= 16:
                fault = f"an error of code {answer.code} for call {number}"
        else:
            self._fault = self._fault or f"a verdict for call {number} with neither response nor error"
            return
        if number not in self._policies:
            fault = f"a verdict for call {number}, which was never sent"
        elif number in self.answers:
            fault = f"a second verdict for call {number}"
        elif verdict.chained and not self.after.get(number):
            fault = f"a verdict for call {number} that is chained, although the call has no `after`"
        if verdict.chained:
            self.chained.add(number)
        self._fault = self._fault or fault
        self.answers[number] = answer
        self.came_at[number] = now
