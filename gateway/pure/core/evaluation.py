"""One review as a state machine: it takes the verdicts of calls, and returns the calls to make next.

It does not wait, read a clock or make calls. With any driver the outcomes are the same.

**The walk.** Webhooks are settled in configured order. To settle a webhook means: match it with the present
object, take a verdict on exactly this object, apply its patch. If the verdict is missing, the walk waits.

**Speculation.** While it waits, later webhooks are called too, with the present object, on the assumption
that no earlier webhook changes it. When the walk reaches such a webhook and the object is still the same, its
verdict counts. Otherwise the verdict is discarded, and the webhook is called again. So the outcome equals
that of a serial run by construction. Only webhooks with sideEffects None are called ahead.

**Chains.** Behind a webhook that usually changes the object, that assumption is wrong. Webhooks of the same
worker pool are then called *after* it: the worker evaluates them on the object that it leaves
(:attr:`Call.after`). Such a verdict counts if the call before it is settled by its own verdict, so that the
object is known, and if the webhook matches this object when its turn comes. Otherwise it is discarded too.

**The validating phase** is the same walk: no patch can change the object, so all calls are made at once, and
a rejection does not end the walk.

**Reinvocation** (``gateway.pure.core.reinvocation``) is a second walk after a round that changed the object.

**Policies** come before webhooks in each round, and are settled without calls, on the object that the
policies before them leave. While a policy waits for a task, webhooks are called ahead as behind a webhook.
The selectors of a mutating policy are matched with the object at the beginning of the round, and a rejection
by one ends the walk behind the last one. The API server does both.

**matchConditions** and exceptions are part of matching. Conditions are evaluated once for each state of the
object. If one needs a decision of the authorizer, or takes long, the walk waits for the result as for a
verdict. A decision of the authorizer holds for the rest of the review.

**Modes.** A webhook in the mode Warn or Audit is settled like any other, but its outcome neither rejects the
request nor changes the object. A webhook in the mode Shadow has no part in the evaluation.

**Conflicts.** Where they are rejected, a webhook or policy that overwrites what another one wrote in the same
review is settled as if it had denied the request (``gateway.pure.core.conflicts``).

Laws, each a property test: (1) the order of arrival does not matter; (2) equal to a serial run; (3) a denial
always rejects; (4) a failure rejects under Fail, and under Ignore leaves an annotation instead; (5) the patch
turns the original object into the final one; (6) every denial's webhook is named, in order; (7) after the end
there are no calls; (8) in a round each webhook is called at most once for each state of the object, and in
chains at most once after each call; (9) the answer is that without the webhooks in the mode Shadow, and apart
from their own warnings and annotations that without those in the modes Warn and Audit.

Source: kubernetes/apiserver plugin/webhook/{mutating,validating}/dispatcher.go, mutating/
reinvocationcontext.go.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gateway.pure.core.call import Call, Payload
from gateway.pure.core.condition_state import ConditionState
from gateway.pure.core.conditions import NOT_MATCHED, Excluded, NotMatched, PolicyResult, Unresolved
from gateway.pure.core.conflicts import writers_of
from gateway.pure.core.exemptions import PolicyException
from gateway.pure.core.fast_allow import fast_allowed
from gateway.pure.core.matching import PolicyInvocation
from gateway.pure.core.mismatch import mismatch_of
from gateway.pure.core.open_calls import OpenCalls
from gateway.pure.core.outcome import Exemption, Outcome, refuse_conflict, settle, settle_policy
from gateway.pure.core.reinvocation import NO_REINVOCATION, Reinvocation
from gateway.pure.core.verdict import DRY_RUN_REFUSED, Allowed, Failed
from gateway.pure.core.webhook import WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.pure.core.conditions import ConditionTask, PolicyAnswer, TaskResult
    from gateway.pure.core.matching import Invocation, Selection, WebhookInvocation
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.policy import FollowedSchemas, Params
    from gateway.pure.core.review import AdmissionRequest, Json
    from gateway.pure.core.speculation import ChangeRates
    from gateway.pure.core.verdict import DryRunRefused, Verdict
    from gateway.pure.core.webhook import Mode

    NotCalled = NotMatched | Excluded | PolicyException | Failed | DryRunRefused | Unresolved
    """Why a webhook is not called. Unresolved: it is not known yet whether it is."""

NO_CALLS: Final[tuple[Call, ...]] = ()
NO_TASKS: Final[tuple[ConditionTask, ...]] = ()
NO_MODES: Final[Mapping[int, Mode]] = MappingProxyType({})


class Evaluation:
    """The state of one review in one phase.

    Call :meth:`start` once, make the calls that it returns, and pass each verdict to :meth:`receive`, which
    returns further calls, until :attr:`done`. Calls in :meth:`take_withdrawn` are no longer wanted.
    """

    __slots__ = (
        "_ahead",
        "_are_policies_settled",
        "_calls",
        "_conditions",
        "_expects_change",
        "_index",
        "_invocations",
        "_is_refused",
        "_leaves_out_shadows",
        "_memory",
        "_params",
        "_payload",
        "_reinvocation",
        "_round",
        "_round_payload",
        "_schemas",
        "_writers",
        "done",
        "exclusions",
        "exemptions",
        "has_changed",
        "is_mutating",
        "kept_ahead",
        "modes",
        "namespace",
        "now",
        "outcomes",
        "request",
        "selection",
    )

    def __init__(
        self,
        selection: Selection,
        request: AdmissionRequest,
        namespace: Namespace | Failed | None,
        memory: ChangeRates | None = None,
        now: float = math.inf,
        modes: Mapping[int, Mode] = NO_MODES,
        payload: Payload | None = None,
        params: Params | None = None,
        schemas: FollowedSchemas | None = None,
        *,
        rejects_conflicts: bool = False,
    ) -> None:
        """*now* is the time of the review, in seconds since 1970; by default, all exceptions have expired.

        *modes* are those other than Enforce, by position. With a *payload*, the first object, it is one after
        the answer, which calls Shadows too. *params* and *schemas* of the cluster are for policies. With
        *rejects_conflicts* a webhook or policy may not overwrite what another one wrote.
        """
        self.request = request
        self.namespace = namespace
        """The request's namespace; None if there is none, Failed if the look-up failed."""
        self.outcomes: list[Outcome] = []
        """In the order of a serial run."""
        self.exclusions: list[tuple[Invocation, Excluded]] = []
        """Webhooks and policies that a condition excluded when their turn came."""
        self.exemptions: list[Exemption] = []
        """Webhooks that matched when their turn came, and were left out because of an exception."""
        self.done = False
        self.has_changed = False
        """Whether any patch so far changed the object."""
        self.kept_ahead = 0
        """Speculative calls whose verdict counted."""
        self.is_mutating: Final = selection.phase == "mutate"
        self.modes: Final = modes
        self._memory = memory
        self.now: Final = now
        self._params, self._schemas = params, schemas
        self._payload = payload or Payload(request)
        self._leaves_out_shadows = bool(modes) and payload is None and "Shadow" in modes.values()
        self.selection = selection
        self._invocations = self._select()
        self._calls = OpenCalls(len(self._invocations))
        self._index = 0
        self._ahead = 0
        """Webhooks before this index were considered for a speculative call with the present payload."""
        self._expects_change = False
        """Whether a webhook is called that usually changes the object: then it is needed again."""
        self._round = 0
        self._round_payload = self._payload
        """The payload at the beginning of the round, with which selectors of policies are matched."""
        self._reinvocation = Reinvocation() if self.is_mutating else NO_REINVOCATION
        self._are_policies_settled = not _begins_with_policies(self._invocations)
        """Whether those of this round are."""
        self._is_refused = False
        """Whether the mutating phase ends early: at once, or behind the policies if one of them rejects."""
        is_watched = rejects_conflicts and self.is_mutating
        self._writers = writers_of(request) if is_watched else None
        """None if conflicts are allowed."""
        self._conditions: ConditionState | None = None
        """None until the first webhook with conditions, or policy that is evaluated."""

    @property
    def payload(self) -> Payload:
        """The request with the object after the patches of the settled webhooks."""
        return self._payload

    @property
    def discarded_ahead(self) -> int:
        """Speculative calls that were discarded."""
        return self._calls.discarded_ahead

    @property
    def final_object(self) -> Json | None:
        """The object after the patches of the settled webhooks."""
        return self._payload.object

    def start(self) -> Sequence[Call]:
        """Return the first calls to make."""
        return self._advance()

    def receive(self, call: Call, verdict: Verdict) -> Sequence[Call]:
        """Take the *verdict* of *call*, unless it is no longer wanted, and return further calls to make."""
        return self.receive_all(((call, verdict),))

    def receive_all(self, answered: Iterable[tuple[Call, Verdict]]) -> Sequence[Call]:
        """Take the verdicts of several calls, each as :meth:`receive`, and return further calls to make."""
        if self.done:
            return NO_CALLS
        is_due, due = False, self._index
        by_index = self._calls.by_index
        for call, verdict in answered:
            index = call.index
            # As by wants(), in place of a call of it for each verdict.
            if call.verdict is None and index < len(by_index) and by_index[index] is call:
                call.verdict = verdict
                is_due = is_due or index == due
        return self._advance() if is_due else NO_CALLS

    def wants(self, call: Call) -> bool:
        """Whether the verdict of *call*, which was returned earlier, is still needed."""
        return self._calls.has(call)

    def drop(self, call: Call) -> Sequence[Call]:
        """Drop *call*, which the worker left out of its chain and gets again, and return further calls."""
        if self.done or not self.wants(call):
            return NO_CALLS
        self._calls.drop(call)
        self._calls.discarded_ahead += 1
        return self._advance() if call.index == self._index else NO_CALLS

    def receive_refusal(self, call: Call, failure: Failed) -> Sequence[Call]:
        """Take the *failure* of a *call* that could not be made, and return further calls to make.

        A speculative call is dropped: a serial run would not have made it yet, and there may be room when its
        turn comes. For any other call the *failure* is the verdict.
        """
        if call.is_ahead and call.index != self._index:
            if self.wants(call):
                self._calls.drop(call)
            return NO_CALLS
        return self.receive(call, failure)

    @property
    def has_condition_tasks(self) -> bool:
        """Whether there are new tasks of conditions."""
        return self._conditions is not None and self._conditions.has_tasks

    def take_condition_tasks(self) -> Sequence[ConditionTask]:
        """Return the new tasks of conditions; their results go to :meth:`complete_condition_task`."""
        return NO_TASKS if self._conditions is None else self._conditions.take_tasks()

    def complete_condition_task(self, task: ConditionTask, result: TaskResult) -> Sequence[Call]:
        """Take the result of a task of conditions, and return further calls to make."""
        if self.done or self._conditions is None:
            return NO_CALLS
        self._ahead = min([self._ahead, *self._conditions.complete(task, result)])
        return self._advance()

    @property
    def has_withdrawn(self) -> bool:
        """Whether calls became unwanted since :meth:`take_withdrawn`."""
        return bool(self._calls.withdrawn)

    def take_withdrawn(self) -> Sequence[Call]:
        """Return the calls that became unwanted since the last call of this method."""
        return self._calls.take_withdrawn()

    def _advance(self) -> Sequence[Call]:
        """Settle policies and webhooks while their results are known, and return the calls to make."""
        calls: list[Call] = []
        while not self.done:
            are_policies_settled = self._are_policies_settled or self._settle_policies()
            if not are_policies_settled or not self._settle_webhooks(calls):
                if self._ahead < len(self._invocations):
                    self._speculate(calls)
                self._payload.drop_parsed(keeps_small=self._expects_change)
                break
            if self._round == 0 and self.has_changed and not self._is_refused:
                self._begin_second_round()
            else:
                self.done = True
                self._calls.discard_all(self._index)
        return calls

    def _settle_policies(self) -> bool:
        """Settle the policies of the round, and return whether all are settled; if not, the walk waits."""
        while self._index < len(self._invocations):
            invocation = self._invocations[self._index]
            if not isinstance(invocation, PolicyInvocation):
                break
            if invocation.can_allow_fast:
                rest = self._invocations[self._index :]
                policy_input = self._payload.policy_input(
                    self.namespace, self._params, self._schemas, self.now
                )
                if allowed := fast_allowed(rest, policy_input, self.modes):
                    self.outcomes += allowed
                    self._index += len(allowed)
                    continue
            answer = self._policy_answer(self._index, invocation)
            if isinstance(answer, Unresolved):
                return False
            self._index += 1
            if isinstance(answer, PolicyResult):
                self._settle_policy(invocation, answer)
            elif isinstance(answer, PolicyException):
                self.exemptions.append(Exemption(invocation, self._round, answer))
            elif isinstance(answer, Excluded):
                self.exclusions.append((invocation, answer))
            elif isinstance(answer, Failed):
                self._conclude_without_call(invocation, answer)
        self._are_policies_settled = True
        if self._payload is not self._round_payload:
            # As in the API server, a policy does not select the policies after it, but the webhooks.
            self._select_again()
        return True

    def _settle_policy(self, invocation: PolicyInvocation, result: PolicyResult) -> None:
        mode = self._mode(invocation)
        outcome, patched = settle_policy(invocation, self._round, result, mode, self._payload)
        if patched is not None and self._writers is not None:
            patched = refuse_conflict(outcome, self._writers, self._payload, patched)
        if patched is not None:
            self._replace_object(patched)
            self._calls.discard_outdated(self._index, patched)
        if self._round == 0:
            self._reinvocation.note_invoked(invocation.position, result.invoked)
        self._conclude(outcome)

    def _settle_webhooks(self, calls: list[Call]) -> bool:
        """Settle webhooks, and return whether the round is over; if not, the walk waits.

        New calls are added to *calls*.
        """
        while not self._is_refused and self._index < len(self._invocations):
            index = self._index
            call = self._calls.by_index[index]
            if call is None or not call.is_matched:
                call = self._reach(index, calls)
            if call is None and self._index != index:
                continue
            verdict = None if call is None else call.verdict
            if call is None or verdict is None:
                return False
            self.kept_ahead += call.is_ahead
            self._index = index + 1
            outcome, patched = settle(call, verdict, self._round, is_mutating=self.is_mutating)
            if patched is not None and self._writers is not None:
                patched = refuse_conflict(outcome, self._writers, self._payload, patched)
            if patched is not None:
                self._replace_object(patched)
            if patched is not None or call.is_followed:
                is_allowed = type(outcome.verdict) is Allowed
                self._calls.discard_outdated(self._index, self._payload, call, is_allowed=is_allowed)
            if patched is not None:
                self._select_again()
            self._conclude(outcome)
        return True

    def _reach(self, index: int, calls: list[Call]) -> Call | None:
        """Return the call of the webhook at *index*, whose turn has come, after adding a new one to *calls*.

        None if it is not called: then it is settled, and the walk is at the next index. None, too, if a task
        of its conditions is not complete: then the walk stays at *index*.
        """
        invocation = self._invocations[index]
        assert not isinstance(invocation, PolicyInvocation), "policies come before webhooks"
        why_not = self._why_not_called(index, invocation)
        call = self._calls.by_index[index]
        if why_not is None:
            if call is not None and call.after is None:
                call.is_matched = True
                return call
            self._calls.discard(index)
            call = Call(index, invocation, self._payload, is_ahead=False, mode=self._mode(invocation))
            self._calls.by_index[index] = call
            calls.append(call)
            return call
        if isinstance(why_not, Unresolved):
            return None
        self._calls.discard(index)
        self._index = index + 1
        if isinstance(why_not, Excluded):
            self.exclusions.append((invocation, why_not))
        elif isinstance(why_not, PolicyException):
            self.exemptions.append(Exemption(invocation, self._round, why_not))
        elif not isinstance(why_not, NotMatched):
            self._conclude_without_call(invocation, why_not)
        return None

    def _begin_second_round(self) -> None:
        self._round = 1
        self._index = self._ahead = 0
        self._calls.clear(len(self._invocations))
        self._round_payload = self._payload
        if _begins_with_policies(self._invocations):
            self._are_policies_settled = False
            # Of a policy, the second round may invoke less.
            self._drop_results()

    def _mode(self, invocation: Invocation) -> Mode:
        return self.modes.get(invocation.position, "Enforce") if self.modes else "Enforce"

    def _why_not_called(self, index: int, invocation: WebhookInvocation) -> NotCalled | None:
        """Return None if the webhook at *index* is to be called on the present object, else why not."""
        webhook = invocation.webhook
        is_due = self._round == 0 or self._reinvocation.is_due(invocation.position)
        if not is_due and webhook.failure_policy == "Ignore":
            return NOT_MATCHED
        why_not: NotCalled | None = None
        if not invocation.has_matched_selectors or invocation.exceptions is not None:
            why_not = mismatch_of(invocation, self._payload, self.namespace, self.now)
        conditions = webhook.match_conditions
        if conditions is not None and why_not is None:
            self._conditions = self._conditions or ConditionState()
            why_not = self._conditions.evaluate(index, conditions, self._payload.condition_input)
        if not is_due:
            # The API server matches before it decides on reinvocation: under Fail, an error in that rejects.
            return why_not if isinstance(why_not, Failed | Unresolved) else NOT_MATCHED
        if why_not is None and self.request.dry_run and not webhook.allows_dry_run:
            return DRY_RUN_REFUSED
        return why_not

    def _policy_answer(self, index: int, invocation: PolicyInvocation) -> PolicyAnswer | PolicyException:
        """Return the answer of the policy at *index* on the present object, or why it is not evaluated."""
        is_due = self._round == 0 or self._reinvocation.is_due(invocation.position)
        if not is_due and invocation.webhook.failure_policy == "Ignore":
            return NOT_MATCHED
        if not invocation.has_matched_selectors or invocation.exceptions is not None:
            mismatch = mismatch_of(invocation, self._round_payload, self.namespace, self.now)
            if mismatch is not None:
                return mismatch if is_due or isinstance(mismatch, Failed) else NOT_MATCHED
        policy_input = self._payload.policy_input(self.namespace, self._params, self._schemas, self.now)
        if self.is_mutating:
            policy_input.matched = self._round_payload
        if self._round:
            policy_input.invoked = self._reinvocation.invoked(invocation.position)
        self._conditions = self._conditions or ConditionState()
        return self._conditions.evaluate_policy(index, invocation.policy, policy_input)

    def _drop_results(self) -> None:
        if self._conditions is not None:
            self._conditions.clear()

    def _speculate(self, calls: list[Call]) -> None:
        """Add speculative calls of webhooks after the present index to *calls*."""
        is_mutating, is_first_round, modes = self.is_mutating, self._round == 0, self.modes
        memory = self._memory if is_mutating else None
        by_index = self._calls.by_index
        after: Call | None = None
        first, self._ahead = max(self._ahead, self._index), len(self._invocations)
        for index in range(first, len(self._invocations)):
            invocation = self._invocations[index]
            if isinstance(invocation, PolicyInvocation):
                if index > self._index and not invocation.can_allow_fast:
                    answer = self._policy_answer(index, invocation)
                    if isinstance(answer, PolicyResult) and answer.changed is not None:
                        # It changes the object for all webhooks behind it.
                        self._ahead = index
                        return
                continue
            webhook = invocation.webhook
            call = by_index[index]
            if index > self._index and call is None:
                is_called = is_first_round and invocation.is_always_called
                if not is_called and self._why_not_called(index, invocation) is not None:
                    continue
                has_object = after is None or invocation.backend == after.invocation.backend
                if not is_mutating or (webhook.side_effects == "None" and has_object):
                    mode = self._mode(invocation) if modes else "Enforce"
                    call = Call(
                        index, invocation, self._payload, is_ahead=is_mutating, after=after, mode=mode
                    )
                    by_index[index] = call
                    calls.append(call)
                    if after is not None:
                        after.is_followed = True
            if (
                memory is not None
                and memory.usually_changes(webhook, self.request)
                and self._mode(invocation) == "Enforce"
            ):
                self._expects_change = True
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
        self._drop_results()
        self._ahead = 0

    def _select(self) -> tuple[Invocation, ...]:
        """Return the webhooks that may match the present object."""
        found = self.selection.invocations(self.request, self.namespace, lambda: self._payload.labels)
        if self._leaves_out_shadows:
            found = tuple(invocation for invocation in found if self._mode(invocation) != "Shadow")
        return found

    def _select_again(self) -> None:
        """Continue with the webhooks that match the labels of the present object; discard other calls.

        Policies that match them now did not match at the beginning of the round, and are passed over.
        """
        invocations = self._select()
        if invocations is self._invocations:
            return
        last_position = self._invocations[self._index - 1].position
        indices = {invocation.position: index for index, invocation in enumerate(invocations)}
        self._calls.move(self._index, indices, len(invocations))
        self._invocations = invocations
        self._index = sum(
            invocation.position <= last_position or isinstance(invocation, PolicyInvocation)
            for invocation in invocations
        )

    def _conclude(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if self.is_mutating:
            self._note(outcome)

    def _note(self, outcome: Outcome) -> None:
        """Note what the rest of a mutating phase depends on."""
        self._reinvocation.note(outcome)
        is_first_call = outcome.call is not None and self._round == 0
        if self._memory is not None and is_first_call and outcome.mode == "Enforce":
            self._memory.note(outcome.invocation.webhook, self.request, changed=outcome.has_changed)
        self._is_refused = self._is_refused or outcome.rejects

    def _conclude_without_call(self, invocation: Invocation, verdict: Failed | DryRunRefused) -> None:
        self._conclude(Outcome(invocation, self._round, verdict, None, None, mode=self._mode(invocation)))


def _begins_with_policies(invocations: Sequence[Invocation]) -> bool:
    """Whether there are policies among *invocations*: they come before webhooks."""
    return len(invocations) > 0 and isinstance(invocations[0], PolicyInvocation)
