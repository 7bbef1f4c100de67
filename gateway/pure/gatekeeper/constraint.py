"""A constraint of Gatekeeper with the CEL of its template, applied to a request.

The template's expressions are those of a ValidatingAdmissionPolicy, evaluated as there. What differs is what
matches, that the parameters are a variable, a smaller budget, and the answer: every violation is a line of
one message.

Source: github.com/open-policy-agent/gatekeeper pkg/drivers/k8scel/driver.go, pkg/webhook/policy.go;
github.com/open-policy-agent/frameworks constraint/pkg/client/{client,constraint_client}.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal

from gateway.pure.admission_policies.evaluation import OutOfBudgetError, evaluate_all
from gateway.pure.admission_policies.in_force import PolicyInForce, PolicyRun
from gateway.pure.admission_policies.model import ValidatingBinding, ValidatingPolicy
from gateway.pure.admission_policies.params import NO_PARAMS
from gateway.pure.admission_policies.shared_values import namespace_values, shared_values
from gateway.pure.admission_policies.validating import Evaluated, evaluate, failure
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.meter import EXPRESSION_LIMIT, HOOK_LIMIT
from gateway.pure.conditions.match_conditions import aggregated
from gateway.pure.core.conditions import NOT_MATCHED, Excluded, PolicyResult
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.verdict import ALLOWED, Allowed, Denied, Failed, FailureReason
from gateway.pure.core.webhook import PolicyRollout, Rollout
from gateway.pure.gatekeeper.matching import Included, MatchError, is_for_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.admission_policies.validating import Values
    from gateway.pure.core.conditions import PolicyAnswer
    from gateway.pure.core.policy import PolicyInput
    from gateway.pure.core.webhook import Webhook
    from gateway.pure.gatekeeper.matching import Match, Wildcards

    Json = dict[str, Any]

Action = Literal["deny", "warn", "dryrun"]

CODE: Final = 403
REASON: Final = "Forbidden"
BUDGET: Final = EXPRESSION_LIMIT
"""For all validations of a constraint: Gatekeeper passes the limit of one expression."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint, without its template."""

    kind: str
    name: str
    match: Match | None
    actions: frozenset[Action]
    """Those for requests. At least one."""
    content: Json
    """The object with the defaults of its schema, which ``variables.params`` is a part of."""


class ConstraintInForce(PolicyInForce[ValidatingPolicy, ValidatingBinding]):
    """A constraint with what its template evaluates."""

    has_long_warnings = True

    def __init__(self, policy: ValidatingPolicy, constraint: Constraint, excluded: Wildcards) -> None:
        """Take the *policy*, which has the name of *constraint* and the expressions of its template.

        *excluded* are the namespaces in which no constraint is evaluated.
        """
        super().__init__(policy, [ValidatingBinding("", policy.name, None, None, b"{}", ())], NO_PARAMS)
        self.kind = constraint.kind
        self.constraint = constraint
        self.included = Included(constraint.match, excluded)
        self._can_allow_fast = not policy.conditions and policy.rules.can_be_all_true
        """Whether ``all_true`` decides the usual case: nothing but validations counts."""

    def webhook(self, chosen: PolicyRollout | None = None) -> Webhook:
        """Return the constraint as a validating entry, as far in force as *chosen* or as its actions say."""
        own = PolicyRollout(Rollout("Audit" if self.constraint.actions == {"dryrun"} else "Enforce"))
        return (chosen or own).applied_to(self.as_entry("validate"))

    @property
    def has_namespace_selectors(self) -> bool:
        """See ``AdmissionPolicy``."""
        return self.included.has_namespaces

    def may_match_namespace(self, labels: Mapping[str, str]) -> bool:
        """See ``AdmissionPolicy``."""
        return self.included.may_include(labels)

    @property
    def can_allow_fast(self) -> bool:
        """See ``AdmissionPolicy``."""
        return self._can_allow_fast

    def allow_fast(self, policy_input: PolicyInput) -> float | None:
        """See ``AdmissionPolicy``."""
        begin = perf_counter()
        rules = self.policy.rules
        assert rules.all_true is not None
        try:
            if not self.included.matches(policy_input):
                return None
        except MatchError:
            return None
        values = self.values(shared_values(policy_input), policy_input)
        cost = rules.all_true.brief_cost(rules.variables, values)
        return None if cost < 0 else perf_counter() - begin

    def values(self, shared: Values, policy_input: PolicyInput) -> Values:
        """Return the values of ``GLOBALS`` without ``variables``: *shared* with those of the constraint."""
        current, old, request, namespace, *_ = shared
        if is_for_namespace(policy_input.request):
            # Gatekeeper takes a Namespace for an object without a namespace.
            assert isinstance(request, dict)
            request = {name: one for name, one in request.items() if name != "namespace"}
        return (current, old, request, namespace, None, None, self.constraint.content, None, None)


class _Run(PolicyRun[ValidatingPolicy, ValidatingBinding]):
    _bound: ConstraintInForce

    def _result(self) -> PolicyAnswer:
        try:
            found = self._evaluated() if self._bound.included.matches(self._input) else None
        except MatchError as error:
            # Gatekeeper takes a constraint as violated if it does not know whether it matches.
            verdict = self._verdict([str(error)])
            return PolicyResult(verdict, verdict, self._elapsed_s())
        if found is None:
            return NOT_MATCHED
        if isinstance(found, Excluded):
            return found
        verdict = self._verdict([each.message for each in found.refusals])
        if found.ignored and not found.refusals:
            cause = "; ".join(found.ignored)
            return PolicyResult(Failed(FailureReason.POLICY, cause, 500), verdict, self._elapsed_s())
        return PolicyResult(verdict, verdict, self._elapsed_s())

    def _evaluated(self) -> Evaluated | Excluded:
        """Return the result of the template, or which of its matchConditions excludes the request."""
        rules, seen, namespace = self._policy.rules, self._seen, self._input.namespace
        exposed = None
        if isinstance(namespace, Namespace) and not is_for_namespace(self._request):
            exposed = namespace_values(namespace.json)[0]
        shared = (seen.object, seen.old_object, self._prepared.request, exposed)
        values = self._bound.values(shared, self._input)
        if self._policy.conditions:
            unmatched = self._unmatched_conditions((*values[:3], None, *values[4:]))
            if unmatched is not None:
                return failure(rules, unmatched) if isinstance(unmatched, str) else unmatched
        return evaluate(rules, values, values, values, self._allowance, BUDGET)

    def _unmatched_conditions(self, values: Values) -> Excluded | str | None:
        """Return None if all matchConditions are true, which of them is false, or why they have no value.

        Other than in an admission policy, they can use variables.
        """
        expressions = [each.compiled for each in self._policy.conditions]
        variables = self._policy.rules.variables
        try:
            results, _ = evaluate_all(expressions, variables, values, HOOK_LIMIT, self._allowance)
        except OutOfBudgetError as error:
            return str(error)
        errors: list[str] = []
        for condition, result in zip(self._policy.conditions, results, strict=True):
            if result == (False,):
                return Excluded(condition.name, len(errors))
            if isinstance(result, EvaluationError):
                errors.append(str(result))
        return aggregated(errors) if errors else None

    def _verdict(self, messages: list[str]) -> Allowed | Denied:
        if not messages:
            return ALLOWED
        constraint = self._bound.constraint
        lines = tuple(f"[{constraint.name}] {each}" for each in sorted(messages))
        warnings = lines if "warn" in constraint.actions else ()
        if warnings and "deny" not in constraint.actions:
            return Allowed(b"", warnings)
        return Denied(CODE, REASON, "\n".join(lines), (), warnings)


ConstraintInForce.run_type = _Run
