"""Long work on an event loop, in steps, so that nothing else waits for longer than one of them.

Reading a body of megabytes takes milliseconds in which the loop does nothing else. Such work queues here. One
step is made at a time. After a step the loop is left to everything else for as long as the step took, so that
long work has half of the loop's time at most, however much of it there is.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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


class Turns:
    """The queue of long work of one event loop, in the order in which it came."""

    def __init__(self, cpu_s: Callable[[], float] = time.thread_time) -> None:
        self._cpu_s = cpu_s
        """Seconds of CPU time that the loop's thread has taken: other processes do not count."""
        self._waiting: deque[_Work[Any]] = deque()
        self._timer: asyncio.Handle | None = None
        """While the queue has work, and for the pause after the last step."""

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
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._step)
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

    def _step(self) -> None:
        self._timer = None
        while self._waiting and self._waiting[0].is_over:
            self._waiting.popleft()
        if not self._waiting:
            return
        work, begun_s = self._waiting[0], self._cpu_s()
        try:
            work.step()
        finally:
            if work.is_over:
                self._waiting.popleft()
            # Also after the last work: what comes next waits for the end of the pause, too.
            self._timer = asyncio.get_running_loop().call_later(self._cpu_s() - begun_s, self._step)
