"""Running policies: at once where that is possible, as a task or in a thread where it is not.

- A plain function runs on the event loop, without a task or a future. Once it has held up the loop for
  more than ``INLINE_LIMIT_S`` it runs in a thread from then on.
- An async function becomes a task, unless it cannot suspend (``workers.invoke``).
- At the deadline a task is cancelled; a thread cannot be, so its answer is given up instead.

Knows nothing of gRPC calls: the caller gets the outcome back, at once or through ``finish``.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import resource
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import CoroutineType
from typing import TYPE_CHECKING, Final

from gateway.pb import worker_pb2 as pb
from workers.answer import Outcome, raised, too_late
from workers.invoke import outcome_of, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.invoke import Unfinished
    from workers.policy import Policy
    from workers.review import Review

    Finish = Callable[[Outcome], None]

INLINE_LIMIT_S: Final = 0.005
"""What a policy may hold up all others for. Reviews are to take milliseconds, and two hundred such runs a
second would already fill the loop."""

LARGE_REVIEW_BYTES: Final = 64 * 1024
"""A larger review does not count as a slow run: parsing it takes long whatever the policy does."""

THREADS: Final = min(32, 4 * (os.cpu_count() or 1) + 4)
"""For policies that block: mostly they wait, so more than there are CPUs."""

log = logging.getLogger("workers")


class _LoopWatch:
    """Tells a run that blocked or computed for long from one that only waited for a CPU.

    On a busy machine the kernel takes the CPU away for several milliseconds now and then; no policy is to
    blame for that. A thread that blocks gives it up of its own accord, which is counted apart.
    """

    _WHO = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)

    def __init__(self) -> None:
        self.mark()

    def mark(self) -> None:
        """Start anew; to be called before some runs, as the counts since then are compared."""
        usage = resource.getrusage(self._WHO)
        self._at = time.monotonic()
        self._cpu_s = usage.ru_utime + usage.ru_stime
        self._blocked = usage.ru_nvcsw

    def held_up(self, started: float) -> bool:
        """Whether the run that began at *started* and has just ended blocked, or computed too long."""
        usage = resource.getrusage(self._WHO)
        # The runs between the mark and this one had the CPU for as long as they took, or less.
        computed_s = usage.ru_utime + usage.ru_stime - self._cpu_s - (started - self._at)
        blocked = usage.ru_nvcsw > self._blocked
        self.mark()
        return blocked or computed_s > INLINE_LIMIT_S


class Evaluator:
    """Runs policies on the loop it is made in, and owns their tasks and threads."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[Outcome]] = set()
        self.thread_work: set[Future[None]] = set()
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="policy")
        self._watch = _LoopWatch()

    def __repr__(self) -> str:
        return f"<Evaluator tasks={len(self.tasks)} threads={len(self.thread_work)}>"

    def mark(self) -> None:
        """To be called before a batch of ``begin``; without it a slow run may be blamed on its neighbour."""
        self._watch.mark()

    def begin(self, policy: Policy, review: Review, finish: Finish) -> Outcome | Running:
        """Return the outcome, or what is running; then ``finish`` is called with the outcome later.

        ``finish`` is never called before this returns, and always on the loop.
        """
        started = time.monotonic()
        if review.deadline <= started:
            return too_late()
        if policy.blocking:
            return Running(self, policy, review, finish).in_thread()
        result = run(policy, review)
        if time.monotonic() - started > INLINE_LIMIT_S:
            self._took_long(policy, review, started)
        if isinstance(result, CoroutineType):
            return Running(self, policy, review, finish).in_task(result)
        return result

    async def close(self) -> None:
        """Cancel what runs and wait for its end, a second at most; threads are left to themselves."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=1.0)

    @property
    def busy_threads(self) -> int:
        """How many threads are in a policy right now."""
        return sum(work.running() for work in tuple(self.thread_work))

    def _took_long(self, policy: Policy, review: Review, started: float) -> None:
        if review.size_bytes > LARGE_REVIEW_BYTES or policy.was_slow or not self._watch.held_up(started):
            return
        policy.was_slow = True
        policy.blocking = not policy.is_async
        log.warning(
            'policy "%s" held up the event loop for more than %g ms; %s',
            policy.name,
            INLINE_LIMIT_S * 1000,
            "it runs in a thread from now on" if policy.blocking else "it is to await what it waits for",
        )


class Running:
    """A call that did not end at once. ``finish`` is called once with its outcome, unless it is cancelled."""

    __slots__ = ("_evaluator", "_expired", "_finish", "_policy", "_review", "_timer", "_work")

    def __init__(self, evaluator: Evaluator, policy: Policy, review: Review, finish: Finish) -> None:
        self._evaluator = evaluator
        self._policy = policy
        self._review = review
        self._finish: Finish | None = finish
        self._expired = False
        self._work: asyncio.Task[Outcome] | Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        if review.deadline != math.inf:
            self._timer = evaluator.loop.call_later(max(0.0, review.remaining_s), self._expire)

    def cancel(self) -> None:
        """Stop it, as far as it can be stopped; nobody wants the outcome any more."""
        self._settle(None)
        if self._work is not None:
            self._work.cancel()

    def in_task(self, coroutine: Unfinished) -> Running:
        """Run the coroutine in a task of its own; returns itself."""
        task = self._evaluator.loop.create_task(outcome_of(self._policy, self._review, coroutine))
        self._work = task
        self._evaluator.tasks.add(task)
        task.add_done_callback(self._task_done)
        return self

    def in_thread(self) -> Running:
        """Call the policy in a thread; returns itself."""
        work = self._evaluator.threads.submit(self._call)
        self._work = work
        self._evaluator.thread_work.add(work)
        work.add_done_callback(self._evaluator.thread_work.discard)
        return self

    def _call(self) -> None:
        """Runs in the thread."""
        wanted = self._finish is not None and self._review.remaining_s > 0
        result = run(self._policy, self._review) if wanted else too_late()
        self._evaluator.loop.call_soon_threadsafe(self._thread_done, result)

    def _thread_done(self, result: Outcome | Unfinished) -> None:
        if not isinstance(result, CoroutineType):
            self._settle(result)
        elif self._finish is None:
            result.close()
        else:
            self.in_task(result)

    def _task_done(self, task: asyncio.Task[Outcome]) -> None:
        self._evaluator.tasks.discard(task)
        if not task.cancelled():
            outcome = task.result()
            # What a policy raised because it was cancelled at its deadline is not its own failure.
            self._settle(too_late() if self._expired and isinstance(outcome, pb.Error) else outcome)
        elif self._expired:
            self._settle(too_late())
        elif self._finish is not None:
            problem = asyncio.CancelledError("cancelled from within the policy")
            self._settle(raised(self._policy, self._review, problem))

    def _expire(self) -> None:
        self._expired = True
        if not isinstance(self._work, asyncio.Task):
            self._settle(too_late())
        if self._work is not None:
            self._work.cancel()

    def _settle(self, outcome: Outcome | None) -> None:
        finish, self._finish = self._finish, None
        if self._timer is not None:
            self._timer.cancel()
        if finish is not None and outcome is not None:
            finish(outcome)
