"""Stops a worker that is in use, once, and records its behaviour for the shutdown rules."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from admission_gateway_conformance.answers import Answer, describe
from admission_gateway_conformance.process import Process, ended
from admission_gateway_conformance.requests import pod
from admission_gateway_conformance.rule import ANSWER_S, Violation
from admission_gateway_conformance.rules.health import WATCH, request, status
from admission_gateway_conformance.target import Recorder
from admission_gateway_conformance.worker import REVIEW, Worker
from admission_gateway_worker.pb import worker_pb2 as pb
from gateway.engine.dispatch.dialer import Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from admission_gateway_conformance.stream import Stream

    Play = Callable[[Worker, Stream, "ShutdownRecord"], Awaitable[float | None]]
    """Actions on a stream after the drain notice; returns the time of the last answered write, if any."""

SLOW_MS: Final = 3_000
"""Duration of calls in flight at SIGTERM: six times the quiet period of a stream."""
CROSSING_S: Final = 0.1
"""Delay after the drain notice, within the half second for which a stream has to stay open."""
SOON_S: Final = 3.0
HEALTH_S: Final = 2.5
"""For the end of a watch: less than the duration of calls in flight, as every watch ends with the worker."""
END_S: Final = 5.0
"""From the last answer to the exit; less than the grace period of ten seconds."""
MAX_S: Final = END_S + SOON_S + SLOW_MS / 1000 + 2 * ANSWER_S + 5.0
"""Bound for the whole probe."""

LEFT_OPEN: Final = "the stream that is left open"
HALF_CLOSED: Final = "the stream that is half-closed"
IN_FLIGHT: Final = "the stream with a call in flight"
SLOW_CALL: Final = "the call in flight"
SLOW_REVIEW: Final = "the Review in flight"
AT_THE_NOTICE: Final = "a call sent at the notice"
AFTER_THE_NOTICE: Final = f"a call sent {CROSSING_S:g} s after the notice"

_LOOK_S: Final = 0.02
_SETTLED_S: Final = 0.3
"""Time for the last calls to arrive at the worker."""
_ABANDONED: Final = 100
_FIRST, _CROSSING, _SLOW, _LATER = 1, 2, 3, 4


@dataclass(slots=True)
class ShutdownRecord:
    """Observations of one shutdown."""

    began_at: float = 0.0
    """Time of the event loop before SIGTERM, in seconds."""
    notice_s: dict[str, float | None] = field(default_factory=dict)
    """By stream: seconds from SIGTERM to the drain notice; None without a notice."""
    answers: dict[str, Answer | str] = field(default_factory=dict)
    """Answers to calls in flight and to calls sent around the notice; a description if there was none."""
    ends: dict[str, tuple[str, float]] = field(default_factory=dict)
    """By stream: the status at its end, and the seconds since the last batch that the worker certainly read
    before it, or since SIGTERM."""
    health: str = ""
    """The event of the health watch; empty without an event."""
    refused: str = ""
    """Error of new connections during the drain; empty if they were accepted."""
    review_took_s: float = 0.0
    has_ended: bool = False
    exit_status: int | None = None
    left_socket: Path | None = None
    """The unix socket that still exists."""


async def probe_shutdown(worker: Worker, process: Process) -> ShutdownRecord:
    """Use the worker, stop it, and return the observations; takes at most ``MAX_S``."""
    seen = ShutdownRecord()
    facts = worker.facts
    async with contextlib.AsyncExitStack() as stack:
        scenes: list[Coroutine[None, None, None]] = [_connect_until_refused(worker, process, seen)]
        if "ReviewStream" in facts.methods and facts.policy:
            for name, play in (
                (LEFT_OPEN, _leave_open),
                (HALF_CLOSED, _half_close),
                (IN_FLIGHT, _await_slow),
            ):
                stream = await stack.enter_async_context(worker.stream())
                await stream.send([(_FIRST, facts.policy)], [pod()], action=name)
                await stream.verdict(_FIRST)
                scenes.append(_on_stream(worker, stream, name, seen, play))
            # The last stream: it stays open as long as the call.
            if "sleeps" in facts.samples:
                await stream.send([(_SLOW, "sleeps")], [pod()], timeout_ms=SLOW_MS, action=IN_FLIGHT)
        if "Watch" in facts.methods:
            scenes.append(_watch(worker, await stack.enter_async_context(_watching(worker)), seen))
        if "sleeps" in facts.samples:
            await _abandon(worker)
            slow = asyncio.create_task(_slow_review(worker, seen))
            stack.callback(slow.cancel)
            scenes.append(_finish(slow))
        await asyncio.sleep(_SETTLED_S)
        # Calls of one connection arrive in order. At this answer the worker has all calls in flight, also
        # on a busy machine.
        await worker.call(REVIEW, pb.ReviewRequest(policy=facts.policy).SerializeToString())
        seen.began_at = asyncio.get_running_loop().time()
        process.terminate()
        await asyncio.gather(*scenes)
        seen.has_ended = await ended(process, END_S)
        seen.exit_status = process.status
        socket = socket_of(worker)
        seen.left_socket = socket if socket is not None and socket.exists() else None
    return seen


def socket_of(worker: Worker) -> Path | None:
    """Return the path of the worker's unix socket; None for TCP."""
    scheme, _, path = worker.target.dialer.address.partition(":")
    return Path("/" + path.lstrip("/") if path.startswith("//") else path) if scheme == "unix" else None


async def _abandon(worker: Worker) -> None:
    """Send calls and cancel them; the worker must not wait for them at shutdown."""
    call = asyncio.create_task(worker.review("sleeps", pod(), timeout_s=MAX_S))
    await asyncio.sleep(_SETTLED_S)
    call.cancel()
    await asyncio.wait([call])
    if "ReviewStream" in worker.facts.methods:
        async with worker.stream() as stream:
            await stream.send([(i, "sleeps") for i in range(_ABANDONED)], [pod()], timeout_ms=60_000)
            await asyncio.sleep(_SETTLED_S)


async def _finish(task: asyncio.Task[None]) -> None:
    await task


async def _connect_until_refused(worker: Worker, process: Process, seen: ShutdownRecord) -> None:
    """Open connections during the drain until one is refused."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + worker.within(SOON_S)
    while True:
        # Of a worker that has ended, too, the port is tried once: it may have ended between two attempts.
        is_last = process.has_ended() or loop.time() >= deadline
        try:
            connection = await worker.target.dial("/", Recorder())
        except Unreachable as error:
            seen.refused = str(error)
            return
        await connection.close()
        if is_last:
            return
        await asyncio.sleep(_LOOK_S)


@contextlib.asynccontextmanager
async def _watching(worker: Worker) -> AsyncIterator[Recorder]:
    """Watch the health of the whole server on a separate connection, as the gateway does."""
    recorder = Recorder()
    connection = await worker.target.dial(WATCH, recorder)
    connection.send(request(""))
    connection.finish_writing()
    try:
        yield recorder
    finally:
        await connection.close()


async def _watch(worker: Worker, recorder: Recorder, seen: ShutdownRecord) -> None:
    def is_not_serving() -> bool:
        return bool(recorder.messages) and status(recorder.messages[-1]) == "NOT_SERVING"

    is_seen = await recorder.until(
        lambda: is_not_serving() or recorder.status is not None, worker.within(HEALTH_S)
    )
    if is_not_serving():
        seen.health = "NOT_SERVING"
    elif is_seen and asyncio.get_running_loop().time() - seen.began_at < HEALTH_S:
        seen.health = "its end"


async def _slow_review(worker: Worker, seen: ShutdownRecord) -> None:
    """Send a Review with a deadline that only the worker applies."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    late_s = worker.within(SOON_S)
    try:
        async with asyncio.timeout(SLOW_MS / 1000 + late_s):
            answer = await worker.review("sleeps", pod(), timeout_s=None, announced=f"{SLOW_MS}m")
        seen.answers[SLOW_REVIEW] = answer
    except TimeoutError:
        seen.answers[SLOW_REVIEW] = f"nothing {late_s:g} s after its deadline"
    seen.review_took_s = loop.time() - began


async def _on_stream(worker: Worker, stream: Stream, name: str, seen: ShutdownRecord, play: Play) -> None:
    """Wait for the drain notice, run *play*, and record the end of the stream."""
    is_notified = await stream.until(lambda: any(message.draining for message in stream.messages), SOON_S)
    at = next((message.at for message in stream.messages if message.draining), seen.began_at)
    seen.notice_s[name] = at - seen.began_at if is_notified else None
    last_at = await play(worker, stream, seen) or seen.began_at
    try:
        end = await stream.end(SOON_S)
        seen.ends[name] = ("OK" if end.code == 0 else describe(end), stream.ended_at - last_at)
    except Violation as violation:
        seen.ends[name] = (violation.found, SOON_S)


async def _leave_open(worker: Worker, stream: Stream, seen: ShutdownRecord) -> float | None:
    """Write one batch within the quiet period, and return the time if it was answered.

    On a busy machine the worker may not get it within that period.
    """
    await asyncio.sleep(CROSSING_S)
    at = asyncio.get_running_loop().time()
    answer = await _cross(worker, stream, _CROSSING, LEFT_OPEN)
    return None if isinstance(answer, str) else at


async def _half_close(worker: Worker, stream: Stream, seen: ShutdownRecord) -> None:
    await stream.half_close()


async def _await_slow(worker: Worker, stream: Stream, seen: ShutdownRecord) -> None:
    """Write two batches, wait for the answer to the call in flight, and half-close."""
    seen.answers[AT_THE_NOTICE] = await _cross(worker, stream, _CROSSING, AT_THE_NOTICE)
    await asyncio.sleep(CROSSING_S)
    seen.answers[AFTER_THE_NOTICE] = await _cross(worker, stream, _LATER, AFTER_THE_NOTICE)
    if "sleeps" in worker.facts.samples:
        seen.answers[SLOW_CALL] = await _answer(stream, _SLOW, SLOW_MS / 1000 + SOON_S)
    await stream.half_close()


async def _cross(worker: Worker, stream: Stream, number: int, name: str) -> Answer | str:
    """Send a call after the notice, and return its answer."""
    await stream.send([(number, worker.facts.policy)], [pod()], action=name)
    return await _answer(stream, number, SOON_S)


async def _answer(stream: Stream, number: int, timeout_s: float) -> Answer | str:
    try:
        return await stream.verdict(number, timeout_s)
    except Violation as violation:
        return violation.found
