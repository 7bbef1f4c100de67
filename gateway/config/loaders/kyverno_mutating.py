"""MutatingPolicy of ``policies.kyverno.io``: its fields, and the policy that they make.

Source: github.com/kyverno/api policies.kyverno.io v1alpha1 mutating_policy.go; github.com/kyverno/kyverno
pkg/cel/policies/mpol/{validate,compiler/compiler,engine/predicate}.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.config.kinds.declare import Boolean, Choice, Declared, Group, Groups, Read, declare, optional
from gateway.config.kinds.matching import CONDITIONS, ConditionEntry
from gateway.config.kinds.mutating_policy import MutationEntry
from gateway.config.kinds.policy_spec import Expressions
from gateway.config.kinds.webhook_entry import REINVOCATION_POLICIES
from gateway.config.loaders.kyverno_spec import (
    MAX_ENTRIES,
    EvaluationEntry,
    KyvernoSpec,
    compiled_conditions,
    unless_for_admission,
)
from gateway.pure.admission_policies.model import MutatingPolicy
from gateway.pure.admission_policies.mutations import Mutations
from gateway.pure.cel.dialects import of_kyverno
from gateway.pure.kyverno.mutating import KyvernoMutatingPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.loaders.kyverno_spec import Entry, PolicyHead
    from gateway.config.yaml.fields import Fields
    from gateway.pure.core.webhook import ReinvocationPolicy, Webhook
    from gateway.pure.kyverno.in_force import OtherDocuments


@dataclass(frozen=True, slots=True, kw_only=True)
class _Existing(Declared):
    enabled: bool = declare(Boolean(), "Whether it is on", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluation(EvaluationEntry):
    mutate_existing: _Existing | None = optional(
        Group(_Existing), "Not used: the gateway does not change stored objects"
    )
    skip_background_requests: bool = declare(
        Boolean(), "Not used: Kyverno's background controller sends its requests as others do", default=True
    )
    use_server_side_apply: bool = declare(
        Boolean(), "ApplyConfigurations replace atomic lists and maps, instead of failing", default=False
    )


def _any_mapping(source: Fields, name: str) -> dict[str, Any]:
    """Return the mapping *name* as it is: it is only for stored objects."""
    found = source.mapping(name)
    return {} if found is None else dict(found.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class MutatingSpec(KyvernoSpec):
    """The spec of a MutatingPolicy."""

    mutations: tuple[MutationEntry, ...] = declare(Groups(MutationEntry, MAX_ENTRIES), "In order", default=())
    evaluation: _Evaluation | None = optional(Group(_Evaluation), "Where it is evaluated")
    reinvocation_policy: ReinvocationPolicy = declare(
        Choice(REINVOCATION_POLICIES),
        "Not used: it is for policies that Kyverno generates",
        default="Never",
    )
    target_match_constraints: dict[str, Any] = declare(
        Read("mapping", _any_mapping, "object"), "Stored objects that it changes, without effect", default={}
    )
    target_match_conditions: tuple[ConditionEntry, ...] = declare(
        CONDITIONS, "Of stored objects, without effect", default=()
    )

    @property
    def without_effect(self) -> tuple[str, str] | None:
        """See ``KyvernoSpec``."""
        target = self.target_match_constraints
        if target.get("resourceRules") or target.get("expression"):
            what = "it is for stored objects, which the gateway does not change: the policy has no effect"
            return "targetMatchConstraints", what
        return unless_for_admission(self.evaluation)

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield fields with what Kyverno does beside the review."""
        found = self.evaluation
        if found is not None and found.mutate_existing is not None and found.mutate_existing.enabled:
            what = "Kyverno changes stored objects, too; the gateway changes the object of the request only"
            yield "evaluation.mutateExisting", what
        if self.reinvocation_policy == "IfNeeded":
            yield (
                "reinvocationPolicy",
                "has no effect: the policy is evaluated once, as by Kyverno",
            )

    def entry(self, head: PolicyHead, document: bytes) -> Entry:
        """See ``KyvernoSpec``."""
        expressions = Expressions(
            has_params=False, dialect=of_kyverno(head.namespace), has_structs=True, has_programs=False
        )
        for variable in self.variables:
            expressions.add(variable)
        conditions = compiled_conditions(self.match_conditions, expressions)
        mutations = tuple(each.mutation(expressions) for each in self.mutations)
        annotations = self.annotations(expressions)
        rules = Mutations(self.failure_policy, expressions.variables, mutations, "Never", annotations)
        match = self.match_constraints.resources
        policy = MutatingPolicy(head.id, match, None, conditions, document, rules)
        allows_atomic = self.evaluation is not None and self.evaluation.use_server_side_apply

        def webhook(others: OtherDocuments) -> Webhook:
            return KyvernoMutatingPolicy(
                head.kind,
                policy,
                others,
                head.namespace,
                allows_atomic=allows_atomic,
            ).webhook(head.rollout)

        return webhook
