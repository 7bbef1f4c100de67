"""Finds out what matchConditions need to know: from the authorizer, or by thinking in a thread of its own.

That thread takes the interpreter in turns with the event loop, which goes on. It is one, so that conditions
that take long wait for each other and not everything for them; and webhooks take turns, so that one whose
conditions take much longer than those of others, or are asked much more often, keeps these waiting once only.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Final

from gateway.core.conditions import Check, CheckAnswer
from gateway.core.verdict import Failed, FailureReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.core.conditions import Judgement, MatchConditions, Question, Work

    Answer = CheckAnswer | Judgement
    Authorize = Callable[[Check, float, Callable[[CheckAnswer], None]], Callable[[], None]]
    """Asks the authorizer, and returns what withdraws the question. Calls back once, with what came of it
    within so many seconds, and never before it has returned."""

log = logging.getLogger(__name__)

NOBODY: Final = CheckAnswer(error="no cluster is configured whose authorizer could be asked")
TOO_LATE: Final = Failed(
    FailureReason.CONDITION, "the matchConditions take long, and were not evaluated in time", 403
)
_TURN_S: Final = 0.0005
"""How long the event loop waits at most for the interpreter when it has something to do: a tenth of Python's
default, since that is so each time it does."""


class _Thinker:
    """The thread, and the work that waits for it: for each webhook its own, first come, first served."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "conditions", sys.setswitchinterval, (_TURN_S,))
        self._lock = Lock()
        self._waiting: dict[MatchConditions, deque[tuple[Future[Judgement], Work]]] = {}
        """In the order of whose turn is next."""

    def think(self, work: Work) -> Future[Judgement]:
        """Return what *work* will have come to. As long as it has not begun, it can be cancelled."""
        future: Future[Judgement] = Future()
        with self._lock:
            self._waiting.setdefault(work.of, deque()).append((future, work))
        self._thread.submit(self._next)
        return future

    def _next(self) -> None:
        with self._lock:
            whose = next(iter(self._waiting))
            line = self._waiting.pop(whose)
            future, work = line.popleft()
            if line:
                self._waiting[whose] = line
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)


_thinker: Final = _Thinker()


class Questions:
    """Where the questions of reviews go. Make it on a running event loop."""

    def __init__(self, authorize: Authorize | None = None) -> None:
        self._authorize = authorize

    def ask(self, question: Question, within_s: float, found: Callable[[Answer], None]) -> Callable[[], None]:
        """Find the answer for *found*, and return what withdraws the question.

        *found* is called once, later, and with a failure where there is no answer within *within_s* seconds.
        """
        if not isinstance(question, Check):
            return _Thought(question, within_s, found).withdraw
        if self._authorize is not None:
            return self._authorize(question, within_s, found)
        return asyncio.get_running_loop().call_soon(found, NOBODY).cancel


class _Thought:
    """Work that is waited for."""

    def __init__(self, work: Work, within_s: float, found: Callable[[Answer], None]) -> None:
        self._found: Callable[[Answer], None] | None = found
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, within_s), self._tell, TOO_LATE)
        self._thought = _thinker.think(work)
        self._future = asyncio.wrap_future(self._thought)
        self._future.add_done_callback(self._done)

    def withdraw(self) -> None:
        self._found = None
        self._timer.cancel()
        # The other one alone would pass that on, but later.
        self._thought.cancel()
        self._future.cancel()

    def _done(self, future: asyncio.Future[Judgement]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            log.error("matchConditions cannot be evaluated: internal error", exc_info=error)
            self._tell(
                Failed(FailureReason.CONDITION, "internal error: the gateway's log has the details", 500)
            )
        else:
            self._tell(future.result())

    def _tell(self, answer: Answer) -> None:
        found = self._found
        self.withdraw()
        if found is not None:
            found(answer)
