"""A MutatingPolicy of Kyverno, applied to a request.

It matches and changes the object as the policies before it leave it. Its variables are evaluated once, when
they are first used. If anything fails, nothing of it is applied, and its failurePolicy decides.

Source: github.com/kyverno/kyverno pkg/cel/policies/mpol/{compiler/policy,engine/engine}.go,
pkg/webhooks/resource/mpol/handler.go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from admission_gateway_worker.json_patch.diff import diff
from gateway.pure.admission_policies.evaluation import TooLongError
from gateway.pure.admission_policies.in_force import PolicyRun
from gateway.pure.admission_policies.model import MutatingBinding, MutatingPolicy
from gateway.pure.admission_policies.mutating import MAX_BRIEF_BYTES, merged_versions
from gateway.pure.admission_policies.values import PatchError
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.core.conditions import NOT_MATCHED, Excluded, PolicyResult
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.matching import object_matches, selectable_labels
from gateway.pure.core.verdict import ALLOWED, Allowed, Denied, Failed, FailureReason
from gateway.pure.kyverno.evaluator import Evaluator, annotate, values_for
from gateway.pure.kyverno.exceptions import allowed_by
from gateway.pure.kyverno.in_force import CODE, NO_OTHERS, KyvernoPolicy
from gateway.pure.kyverno.mutations import merge_into, mutated, with_objects
from gateway.pure.openapi.documents import built_in_schemas

if TYPE_CHECKING:
    from gateway.pure.core.conditions import Decisions, PolicyAnswer
    from gateway.pure.core.policy import PolicyInput
    from gateway.pure.core.webhook import PolicyRollout, Webhook
    from gateway.pure.kyverno.in_force import OtherDocuments

    Json = dict[str, Any]


class KyvernoMutatingPolicy(KyvernoPolicy[MutatingPolicy, MutatingBinding]):
    """A MutatingPolicy or NamespacedMutatingPolicy, or what autogen made of one."""

    def __init__(
        self,
        kind: str,
        policy: MutatingPolicy,
        others: OtherDocuments = NO_OTHERS,
        namespace: str = "",
        *,
        allows_atomic: bool = False,
    ) -> None:
        """See :class:`KyvernoPolicy`.

        With *allows_atomic*, ApplyConfigurations replace atomic lists and maps instead of failing.
        """
        binding = MutatingBinding("", policy.name, None, None, b"{}", "Enforce")
        super().__init__(kind, policy, binding, others, namespace)
        self.allows_atomic = allows_atomic
        # Read now, so that no review waits for it.
        built_in_schemas()

    def webhook(self, chosen: PolicyRollout | None = None) -> Webhook:
        """Return the policy as an entry of the mutating phase, as far in force as is *chosen*."""
        entry = self.as_entry("mutate", merged_versions=merged_versions(self.policy))
        entry = entry if chosen is None else chosen.applied_to(entry)
        # The entry would match the object at the beginning of the round.
        return replace(entry, object_selector=EVERYTHING)

    def evaluate(self, policy_input: PolicyInput, decisions: Decisions) -> PolicyAnswer:
        """See ``AdmissionPolicy``. Kyverno is never invoked again."""
        return NOT_MATCHED if policy_input.invoked is not None else super().evaluate(policy_input, decisions)


class _Run(PolicyRun[MutatingPolicy, MutatingBinding]):
    _bound: KyvernoMutatingPolicy

    def _result(self) -> PolicyAnswer:
        request, match = self._request, self._policy.match
        if self._bound.excludes(request):
            return NOT_MATCHED
        labels = selectable_labels(self._seen.object, request.old_outline)
        if not match.object_selector.is_empty and not object_matches(match, labels):
            return NOT_MATCHED
        if self._allowance.is_brief and len(request.json) > MAX_BRIEF_BYTES:
            raise TooLongError
        try:
            changed = self._changed()
            if isinstance(changed, Excluded):
                return changed
            before = self._seen.object
            operations = [] if changed is before else diff(before, changed)
            patch = orjson.dumps(operations) if operations else b""
        except (EvaluationError, PatchError) as error:
            return self._failed(str(error))
        except (RecursionError, TypeError) as error:
            return self._failed(f"the changed object cannot be written as JSON: {error}")
        allowed = Allowed(patch) if patch else ALLOWED
        return PolicyResult(allowed, allowed, self._elapsed_s(), changed if patch else None, patch)

    def _failed(self, error: str) -> PolicyResult:
        cause = f"Policy {self._bound.shown_name}: failed to evaluate policy: {error}"
        verdict: Denied | Failed
        if self._policy.rules.failure_policy == "Ignore":
            verdict = Failed(FailureReason.POLICY, cause, 500)
            return PolicyResult(verdict, ALLOWED, self._elapsed_s())
        request = self._request
        kind = self._seen.document["kind"]["kind"]
        about = f"Resource: {request.namespace}/{request.name}, Kind: {kind}"
        verdict = Denied(CODE, "", f"{about}, Errors: [{cause}]", ())
        return PolicyResult(verdict, verdict, self._elapsed_s())

    def _changed(self) -> Json | Excluded | None:
        """Return the object as the policy leaves it; Excluded if the policy is not for the request.

        Raises:
            EvaluationError, PatchError: anything fails.
        """
        bound, allowance, rules = self._bound, self._allowance, self._policy.rules
        values = with_objects(values_for(self._input, self._objects))
        if bound.exceptions:
            now = self._input.now
            found = allowed_by(bound.exceptions, values, allowance, now, ignores_errors=False)
            if isinstance(found, Excluded):
                return found
            values = found
        evaluator = Evaluator(rules.variables, values, allowance)
        if (false := evaluator.first_false(self._policy.conditions)) is not None:
            return Excluded(false)
        current, size_bytes = self._seen.object, self._input.size_bytes
        facts, allows_atomic = self._request.facts, bound.allows_atomic
        merge = merge_into(current, self._input.schemas, facts, allows_atomic=allows_atomic)
        current = mutated(rules.mutations, evaluator, values, current, merge, allowance, size_bytes)
        annotate(evaluator, rules.audit_annotations, '"')
        return current


KyvernoMutatingPolicy.run_type = _Run
