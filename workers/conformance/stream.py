"""A ReviewStream as the kit sees it: what was asked on it, and every message that came.

Whatever a worker must never do on any stream is noted here, for whichever rule is being checked: a verdict
that nobody asked for, a second one, one without an outcome, a message that is none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

import grpc
from google.protobuf.message import DecodeError

from gateway.pb import worker_pb2 as pb
from workers.conformance.answers import Answer, in_words
from workers.conformance.requests import MAX_MESSAGE_BYTES
from workers.conformance.rule import ANSWER_S, Breach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Call = grpc.aio.StreamStreamCall[bytes, bytes]

TIMEOUT_MS: Final = 20_000
"""Of calls in rules that are not about deadlines."""

_EXACTLY_ONE: Final = "exactly one verdict for each call, with a response or an error"


class Message(NamedTuple):
    """A VerdictBatch that came."""

    at: float
    """On the loop's clock."""
    size: int
    ids: tuple[int, ...]
    draining: bool


class Stream:
    """One ReviewStream. Leaving its context without an error checks that nothing forbidden came on it."""

    def __init__(self, call: Call, mutating: set[str]) -> None:
        self.answers: dict[int, Answer] = {}
        """By id; ``forget`` makes room for an id that is used again."""
        self.came_at: dict[int, float] = {}
        self.messages: list[Message] = []
        self.ended: pb.Error | None = None
        """How it ended, as an Error whose code is that of the status, 0 for OK."""
        self.ended_at = 0.0
        self.asked = "a ReviewStream"
        """In words."""
        self._call = call
        self._mutating = mutating
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

    # -- asking -----------------------------------------------------------------------------------

    async def send(
        self,
        calls: Iterable[tuple[int, str] | tuple[int, str, int]],
        payloads: Sequence[bytes | tuple[bytes, bytes]],
        *,
        cancelled: Iterable[int] = (),
        timeout_ms: int = TIMEOUT_MS,
        asked: str = "",
    ) -> None:
        """Write one batch of calls: id, policy and, where it is not 0, the position of the payload.

        *asked* says in words what that is, for the report.
        """
        batch = pb.ReviewBatch(cancelled=cancelled)
        for payload in payloads:
            request, namespace = payload if isinstance(payload, tuple) else (payload, b"")
            batch.payloads.add(admission_request=request, namespace_object=namespace)
        for number, policy, *position in calls:
            batch.calls.add(
                id=number,
                policy=policy,
                payload=position[0] if position else 0,
                timeout_millis=timeout_ms,
            )
            self._policies[number] = policy
        self.asked = asked or f"a batch of {len(batch.calls)} calls"
        await self.write(batch.SerializeToString())

    def expect_id(self, number: int, policy: str) -> None:
        """Take note that a message of the rule's own making calls *policy* by this id."""
        self._policies[number] = policy

    async def write(self, message: bytes) -> None:
        """Write a message, which need not be a ReviewBatch."""
        try:
            await self._call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            # It is over; the reader knows how.
            await asyncio.wait([self._reader])

    async def half_close(self) -> None:
        """Say that nothing more will come."""
        try:
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            await asyncio.wait([self._reader])

    def cancel(self) -> None:
        """Cancel the whole stream."""
        self._call.cancel()

    def forget(self, *numbers: int) -> None:
        """Forget the verdicts of these calls, whose ids are to be used again."""
        for number in numbers:
            self.answers.pop(number, None)

    # -- being answered ---------------------------------------------------------------------------

    async def verdicts(self, numbers: Iterable[int], within_s: float = ANSWER_S) -> dict[int, Answer]:
        """Wait for the verdicts of these calls and return all that have come.

        Raises:
            Breach: they do not all come, or something comes that must not.
        """
        wanted = set(numbers)
        if not await self.until(lambda: wanted <= self.answers.keys(), within_s):
            missing = sorted(wanted - self.answers.keys())
            how = f"no verdict within {within_s:g} s" if self.ended is None else self.how_it_ended()
            text = (
                f"{how}; {len(missing)} of {len(wanted)} calls have none, the first of them call {missing[0]}"
            )
            raise Breach(self.asked, text, _EXACTLY_ONE)
        return self.answers

    async def verdict(self, number: int, within_s: float = ANSWER_S) -> Answer:
        """Wait for the verdict of one call; like ``verdicts``."""
        return (await self.verdicts([number], within_s))[number]

    async def end(self, within_s: float = ANSWER_S) -> pb.Error:
        """Wait for the end of the stream and return its status.

        Raises:
            Breach: it does not end.
        """
        if not await self.until(lambda: self.ended is not None, within_s):
            raise Breach(self.asked, f"the stream is still open after {within_s:g} s", "its end")
        assert self.ended is not None
        return self.ended

    async def until(self, happened: Callable[[], bool], within_s: float) -> bool:
        """Wait until something is so, which depends on what comes; False if it is not so in time.

        Raises:
            Breach: something came that must not.
        """
        deadline = self._loop.time() + within_s
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

    def how_it_ended(self) -> str:
        """Return the end of the stream in words."""
        if self.ended is None:
            return "the stream is open"
        return f"the stream ended with {in_words(self.ended)}"

    def _check(self) -> None:
        if self._fault:
            raise Breach(self.asked, self._fault, _EXACTLY_ONE)

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
            self._fault = self._fault or f"a message of {len(message)} bytes that is no VerdictBatch: {error}"
            return
        now = self._loop.time()
        if len(message) > MAX_MESSAGE_BYTES:
            self._fault = f"a message of {len(message)} bytes, more than the {MAX_MESSAGE_BYTES} there may be"
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
            fault = f"a verdict for call {number}, which was never made"
        elif number in self.answers:
            fault = f"a second verdict for call {number}"
        self._fault = self._fault or fault
        self.answers[number] = answer
        self.came_at[number] = now
