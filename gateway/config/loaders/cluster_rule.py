"""A rule in CEL of a ClusterPolicy or Policy: its fields, compiled.

Source: github.com/kyverno/kyverno api/kyverno/v1/{spec,rule,common}_types.go, api/kyverno/v2beta1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.config.kinds.declare import (
    Boolean,
    Choice,
    Declared,
    Group,
    Groups,
    Read,
    Text,
    declare,
    optional,
    required,
)
from gateway.config.kinds.matching import PlacedEntry
from gateway.config.kinds.policy_binding import ParamRefEntry
from gateway.config.kinds.policy_spec import (
    ALWAYS_TRUE,
    Expressions,
    ParamKindEntry,
    VariableEntry,
)
from gateway.config.loaders.cluster_actions import ACTIONS, MAX_OVERRIDES, Override
from gateway.config.loaders.cluster_filters import MatchEntry
from gateway.config.loaders.cluster_worker_rule import rule_name
from gateway.config.loaders.kyverno_spec import (
    MAX_ENTRIES,
    AuditAnnotationEntry,
    ConditionEntry,
    ValidationEntry,
)
from gateway.pure.admission_policies.model import ValidatingBinding
from gateway.pure.admission_policies.validating import AuditAnnotation, Rules, Validation
from gateway.pure.cel.compile import Condition
from gateway.pure.cel.dialects import CLUSTER_POLICY
from gateway.pure.cel.types import BOOL, NULL, STRING
from gateway.pure.kyverno.cluster_rules import NO_BINDING, CelRule
from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from typing import Any

    from gateway.config.loaders.cluster_filters import BlockEntry
    from gateway.pure.kyverno.failure_action import FailureAction

    Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cel(Declared):
    generate: bool = declare(Boolean(), "Not used: the gateway evaluates the rule itself", default=False)
    expressions: tuple[ValidationEntry, ...] = declare(
        Groups(ValidationEntry, MAX_ENTRIES), "All have to be true", default=()
    )
    param_kind: ParamKindEntry | None = optional(Group(ParamKindEntry), "The kind of its parameters")
    param_ref: ParamRefEntry | None = optional(Group(ParamRefEntry), "The parameters")
    audit_annotations: tuple[AuditAnnotationEntry, ...] = declare(
        Groups(AuditAnnotationEntry, MAX_ENTRIES), "Not written", default=()
    )
    variables: tuple[VariableEntry, ...] = declare(
        Groups(VariableEntry, MAX_ENTRIES), "Variables, in order", default=()
    )

    @property
    def has_params(self) -> bool:
        """Whether it has parameters: only with both fields."""
        return self.param_kind is not None and self.param_ref is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Validate(Declared):
    """The ``validate`` of a rule."""

    message: str = declare(Text(), "Where an expression has no message", default="")
    failure_action: str = declare(Choice(ACTIONS), "Whether a failure refuses the request", default="")
    failure_action_overrides: tuple[Override, ...] = declare(
        Groups(Override, MAX_OVERRIDES), "By namespace", default=()
    )
    allow_existing_violations: bool = declare(Boolean(), "Not used with CEL", default=True)
    cel: _Cel = required(Group(_Cel), "The rule")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(PlacedEntry):
    """One rule in CEL."""

    name: str = required(Text(check=rule_name), "Name")
    match: MatchEntry = required(Group(MatchEntry), "The requests")
    exclude: MatchEntry | None = optional(Group(MatchEntry), "Requests that are left out")
    cel_preconditions: tuple[ConditionEntry, ...] = declare(
        Groups(ConditionEntry, MAX_ENTRIES), "Conditions that all have to hold", default=()
    )
    validate: Validate = required(Group(Validate), "The validation")
    skip_background_requests: bool = declare(Boolean(), "Not used", default=True)
    report_properties: dict[str, str] = declare(
        Read("mapping of strings", lambda source, name: source.string_map(name), "object"),
        "Not used: it is for reports",
        default={},
    )

    @property
    def blocks(self) -> tuple[BlockEntry, ...]:
        """All blocks of ``match`` and ``exclude``."""
        return (*self.match.blocks, *(() if self.exclude is None else self.exclude.blocks))

    def compiled(self, policy: str, action: FailureAction) -> CelRule:
        """Return the rule of the *policy* with its *action*, after reporting problems of expressions."""
        cel = self.validate.cel
        expressions = Expressions(has_params=cel.has_params, dialect=CLUSTER_POLICY, has_programs=False)
        for variable in cel.variables:
            expressions.add(variable)
        conditions = []
        for one in self.cel_preconditions:
            condition = expressions.compiled(
                one.source, "expression", one.expression, (BOOL,), is_trimmed=True
            )
            conditions.append(Condition(one.name, condition or ALWAYS_TRUE))
        validations = []
        for each in cel.expressions:
            source = each.source
            expression = expressions.compiled(source, "expression", each.expression, (BOOL,))
            message = expressions.compiled(
                source, "messageExpression", each.message_expression, (STRING,), has_authorizer=False
            )
            text = each.message or self.validate.message
            validations.append(Validation(expression or ALWAYS_TRUE, text, message, ""))
        annotations = []
        for note in cel.audit_annotations:
            value = expressions.compiled(
                note.source, "valueExpression", note.value_expression, (STRING, NULL), is_trimmed=True
            )
            annotations.append(AuditAnnotation(note.key, value or ALWAYS_TRUE))
        rules = Rules("Fail", expressions.variables, tuple(validations), tuple(annotations))
        return CelRule(
            self.name,
            self.match.filters,
            None if self.exclude is None else self.exclude.filters,
            rules,
            tuple(conditions),
            *_params(policy, cel),
            action,
        )


def _params(policy: str, cel: _Cel) -> tuple[ValidatingBinding, str]:
    """Return the binding with the parameters, and what Kyverno says if the named one does not exist."""
    if cel.param_kind is None or cel.param_ref is None:
        return NO_BINDING, ""
    ref, kind = cel.param_ref.param_ref, cel.param_kind.param_kind
    binding = ValidatingBinding("", policy, None, ref, b"{}", ("Deny",))
    if not ref.name:
        return binding, ""
    group = kind.api_version.rpartition("/")[0]
    built_in = RESOURCES.get(group, {}).values()
    plural = next((one.name for one in built_in if one.kind == kind.kind), f"{kind.kind.lower()}s")
    return binding, f'{plural}{f".{group}" if group else ""} "{ref.name}" not found'
