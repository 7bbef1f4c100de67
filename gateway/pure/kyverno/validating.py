"""A ValidatingPolicy of Kyverno, applied to a request.

It stops at the first validation that is false or has no value. An error refuses the request whatever the
failurePolicy: that decides only if the matchConditions or the conditions of an exception have no value.

Source: github.com/kyverno/kyverno pkg/cel/policies/vpol/{compiler/policy,engine/engine}.go,
pkg/webhooks/resource/vpol/handler.go.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from gateway.pure.admission_policies.in_force import PolicyRun
from gateway.pure.admission_policies.model import ValidatingBinding, ValidatingPolicy
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.core.conditions import NOT_MATCHED, Excluded, PolicyResult
from gateway.pure.core.verdict import ALLOWED, Allowed, Denied
from gateway.pure.core.webhook import PolicyRollout, Rollout
from gateway.pure.kyverno.evaluator import Evaluator, annotate, values_for
from gateway.pure.kyverno.exceptions import allowed_by
from gateway.pure.kyverno.in_force import CODE, NO_OTHERS, KyvernoPolicy

if TYPE_CHECKING:
    from gateway.pure.admission_policies.model import ValidationAction
    from gateway.pure.admission_policies.validating import Validation, Values
    from gateway.pure.core.conditions import PolicyAnswer
    from gateway.pure.core.policy import PolicyInput
    from gateway.pure.core.webhook import Webhook
    from gateway.pure.kyverno.in_force import OtherDocuments


class KyvernoValidatingPolicy(KyvernoPolicy[ValidatingPolicy, ValidatingBinding]):
    """A ValidatingPolicy or NamespacedValidatingPolicy, or what autogen made of one."""

    def __init__(
        self,
        kind: str,
        policy: ValidatingPolicy,
        actions: tuple[ValidationAction, ...],
        others: OtherDocuments = NO_OTHERS,
        namespace: str = "",
    ) -> None:
        """See :class:`KyvernoPolicy`."""
        binding = ValidatingBinding("", policy.name, None, None, b"{}", actions)
        super().__init__(kind, policy, binding, others, namespace)
        self.actions = actions
        is_plain = (
            not self.objects
            and not self.exceptions
            and not policy.conditions
            and not policy.rules.audit_annotations
        )
        self._can_allow_fast = is_plain and not self.has_narrow_rules and policy.rules.can_be_all_true
        """Whether ``all_true`` decides the usual case: nothing but validations counts."""

    def webhook(self, chosen: PolicyRollout | None = None) -> Webhook:
        """Return the policy as an entry of the validating phase, in the mode of its actions.

        If it is *chosen* how far it is in force, it refuses requests there whatever its actions.
        """
        if chosen is not None:
            self.actions = ("Deny",)
        else:
            chosen = PolicyRollout(Rollout("Audit" if self.actions == ("Audit",) else "Enforce"))
        return chosen.applied_to(self.as_entry("validate"))

    @property
    def can_allow_fast(self) -> bool:
        """See ``AdmissionPolicy``."""
        return self._can_allow_fast

    def allow_fast(self, policy_input: PolicyInput) -> float | None:
        """See ``AdmissionPolicy``."""
        begin = perf_counter()
        rules = self.policy.rules
        is_excluded = self.namespace and policy_input.request.namespace != self.namespace
        if rules.all_true is None or is_excluded:
            return None
        values = policy_input.of_kyverno or values_for(policy_input)
        cost = rules.all_true.brief_cost(rules.variables, values)
        return None if cost < 0 else perf_counter() - begin


class KyvernoValidatingRun(PolicyRun[ValidatingPolicy, ValidatingBinding]):
    """A ValidatingPolicy on its way through one request."""

    _bound: KyvernoValidatingPolicy

    def _result(self) -> PolicyAnswer:
        if self._bound.excludes(self._request):
            return NOT_MATCHED
        try:
            refusal = self._refusal()
        except EvaluationError as error:
            refusal = f"error: failed to load context: {error}"
        if isinstance(refusal, Excluded):
            return refusal
        verdict = ALLOWED if not refusal else self._verdict(f"Policy {self._bound.shown_name} {refusal}")
        return PolicyResult(verdict, verdict, self._elapsed_s())

    def _refusal(self) -> str | Excluded:
        """Return what fails, and how; empty if nothing does; Excluded if the policy is not for the request.

        Raises:
            EvaluationError: it cannot be found out whether it is, or an audit annotation has no value.
        """
        return self._refusal_by(values_for(self._input, self._objects))

    def _refusal_by(self, values: Values) -> str | Excluded:
        """Return and raise as :meth:`_refusal`, for expressions that see *values*."""
        bound, allowance, rules = self._bound, self._allowance, self._policy.rules
        ignores_errors = rules.failure_policy == "Ignore"
        if bound.exceptions:
            found = allowed_by(
                bound.exceptions, values, allowance, self._input.now, ignores_errors=ignores_errors
            )
            if isinstance(found, Excluded):
                return found
            values = found
        try:
            false = Evaluator({}, values, allowance).first_false(self._policy.conditions)
        except EvaluationError:
            if ignores_errors:
                return Excluded("", 1)
            raise
        if false is not None:
            return Excluded(false)
        evaluator = Evaluator(rules.variables, values, allowance)
        cost = -1.0
        if rules.all_true is not None:
            cost = rules.all_true.cost(rules.variables, values, allowance.expression)
        if cost >= 0:
            allowance.take(cost)
        else:
            for index, validation in enumerate(rules.validations):
                try:
                    if evaluator.value(validation.expression) is not True:
                        message = _message(evaluator, validation, index)
                        annotate(evaluator, rules.audit_annotations, "'")
                        return f"failed: {message}"
                except EvaluationError as error:
                    return f"error: error: {error}"
        annotate(evaluator, rules.audit_annotations, "'")
        return ""

    def _verdict(self, message: str) -> Allowed | Denied:
        actions = self._bound.actions
        warnings = (message,) if "Warn" in actions else ()
        if "Deny" in actions or not warnings:
            return Denied(CODE, "", message, (), warnings)
        return Allowed(b"", warnings)


KyvernoValidatingPolicy.run_type = KyvernoValidatingRun


def _message(evaluator: Evaluator, validation: Validation, index: int) -> str:
    message = validation.message
    if validation.message_expression is not None:
        try:
            message = str(evaluator.value(validation.message_expression))
        except EvaluationError as error:
            message = f"failed to evaluate message expression: {error}"
    return message or f"CEL expression validation failed at index {index}"
