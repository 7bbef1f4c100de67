"""Completes the tasks of unresolved conditions: decisions, look-ups, requests, and long evaluations.

Long evaluations run in one thread beside the event loop. They wait for each other; other reviews do not wait.
Webhooks take turns, so that a webhook whose conditions take much longer than those of others, or are
evaluated much more often, delays the others by one evaluation only. An evaluation ends when nobody waits for
it any more.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Final

from gateway.pure.core.conditions import (
    AccessCheck,
    AccessDecision,
    BackendAnswer,
    BackendGet,
    FoundParam,
    LongEvaluation,
)
from gateway.pure.core.verdict import Failed, FailureReason

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from gateway.pure.cel.meter import Cancellation
    from gateway.pure.core.conditions import (
        ConditionTask,
        Evaluated,
        ParamLookup,
        TaskResult,
    )

    Authorize = Callable[[AccessCheck, float, Callable[[AccessDecision], None]], Callable[[], None]]
    """Gets a decision within so many seconds, and returns a function that cancels this. Calls back once, also
    without a decision, and never before it has returned."""
    GetFromBackend = Callable[[BackendGet, float, Callable[[BackendAnswer], None]], Callable[[], None]]
    """Sends a request to a backend of policies, likewise."""
    LookUpParam = Callable[[ParamLookup, float, Callable[[FoundParam], None]], Callable[[], None]]
    """Looks up a parameter of a policy, likewise."""

log = logging.getLogger(__name__)

NO_AUTHORIZER: Final = AccessDecision(error="no cluster is configured, and so no authorizer")
NO_BACKEND: Final = BackendAnswer(error="only a gateway that serves reviews sends requests to backends")
NO_CLUSTER: Final = FoundParam(error="no cluster is configured, and so no objects that policies read")
EXPIRED: Final = Failed(
    FailureReason.CONDITION, "matchConditions were not evaluated in time: the evaluation takes long", 403
)
_SWITCH_INTERVAL_S: Final = 0.0005
"""How long the event loop waits at most for the interpreter lock while the thread holds it: a tenth of
Python's default."""


class FairExecutor:
    """A thread for long evaluations. Each webhook has its own queue, and the queues take turns.

    The thread starts with the first evaluation and sets the interpreter's switch interval, which is one for
    the whole process; :meth:`close` sets it back.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "conditions", self._enter)
        self._lock = Lock()
        self._queues: dict[Hashable, deque[tuple[Future[Evaluated], LongEvaluation]]] = {}
        """The webhook whose turn is next comes first."""
        self._earlier_interval_s: float | None = None
        self._running: Future[Evaluated] | None = None
        self._cancellation: Cancellation | None = None
        """That of the evaluation that runs."""

    def submit(self, evaluation: LongEvaluation) -> Future[Evaluated]:
        """Return the future result of *evaluation*; see :meth:`cancel`."""
        future: Future[Evaluated] = Future()
        with self._lock:
            self._queues.setdefault(evaluation.owner, deque()).append((future, evaluation))
        self._thread.submit(self._run_next)
        return future

    def cancel(self, future: Future[Evaluated]) -> None:
        """Have the evaluation of *future* not begin; if it runs, it ends soon with a result for nobody."""
        future.cancel()
        with self._lock:
            if self._running is future and self._cancellation is not None:
                self._cancellation.is_cancelled = True

    def close(self) -> None:
        """End the thread, soon if an evaluation runs; the queued ones do not run."""
        if self._running is not None:
            self.cancel(self._running)
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._earlier_interval_s is not None:
            sys.setswitchinterval(self._earlier_interval_s)

    def _enter(self) -> None:
        # Here, because a gateway whose configuration has no expressions does not load them.
        from gateway.pure.cel.meter import cancellation

        self._earlier_interval_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._cancellation = cancellation()

    def _run_next(self) -> None:
        with self._lock:
            conditions = next(iter(self._queues))
            queue = self._queues.pop(conditions)
            future, evaluation = queue.popleft()
            if queue:
                self._queues[conditions] = queue
            assert self._cancellation is not None
            self._running, self._cancellation.is_cancelled = future, False
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(evaluation())
            except BaseException as error:
                future.set_exception(error)


class ConditionResolver:
    """Completes tasks by an executor, and in a cluster. Make it on a running event loop."""

    def __init__(
        self,
        executor: FairExecutor,
        authorize: Authorize | None = None,
        look_up_param: LookUpParam | None = None,
        backends: Mapping[str, GetFromBackend] | None = None,
    ) -> None:
        """*backends* are those of policies, by name."""
        self._executor = executor
        self._authorize = authorize
        self._look_up_param = look_up_param
        self._backends = backends or {}

    def resolve(
        self, task: ConditionTask, timeout_s: float, on_result: Callable[[TaskResult], None]
    ) -> Callable[[], None]:
        """Complete *task*, and return a function that cancels it.

        *on_result* is called once, later, and with a failure if there is no result in *timeout_s* seconds.
        """
        if isinstance(task, LongEvaluation):
            return Job(self._executor, task, timeout_s, on_result).cancel
        if isinstance(task, AccessCheck):
            if self._authorize is not None:
                return self._authorize(task, timeout_s, on_result)
            return asyncio.get_running_loop().call_soon(on_result, NO_AUTHORIZER).cancel
        if isinstance(task, BackendGet):
            if task.backend in self._backends:
                return self._backends[task.backend](task, timeout_s, on_result)
            return asyncio.get_running_loop().call_soon(on_result, NO_BACKEND).cancel
        if self._look_up_param is not None:
            return self._look_up_param(task, timeout_s, on_result)
        return asyncio.get_running_loop().call_soon(on_result, NO_CLUSTER).cancel


class Job:
    """A long evaluation as the event loop waits for it, with a time limit."""

    def __init__(
        self,
        executor: FairExecutor,
        task: LongEvaluation,
        timeout_s: float,
        on_result: Callable[[TaskResult], None],
    ) -> None:
        self._on_result: Callable[[TaskResult], None] | None = on_result
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, timeout_s), self._complete, EXPIRED)
        self._executor = executor
        self._evaluation = evaluation = executor.submit(task)
        self._future = asyncio.wrap_future(evaluation)
        self._future.add_done_callback(self._done)

    def cancel(self) -> None:
        """Cancel the evaluation; ``on_result`` is not called."""
        self._on_result = None
        self._timer.cancel()
        # The asyncio future passes a cancellation on, but only in a later iteration of the loop.
        self._executor.cancel(self._evaluation)
        self._future.cancel()

    def _done(self, future: asyncio.Future[Evaluated]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            log.error("matchConditions cannot be evaluated: internal error", exc_info=error)
            self._complete(
                Failed(FailureReason.CONDITION, "internal error: the gateway's log has the details", 500)
            )
        else:
            self._complete(future.result())

    def _complete(self, result: TaskResult) -> None:
        on_result = self._on_result
        self.cancel()
        if on_result is not None:
            on_result(result)
