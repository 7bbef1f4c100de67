"""Long work on an event loop, in steps, so that nothing else waits for longer than one of them.

Reading a body of megabytes takes milliseconds in which the loop does nothing else. Such work queues here. One
step is made at a time. After a step the loop is left to everything else for as long as the step took, so that
long work has half of the loop's time at most, however much of it there is and however many queues it is in.
The queues of a loop get equal parts of that time, or parts by weight, so that one that is always full, such
as that of a webhook with large answers, does not hold up the others.

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


def finish(steps: Generator[None, None, Result]) -> Result:
    """Return what *steps* return, made at once: for work that is known to be short."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


class _Work(Generic[Result]):
    """A generator with what is to be told of its end."""

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
        """Make the next step, and tell the end if it was the last."""
        try:
            next(self._steps)
        except StopIteration as end:
            self.is_over = True
            self._done(end.value)
        except Exception as error:
            self.is_over = True
            self._failed(error)

    def cancel(self) -> None:
        """Make no further step, and tell nobody."""
        self.is_over = True
        self._steps.close()


class WorkQueue:
    """One queue of long work, in the order in which it came."""

    def __init__(self, cpu_s: Callable[[], float] = time.thread_time, *, weight: float = 1) -> None:
        """A queue of twice the *weight* gets twice the time while both have work."""
        self._cpu_s = cpu_s
        """Seconds of CPU time that the loop's thread has taken: other processes do not count."""
        self._weight = weight
        self._waiting: deque[_Work[Any]] = deque()
        self.used_s = 0.0
        """CPU time by weight, from which the order of the queues follows."""

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(
        self,
        steps: Generator[None, None, Result],
        done: Callable[[Result], None],
        failed: Callable[[Exception], None],
    ) -> Callable[[], None]:
        """Run *steps*, up to a ``yield`` at a time, when their turn comes; return what cancels them.

        *done* is called with what *steps* return, or *failed* with what they raise; neither before this
        returns, nor after the cancellation.
        """
        work = _Work(steps, done, failed)
        self._waiting.append(work)
        _round_of(asyncio.get_running_loop()).enter(self)
        return work.cancel

    async def run(self, steps: Generator[None, None, Result]) -> Result:
        """Return what *steps* return, once their turn has come."""
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
        """Forget what was cancelled, and return whether anything is left."""
        while self._waiting and self._waiting[0].is_over:
            self._waiting.popleft()
        return bool(self._waiting)

    def step(self) -> float:
        """Make a step of the first work, and return how many seconds of CPU time it took."""
        work, begun_s = self._waiting[0], self._cpu_s()
        try:
            work.step()
        finally:
            if work.is_over:
                self._waiting.popleft()
            cost_s = self._cpu_s() - begun_s
            self.used_s += cost_s / self._weight
        return cost_s


class _Round:
    """The queues of one event loop that have work."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[WorkQueue, None] = {}
        self._used_s = 0.0
        """What the queue had used that was served last, before that."""
        self._timer: asyncio.Handle | None = None
        """While a queue has work, and for the pause after the last step."""

    def enter(self, turns: WorkQueue) -> None:
        """Serve *turns*, which has work, until it has none."""
        if turns not in self._queues:
            self._queues[turns] = None
            turns.used_s = max(turns.used_s, self._used_s)
        if self._timer is None:
            self._timer = self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._timer = None
        self._queues = {turns: None for turns in self._queues if turns.has_work()}
        if not self._queues:
            return
        turns = min(self._queues, key=lambda waiting: waiting.used_s)
        # Behind the others that have used as little.
        del self._queues[turns]
        self._queues[turns] = None
        self._used_s = turns.used_s
        cost_s = 0.0
        try:
            cost_s = turns.step()
        finally:
            # Also after the last work: what comes next waits for the end of the pause, too.
            self._timer = self._loop.call_later(cost_s, self._step)


_ROUNDS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Round]] = WeakKeyDictionary()


def _round_of(loop: asyncio.AbstractEventLoop) -> _Round:
    found = _ROUNDS.get(loop)
    if found is None:
        found = _ROUNDS[loop] = _Round(loop)
    return found
