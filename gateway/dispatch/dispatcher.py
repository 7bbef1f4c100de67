"""Drives one evaluation with real workers: hands its calls to endpoints and its verdicts back.

It owns what the evaluation does not know: time, endpoints, and the calls still out. When the evaluation is
done, or the caller goes away, nothing of it stays behind.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.core.namespace import Namespace
from gateway.core.verdict import Failed
from gateway.dispatch.pending import Pending
from gateway.dispatch.verdicts import failed_deadline, failed_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gateway.core.call import Call
    from gateway.core.evaluation import Evaluation
    from gateway.core.verdict import Verdict
    from gateway.dispatch.endpoint import Endpoint
    from gateway.dispatch.pool import Pool


@dataclass(frozen=True, slots=True)
class Workers:
    """All that can be asked."""

    pools: Mapping[str, Pool]
    now: Callable[[], float] = time.monotonic
    """The clock of deadlines, in seconds."""


class Run:
    """One evaluation under way.

    ``done`` is called once with the finished evaluation, or ``crashed`` once with an exception that can only
    be a bug; neither after :meth:`cancel`.
    """

    __slots__ = (
        "_budget_s",
        "_crashed",
        "_deadline",
        "_done",
        "_evaluation",
        "_is_over",
        "_namespace_json",
        "_now",
        "_out",
        "_pools",
    )

    def __init__(
        self,
        evaluation: Evaluation,
        workers: Workers,
        limits_s: tuple[float, float],
        done: Callable[[Evaluation], None],
        crashed: Callable[[Exception], None],
    ) -> None:
        self._evaluation = evaluation
        self._pools = workers.pools
        self._now = workers.now
        namespace = evaluation.namespace
        self._namespace_json = namespace.json if isinstance(namespace, Namespace) else b""
        self._deadline, self._budget_s = limits_s
        self._done = done
        self._crashed = crashed
        self._out: dict[Call, Pending] = {}
        self._is_over = False

    def start(self) -> None:
        """Make the first calls. ``done`` may be called before this returns."""
        try:
            self._carry_out(self._evaluation.start())
        except Exception as error:
            self._crash(error)

    def cancel(self) -> None:
        """Give up: all calls are withdrawn, and nobody is told."""
        self._is_over = True
        self._withdraw(list(self._out))

    def answered(self, pending: Pending, verdict: Verdict) -> None:
        """Tell the evaluation how a call ended, and make the calls it wants next."""
        call = pending.call
        if self._out.pop(call, None) is None:
            return
        call.elapsed_s = self._now() - pending.started
        try:
            evaluation = self._evaluation
            calls = evaluation.receive(call, verdict)
            if calls or evaluation.done or evaluation.has_withdrawn:
                self._carry_out(calls)
        except Exception as error:
            self._crash(error)

    def _crash(self, error: Exception) -> None:
        self.cancel()
        self._crashed(error)

    def _carry_out(self, calls: Iterable[Call]) -> None:
        evaluation = self._evaluation
        # A call that fails at once can lead to more; a queue instead of recursion, which long lists of
        # webhooks would exhaust.
        queue = deque(calls)
        chosen: dict[str, Endpoint] = {}
        while True:
            # First of all, so that unwanted calls do not take the places of wanted ones.
            if evaluation.has_withdrawn:
                self._withdraw(evaluation.take_withdrawn())
            if evaluation.done or not queue:
                break
            call = queue.popleft()
            failure = self._submit(call, chosen) if evaluation.wants(call) else None
            if failure is not None:
                queue.extend(evaluation.refused(call, failure))
        if evaluation.done and not self._is_over:
            self._is_over = True
            self._done(evaluation)

    def _submit(self, call: Call, chosen: dict[str, Endpoint]) -> Failed | None:
        """Hand *call* to an endpoint, the same for all calls of one step to one pool, or say why not."""
        webhook = call.invocation.webhook
        now = self._now()
        deadline = now + webhook.timeout_s
        if deadline > self._deadline:
            deadline = self._deadline
            if deadline <= now:
                return failed_deadline(min(webhook.timeout_s, self._budget_s))
        name = webhook.worker.pool
        endpoint = chosen.get(name)
        if endpoint is None or endpoint.is_full:
            pool = self._pools.get(name)
            if pool is None:
                return failed_status("UNAVAILABLE", f"no worker pool {name}")
            found = pool.choose()
            if isinstance(found, Failed):
                return found
            endpoint = chosen[name] = found
        limits_s = deadline, min(webhook.timeout_s, self._budget_s)
        self._out[call] = pending = Pending(self, call, self._namespace_json, now, limits_s)
        endpoint.submit(pending)
        return None

    def _withdraw(self, calls: Iterable[Call]) -> None:
        for call in calls:
            pending = self._out.pop(call, None)
            if pending is not None and pending.endpoint is not None:
                pending.endpoint.withdraw(pending, "CANCELLED")
