"""The rules of a ClusterPolicy or Policy that a worker evaluates, as entries of a phase.

Each rule is an entry of its own, which the worker knows as ``POLICY/RULE`` or ``NAMESPACE/POLICY/RULE``.
Rules that belong together are one entry: ``POLICY``, with ``POLICY/mutation`` if it has rules of both phases,
``NAMESPACE/POLICY/validation`` or ``NAMESPACE/POLICY/mutation``. An entry is for all requests that its rules
may be for, and the worker compares them again.

Source: github.com/kyverno/kyverno pkg/controllers/webhook/controller.go (mergeWebhook,
buildResourceMutatingWebhookRules, buildForPoliciesValidation), pkg/autogen/v1/autogen.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.config.kinds.matching import compiled_conditions
from gateway.config.kinds.namespace import NAME_LABEL
from gateway.config.loaders.cluster_filters import MatchEntry
from gateway.config.loaders.cluster_worker_rule import WorkerRule
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.core.labels import EVERYTHING, Requirement, Selector
from gateway.pure.core.webhook import PolicyRollout, Rollout, Webhook, WorkerRef
from gateway.pure.kyverno.cluster_autogen import controllers_of, for_cron_jobs, for_workloads, is_fit
from gateway.pure.kyverno.kind_rules import rules_for_kinds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gateway.config.kinds.engine_settings import EngineEntry
    from gateway.config.loaders.cluster_rule import Rule
    from gateway.config.loaders.cluster_spec import Spec
    from gateway.pure.core.webhook import Phase
    from gateway.pure.kyverno.resource_match import KindParts

    Kinds = Iterator[tuple[KindParts, frozenset[str]]]

_VALIDATION: Final = "validation"
_MUTATION: Final = "mutation"
"""Behind the name of a policy whose rules belong together.

A rule of a ClusterPolicy can be ``NAMESPACE/POLICY``.
"""
RESERVED: Final = (_VALIDATION, _MUTATION)
"""The worker's own policies of all rules."""
_TIMEOUT_S: Final = 10
"""Of the webhooks that Kyverno registers."""
DENY: Final = b'{"action":"deny"}'
_WARN: Final = b'{"action":"warn"}'
_ENFORCED: Final = PolicyRollout(Rollout())
_MUTATING_OPERATIONS: Final = frozenset(("CREATE", "UPDATE"))
"""For which Kyverno registers the kinds of mutating rules that name no operations."""


class _Group(NamedTuple):
    """Rules that are one entry."""

    name: str
    phase: Phase
    rules: Sequence[Rule | WorkerRule]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPolicy:
    """A policy that has rules for a worker."""

    kind: str
    id: str
    namespace: str
    """Of a Policy; empty for a ClusterPolicy."""
    spec: Spec
    autogen: str | None
    """The annotation about autogen. None without it."""
    rollout: PolicyRollout | None
    """That of the annotations. None without them."""

    def entries(self, engine: EngineEntry) -> Iterator[Webhook]:
        """Yield the entries that call the worker of *engine*, in the order of the rules."""
        conditions = compiled_conditions(self.spec.webhook_configuration.match_conditions)
        for group in self._groups():
            rollout, parameters = self._action(group)
            entry = Webhook(
                phase=group.phase,
                configuration=self.id,
                name=group.name,
                client=WorkerRef(
                    engine.pool,
                    group.name,
                    parameters,
                    kind=self.kind,
                    has_own_words=True,
                ),
                rules=rules_for_kinds(self._kinds(group)),
                namespace_selector=selector_of(self.namespace),
                object_selector=EVERYTHING,
                failure_policy=engine.failure_policy or self.spec.effect_of_errors,
                timeout_s=engine.timeout_seconds or self.spec.timeout_s or _TIMEOUT_S,
                reinvocation_policy="IfNeeded" if group.phase == "mutate" else "Never",
                match_conditions=conditions,
                namespace=self.namespace,
                document=f"{self.kind}/{self.id}",
            )
            yield rollout.applied_to(entry)

    def _groups(self) -> Iterator[_Group]:
        spec = self.spec
        if not spec.is_together:
            for rule in spec.worker_rules:
                yield _Group(f"{self.id}/{rule.name}", rule.phase, [rule])
            return
        validating = [each for each in spec.rules if _phase_of(each) == "validate"]
        mutating = [each for each in spec.rules if _phase_of(each) == "mutate"]
        if mutating:
            has_part = self.namespace or validating
            yield _Group(f"{self.id}/{_MUTATION}" if has_part else self.id, "mutate", mutating)
        if validating:
            name = f"{self.id}/{_VALIDATION}" if self.namespace else self.id
            yield _Group(name, "validate", validating)

    def _action(self, group: _Group) -> tuple[PolicyRollout, bytes]:
        """Return how far the entry is in force, and the parameters for the worker."""
        actions = [action for each in group.rules if (action := self.spec.action_of(each)) is not None]
        if self.rollout is not None:
            return self.rollout, DENY if actions else b""
        if not actions or any(each.has_overrides for each in actions):
            return _ENFORCED, b""
        enforce = {each.is_chosen("", {}) for each in actions}
        if enforce == {True}:
            return _ENFORCED, DENY
        if enforce == {False}:
            return (_ENFORCED, _WARN) if self.spec.emit_warning else (PolicyRollout(Rollout("Audit")), DENY)
        return _ENFORCED, b""

    def _kinds(self, group: _Group) -> Kinds:
        """Yield the kinds that the rules of *group* are for, with operations: also those of workloads.

        They may be more than Kyverno finds, never fewer.
        """
        is_mutating = group.phase == "mutate"
        # Kyverno asks this of all rules together if they change objects.
        has_patches = any(each.has_json_patches for each in self.spec.worker_rules)
        controllers = () if is_mutating and has_patches else controllers_of(self.autogen)
        for rule in group.rules:
            for match in (rule.match, *_of_workloads(rule, controllers)):
                for block in match.blocks:
                    for parts, operations in block.kinds:
                        is_all = is_mutating and not block.resources.operations
                        yield parts, _MUTATING_OPERATIONS if is_all else operations


def _phase_of(rule: Rule | WorkerRule) -> Phase:
    return rule.phase if isinstance(rule, WorkerRule) else "validate"


def _of_workloads(rule: Rule | WorkerRule, controllers: Collection[str]) -> Iterator[MatchEntry]:
    """Yield what autogen makes of ``match`` of *rule*, which has no problems."""
    content = dict(rule.source.content)
    if not is_fit(content):
        return
    for variant in (for_workloads(content, controllers), for_cron_jobs(content, controllers)):
        if variant is not None:
            yield MatchEntry.read(Fields(variant["match"], "", Problems("")))


def selector_of(namespace: str) -> Selector:
    """Return the selector of the *namespace*, or of everything if it is empty."""
    if not namespace:
        return EVERYTHING
    return Selector((Requirement(NAME_LABEL, "In", frozenset({namespace})),))
