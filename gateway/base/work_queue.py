"""Queues for long computations on an event loop: they run in steps, so that no other callback waits for long.

Parsing a body of megabytes blocks the loop for milliseconds. Such work is queued here and runs one step at a
time. After a step the loop is free for as long as the step took: queued work gets at most half of the loop's
time. The queues of a loop share that time by weight, so that a full queue, such as that of a webhook with
large answers, does not delay the others.

Source: start-time fair queueing (Goyal, Vin, Cheng, 1996) for the order of the queues.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

Result = TypeVar("Result")


class _Work(Generic[Result]):
    """A generator with the callbacks for its result."""

    def __init__(
        self,
        steps: Generator[None, None, Result],
        done: Callable[[Result], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._steps = steps
        self._done = done
        self._failed = failed
        self.is_over = False

    def step(self) -> None:
        """Run the next step; report the result if it was the last."""
        try:
            next(self._steps)
        except StopIteration as end:
            self.is_over = True
            self._done(end.value)
        except Exception as error:
            self.is_over = True
            self._failed(error)

    def cancel(self) -> None:
        """Run no further step, and report nothing."""
        self.is_over = True
        self._steps.close()


class WorkQueue:
    """One queue, served in order of arrival."""

    def __init__(self, cpu_s: Callable[[], float] = time.thread_time, *, weight: float = 1) -> None:
        """A queue with twice the *weight* gets twice the time while both have work."""
        self._cpu_s = cpu_s
        """Seconds of CPU time of the loop's thread, so that other processes do not count."""
        self._weight = weight
        self._waiting: deque[_Work[Any]] = deque()
        self.used_s = 0.0
        """CPU time divided by the weight; the queue with the least is served next."""

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(
        self,
        steps: Generator[None, None, Result],
        done: Callable[[Result], None],
        failed: Callable[[Exception], None],
    ) -> Callable[[], None]:
        """Queue *steps*, of which each ends with a ``yield``; return a function that cancels them.

        *done* is called with their result, or *failed* with their exception: not before this returns, and not
        after the cancellation.
        """
        work = _Work(steps, done, failed)
        self._waiting.append(work)
        _scheduler_of(asyncio.get_running_loop()).enter(self)
        return work.cancel

    async def run(self, steps: Generator[None, None, Result]) -> Result:
        """Queue *steps*, and return their result."""
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def end(settle: Callable[[Any], None], value: object) -> None:
            if not result.done():  # it may have been cancelled
                settle(value)

        cancel = self.begin(steps, partial(end, result.set_result), partial(end, result.set_exception))
        try:
            return await result
        finally:
            cancel()

    def has_work(self) -> bool:
        """Remove cancelled work, and return whether any is left."""
        while self._waiting and self._waiting[0].is_over:
            self._waiting.popleft()
        return bool(self._waiting)

    def step(self) -> float:
        """Run a step of the first work, and return its CPU time in seconds."""
        work, begun_s = self._waiting[0], self._cpu_s()
        try:
            work.step()
        finally:
            if work.is_over:
                self._waiting.popleft()
            cost_s = self._cpu_s() - begun_s
            self.used_s += cost_s / self._weight
        return cost_s


class _Scheduler:
    """Serves the queues of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[WorkQueue, None] = {}
        self._used_s = 0.0
        """CPU time of the queue that was served last, before that step."""
        self._timer: asyncio.Handle | None = None
        """Set while a queue has work, and for the pause after the last step."""

    def enter(self, queue: WorkQueue) -> None:
        """Serve *queue* until it has no work."""
        if queue not in self._queues:
            self._queues[queue] = None
            queue.used_s = max(queue.used_s, self._used_s)
        if self._timer is None:
            self._timer = self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._timer = None
        self._queues = {queue: None for queue in self._queues if queue.has_work()}
        if not self._queues:
            return
        queue = min(self._queues, key=lambda waiting: waiting.used_s)
        # Behind other queues with the same CPU time.
        del self._queues[queue]
        self._queues[queue] = None
        self._used_s = queue.used_s
        cost_s = 0.0
        try:
            cost_s = queue.step()
        finally:
            # Also after the last work: new work waits for the end of the pause too.
            self._timer = self._loop.call_later(cost_s, self._step)


_SCHEDULERS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Scheduler]] = WeakKeyDictionary()


def _scheduler_of(loop: asyncio.AbstractEventLoop) -> _Scheduler:
    found = _SCHEDULERS.get(loop)
    if found is None:
        found = _SCHEDULERS[loop] = _Scheduler(loop)
    return found
