"""Drives one evaluation with real workers: hands its calls to endpoints and its verdicts back.

It owns what the evaluation does not know: time, endpoints, and the calls still out. When the evaluation is
done, or the caller goes away, nothing of it stays behind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from gateway.core.namespace import Namespace
from gateway.core.outcome import apply_ahead
from gateway.core.verdict import Allowed, Failed
from gateway.dispatch.calls import MAX_CALLS, CallGroup
from gateway.dispatch.verdicts import failed_deadline, failed_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gateway.conditions.resolver import TaskResult
    from gateway.core.call import Call
    from gateway.core.conditions import ConditionTask
    from gateway.core.deadline import Deadline
    from gateway.core.evaluation import Evaluation
    from gateway.core.verdict import Verdict
    from gateway.core.webhook import HttpsClient
    from gateway.dispatch.backends import Backends

    Place = tuple[str | HttpsClient, float, int]
    """Calls that can go together: those for one backend with one timeout that show the same payload."""


LARGE_PATCH_BYTES: Final = 16 * 1024
"""Of an answer. Longer patches are applied in turns with others; up to that it takes some milliseconds."""

WORTH_ASKING_S: Final = 0.01
"""Of time left, without which nobody else is asked."""


class EvaluationDriver:
    """One evaluation under way.

    ``done`` is called once with the finished evaluation, or ``crashed`` once with an exception that can only
    be a bug; neither after :meth:`cancel`.
    """

    __slots__ = (
        "_applying",
        "_backends",
        "_condition_tasks",
        "_crashed",
        "_deadline",
        "_done",
        "_evaluation",
        "_has_doubled",
        "_is_over",
        "_namespace_json",
        "_now",
        "_out",
        "_resolve",
    )

    def __init__(
        self,
        evaluation: Evaluation,
        backends: Backends,
        deadline: Deadline,
        done: Callable[[Evaluation], None],
        crashed: Callable[[Exception], None],
    ) -> None:
        self._evaluation = evaluation
        self._backends = backends
        self._now = backends.now
        self._resolve = backends.resolve
        self._condition_tasks: dict[ConditionTask, Callable[[], None]] = {}
        """Tasks of matchConditions that are not complete, each with the function that cancels it."""
        self._applying: dict[Call, Callable[[], None]] = {}
        """Calls whose patches are being applied, with what ends that."""
        namespace = evaluation.namespace
        self._namespace_json = namespace.json if isinstance(namespace, Namespace) else b""
        self._deadline = deadline
        self._done = done
        self._crashed = crashed
        self._out: list[CallGroup] = []
        """All slots of this review's, those included whose calls have ended."""
        self._is_over = self._has_doubled = False

    def start(self) -> None:
        """Make the first calls. ``done`` may be called before this returns."""
        try:
            self._carry_out(self._evaluation.start())
        except Exception as error:
            self._crash(error)

    def cancel(self) -> None:
        """Give up: all calls are withdrawn, and nobody is told."""
        self._is_over = True
        for group in self._out:
            for index, call in enumerate(group.calls):
                if call is not None:
                    group.endpoint.withdraw(group, index, "CANCELLED")
        self._forget()

    def on_verdict(self, group: CallGroup, call: Call, verdict: Verdict) -> None:
        """Tell the evaluation how a call ended, and make the calls it wants next."""
        if self._is_over:
            return
        other = group.hedge_peer
        if other is not None and call in other.calls:
            if type(verdict) is Failed:
                # The other endpoint may still tell.
                return
            other.endpoint.withdraw(other, other.calls.index(call), "CANCELLED")
        call.elapsed_s = self._now() - group.first_started
        if (
            type(verdict) is Allowed
            and len(verdict.patch) > LARGE_PATCH_BYTES
            and self._evaluation.is_mutating
        ):
            self._apply(group, call, verdict)
        else:
            self._receive(call, verdict)

    def _apply(self, group: CallGroup, call: Call, verdict: Allowed) -> None:
        """Apply the patch of *verdict* in steps, then tell the evaluation. At the deadline it is too late."""

        def end(counts: Verdict) -> None:
            self._applying.pop(call)()
            if counts is not verdict:
                call.applied = None
            self._receive(call, counts)

        turns = self._backends.patch_queue(call.invocation.webhook.backend)
        stop = turns.begin(apply_ahead(call, verdict.patch), lambda _: end(verdict), self._crash)
        hedge_timer = asyncio.get_running_loop().call_later(
            group.deadline.remaining_s(self._now()), lambda: end(failed_deadline(group.deadline))
        )

        def cancel() -> None:
            stop()
            hedge_timer.cancel()

        self._applying[call] = cancel

    def _receive(self, call: Call, verdict: Verdict) -> None:
        try:
            evaluation = self._evaluation
            calls = evaluation.receive(call, verdict)
            if calls or evaluation.done or evaluation.has_withdrawn or evaluation.has_condition_tasks:
                self._carry_out(calls)
        except Exception as error:
            self._crash(error)

    def retry(self, group: CallGroup, calls: Sequence[Call], failure: Failed, *, may_reuse: bool) -> None:
        """Ask another endpoint for *calls* where that is allowed and worth it; the rest has failed.

        What the worker may have seen is asked again only where its webhook has no side effects.
        """
        if self._is_over:
            return
        other = group.hedge_peer
        if other is not None:
            # What was put to another endpoint too may still be answered there.
            calls = [call for call in calls if call not in other.calls]
        try:
            moved = [] if group.was_sent else list(calls)
            moved = moved or [call for call in calls if _may_be_repeated(call)]
            second = self._submit_elsewhere(group, moved, may_reuse=may_reuse)
        except Exception as error:
            self._crash(error)
            return
        if second is not None:
            second.endpoint.count_retries(second.open_count)
        for call in calls:
            if second is None or call not in second.calls:
                self.on_verdict(group, call, failure)

    def hedge(self, group: CallGroup) -> int:
        """Ask another endpoint too for what may be asked twice, and return for how many calls."""
        if self._is_over or group.hedge_peer is not None:
            return 0
        try:
            repeated = [call for call in group.calls if call is not None and _may_be_repeated(call)]
            second = self._submit_elsewhere(group, repeated, is_extra=True)
        except Exception as error:
            self._crash(error)
            return 0
        if second is None:
            return 0
        self._has_doubled = True
        group.hedge_peer, second.hedge_peer = second, group
        return second.open_count

    def _submit_elsewhere(
        self,
        group: CallGroup,
        calls: Sequence[Call],
        *,
        may_reuse: bool = False,
        is_extra: bool = False,
    ) -> CallGroup | None:
        """Ask another endpoint for *calls* of *group*, and return their slot; None if that cannot be.

        A pool with one address only is asked there again if *may_reuse*. What is asked although the first can
        still answer, *is_extra*, is for endpoints in rotation only.
        """
        now = self._now()
        if not calls or group.is_second_attempt or group.deadline.remaining_s(now) < WORTH_ASKING_S:
            return None
        backend = self._backends.find(calls[0].invocation.webhook.client)
        endpoint = None if backend is None else backend.another(group.endpoint, may_reuse=may_reuse)
        if endpoint is None or (is_extra and endpoint.state != "ready"):
            return None
        second = CallGroup(self, endpoint, self._namespace_json, now, group.deadline)
        second.is_second_attempt = True
        second.first_started = group.first_started
        for call in calls:
            if not endpoint.is_full:
                endpoint.reserve(second, call)
        self._out.append(second)
        endpoint.submit(second)
        return second

    def _complete(self, task: ConditionTask, result: TaskResult) -> None:
        self._condition_tasks.pop(task, None)
        if self._is_over:
            return
        try:
            self._carry_out(self._evaluation.complete_condition_task(task, result))
        except Exception as error:
            self._crash(error)

    def _forget(self) -> None:
        """Let go of all that knows this run: cycles that only the garbage collector would find."""
        for withdraw in self._condition_tasks.values():
            withdraw()
        self._condition_tasks.clear()
        for cancel in self._applying.values():
            cancel()
        self._applying.clear()
        if self._has_doubled:
            for group in self._out:
                group.hedge_peer = None
        self._out.clear()

    def _crash(self, error: Exception) -> None:
        self.cancel()
        self._crashed(error)

    def _carry_out(self, calls: Iterable[Call]) -> None:
        evaluation = self._evaluation
        # A call that fails at once can lead to more; a queue instead of recursion, which long lists of
        # webhooks would exhaust.
        queue, first = deque(calls), len(self._out)
        slots: dict[Place, CallGroup] = {}
        while True:
            # First of all, so that unwanted calls do not take the places of wanted ones.
            if evaluation.has_withdrawn:
                self._withdraw(evaluation.take_withdrawn())
            if evaluation.done or not queue:
                break
            call = queue.popleft()
            failure = self._place(call, slots) if evaluation.wants(call) else None
            if failure is not None:
                queue.extend(evaluation.refused(call, failure))
        if not evaluation.done:
            for task in evaluation.take_condition_tasks():
                # Half of the time is left for the webhooks.
                timeout_s = self._deadline.remaining_s(self._now()) / 2
                self._condition_tasks[task] = self._resolve(task, timeout_s, partial(self._complete, task))
            for group in self._out[first:]:
                group.endpoint.submit(group)
        elif not self._is_over:
            self._is_over = True
            self._forget()
            self._done(evaluation)

    def _place(self, call: Call, slots: dict[Place, CallGroup]) -> Failed | None:
        """Give *call* a place at an endpoint, one for all calls of a step to a pool, or say why not."""
        webhook = call.invocation.webhook
        place = webhook.backend, webhook.timeout_s, id(call.payload)
        group = slots.get(place)
        if group is None or group.endpoint.is_full or len(group.calls) == MAX_CALLS:
            found = self._slot(call, slots)
            if isinstance(found, Failed):
                return found
            group = slots[place] = found
        group.endpoint.reserve(group, call)
        return None

    def _slot(self, call: Call, slots: dict[Place, CallGroup]) -> CallGroup | Failed:
        """Return a new slot for *call* and those like it, or why there is none."""
        webhook = call.invocation.webhook
        now = self._now()
        deadline = self._deadline.capped(webhook.timeout_s, now)
        if deadline.has_passed(now):
            return failed_deadline(deadline)
        wanted = webhook.backend
        endpoint = next((slot.endpoint for (backend, *_), slot in slots.items() if backend == wanted), None)
        if endpoint is None or endpoint.is_full:
            backend = self._backends.find(webhook.client)
            if backend is None:
                return failed_status("UNAVAILABLE", f"no worker pool {wanted}")
            # Nobody has to go for a call that may turn out useless.
            found = backend.choose(may_shed=webhook.failure_policy == "Fail" and not call.is_ahead)
            if isinstance(found, Failed):
                return found
            endpoint = found
        group = CallGroup(self, endpoint, self._namespace_json, now, deadline)
        self._out.append(group)
        return group

    def _withdraw(self, calls: Iterable[Call]) -> None:
        for call in calls:
            if call in self._applying:
                self._applying.pop(call)()
            for group in self._out:
                if call in group.calls:
                    group.endpoint.withdraw(group, group.calls.index(call), "CANCELLED")


def _may_be_repeated(call: Call) -> bool:
    return call.invocation.webhook.side_effects == "None"
