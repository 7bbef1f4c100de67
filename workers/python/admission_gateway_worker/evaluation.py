"""Runs policies: synchronously if possible, otherwise in a task or a thread.

- A plain function runs on the event loop, without a task or a future. While ``slowness`` finds that
  it blocks the loop, it runs in a thread, and so does a review of more than ``THREAD_REVIEW_BYTES``.
- An async function runs in a task, unless it cannot suspend (``invoke``).
- At the deadline a task is cancelled. A thread cannot be cancelled; its result is discarded.
- What runs in a task or a thread waits for ``room`` first.

This module is independent of gRPC: the caller gets the outcome as return value or through ``finish``.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import CoroutineType
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.answer import Outcome, deadline_exceeded, error, outcome_of_exception
from admission_gateway_worker.http2.messages import StatusCode
from admission_gateway_worker.invoke import outcome_of, run
from admission_gateway_worker.parameters import ParametersRefused
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.review import Review
from admission_gateway_worker.room import Room
from admission_gateway_worker.slowness import INLINE_LIMIT_S, LoopWatch
from admission_gateway_worker.traceparent import continued

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission_gateway_worker.counters import Counters
    from admission_gateway_worker.invoke import Unfinished
    from admission_gateway_worker.policy import Policy

    Finish = Callable[[Outcome], None]

LARGE_REVIEW_BYTES: Final = 64 * 1024
"""Larger reviews never count as slow runs, because parsing takes long in any policy."""

THREAD_REVIEW_BYTES: Final = 1024 * 1024
"""Larger reviews of plain functions run in a thread, one at a time: to parse, compare and write one of 8 MB
takes half a second, in steps between which others have their turn."""

THREADS: Final = min(32, 4 * (os.cpu_count() or 1) + 4)
"""Threads for blocking policies. They mostly wait, so there are more threads than CPUs."""

_NO_REVIEW: Final = Review(b"")

log = logging.getLogger("admission_gateway_worker")


class Evaluator:
    """Runs policies on the current event loop, and owns their tasks and threads."""

    def __init__(self, counters: Counters | None = None) -> None:
        """*counters* count the calls that it runs."""
        self._counters = counters
        if counters is not None:
            counters.attach_families()
        self.loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[Outcome]] = set()
        self.large = ThreadPoolExecutor(1, thread_name_prefix="large")
        self.thread_work: set[Future[None]] = set()
        self.room = Room()
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="policy")
        self._watch = LoopWatch()

    def __repr__(self) -> str:
        return f"<Evaluator tasks={len(self.tasks)} threads={len(self.thread_work)}>"

    def mark(self) -> None:
        """Call before a batch of ``begin``, so that a slow run is attributed to the right policy."""
        self._watch.mark()

    def begin(
        self,
        policy: Policy,
        review: Review,
        finish: Finish,
        parameters: bytes = b"",
        owner: object = None,
    ) -> Outcome | Running:
        """Return the outcome, or a Running, after which ``finish`` is called with the outcome.

        *parameters* are those of the call, as JSON, or empty. Owners take turns when calls wait for room.

        ``finish`` is called on the event loop, and never before this method returns.
        """
        started = time.monotonic()
        if review.deadline <= started:
            return self.counted(policy, deadline_exceeded(), None)
        if parameters or policy.parameters is not None:
            try:
                review.parameters = policy.prepared.get(policy, review, parameters)
            except ParametersRefused as refused:
                outcome = error(StatusCode.INVALID_ARGUMENT, str(refused))
                return self.counted(policy, outcome, time.monotonic() - started)
        in_thread = (
            policy.blocking
            or policy.slowness.until > started
            or (review.size_bytes > THREAD_REVIEW_BYTES and not policy.is_async)
        )
        if in_thread or policy.suspends:
            review.isolate()
            return Running(self, policy, review, finish, owner, started, in_thread=in_thread)
        result = run(policy, review)
        took_s = time.monotonic() - started
        if took_s > INLINE_LIMIT_S:
            self._note_long_run(policy, review, started)
        elif policy.slowness:
            policy.slowness.note_short()
        if isinstance(result, CoroutineType):
            policy.suspends = True
            return Running(self, policy, review, finish, owner, started, coroutine=result)
        # A call that ends at once is never seen in flight.
        return self.counted(policy, result, took_s)

    def counted(self, policy: Policy, outcome: Outcome, took_s: float | None) -> Outcome:
        """Count *outcome* of a call of *policy*, and return it; *took_s* is None if it has not begun."""
        if self._counters is not None:
            self._counters.end(policy.name, outcome, took_s)
        return outcome

    def entered(self, policy: Policy) -> None:
        """Count a call of *policy* as in flight."""
        if self._counters is not None:
            self._counters.enter(policy.name)

    def left(self, policy: Policy) -> None:
        """Count a call of *policy* as no longer in flight."""
        if self._counters is not None:
            self._counters.leave(policy.name)

    async def close(self) -> None:
        """Cancel tasks and wait up to one second for their end; threads keep running."""
        for threads in (self.threads, self.large):
            threads.shutdown(wait=False, cancel_futures=True)
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=1.0)

    @property
    def busy_threads(self) -> int:
        """Number of threads that are running a policy."""
        return sum(work.running() for work in tuple(self.thread_work))

    def _note_long_run(self, policy: Policy, review: Review, started: float) -> None:
        if review.size_bytes > LARGE_REVIEW_BYTES:
            return
        cause = self._watch.cause(started)
        if cause is None or not policy.slowness.note_long(cause, time.monotonic()):
            return
        if policy.is_async:
            policy.slowness.until = 0.0
        if not policy.was_slow:
            policy.was_slow = True
            log.warning(
                'policy "%s" blocked the event loop for more than %g ms; %s',
                policy.name,
                INLINE_LIMIT_S * 1000,
                "async policies must not block" if policy.is_async else "it will run in a thread",
            )


class Running:
    """A call in a task or thread, or one that waits for room.

    ``finish`` is called once with the outcome, but not after ``cancel``.
    """

    __slots__ = (
        "_evaluator",
        "_expired",
        "_finish",
        "_in_thread",
        "_owner",
        "_policy",
        "_review",
        "_size",
        "_started",
        "_timer",
        "_work",
    )

    def __init__(
        self,
        evaluator: Evaluator,
        policy: Policy,
        review: Review,
        finish: Finish,
        owner: object,
        started: float,
        *,
        in_thread: bool = False,
        coroutine: Unfinished | None = None,
    ) -> None:
        """*started* is the monotonic time of the call.

        *coroutine* is that of a call that has begun; any other begins as soon as there is room.
        """
        self._evaluator = evaluator
        self._policy = policy
        self._review = review
        self._finish: Finish | None = finish
        self._owner = owner
        self._started = started
        self._in_thread = in_thread
        self._size = review.size_bytes
        self._expired = False
        self._work: asyncio.Task[Outcome] | Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        evaluator.entered(policy)
        if review.deadline != math.inf:
            self._timer = evaluator.loop.call_later(max(0.0, review.remaining_s), self._expire)
        if coroutine is None:
            evaluator.room.enter(owner, self, self._size, self._begin)
        else:
            evaluator.room.used_bytes += self._size
            self._run_in_task(coroutine)

    def cancel(self) -> None:
        """Cancel the call; ``finish`` is not called. A thread keeps running."""
        if self._finish is not None:
            self._evaluator.left(self._policy)
        self._settle(None)
        self._cancel_work()

    def _begin(self) -> None:
        """There is room."""
        evaluator = self._evaluator
        if self._in_thread:
            # A policy that is slow itself does not keep large reviews of others waiting.
            is_slow = self._policy.blocking or self._policy.slowness.until > 0
            work = (evaluator.threads if is_slow else evaluator.large).submit(self._call)
            self._work = work
            evaluator.thread_work.add(work)
            work.add_done_callback(evaluator.thread_work.discard)
            return
        result = run(self._policy, self._review)
        if isinstance(result, CoroutineType):
            self._run_in_task(result)
        else:  # it failed before its first step, or suspends only at times
            evaluator.loop.call_soon(self._settle_and_leave, result)

    def _cancel_work(self) -> None:
        work, self._work = self._work, None
        if work is None:
            self._evaluator.room.withdraw(self._owner, self)
        elif work.cancel() and not isinstance(work, asyncio.Task):
            self._evaluator.room.leave(self._size)  # it was in the queue of the threads

    def _run_in_task(self, coroutine: Unfinished) -> None:
        # The task takes the present context with it.
        with continued(self._review.traceparent):
            task = self._evaluator.loop.create_task(outcome_of(self._policy, self._review, coroutine))
        self._work = task
        self._evaluator.tasks.add(task)
        task.add_done_callback(self._task_done)
        # A task that is cancelled before its first step never awaits the coroutine.
        task.add_done_callback(lambda _: coroutine.close())

    def _call(self) -> None:
        """Body of the thread."""
        review = self._review
        is_needed = self._finish is not None and review.remaining_s > 0
        result = run(self._policy, review) if is_needed else deadline_exceeded()
        del review
        with suppress(RuntimeError):  # the loop has ended
            self._evaluator.loop.call_soon_threadsafe(self._thread_done, result)

    def _thread_done(self, result: Outcome | Unfinished) -> None:
        if not isinstance(result, CoroutineType):
            self._settle_and_leave(result)
        elif self._finish is None:
            result.close()
            self._evaluator.room.leave(self._size)
        else:
            self._run_in_task(result)

    def _settle_and_leave(self, outcome: Outcome) -> None:
        self._settle(outcome)
        self._evaluator.room.leave(self._size)

    def _task_done(self, task: asyncio.Task[Outcome]) -> None:
        self._evaluator.tasks.discard(task)
        if not task.cancelled():
            outcome = task.result()
            # An exception after the cancellation at the deadline is not a failure of the policy.
            self._settle(deadline_exceeded() if self._expired and isinstance(outcome, pb.Error) else outcome)
        elif self._expired:
            self._settle(deadline_exceeded())
        elif self._finish is not None:
            problem = asyncio.CancelledError("the policy cancelled itself")
            self._settle(outcome_of_exception(self._policy, self._review, problem))
        self._evaluator.room.leave(self._size)

    def _expire(self) -> None:
        self._expired = True
        if not isinstance(self._work, asyncio.Task):
            self._settle(deadline_exceeded())
        self._cancel_work()

    def _settle(self, outcome: Outcome | None) -> None:
        finish, self._finish = self._finish, None
        # A cancelled call stays in the queue of the threads until one is free.
        self._review = _NO_REVIEW
        if self._timer is not None:
            self._timer.cancel()
        if finish is not None and outcome is not None:
            self._evaluator.left(self._policy)
            finish(self._evaluator.counted(self._policy, outcome, time.monotonic() - self._started))
