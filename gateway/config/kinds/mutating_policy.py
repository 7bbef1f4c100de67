"""MutatingAdmissionPolicy and MutatingAdmissionPolicyBinding, with the API server's defaults and checks.

The checks are those of the API server for a new object. The mode of a binding is the gateway's own.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go, v1/defaults.go; k8s.io/api
admissionregistration types.go; docs/policies.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, get_args

from gateway.config.kinds.declare import Choice, Group, Groups, optional, required
from gateway.config.kinds.matching import CelText, PlacedEntry
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import configuration_name
from gateway.config.kinds.policy_binding import BindingSpec, binding_source
from gateway.config.kinds.policy_matching import MutatingConstraints, MutatingMatch
from gateway.config.kinds.policy_rollout import read_policy_rollout
from gateway.config.kinds.policy_spec import (
    ALWAYS_TRUE,
    MAX_EXPRESSION_CHARS,
    MAX_EXPRESSIONS,
    PolicySpec,
    placement_of,
    spec_json,
)
from gateway.config.kinds.policy_templates import with_annotations
from gateway.config.kinds.validation import Rule
from gateway.config.kinds.webhook_entry import REINVOCATION_POLICIES
from gateway.pure.admission_policies.model import MutatingBinding, MutatingPolicy
from gateway.pure.admission_policies.mutations import Mutation, Mutations, PatchType
from gateway.pure.cel.structs import JSON_PATCH, OBJECT
from gateway.pure.cel.types import Type, list_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.config.kinds.policy_spec import Expressions
    from gateway.config.yaml.fields import Fields
    from gateway.pure.core.webhook import ReinvocationPolicy

_PATCH_TYPES: tuple[PatchType, ...] = get_args(PatchType)
_MEMBERS: Final = {"JSONPatch": "jsonPatch", "ApplyConfiguration": "applyConfiguration"}
_RESULTS: Final = {"JSONPatch": list_of(Type(JSON_PATCH)), "ApplyConfiguration": Type(OBJECT)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _JsonPatch(PlacedEntry):
    expression: str = required(CelText("of type list of JSONPatch", MAX_EXPRESSION_CHARS), "The operations")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ApplyConfiguration(PlacedEntry):
    expression: str = required(CelText("of type Object", MAX_EXPRESSION_CHARS), "What is merged")


def _rules_of_types() -> Iterator[Rule]:
    """Yield the rules that exactly the member of the patchType is there."""
    for name, member in _MEMBERS.items():
        (other,) = _MEMBERS.keys() - {name}
        yield Rule(
            f"self.patchType != '{name}' || has(self.{member})",
            f"is required with patchType {name}",
            about=("patchType",),
            at=member,
            holds_surely=partial(_has_another_type, name, member),
        )
        yield Rule(
            f"self.patchType != '{other}' || !has(self.{member})",
            f"is not allowed with patchType {other}",
            about=("patchType", member),
            at=member,
            holds_with=(0, 1),
            holds_surely=partial(_has_another_type, other, ""),
        )


def _has_another_type(name: str, member: str, content: Mapping[str, object]) -> bool:
    """Whether *content*, a mutation, has another type than *name*, or the field *member*."""
    return content.get("patchType") != name or content.get(member) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationEntry(PlacedEntry):
    """One of ``mutations``."""

    RULES = tuple(_rules_of_types())
    patch_type: PatchType = required(Choice(_PATCH_TYPES), "Its form")
    json_patch: _JsonPatch | None = optional(Group(_JsonPatch), "A JSON Patch")
    apply_configuration: _ApplyConfiguration | None = optional(
        Group(_ApplyConfiguration), "An ApplyConfiguration, which is merged"
    )

    def mutation(self, expressions: Expressions) -> Mutation:
        """Return it with what it compiles to."""
        member = self.json_patch if self.patch_type == "JSONPatch" else self.apply_configuration
        expression = None
        # An unknown type has been reported.
        if member is not None and self.source.content.get("patchType") == self.patch_type:
            result = _RESULTS[self.patch_type]
            expression = expressions.compiled(
                member.source, "expression", member.expression, (result,), has_structs=True
            )
        # After a problem the result is dropped.
        return Mutation(self.patch_type, expression or ALWAYS_TRUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MutatingPolicySpec(PolicySpec):
    """The spec of a MutatingAdmissionPolicy."""

    match_constraints: MutatingConstraints = required(
        Group(MutatingConstraints), "The requests that it matches"
    )
    mutations: tuple[MutationEntry, ...] = required(
        Groups(MutationEntry, minItems=1, maxItems=MAX_EXPRESSIONS), "In order"
    )
    reinvocation_policy: ReinvocationPolicy = required(
        Choice(REINVOCATION_POLICIES), "Whether it is invoked again after a change of the object"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MutatingBindingSpec(BindingSpec):
    """The spec of a MutatingAdmissionPolicyBinding."""

    match_resources: MutatingMatch | None = optional(
        Group(MutatingMatch), "Requests, in addition to the policy's"
    )


def read_mutating_policy(fields: Fields) -> MutatingPolicy:
    """Return the policy behind *fields*; apiVersion and kind are read already."""
    metadata = read_metadata(fields, configuration_name)
    placement = placement_of(fields, metadata)
    source = fields.required_group("spec")
    fields.finish()
    spec = MutatingPolicySpec.read(source)
    head = spec.head()
    mutations = tuple(each.mutation(head.expressions) for each in spec.mutations)
    rules = Mutations(spec.failure_policy, head.expressions.variables, mutations, spec.reinvocation_policy)
    rules.build()
    document = spec_json(source.content)
    policy = MutatingPolicy(
        metadata.name, head.match, head.param_kind, head.conditions, document, rules, placement=placement
    )
    return with_annotations(policy, fields, metadata)


def read_mutating_binding(fields: Fields) -> MutatingBinding:
    """Return the binding behind *fields*; apiVersion and kind are read already."""
    metadata = read_metadata(fields, configuration_name)
    rollout = read_policy_rollout(fields, metadata)
    source = binding_source(fields)
    document = spec_json(source.content)
    fields.finish()
    spec = MutatingBindingSpec.read(source)
    parts = (metadata.name, spec.policy_name, spec.match, spec.parameters, document)
    if rollout is not None and rollout.needs_denial:
        return MutatingBinding(*parts, "Enforce", rollout=rollout)
    return MutatingBinding(*parts, "Enforce" if rollout is None else rollout.rollout.mode)
