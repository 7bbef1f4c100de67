"""Stops a worker that is in use, once, and notes what is to be seen of it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.dispatch.dialer import Unreachable
from workers.conformance.answers import Answer, in_words
from workers.conformance.process import Process, ended
from workers.conformance.requests import pod
from workers.conformance.rule import ANSWER_S, Breach
from workers.conformance.rules.health import WATCH, request, status
from workers.conformance.target import Recorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from workers.conformance.stream import Stream
    from workers.conformance.worker import Worker

    Play = Callable[[Worker, Stream, "ShutdownRecord"], Awaitable[float]]
    """What is done on a stream after the notice; returns when something was written last."""

SLOW_MS: Final = 1_500
"""How long the calls take that are in flight when it is told to stop: three times the quiet of a stream."""
CROSSING_S: Final = 0.25
"""After the notice, within the half second for which a stream must stay open."""
SOON_S: Final = 3.0
HEALTH_S: Final = 1.0
"""Less than what is in flight takes: a watch ends in any case when the worker does."""
END_S: Final = 5.0
"""From its last answer to its end; less than the ten seconds of grace, after which all would be cut off."""
MOST_S: Final = END_S + SOON_S + SLOW_MS / 1000 + 2 * ANSWER_S + 5.0
"""For all of it."""

LEFT_OPEN: Final = "the stream that is left open"
HALF_CLOSED: Final = "the stream that is half-closed"
IN_FLIGHT: Final = "the stream with a call in flight"
SLOW_CALL: Final = "the call in flight"
SLOW_REVIEW: Final = "the Review in flight"
AT_THE_NOTICE: Final = "a call sent at the notice"
AFTER_THE_NOTICE: Final = f"a call sent {CROSSING_S:g} s after the notice"

_LOOK_S: Final = 0.02
_SETTLED_S: Final = 0.1
"""For what was asked last to have come in."""
_ABANDONED: Final = 100
_FIRST, _CROSSING, _SLOW = 1, 2, 3


@dataclass(slots=True)
class ShutdownRecord:
    """What was seen."""

    notice_s: dict[str, float | None] = field(default_factory=dict)
    """By stream: how long after SIGTERM it was told that the worker drains; None if it was not."""
    answers: dict[str, Answer | str] = field(default_factory=dict)
    """To calls in flight, and to those that crossed the notice; a text where there was none."""
    ends: dict[str, tuple[str, float]] = field(default_factory=dict)
    """By stream: how it ended, and how many seconds after the last batch that was written on it."""
    health: str = ""
    """What the watch was told, or how it ended; empty if nothing came."""
    refused: str = ""
    """What new connections met while it drained; empty if they were taken."""
    review_took_s: float = 0.0
    has_ended: bool = False
    exit_status: int | None = None
    left_socket: Path | None = None
    """The unix socket that is still there."""


async def probe_shutdown(worker: Worker, process: Process) -> ShutdownRecord:
    """Use the worker, stop it, and return what was seen; bounded by ``MOST_S``."""
    seen = ShutdownRecord()
    facts = worker.facts
    async with contextlib.AsyncExitStack() as stack:
        scenes: list[Coroutine[None, None, None]] = [_knock(worker, process, seen)]
        if "ReviewStream" in facts.methods and facts.policy:
            for name, play in (
                (LEFT_OPEN, _leave_open),
                (HALF_CLOSED, _half_close),
                (IN_FLIGHT, _await_slow),
            ):
                stream = await stack.enter_async_context(worker.stream())
                await stream.send([(_FIRST, facts.policy)], [pod()], asked=name)
                await stream.verdict(_FIRST)
                scenes.append(_on_stream(worker, stream, name, seen, play))
            if "sleeps" in facts.samples:
                await stream.send([(_SLOW, "sleeps")], [pod()], timeout_ms=SLOW_MS, asked=IN_FLIGHT)
        if "Watch" in facts.methods:
            scenes.append(_watch(await stack.enter_async_context(_watching(worker)), seen))
        if "sleeps" in facts.samples:
            await _abandon(worker)
            slow = asyncio.create_task(_slow_review(worker, seen))
            stack.callback(slow.cancel)
            scenes.append(_finish(slow))
        await asyncio.sleep(_SETTLED_S)
        process.terminate()
        await asyncio.gather(*scenes)
        seen.has_ended = await ended(process, END_S)
        seen.exit_status = process.status
        socket = socket_of(worker)
        seen.left_socket = socket if socket is not None and socket.exists() else None
    return seen


def socket_of(worker: Worker) -> Path | None:
    """Return the path of the unix socket that the worker is reached by, if it is one."""
    scheme, _, path = worker.target.dialer.address.partition(":")
    return Path("/" + path.lstrip("/") if path.startswith("//") else path) if scheme == "unix" else None


async def _abandon(worker: Worker) -> None:
    """Leave calls behind that nobody waits for, and for which it must not wait either."""
    call = asyncio.create_task(worker.review("sleeps", pod(), within_s=MOST_S))
    await asyncio.sleep(_SETTLED_S)
    call.cancel()
    await asyncio.wait([call])
    if "ReviewStream" in worker.facts.methods:
        async with worker.stream() as stream:
            await stream.send([(i, "sleeps") for i in range(_ABANDONED)], [pod()], timeout_ms=60_000)
            await asyncio.sleep(_SETTLED_S)


async def _finish(task: asyncio.Task[None]) -> None:
    await task


async def _knock(worker: Worker, process: Process, seen: ShutdownRecord) -> None:
    """See how new connections are taken while it drains."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SOON_S
    while not process.has_ended() and loop.time() < deadline:
        try:
            connection = await worker.target.dial("/", Recorder())
        except Unreachable as error:
            seen.refused = str(error)
            return
        await connection.close()
        await asyncio.sleep(_LOOK_S)


@contextlib.asynccontextmanager
async def _watching(worker: Worker) -> AsyncIterator[Recorder]:
    """A watch of the whole server on a connection of its own, as the gateway has it."""
    recorder = Recorder()
    connection = await worker.target.dial(WATCH, recorder)
    connection.send(request(""))
    connection.finish_writing()
    try:
        yield recorder
    finally:
        await connection.close()


async def _watch(recorder: Recorder, seen: ShutdownRecord) -> None:
    def says_so() -> bool:
        return bool(recorder.messages) and status(recorder.messages[-1]) == "NOT_SERVING"

    if await recorder.until(lambda: says_so() or recorder.status is not None, HEALTH_S):
        seen.health = "NOT_SERVING" if says_so() else "its end"


async def _slow_review(worker: Worker, seen: ShutdownRecord) -> None:
    """A Review whose deadline the worker alone knows: what ends it is the worker."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(SLOW_MS / 1000 + SOON_S):
            answer = await worker.review("sleeps", pod(), within_s=None, announced=f"{SLOW_MS}m")
        seen.answers[SLOW_REVIEW] = answer
    except TimeoutError:
        seen.answers[SLOW_REVIEW] = f"nothing {SOON_S:g} s after its deadline"
    seen.review_took_s = loop.time() - began


async def _on_stream(worker: Worker, stream: Stream, name: str, seen: ShutdownRecord, play: Play) -> None:
    """Wait for the notice, do what is to be done then, and see how the stream ends."""
    loop = asyncio.get_running_loop()
    told_at = loop.time()
    is_told = await stream.until(lambda: any(message.draining for message in stream.messages), SOON_S)
    at = next((message.at for message in stream.messages if message.draining), told_at)
    seen.notice_s[name] = at - told_at if is_told else None
    last_at = await play(worker, stream, seen)
    try:
        end = await stream.end(SOON_S)
        seen.ends[name] = ("OK" if end.code == 0 else in_words(end), stream.ended_at - last_at)
    except Breach as breach:
        seen.ends[name] = (breach.found, SOON_S)


async def _leave_open(worker: Worker, stream: Stream, seen: ShutdownRecord) -> float:
    """Write a batch within the half second, and nothing more."""
    await asyncio.sleep(CROSSING_S)
    return await _cross(worker, stream, seen, AFTER_THE_NOTICE)


async def _half_close(worker: Worker, stream: Stream, seen: ShutdownRecord) -> float:
    await stream.half_close()
    return asyncio.get_running_loop().time()


async def _await_slow(worker: Worker, stream: Stream, seen: ShutdownRecord) -> float:
    """Write a batch at once, then only wait until the call in flight is answered, and half-close."""
    await _cross(worker, stream, seen, AT_THE_NOTICE)
    if "sleeps" in worker.facts.samples:
        seen.answers[SLOW_CALL] = await _answer(stream, _SLOW, SLOW_MS / 1000 + SOON_S)
    return await _half_close(worker, stream, seen)


async def _cross(worker: Worker, stream: Stream, seen: ShutdownRecord, name: str) -> float:
    """Ask something after the notice, and return when that was."""
    at = asyncio.get_running_loop().time()
    await stream.send([(_CROSSING, worker.facts.policy)], [pod()], asked=name)
    seen.answers[name] = await _answer(stream, _CROSSING, SOON_S)
    return at


async def _answer(stream: Stream, number: int, within_s: float) -> Answer | str:
    try:
        return await stream.verdict(number, within_s)
    except Breach as breach:
        return breach.found
