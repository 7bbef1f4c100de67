"""A ValidatingAdmissionPolicy with its bindings, applied to a request.

Source: k8s.io/apiserver pkg/admission/plugin/policy/validating/dispatcher.go, matching/matching.go.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.pure.admission_policies.in_force import PolicyInForce, PolicyRun
from gateway.pure.admission_policies.model import ValidatingBinding, ValidatingPolicy
from gateway.pure.admission_policies.params import NO_PARAMS
from gateway.pure.admission_policies.shared_values import namespace_values, shared_values
from gateway.pure.admission_policies.validating import Evaluated, Refusal, evaluate, failure
from gateway.pure.core.conditions import NOT_MATCHED, PolicyResult
from gateway.pure.core.verdict import ALLOWED, Allowed, Cause, Denied, Failed, FailureReason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.pure.admission_policies.evaluation import Allowance
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.core.conditions import Decisions, PolicyAnswer
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.policy import PolicyInput
    from gateway.pure.core.webhook import Webhook

    Json = dict[str, Any]

MAX_ANNOTATION_BYTES: Final = 10 * 1024
"""The size of the value of an audit annotation. The rest is cut."""
MAX_FAILURES: Final = 50
"""Failures of validations in an audit annotation."""
FAILURES_KEY: Final = "validation_failure"
TEMPLATE_FAILURES_KEY: Final = "template_validation_failure"
"""A policy may match a workload and its Pods, and of two annotations with one key only the first counts."""
_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}


def as_webhook(
    policy: ValidatingPolicy,
    bindings: Sequence[ValidatingBinding],
    params: FixedParams = NO_PARAMS,
    refusal: str = "",
    *,
    checks_authors: bool = False,
) -> Webhook:
    """Return *policy* with its *bindings* as an entry of the validating phase.

    *params* are the parameters in files; kinds that they lack are taken from the cluster. With a *refusal*,
    the reason why the policy cannot be evaluated, its failurePolicy decides.
    """
    bound = ValidatingPolicyInForce(policy, bindings, params, refusal)
    return bound.as_entry("validate", checks_authors=checks_authors)


def as_webhooks(
    policy: ValidatingPolicy, bindings: Sequence[ValidatingBinding], params: FixedParams, refusal: str
) -> Iterator[Webhook]:
    """Yield *policy* as entries of the validating phase.

    They are one with the *bindings* that have no rollout, and one for each that has one, by name. For
    *params* and *refusal* see :func:`as_webhook`.
    """
    if enforced := [each for each in bindings if each.rollout is None]:
        yield as_webhook(policy, enforced, params, refusal)
    for each in sorted(bindings, key=lambda one: one.name):
        if each.rollout is not None:
            yield each.rollout.applied_to(as_webhook(policy, [each], params, refusal))


class ValidatingPolicyInForce(PolicyInForce[ValidatingPolicy, ValidatingBinding]):
    """A ValidatingAdmissionPolicy with its bindings."""

    kind = "ValidatingAdmissionPolicy"

    def __init__(
        self,
        policy: ValidatingPolicy,
        bindings: Sequence[ValidatingBinding],
        params: FixedParams = NO_PARAMS,
        refusal: str = "",
    ) -> None:
        """See :func:`as_webhook`."""
        super().__init__(policy, bindings, params, refusal)
        is_plain = (
            not self._may_fail
            and not self.has_narrow_rules
            and not policy.conditions
            and not policy.rules.audit_annotations
            and not policy.needs_authorizer
            and not self._uses_params
            and not self.objects
        )
        self._can_allow_fast = is_plain and policy.rules.can_be_all_true
        """Whether ``all_true`` decides the usual case: nothing but bindings and validations counts."""
        self._are_plain = self._bindings.are_plain

    @property
    def can_allow_fast(self) -> bool:
        """See ``AdmissionPolicy``."""
        return self._can_allow_fast

    def allow_fast(self, policy_input: PolicyInput) -> float | None:
        """See ``AdmissionPolicy``."""
        begin = perf_counter()
        if not (self._are_plain or self._bindings.all_match(policy_input)):
            return None
        if self._needs_namespace and isinstance(self.namespace_of(policy_input), Failed):
            return None
        values = policy_input.shared or shared_values(policy_input)
        rules = self.policy.rules
        assert rules.all_true is not None
        cost = rules.all_true.brief_cost(rules.variables, values)
        return None if cost < 0 else perf_counter() - begin


class _ValidatingRun(PolicyRun[ValidatingPolicy, ValidatingBinding]):
    def __init__(
        self,
        bound: ValidatingPolicyInForce,
        policy_input: PolicyInput,
        decisions: Decisions,
        allowance: Allowance,
    ) -> None:
        super().__init__(bound, policy_input, decisions, allowance)
        self._denials: list[tuple[str, str]] = []
        """Message and reason."""
        self._warnings: list[str] = []
        self._failures: list[Json] = []
        self._annotations: dict[str, list[str]] = {}
        self._ignored: list[str] = []

    def _result(self) -> PolicyAnswer:
        if self._bound.excludes(self._request):
            return NOT_MATCHED
        if refusal := self._bound.refusal_for(self._input):
            self._misconfigured(None, refusal)
            return PolicyResult(*self._verdicts(), self._elapsed_s())
        evaluated: dict[int, tuple[Json | None, Evaluated | None]] = {}
        is_matched = False
        for binding, params in self._matching():
            if not params:
                continue
            namespace = self._bound.namespace_of(self._input)
            if isinstance(namespace, Failed):
                return PolicyResult(namespace)
            for param in params:
                # Bindings with the same parameter, or none, have the same result.
                if id(param) not in evaluated:
                    evaluated[id(param)] = param, self._evaluated(param, namespace)
                _, found = evaluated[id(param)]
                if found is not None:
                    is_matched = True
                    self._take(binding, found)
        if (unresolved := self._unresolved()) is not None:
            return unresolved
        is_decided = is_matched or self._denials or self._ignored
        return PolicyResult(*self._verdicts(), self._elapsed_s()) if is_decided else NOT_MATCHED

    def _misconfigured(self, binding: ValidatingBinding | None, cause: str) -> None:
        """Note an error of *binding*, or of the policy if None. validationActions do not soften it."""
        if self._policy.rules.failure_policy == "Ignore":
            self._ignored.append(cause if binding is None else f"binding '{binding.name}': {cause}")
        else:
            wrong = "policy" if binding is None else "binding"
            self._deny(binding, f"failed to configure {wrong}: {cause}", "")

    def _deny(self, binding: ValidatingBinding | None, message: str, reason: str) -> None:
        with_binding = "" if binding is None else f" with binding '{binding.name}'"
        name = self._policy.name
        text = f"ValidatingAdmissionPolicy '{name}'{with_binding} denied {self._denied}: {message}"
        self._denials.append((text, reason or "Invalid"))

    def _evaluated(self, param: Json | None, namespace: Namespace | None) -> Evaluated | None:
        """Return the result for one parameter, or None if matchConditions exclude the request."""
        rules, prepared = self._policy.rules, self._prepared
        objects = (self._seen.object, self._seen.old_object)
        authorizer, check, request = prepared.authorizer, prepared.check, prepared.request
        read = self._objects
        if self._policy.conditions and (unmatched := self._unmatched(param)) is not None:
            return failure(rules, unmatched) if unmatched else None
        filtered, whole = (None, None) if namespace is None else namespace_values(namespace.json)
        return evaluate(
            rules,
            (*objects, request, filtered, authorizer, check, param, read, self._go_types),
            (*objects, request, filtered, None, None, param, read, self._go_types),
            (*objects, request, whole, None, None, param, read, self._go_types),
            self._allowance,
        )

    def _take(self, binding: ValidatingBinding, found: Evaluated) -> None:
        for refusal in found.refusals:
            self._refuse(binding, refusal)
        for annotation in found.annotations:
            if annotation.error:
                self._deny(binding, annotation.error, "")
                continue
            cut = annotation.value[:MAX_ANNOTATION_BYTES].encode("utf-8", "surrogatepass")[
                :MAX_ANNOTATION_BYTES
            ]
            values = self._annotations.setdefault(annotation.key, [])
            if (value := cut.decode("utf-8", "replace")) not in values:
                values.append(value)
        self._ignored += found.ignored

    def _refuse(self, binding: ValidatingBinding, refusal: Refusal) -> None:
        for action in binding.actions:
            if action == "Deny":
                self._deny(binding, refusal.message, refusal.reason)
            elif action == "Warn":
                about = "" if self._input.workload is None else f" on {self._denied}"
                self._warnings.append(
                    f"Validation failed for ValidatingAdmissionPolicy '{self._policy.name}' with binding "
                    f"'{binding.name}'{about}: {refusal.message}"
                )
            else:
                self._failures.append(
                    {
                        "message": refusal.message,
                        "policy": self._policy.name,
                        "binding": binding.name,
                        "expressionIndex": refusal.number,
                        "validationActions": list(binding.actions),
                    }
                )

    def _verdicts(self) -> tuple[Allowed | Denied | Failed, Allowed | Denied | None]:
        """Return the effective verdict, and the one that has the warnings and annotations."""
        annotations = {key: ", ".join(values) for key, values in self._annotations.items()}
        if self._failures:
            key = FAILURES_KEY if self._input.workload is None else TEMPLATE_FAILURES_KEY
            annotations[key] = orjson.dumps(self._failures[:MAX_FAILURES]).decode()
        found = tuple(sorted(annotations.items()))
        if self._denials:
            message = "\n".join(text for text, _ in self._denials)
            causes = tuple(Cause(message=text) for text, _ in self._denials)
            reason = self._denials[0][1]
            warnings = tuple(self._warnings)
            denied = Denied(_CODES[reason], reason, message, causes, warnings, found, self._details())
            return denied, denied
        allowed = Allowed(b"", tuple(self._warnings), found) if found or self._warnings else ALLOWED
        if self._ignored:
            return Failed(FailureReason.POLICY, "; ".join(self._ignored), 500), allowed
        return allowed, allowed


ValidatingPolicyInForce.run_type = _ValidatingRun
