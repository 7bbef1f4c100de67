"""One review as a state machine: it takes the verdicts of calls, and returns the calls to make next.

It does not wait, read a clock or make calls. With the event loop, a virtual clock, or a test that ends calls
in any order as its driver, the outcomes are the same.

**The walk.** Webhooks are settled in configured order, at an index that only moves forward. To settle a
webhook means: match it with the present object, take a verdict on exactly this object, apply its patch, go
on. If the verdict is missing, the walk waits.

**Speculation.** While it waits, later webhooks are called too, with the present object, on the assumption
that no earlier webhook changes it. When the walk reaches such a webhook and the object is still the same, its
verdict counts. Otherwise the verdict is discarded, including warnings and annotations, and the webhook is
called again. So the outcome equals that of a serial run by construction. Only webhooks with sideEffects None
are called ahead; the others are called when, and only when, a serial run would call them.

**Exceptions** (``gateway.core.exceptions``) are part of matching, too: a webhook that matches and has one is
left out when its turn comes.

**Chains.** Behind a webhook that usually changes the object, that assumption is wrong. Webhooks of the same
worker pool are then called *after* it: the worker evaluates them on the object that it leaves
(:attr:`Call.after`). Such a verdict counts if the call before it is settled by its own verdict, so that the
object is known, and if the webhook matches this object when its turn comes. Otherwise it is discarded too.

**The validating phase** is the same walk: no patch can change the object, so all calls are made at once, and
a rejection does not end the walk.

**Reinvocation** is a second walk, as the API server's: after a round that changed the object, the webhooks
with reinvocationPolicy IfNeeded that were called before a change are called once more.

**matchConditions** are part of matching, and evaluated once for each state of the object. If one needs
a decision of the authorizer, or takes long, the walk waits for the result as for a verdict
(:meth:`Evaluation.take_condition_tasks`, :meth:`Evaluation.complete_condition_task`). A decision of the
authorizer holds for the rest of the review.

**Modes.** A webhook in the mode Warn or Audit is settled like any other, but its outcome neither rejects the
request nor changes the object, so no other webhook depends on it. A webhook in the mode Shadow has no part in
the evaluation. ``gateway.core.modes`` decides the modes.

Laws, each a property test: (1) the order of arrival does not matter; (2) equal to a serial run; (3) a denial
always rejects; (4) a failure rejects under Fail, and under Ignore leaves an annotation instead; (5) the patch
turns the original object into the final one, and is absent when nothing changed; (6) every denial's webhook
is named, in order; (7) after the end there are no calls, and late verdicts change nothing; (8) in a round
each webhook is called at most once for each state of the object, and in chains at most once after each call,
so the walk ends; (9) the answer is that without the webhooks in the mode Shadow, and apart from their own
warnings and annotations that without those in the modes Warn and Audit.

Source: kubernetes/apiserver plugin/webhook/{mutating,validating}/dispatcher.go, mutating/
reinvocationcontext.go.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from gateway.core.call import Call, Payload
from gateway.core.condition_state import ConditionState
from gateway.core.conditions import Decided, Excluded, Unresolved
from gateway.core.exceptions import PolicyException
from gateway.core.mismatch import mismatch_of
from gateway.core.outcome import Exemption, settle, without_call
from gateway.core.verdict import DRY_RUN_REFUSED, Allowed, DryRunRefused, Failed
from gateway.core.webhook import WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.core.conditions import AccessDecision, ConditionResult, ConditionTask
    from gateway.core.matching import Invocation, Selection
    from gateway.core.namespace import Namespace
    from gateway.core.outcome import Outcome
    from gateway.core.review import AdmissionRequest, Json
    from gateway.core.speculation import ChangeMemory
    from gateway.core.verdict import Verdict
    from gateway.core.webhook import Mode

    Obstacle = Failed | DryRunRefused | Excluded | PolicyException | Unresolved | Decided | Literal[False]
    """Why a webhook is not called. False: it does not match now. Unresolved: that is not known yet."""

NO_CALLS: Final[tuple[Call, ...]] = ()
NO_TASKS: Final[tuple[ConditionTask, ...]] = ()
NO_MODES: Final[Mapping[int, Mode]] = MappingProxyType({})


class Evaluation:
    """The state of one review in one phase.

    Call :meth:`start` once, make the calls that it returns, and pass each verdict to :meth:`receive`, which
    returns further calls, until :attr:`done`. Calls in :meth:`take_withdrawn` are no longer wanted.
    """

    def __init__(
        self,
        selection: Selection,
        request: AdmissionRequest,
        namespace: Namespace | Failed | None,
        memory: ChangeMemory | None = None,
        now: float = math.inf,
        modes: Mapping[int, Mode] = NO_MODES,
        payload: Payload | None = None,
    ) -> None:
        """*now* is the time of the review, in seconds since 1970; by default, all exceptions have expired.

        *modes* are those other than Enforce, by position. With a *payload*, which has the object to begin
        with, this is an evaluation after the answer: it calls the webhooks in the mode Shadow, too.
        """
        self.request = request
        self.namespace = namespace
        """The request's namespace; None if there is none, Failed if the look-up failed."""
        self.outcomes: list[Outcome] = []
        """In the order of a serial run."""
        self.exclusions: list[tuple[Invocation, Excluded]] = []
        """Webhooks that a condition excluded when their turn came."""
        self.exemptions: list[Exemption] = []
        """Webhooks that matched when their turn came, and were left out because of an exception."""
        self.done = False
        self.has_changed = False
        """Whether any patch so far changed the object."""
        self.kept_ahead = 0
        self.discarded_ahead = 0
        """Speculative calls whose verdict counted, and those that were discarded."""
        self.is_mutating: Final = selection.phase == "mutate"
        self.modes: Final = modes
        self._memory = memory
        self._now = now
        self._payload = payload or Payload(request)
        self._leaves_out_shadows = bool(modes) and payload is None and "Shadow" in modes.values()
        self.selection = selection
        self._invocations = self._select()
        self._calls: list[Call | None] = [None] * len(self._invocations)
        self._index = 0
        self._ahead = 0
        """Webhooks before this index were considered for a speculative call with the present payload."""
        self._round = 0
        self._reinvocable: set[int] = set()
        self._to_reinvoke: set[int] = set()
        self.has_withdrawn = False
        """Whether calls became unwanted since :meth:`take_withdrawn`."""
        self._withdrawn: list[Call] = []
        self._conditions: ConditionState | None = None
        """None until the first webhook with conditions."""

    @property
    def payload(self) -> Payload:
        """The request with the object after the patches of the settled webhooks."""
        return self._payload

    @property
    def final_object(self) -> Json | None:
        """The object after the patches of the settled webhooks."""
        return self._payload.object

    def start(self) -> Sequence[Call]:
        """Return the first calls to make; none if the review is done at once."""
        return self._advance()

    def receive(self, call: Call, verdict: Verdict) -> Sequence[Call]:
        """Take the *verdict* of *call*, and return further calls to make.

        A verdict on a call that is no longer wanted changes nothing.
        """
        return self.receive_all(((call, verdict),))

    def receive_all(self, answered: Iterable[tuple[Call, Verdict]]) -> Sequence[Call]:
        """Take the verdicts of several calls, each as :meth:`receive`, and return further calls to make."""
        if self.done:
            return NO_CALLS
        is_due = False
        for call, verdict in answered:
            if call.verdict is None and self.wants(call):
                call.verdict = verdict
                is_due = is_due or call.index == self._index
        return self._advance() if is_due else NO_CALLS

    def wants(self, call: Call) -> bool:
        """Whether the verdict of *call*, which was returned earlier, is still needed."""
        return call.index < len(self._calls) and self._calls[call.index] is call

    def drop(self, call: Call) -> Sequence[Call]:
        """Drop *call*, which the worker did not evaluate as a part of its chain, and return further calls.

        The webhook is called again when its turn comes, which may be now.
        """
        if self.done or not self.wants(call):
            return NO_CALLS
        self._calls[call.index] = None
        self.discarded_ahead += 1
        self._discard_orphans(call)
        return self._advance() if call.index == self._index else NO_CALLS

    def receive_refusal(self, call: Call, failure: Failed) -> Sequence[Call]:
        """Take the *failure* of a *call* that could not be made, and return further calls to make.

        A speculative call is dropped: a serial run would not have made it yet, and there may be room when its
        turn comes. For any other call the *failure* is the verdict.
        """
        if call.is_ahead and call.index != self._index:
            if self.wants(call):
                self._calls[call.index] = None
                self._discard_orphans(call)
            return NO_CALLS
        return self.receive(call, failure)

    @property
    def has_condition_tasks(self) -> bool:
        """Whether there are new tasks of conditions."""
        return self._conditions is not None and self._conditions.has_tasks

    def take_condition_tasks(self) -> Sequence[ConditionTask]:
        """Return the new tasks of conditions; their results go to :meth:`complete_condition_task`."""
        return NO_TASKS if self._conditions is None else self._conditions.take_tasks()

    def complete_condition_task(
        self, task: ConditionTask, result: AccessDecision | ConditionResult
    ) -> Sequence[Call]:
        """Take the result of a task of conditions, and return further calls to make."""
        if self.done or self._conditions is None:
            return NO_CALLS
        self._ahead = min([self._ahead, *self._conditions.complete(task, result)])
        return self._advance()

    def take_withdrawn(self) -> Sequence[Call]:
        """Return the calls that became unwanted since the last call of this method."""
        withdrawn, self._withdrawn = self._withdrawn, []
        self.has_withdrawn = False
        return withdrawn

    def _advance(self) -> Sequence[Call]:
        """Settle webhooks while their verdicts are known, and return the calls to make."""
        calls: list[Call] = []
        while not self.done:
            index = self._index
            if index < len(self._invocations):
                call = self._calls[index]
                if call is None or not call.is_matched:
                    call = self._reach(index, calls)
                if call is None and self._index != index:
                    continue
                verdict = None if call is None else call.verdict
                if call is None or verdict is None:
                    if self._ahead < len(self._invocations):
                        self._speculate(calls)
                    self._payload.drop_parsed()
                    break
                self.kept_ahead += call.is_ahead
                self._index = index + 1
                outcome, patched = settle(call, verdict, self._round, is_mutating=self.is_mutating)
                if patched is not None:
                    self._replace_object(patched)
                if patched is not None or call.is_followed:
                    self._discard_outdated(call, is_allowed=type(outcome.verdict) is Allowed)
                if patched is not None and (invocations := self._select()) is not self._invocations:
                    self._replace_invocations(invocations)
                self._conclude(outcome)
            elif self._round == 0 and self.has_changed:
                self._round = 1
                self._index = self._ahead = 0
                self._calls = [None] * len(self._invocations)
            else:
                self._finish()
        return calls

    def _reach(self, index: int, calls: list[Call]) -> Call | None:
        """Return the call of the webhook at *index*, whose turn has come, after adding a new one to *calls*.

        None if it is not called: then it is settled, and the walk is at the next index. None, too, if a task
        of its conditions is not complete: then the walk stays at *index*.
        """
        invocation = self._invocations[index]
        obstacle = self._obstacle(index)
        call = self._calls[index]
        if obstacle is None:
            if call is not None and call.after is None:
                call.is_matched = True
                return call
            self._discard(index)
            call = Call(index, invocation, self._payload, is_ahead=False, mode=self._mode(invocation))
            self._calls[index] = call
            calls.append(call)
            return call
        if isinstance(obstacle, Unresolved):
            return None
        self._discard(index)
        self._index = index + 1
        if isinstance(obstacle, Excluded):
            self.exclusions.append((invocation, obstacle))
        elif isinstance(obstacle, PolicyException):
            self.exemptions.append(Exemption(invocation, self._round, obstacle))
        elif obstacle is not False:
            self._conclude(without_call(invocation, self._round, obstacle, self._mode(invocation)))
        return None

    def _mode(self, invocation: Invocation) -> Mode:
        return self.modes.get(invocation.position, "Enforce") if self.modes else "Enforce"

    def _obstacle(self, index: int) -> Obstacle | None:
        """Return None if the webhook at *index* is to be called on the present object, else why not."""
        webhook = self._invocations[index].webhook
        is_due = self._round == 0 or self._invocations[index].position in self._to_reinvoke
        if not is_due and webhook.failure_policy == "Ignore":
            return False
        mismatch = self._mismatch(index)
        if not is_due:
            # The API server matches before it decides on reinvocation: under Fail, an error in that rejects.
            return mismatch if isinstance(mismatch, Failed | Unresolved) else False
        if mismatch is None and self.request.dry_run and webhook.side_effects in ("Some", "Unknown"):
            return DRY_RUN_REFUSED
        return mismatch

    def _mismatch(
        self, index: int
    ) -> Failed | Excluded | PolicyException | Unresolved | Decided | Literal[False] | None:
        """Return None if the webhook at *index* matches the present object, else why it does not."""
        invocation = self._invocations[index]
        if not invocation.has_matched_selectors or invocation.exceptions is not None:
            mismatch = mismatch_of(invocation, self._payload, self.namespace, self._now)
            if mismatch is not None:
                return mismatch
        conditions = invocation.webhook.match_conditions
        if conditions is None:
            return None
        self._conditions = self._conditions or ConditionState()
        condition_input = self._payload.condition_input
        condition_input.namespace = self.namespace
        result = self._conditions.evaluate(index, conditions, condition_input)
        return False if isinstance(result, Decided) and result.verdict is None else result

    def _speculate(self, calls: list[Call]) -> None:
        """Add speculative calls of webhooks after the present index to *calls*."""
        is_mutating = self.is_mutating
        memory = self._memory if is_mutating else None
        after: Call | None = None
        first, self._ahead = max(self._ahead, self._index), len(self._invocations)
        for index in range(first, len(self._invocations)):
            invocation = self._invocations[index]
            webhook = invocation.webhook
            call = self._calls[index]
            if index > self._index and call is None:
                if self._obstacle(index) is not None:
                    continue
                has_object = after is None or webhook.backend == after.invocation.webhook.backend
                if not is_mutating or (webhook.side_effects == "None" and has_object):
                    call = Call(index, invocation, self._payload, is_ahead=is_mutating, after=after)
                    call.mode = self._mode(invocation) if self.modes else "Enforce"
                    self._calls[index] = call
                    calls.append(call)
                    if after is not None:
                        after.is_followed = True
            if (
                memory is not None
                and memory.usually_changes(webhook, self.request)
                and self._mode(invocation) == "Enforce"
            ):
                # The webhooks behind it are considered again once it is settled.
                self._ahead = min(self._ahead, index)
                if call not in calls or not isinstance(webhook.client, WorkerRef):
                    # A chain is sent in one batch, to a worker.
                    return
                after = call

    def _replace_object(self, patched: Payload) -> None:
        """Continue with the *patched* object."""
        self.has_changed = True
        self._payload = patched
        if self._conditions is not None:
            self._conditions.clear()
        self._ahead = 0

    def _select(self) -> tuple[Invocation, ...]:
        """Return the webhooks that may match the present object."""
        found = self.selection.invocations(self.request, self.namespace, lambda: self._payload.labels)
        if self._leaves_out_shadows:
            found = tuple(invocation for invocation in found if self._mode(invocation) != "Shadow")
        return found

    def _replace_invocations(self, invocations: tuple[Invocation, ...]) -> None:
        """Continue with *invocations*, because the labels may have changed; discard the calls of others."""
        last_position = self._invocations[self._index - 1].position
        indices = {invocation.position: index for index, invocation in enumerate(invocations)}
        for index in range(self._index, len(self._invocations)):
            if self._invocations[index].position not in indices:
                self._discard(index)
        waiting = [call for call in self._calls[self._index :] if call is not None]
        self._calls = [None] * len(invocations)
        for call in waiting:
            call.index = indices[call.invocation.position]
            self._calls[call.index] = call
        self._invocations = invocations
        self._index = sum(invocation.position <= last_position for invocation in invocations)

    def _discard_outdated(self, settled: Call, *, is_allowed: bool) -> None:
        """Discard the calls on other objects than the present one, which the call *settled* has left.

        Calls after *settled* stay if it was allowed; otherwise the worker may have left another object.
        """
        is_left = is_allowed and self._payload.can_be_chained
        for index in range(self._index, len(self._calls)):
            call = self._calls[index]
            if call is None:
                continue
            if call.after is settled and is_left:
                call.after = None
                call.is_matched = call.payload is self._payload
                call.payload = self._payload
            elif call.after is settled or (call.after is None and call.payload is not self._payload):
                self._discard(index)

    def _conclude(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if not self.is_mutating:
            return
        webhook = outcome.invocation.webhook
        if outcome.has_changed:
            self._to_reinvoke |= self._reinvocable
            self._reinvocable = set()
        if outcome.call is not None and webhook.reinvocation_policy == "IfNeeded":
            self._reinvocable.add(outcome.invocation.position)
        is_first_call = outcome.call is not None and self._round == 0
        if self._memory is not None and is_first_call and outcome.mode == "Enforce":
            self._memory.note(webhook, self.request, changed=outcome.has_changed)
        if outcome.rejects:
            self._finish()

    def _discard(self, index: int) -> None:
        """Discard the call at *index*, if there is one, and those after it."""
        call = self._calls[index]
        if call is not None:
            self._withdraw(call)
            self._discard_orphans(call)

    def _discard_orphans(self, gone: Call) -> None:
        """Discard the calls after *gone*, which was discarded, and those after them."""
        if gone.is_followed:
            for call in self._calls[gone.index + 1 :]:
                after = None if call is None else call.after
                if call is not None and after is not None and not self.wants(after):
                    self._withdraw(call)

    def _withdraw(self, call: Call) -> None:
        self._calls[call.index] = None
        self.discarded_ahead += call.is_ahead
        if call.verdict is None:
            self._withdrawn.append(call)
            self.has_withdrawn = True

    def _finish(self) -> None:
        self.done = True
        for index in range(self._index, len(self._calls)):
            self._discard(index)
