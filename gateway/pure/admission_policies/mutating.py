"""A MutatingAdmissionPolicy with its bindings, applied to a request.

Source: k8s.io/apiserver pkg/admission/plugin/policy/mutating/dispatcher.go, generic/policy_dispatcher.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

import orjson

from admission_gateway_worker.json_patch.diff import diff
from gateway.pure.admission_policies.evaluation import TooLongError
from gateway.pure.admission_policies.in_force import PolicyInForce, PolicyRun
from gateway.pure.admission_policies.model import MutatingBinding, MutatingPolicy
from gateway.pure.admission_policies.mutations import BYTES_OF_JSON, merger, mutate
from gateway.pure.admission_policies.params import NO_PARAMS
from gateway.pure.admission_policies.shared_values import namespace_values
from gateway.pure.cel.values import quoted
from gateway.pure.core.conditions import NOT_MATCHED, PolicyResult
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.verdict import ALLOWED, Allowed, Cause, Denied, Failed, FailureReason
from gateway.pure.core.webhook import Mode, PolicyRollout, Rollout
from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.go_types import in_conditions_of_mutations

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gateway.pure.admission_policies.evaluation import Allowance
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.admission_policies.validating import Values
    from gateway.pure.core.conditions import Decisions, PolicyAnswer
    from gateway.pure.core.policy import PolicyInput
    from gateway.pure.core.webhook import Webhook

    Json = dict[str, Any]
    Key = tuple[str, str, str]
    """Names of a binding and of its parameter, with the parameter's namespace."""

MAX_BRIEF_BYTES: Final = 256 * 1024
"""Size of a request up to which mutations run on the event loop: they copy, compare and write the object."""
_MODES: tuple[Mode, ...] = get_args(Mode)


def as_webhooks(
    policy: MutatingPolicy,
    bindings: Sequence[MutatingBinding],
    params: FixedParams = NO_PARAMS,
    refusal: str = "",
) -> Iterator[Webhook]:
    """Yield *policy* with its *bindings* as entries of the mutating phase: one for each mode of a binding.

    Behind them is one for each binding that has a rollout, by name.
    For *params* and *refusal* see :class:`PolicyInForce`.
    """
    # Read now, so that no review waits for it.
    built_in_schemas()
    for bound, rollout in by_rollout(bindings):
        yield rollout.applied_to(
            MutatingPolicyInForce(policy, bound, params, refusal).as_entry(
                "mutate",
                reinvocation_policy=policy.rules.reinvocation_policy,
                merged_versions=merged_versions(policy),
            )
        )


def by_rollout(bindings: Iterable[MutatingBinding]) -> Iterator[tuple[list[MutatingBinding], PolicyRollout]]:
    """Yield *bindings* that are in force together: those of each mode, then each that has a rollout."""
    left = list(bindings)
    for mode in _MODES:
        if of_mode := [each for each in left if each.mode == mode and each.rollout is None]:
            yield of_mode, PolicyRollout(Rollout(mode))
    for each in sorted(left, key=lambda one: one.name):
        if each.rollout is not None:
            yield [each], each.rollout


def merged_versions(policy: MutatingPolicy) -> frozenset[tuple[str, str]]:
    """Return group and version of the kinds whose schemas *policy* needs, with ``*`` for any."""
    if all(each.patch_type != "ApplyConfiguration" for each in policy.rules.mutations):
        return frozenset()
    rules = [rule for named in policy.match.named_rules for rule in named.rules]
    return frozenset(
        (group, version) for rule in rules for group in rule.api_groups for version in rule.api_versions
    )


class MutatingPolicyInForce(PolicyInForce[MutatingPolicy, MutatingBinding]):
    """A MutatingAdmissionPolicy with its bindings of one mode."""

    kind = "MutatingAdmissionPolicy"

    def evaluate(self, policy_input: PolicyInput, decisions: Decisions) -> PolicyAnswer:
        """Return the decision, or the tasks that it needs first; see ``AdmissionPolicy``."""
        is_due = policy_input.invoked is None or len(policy_input.invoked) > 0
        if not is_due and self._always_matches and isinstance(policy_input.namespace, Namespace):
            return NOT_MATCHED
        return super().evaluate(policy_input, decisions)

    @property
    def _always_matches(self) -> bool:
        """Whether it is known without an error if a binding matches a request in a namespace that is known.

        Such an error counts also in a round in which nothing is invoked.
        """
        return not (self._may_fail or self._uses_params or self.policy.conditions)


class _MutatingRun(PolicyRun[MutatingPolicy, MutatingBinding]):
    _types_of_conditions = staticmethod(in_conditions_of_mutations)

    def __init__(
        self,
        bound: MutatingPolicyInForce,
        policy_input: PolicyInput,
        decisions: Decisions,
        allowance: Allowance,
    ) -> None:
        super().__init__(bound, policy_input, decisions, allowance)
        self._merge = merger(policy_input.schemas, self._request.facts)
        self._again: Collection[object] | None = policy_input.invoked
        self._invoked: list[Key] = []
        self._errors: list[tuple[str, str]] = []
        """Message and reason."""
        self._current: Json | None = self._seen.object
        self._most_bytes: float = BYTES_OF_JSON * policy_input.size_bytes

    def _result(self) -> PolicyAnswer:
        # DELETE has no object to change.
        if self._bound.excludes(self._request) or self._request.operation == "DELETE":
            return NOT_MATCHED
        if refusal := self._bound.refusal_for(self._input):
            self._misconfigured(None, refusal)
            return self._decided()
        invocations = [(binding, param) for binding, found in self._matching() for param in found]
        if invocations:
            if self._allowance.is_brief and len(self._request.json) > MAX_BRIEF_BYTES:
                raise TooLongError
            namespace = self._bound.namespace_of(self._input)
            if isinstance(namespace, Failed):
                return PolicyResult(namespace)
            for binding, param in invocations:
                self._invoke(binding, param, namespace)
        if (unresolved := self._unresolved()) is not None:
            return unresolved
        if not self._invoked and not self._errors:
            return NOT_MATCHED
        return self._decided()

    def _misconfigured(self, binding: MutatingBinding | None, cause: str) -> None:
        wrong = "policy" if binding is None else "binding"
        self._fail(binding, f"failed to configure {wrong}: {cause}", "Forbidden")

    def _fail(self, binding: MutatingBinding | None, cause: str, reason: str = "Invalid") -> None:
        name = self._policy.name
        about = (
            f"policy {quoted(name)}" if binding is None else f"policy '{name}' with binding '{binding.name}'"
        )
        self._errors.append((f"{about} denied {self._denied}: {cause}", reason))

    def _invoke(self, binding: MutatingBinding, param: Json | None, namespace: Namespace | None) -> None:
        """Apply the mutations for one parameter, unless matchConditions or the round exclude them."""
        rules = self._policy.rules
        if self._policy.conditions and (unmatched := self._unmatched(param)) is not None:
            if unmatched:
                self._fail(binding, unmatched)
            return
        key = _key(binding, param)
        if self._again is not None and key not in self._again:
            return
        self._invoked.append(key)
        if self._current is None:
            return
        old, prepared = self._seen.old_object, self._prepared
        authorizer, check, request = prepared.authorizer, prepared.check, prepared.request
        objects = self._objects
        whole = None if namespace is None else namespace_values(namespace.json)[1]

        # A matchCondition leaves the object in the form in which it read it.
        types = self._go_types
        if types is not None and not self._policy.conditions:
            types = prepared.in_mutations

        def values(current: Json) -> Values:
            return (current, old, request, whole, authorizer, check, param, objects, types)

        self._current, errors, self._most_bytes = mutate(
            rules,
            self._current,
            values,
            self._merge,
            self._allowance,
            self._request.facts,
            self._most_bytes,
        )
        for error in errors:
            self._fail(binding, error)

    def _decided(self) -> PolicyResult:
        before, after = self._seen.object, self._current
        if self._input.workload is not None:
            # The Pod is not part of the review: only errors count.
            after = before
        try:
            operations = diff(before, after) if after is not before else []
            patch = orjson.dumps(operations) if operations else b""
        except (TypeError, RecursionError) as error:
            self._fail(None, f"the changed object cannot be written as JSON: {error}")
            patch = b""
        allowed = Allowed(patch) if patch else ALLOWED
        verdict: Allowed | Denied | Failed = allowed
        if self._errors:
            message, reason = self._errors[0]
            if self._policy.rules.failure_policy == "Ignore":
                cause = "; ".join(text for text, _ in self._errors)
                verdict = Failed(FailureReason.POLICY, cause, 500)
            else:
                causes = tuple(Cause(message=text) for text, _ in self._errors)
                verdict = Denied(403, reason, message, causes, details=self._details())
        is_repeatable = self._again is None and self._policy.rules.reinvocation_policy == "IfNeeded"
        return PolicyResult(
            verdict,
            verdict if isinstance(verdict, Denied) else allowed,
            self._elapsed_s(),
            after if patch else None,
            patch,
            frozenset(self._invoked) if is_repeatable else (),
        )


MutatingPolicyInForce.run_type = _MutatingRun


def _key(binding: MutatingBinding, param: Json | None) -> Key:
    metadata = {} if param is None else param.get("metadata") or {}
    return binding.name, metadata.get("namespace") or "", metadata.get("name") or ""
