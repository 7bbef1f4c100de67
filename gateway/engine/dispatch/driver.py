"""Drives one evaluation: sends its calls to endpoints and returns the verdicts to it.

The evaluation is pure; the driver owns time, endpoints and the calls in flight. Nothing remains of it when
the evaluation is done or cancelled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from gateway.engine.dispatch.calls import CallGroup
from gateway.engine.dispatch.review_batch import MAX_CALLS
from gateway.engine.dispatch.verdict_cache import CACHE
from gateway.engine.dispatch.verdicts import failed_deadline, failed_status
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.outcome import apply_ahead
from gateway.pure.core.verdict import Allowed, Failed
from gateway.pure.core.webhook import WorkerRef

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from gateway.engine.dispatch.backends import Backends
    from gateway.engine.dispatch.calls import Endpoint, Sheds
    from gateway.pure.core.call import Call
    from gateway.pure.core.conditions import ConditionTask, TaskResult
    from gateway.pure.core.deadline import Deadline
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.trace import Trace
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import HttpsClient, Mode

    GroupKey = tuple[str | HttpsClient, float, int, Mode]
    """Calls of a step that share a group: the same backend, timeout, payload or call that leaves the object,
    and mode."""


LARGE_PATCH_BYTES: Final = 16 * 1024
"""Longer patches are applied in steps, by a work queue; shorter ones take some milliseconds at most."""

MIN_RETRY_S: Final = 0.01
"""Remaining time below which there is no retry and no hedge."""


NO_ROOM_FOR_SHADOWS: Final = failed_status("RESOURCE_EXHAUSTED", "half of maxInFlight is in use")


class EvaluationDriver:
    """One evaluation and its calls.

    ``done`` is called once with the finished evaluation, or ``crashed`` once with an exception, which is a
    bug; neither after :meth:`cancel`.
    """

    __slots__ = (
        "_applying",
        "_backends",
        "_chained_patch_bytes",
        "_condition_tasks",
        "_crashed",
        "_deadline",
        "_done",
        "_evaluation",
        "_groups",
        "_has_hedged",
        "_is_over",
        "_namespace_json",
        "_now",
        "_resolve",
        "_trace",
    )

    def __init__(
        self,
        evaluation: Evaluation,
        backends: Backends,
        deadline: Deadline,
        done: Callable[[Evaluation], None],
        crashed: Callable[[Exception], None],
        trace: Trace | None = None,
    ) -> None:
        self._evaluation = evaluation
        self._backends = backends
        self._now = backends.now
        self._resolve = backends.resolve
        self._condition_tasks: dict[ConditionTask, Callable[[], None]] = {}
        """Tasks of matchConditions that are not complete, each with the function that cancels it."""
        self._applying: dict[Call, Callable[[], None]] = {}
        """Calls whose patches are being applied, each with the function that cancels it."""
        namespace = evaluation.namespace
        self._namespace_json = namespace.json if isinstance(namespace, Namespace) else b""
        self._deadline = deadline
        self._done = done
        self._crashed = crashed
        self._trace = trace
        self._groups: list[CallGroup] = []
        """All groups of this review, including those whose calls have ended."""
        self._is_over = self._has_hedged = False
        self._chained_patch_bytes = 0
        """Bytes of the patches of chains, which may be applied in one step."""

    def start(self, calls: Sequence[Call]) -> None:
        """Make the first *calls* of the evaluation. ``done`` may be called before this returns."""
        try:
            self._carry_out(calls)
        except Exception as error:
            self._crash(error)

    def cancel(self) -> None:
        """Withdraw all calls; neither ``done`` nor ``crashed`` is called any more."""
        self._is_over = True
        for group in self._groups:
            for index, call in enumerate(group.calls):
                if call is not None:
                    group.endpoint.withdraw(group, index, "CANCELLED")
        self._release()

    def on_verdicts(self, answered: Mapping[CallGroup, Collection[tuple[Call, Verdict]]]) -> None:
        """Give the verdicts of calls to the evaluation, and make the calls that follow from them."""
        if self._is_over:
            return
        now = self._now()
        received = []
        for group, verdicts in answered.items():
            started_at, address = group.first_started_at, group.endpoint.address
            is_repeated = group.is_second_attempt or group.hedge_peer is not None
            is_alone = group.hedge_peer is None and not group.followers
            for call, verdict in verdicts:
                if not is_alone and not self._is_first(group, call, verdict, now):
                    continue
                call.started_at = started_at
                call.elapsed_s = now - started_at
                call.endpoint = address
                call.is_repeated = is_repeated
                if call.cache_key:
                    self._backends.verdicts.keep(call, verdict)
                if (
                    type(verdict) is not Allowed
                    or not verdict.patch
                    or self._can_be_applied(group, call, verdict)
                ):
                    received.append((call, verdict))
        self._receive(received)

    def _is_first(self, group: CallGroup, call: Call, verdict: Verdict, now: float) -> bool:
        """Return whether this is the call's first verdict. Start the timeouts of the calls behind it."""
        other = group.hedge_peer
        if other is not None and call in other.calls:
            if type(verdict) is Failed:
                # The other endpoint may still answer.
                return False
            other.endpoint.withdraw(other, other.calls.index(call), "CANCELLED")
        for follower in group.followers:
            if follower.after is call and follower.open_count:
                follower.endpoint.calls.restart(follower, now, self._deadline.capped(follower.timeout_s, now))
        return True

    def _can_be_applied(self, group: CallGroup, call: Call, verdict: Allowed) -> bool:
        """Whether the patch of *verdict* can be applied in one step; if not, other steps have begun."""
        if call.after is not None:
            # It is applied in one step with the patches before it.
            self._chained_patch_bytes += len(verdict.patch)
            if self._chained_patch_bytes > LARGE_PATCH_BYTES:
                self.refuse(call, was_sent=True)
                return False
        elif len(verdict.patch) > LARGE_PATCH_BYTES and self._evaluation.is_mutating:
            self._apply(group, call, verdict)
            return False
        return True

    def refuse(self, call: Call, *, was_sent: bool) -> None:
        """Take back a call of a chain, which was not evaluated as a part of it."""
        if self._is_over:
            return
        try:
            if was_sent:
                self._proceed(self._evaluation.drop(call))
            else:
                self._evaluation.receive_refusal(call, failed_status("UNAVAILABLE", "no chains"))
        except Exception as error:
            self._crash(error)

    def _apply(self, group: CallGroup, call: Call, verdict: Allowed) -> None:
        """Apply the patch of *verdict* in steps, then give it to the evaluation; it fails at the deadline."""

        def end(result: Verdict) -> None:
            self._applying.pop(call)()
            if result is not verdict:
                call.applied = None
            self._receive([(call, result)])

        queue = self._backends.patch_queue(call.invocation.backend)
        stop = queue.begin(apply_ahead(call, verdict.patch), lambda _: end(verdict), self._crash)
        deadline_timer = asyncio.get_running_loop().call_later(
            group.deadline.remaining_s(self._now()), lambda: end(failed_deadline(group.deadline))
        )

        def cancel() -> None:
            stop()
            deadline_timer.cancel()

        self._applying[call] = cancel

    def _receive(self, answered: Iterable[tuple[Call, Verdict]]) -> None:
        if self._is_over:
            return
        try:
            self._proceed(self._evaluation.receive_all(answered))
        except Exception as error:
            self._crash(error)

    def _proceed(self, calls: Sequence[Call]) -> None:
        evaluation = self._evaluation
        if calls or evaluation.done or evaluation.has_withdrawn or evaluation.has_condition_tasks:
            self._carry_out(calls)

    def retry(self, group: CallGroup, calls: Sequence[Call], failure: Failed, *, may_reuse: bool) -> None:
        """Retry *calls* at another endpoint where that is allowed and there is time; the others have failed.

        Calls that the worker may have received are retried only if their webhook has no side effects.
        """
        if self._is_over:
            return
        other = group.hedge_peer
        if other is not None:
            # Hedged calls may still be answered by the other endpoint.
            calls = [call for call in calls if call not in other.calls]
        try:
            retried = [] if group.was_sent else list(calls)
            retried = retried or [call for call in calls if _may_be_repeated(call)]
            second = self._submit_elsewhere(group, retried, may_reuse=may_reuse)
        except Exception as error:
            self._crash(error)
            return
        if second is not None:
            second.endpoint.count_retries(second.open_count)
        left = [(call, failure) for call in calls if second is None or call not in second.calls]
        self.on_verdicts({group: left})

    def hedge(self, group: CallGroup) -> int:
        """Send the repeatable calls of *group* to a second endpoint too, and return how many."""
        if self._is_over or group.hedge_peer is not None or group.followers or group.after is not None:
            # A chain is evaluated by one worker.
            return 0
        try:
            repeated = [call for call in group.calls if call is not None and _may_be_repeated(call)]
            second = self._submit_elsewhere(group, repeated, is_hedge=True)
        except Exception as error:
            self._crash(error)
            return 0
        if second is None:
            return 0
        self._has_hedged = True
        group.hedge_peer, second.hedge_peer = second, group
        return second.open_count

    def _submit_elsewhere(
        self,
        group: CallGroup,
        calls: Sequence[Call],
        *,
        may_reuse: bool = False,
        is_hedge: bool = False,
    ) -> CallGroup | None:
        """Send *calls* of *group* to another endpoint; return their group, or None if that is not possible.

        The only endpoint of a pool is used again if *may_reuse*. A hedge is sent to a ready endpoint only.
        """
        now = self._now()
        if not calls or group.is_second_attempt or group.deadline.remaining_s(now) < MIN_RETRY_S:
            return None
        if group.mode == "Shadow":
            return None
        backend = self._backends.find(calls[0].invocation.webhook.client)
        endpoint = None if backend is None else backend.alternative_to(group.endpoint, may_reuse=may_reuse)
        if endpoint is None or (is_hedge and endpoint.state != "ready"):
            return None
        second = CallGroup(self, endpoint, self._namespace_json, now, group.deadline)
        second.is_second_attempt, second.mode = True, group.mode
        second.first_started_at = group.first_started_at
        for call in calls:
            if endpoint.calls.free:
                endpoint.calls.reserve(second, call)
        if self._trace is not None:
            self._trace.repeat(second.calls, endpoint.address, is_hedge=is_hedge)
        self._groups.append(second)
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

    def _release(self) -> None:
        """Drop all references to this driver: cycles would wait for the garbage collector."""
        for withdraw in self._condition_tasks.values():
            withdraw()
        self._condition_tasks.clear()
        for cancel in self._applying.values():
            cancel()
        self._applying.clear()
        if self._has_hedged:
            for group in self._groups:
                group.hedge_peer = None
        self._groups.clear()

    def _crash(self, error: Exception) -> None:
        self.cancel()
        self._crashed(error)

    def _carry_out(self, calls: Iterable[Call]) -> None:
        evaluation = self._evaluation
        # A call that fails at once can lead to more calls. A queue, because recursion would be too deep for
        # long lists of webhooks.
        queue, first = deque(calls), len(self._groups)
        groups: dict[GroupKey, CallGroup] = {}
        has_schemas = self._backends.parameters.has_schemas
        # A call that was just returned is wanted until a verdict comes before it is made.
        has_received = False
        # First, so that withdrawn calls make room for new ones.
        self._withdraw(evaluation.take_withdrawn())
        while queue and not evaluation.done:
            call = queue.popleft()
            if has_received and not evaluation.wants(call):
                continue
            known = self._known(call) if has_schemas or call.invocation.may_be_known else None
            known = known or self._add_to_group(call, groups)
            if known is None:
                continue
            has_received = True
            if isinstance(known, Failed):
                queue.extend(evaluation.receive_refusal(call, known))
            else:
                queue.extend(evaluation.receive(call, known))
            self._withdraw(evaluation.take_withdrawn())
        if not evaluation.done:
            for task in evaluation.take_condition_tasks():
                # Half of the time is left for the webhooks.
                timeout_s = self._deadline.remaining_s(self._now()) / 2
                complete: Callable[[TaskResult], None] = partial(self._complete, task)
                if self._trace is not None:
                    complete = self._trace.look_up(type(task).__name__, complete)
                self._condition_tasks[task] = self._resolve(task, timeout_s, complete)
            leaders = [group for group in self._groups[first:] if group.after is None]
            for group in leaders:
                group.has_siblings = len(leaders) > 1
                group.endpoint.submit(group)
        elif not self._is_over:
            self._is_over = True
            self._release()
            self._done(evaluation)

    def _known(self, call: Call) -> Verdict | None:
        """Give *call* its parameters; return the verdict, if that is known: they are wrong, or it is kept."""
        client, table = call.invocation.webhook.client, self._backends.parameters
        if isinstance(client, WorkerRef):
            parameters = table.of(client, self._evaluation.request, self._evaluation.namespace)
            if isinstance(parameters, Failed):
                return parameters
            call.parameters = parameters
        if (kept := self._backends.verdicts.find(call)) is not None:
            call.endpoint = CACHE
        return kept

    def _add_to_group(self, call: Call, groups: dict[GroupKey, CallGroup]) -> Failed | None:
        """Reserve room for *call* at an endpoint, the same one for all calls of a step to a backend."""
        invocation = call.invocation
        if self._trace is not None:
            self._trace.begin(call)
        timeout_s = invocation.webhook.timeout_s
        key = invocation.backend, timeout_s, id(call.after or call.payload), call.mode
        group = groups.get(key)
        if group is None or not group.endpoint.calls.free or len(group.calls) == MAX_CALLS:
            found = self._new_group(call, groups)
            if isinstance(found, Failed):
                return found
            group = groups[key] = found
        group.endpoint.calls.reserve(group, call)
        return None

    def _new_group(self, call: Call, groups: dict[GroupKey, CallGroup]) -> CallGroup | Failed:
        """Return a new group for *call*; Failed if there is no time or no endpoint."""
        now = self._now()
        if call.after is not None:
            return self._new_follower(call, call.after, groups, now)
        webhook = call.invocation.webhook
        deadline = self._deadline.capped(webhook.timeout_s, now)
        if deadline.has_passed(now):
            return failed_deadline(deadline)
        wanted = call.invocation.backend
        endpoint: Endpoint | None = None
        for (name, *_), group in groups.items():
            if name == wanted:
                endpoint = group.endpoint
                break
        if endpoint is None or not endpoint.calls.free:
            backend = self._backends.find(webhook.client)
            if backend is None:
                return failed_status("UNAVAILABLE", f"no worker pool {wanted}")
            found = backend.choose(_sheds(call))
            if isinstance(found, Failed):
                return found
            endpoint = found
        if call.mode == "Shadow" and endpoint.calls.is_half_full:
            return NO_ROOM_FOR_SHADOWS
        group = CallGroup(self, endpoint, self._namespace_json, now, deadline)
        group.mode = call.mode
        self._groups.append(group)
        return group

    def _new_follower(
        self, call: Call, after: Call, groups: dict[GroupKey, CallGroup], now: float
    ) -> CallGroup | Failed:
        """Return a new group for *call*, which follows *after*; Failed if that has no group of this step."""
        leader = next((group for group in groups.values() if after in group.calls), None)
        if leader is None or not leader.endpoint.calls.free:
            return failed_status("RESOURCE_EXHAUSTED", "no room for a chain")
        group = CallGroup(self, leader.endpoint, self._namespace_json, now, self._deadline)
        group.after, group.timeout_s, group.mode = after, call.invocation.webhook.timeout_s, call.mode
        leader.followers.append(group)
        self._groups.append(group)
        return group

    def _withdraw(self, calls: Iterable[Call]) -> None:
        for call in calls:
            if self._trace is not None:
                self._trace.withdraw(call)
            if call in self._applying:
                self._applying.pop(call)()
            for group in self._groups:
                if call in group.calls:
                    group.endpoint.withdraw(group, group.calls.index(call), "CANCELLED")


def _sheds(call: Call) -> Sheds:
    # No call is ended for one that is made ahead of its turn and may be discarded.
    if call.is_ahead or call.mode != "Enforce":
        return "None"
    return "Ignorable" if call.invocation.webhook.failure_policy == "Fail" else "NotEnforced"


def _may_be_repeated(call: Call) -> bool:
    return call.invocation.webhook.side_effects == "None"
