"""Whether the webhooks and policies of one review match the present object, and what policies answer on it.

It is found out in the API server's order: whether the webhook is due in this round, selectors, exceptions,
and last matchConditions or the policy itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.core.condition_state import ConditionState
from gateway.pure.core.conditions import NOT_MATCHED, Unresolved
from gateway.pure.core.exemptions import ExemptionInput
from gateway.pure.core.matching import PolicyInvocation, object_matches, selectors_match
from gateway.pure.core.reinvocation import NO_REINVOCATION, Reinvocation
from gateway.pure.core.verdict import DRY_RUN_REFUSED, Failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.call import Payload
    from gateway.pure.core.conditions import ConditionTask, Excluded, NotMatched, PolicyAnswer, TaskResult
    from gateway.pure.core.exemptions import PolicyException
    from gateway.pure.core.matching import Invocation, WebhookInvocation
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.policy import FollowedSchemas, Params, PolicyInput
    from gateway.pure.core.verdict import DryRunRefused

    NotCalled = NotMatched | Excluded | PolicyException | Failed | DryRunRefused | Unresolved
    """Why a webhook is not called. Unresolved: it is not known yet whether it is."""

NO_TASKS: Final[tuple[ConditionTask, ...]] = ()


class Matcher:
    """Matches with each state of the object. *index* is that of the webhook or policy in the walk."""

    __slots__ = (
        "_conditions",
        "_is_mutating",
        "_is_second_round",
        "_namespace",
        "_now",
        "_params",
        "_schemas",
        "reinvocation",
        "round_payload",
    )

    def __init__(
        self,
        payload: Payload,
        namespace: Namespace | Failed | None,
        now: float,
        params: Params | None,
        schemas: FollowedSchemas | None,
        *,
        is_mutating: bool,
    ) -> None:
        """*payload* is the first one, *now* the time of the review in seconds since 1970."""
        self.round_payload = payload
        """The payload at the beginning of the round, with which selectors of policies are matched."""
        self.reinvocation = Reinvocation() if is_mutating else NO_REINVOCATION
        self._namespace = namespace
        self._now = now
        self._params, self._schemas = params, schemas
        self._is_mutating = is_mutating
        self._is_second_round = False
        self._conditions: ConditionState | None = None
        """None until the first webhook with conditions, or policy that is evaluated."""

    def object_changed(self) -> None:
        """Drop the results of expressions: the object has changed."""
        if self._conditions is not None:
            self._conditions.clear()

    def begin_second_round(self, payload: Payload, *, has_policies: bool) -> None:
        """Match for the round of reinvocation from now on, which begins with *payload*."""
        self._is_second_round = True
        self.round_payload = payload
        if has_policies:
            # Of a policy, the second round may invoke less.
            self.object_changed()

    def why_not_called(self, index: int, invocation: WebhookInvocation, payload: Payload) -> NotCalled | None:
        """Return None if the webhook is to be called on the object of *payload*, else why not."""
        webhook = invocation.webhook
        is_due = not self._is_second_round or self.reinvocation.is_due(invocation.position)
        if not is_due and webhook.failure_policy == "Ignore":
            return NOT_MATCHED
        why_not: NotCalled | None = None
        if not invocation.has_matched_selectors or invocation.exceptions is not None:
            why_not = mismatch_of(invocation, payload, self._namespace, self._now)
        conditions = webhook.match_conditions
        if conditions is not None and why_not is None:
            self._conditions = self._conditions or ConditionState()
            why_not = self._conditions.evaluate(index, conditions, payload.condition_input)
        if not is_due:
            # The API server matches before it decides on reinvocation: under Fail, an error in that rejects.
            return why_not if isinstance(why_not, Failed | Unresolved) else NOT_MATCHED
        if why_not is None and payload.request.dry_run and not webhook.allows_dry_run:
            return DRY_RUN_REFUSED
        return why_not

    def policy_answer(
        self, index: int, invocation: PolicyInvocation, payload: Payload
    ) -> PolicyAnswer | PolicyException:
        """Return the answer of the policy on the object of *payload*, or why it is not evaluated."""
        is_due = not self._is_second_round or self.reinvocation.is_due(invocation.position)
        if not is_due and invocation.webhook.failure_policy == "Ignore":
            return NOT_MATCHED
        if not invocation.has_matched_selectors or invocation.exceptions is not None:
            mismatch = mismatch_of(invocation, self.round_payload, self._namespace, self._now)
            if mismatch is not None:
                return mismatch if is_due or isinstance(mismatch, Failed) else NOT_MATCHED
        policy_input = self.policy_input(payload)
        if self._is_mutating:
            policy_input.matched = self.round_payload
        if self._is_second_round:
            policy_input.invoked = self.reinvocation.invoked(invocation.position)
        self._conditions = self._conditions or ConditionState()
        return self._conditions.evaluate_policy(index, invocation.policy, policy_input)

    def policy_input(self, payload: Payload) -> PolicyInput:
        """Return the input of policies for the object of *payload*."""
        return payload.policy_input(self._namespace, self._params, self._schemas)

    @property
    def has_tasks(self) -> bool:
        """Whether there are new tasks."""
        return self._conditions is not None and self._conditions.has_tasks

    def take_tasks(self) -> Sequence[ConditionTask]:
        """Return the new tasks; their results go to :meth:`complete`."""
        return NO_TASKS if self._conditions is None else self._conditions.take_tasks()

    def complete(self, task: ConditionTask, result: TaskResult) -> Sequence[int]:
        """Take the result of *task*, and return the indices for which there was no result before."""
        return () if self._conditions is None else self._conditions.complete(task, result)


def mismatch_of(
    invocation: Invocation, payload: Payload, namespace: Namespace | Failed | None, now: float
) -> NotMatched | PolicyException | Failed | None:
    """Return None if selectors match the object of *payload*, and no exception does; else what is not so.

    *namespace* is the request's, *now* the time of the review in seconds since 1970.
    """
    matched: bool | Failed = True
    if not invocation.has_matched_selectors:
        matched = (
            object_matches(invocation.webhook, payload.labels)
            if invocation.has_matched_namespace
            else selectors_match(invocation.webhook, payload.request, payload.outline, namespace)
        )
        if matched is False:
            return NOT_MATCHED
        # Rules of a policy may leave the request out, whatever the labels are that are not known.
        policy = invocation.policy if isinstance(invocation, PolicyInvocation) else None
        if matched is not True and policy is not None and policy.excludes(payload.request):
            return NOT_MATCHED
    if invocation.exceptions is not None:
        review = ExemptionInput(payload.request, payload.outline, payload.labels, namespace, now)
        exception = invocation.exceptions.find(review)
        if exception is not None:
            return exception
    return matched if isinstance(matched, Failed) else None
