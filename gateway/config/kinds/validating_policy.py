"""ValidatingAdmissionPolicy and ValidatingAdmissionPolicyBinding, with the API server's defaults and checks.

The checks are those of the API server for a new object.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go, v1/defaults.go; k8s.io/api
admissionregistration types.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from gateway.base.text import shown
from gateway.config.kinds.declare import Choice, Groups, Text, Type, declare, required
from gateway.config.kinds.matching import CelText, PlacedEntry, report_twice
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import LABEL_LENGTH, NAME_PART, configuration_name, qualified_name
from gateway.config.kinds.policy_binding import BindingSpec, binding_source
from gateway.config.kinds.policy_rollout import read_rollout_beside_actions, require_deny
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
from gateway.pure.admission_policies.model import ValidatingBinding, ValidatingPolicy, ValidationAction
from gateway.pure.admission_policies.policy import FAILURES_KEY
from gateway.pure.admission_policies.validating import AuditAnnotation, Rules, Validation
from gateway.pure.cel.types import BOOL, NULL, STRING

if TYPE_CHECKING:
    from gateway.config.kinds.declare import Schema
    from gateway.config.kinds.policy_spec import Expressions
    from gateway.config.yaml.fields import Fields

_ACTIONS: tuple[ValidationAction, ...] = get_args(ValidationAction)
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_MAX_AUDIT_ANNOTATIONS: Final = 20
_MAX_VALUE_EXPRESSION_BYTES: Final = 5 * 1024
_MAX_MESSAGE_CHARS: Final = 5 * 1024


def _one_line(text: str) -> str | None:
    if text and not text.strip():
        return "is blank, expected a message"
    return "has line breaks, expected one line" if re.search(r"[\n\r]", text.strip()) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Validation(PlacedEntry):
    expression: str = required(CelText("of type bool", MAX_EXPRESSION_CHARS), "Has to be true")
    message: str = declare(
        Text(check=_one_line, maxLength=_MAX_MESSAGE_CHARS, pattern=r"^[^\n\r]*[^\s][^\n\r]*$"),
        "The message if it is false",
        default="",
    )
    message_expression: str = declare(
        Text("CEL expression of type string", maxLength=MAX_EXPRESSION_CHARS),
        "Instead of `message`",
        default="",
    )
    reason: str = declare(Choice(_REASONS), "The reason of the refusal", default="")

    def validation(self, expressions: Expressions) -> Validation:
        """Return it with what it compiles to."""
        # After a problem the result is dropped.
        return Validation(
            expressions.compiled(self.source, "expression", self.expression, (BOOL,)) or ALWAYS_TRUE,
            self.message,
            expressions.compiled(
                self.source, "messageExpression", self.message_expression, (STRING,), has_authorizer=False
            ),
            self.reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _AuditAnnotation(PlacedEntry):
    key: str = required(
        Text(maxLength=LABEL_LENGTH, pattern=f"^{NAME_PART}$"), "The key behind the name of the policy"
    )
    value_expression: str = required(
        CelText("of type string or null", _MAX_VALUE_EXPRESSION_BYTES), "Null: no annotation"
    )

    def annotation(self, policy: str, expressions: Expressions) -> AuditAnnotation:
        """Return it, of the policy with this name, with what it compiles to."""
        source = self.source
        if self.key and (message := qualified_name(f"{policy}/{self.key}")):
            source.problem("key", message)
        if self.key == FAILURES_KEY:
            lost = "where a validation with the action Audit fails, its failures replace this annotation"
            source.problems.warn(source.at("key"), f"is the key of failures: {lost}")
        size = len(self.value_expression.strip().encode())
        if size > _MAX_VALUE_EXPRESSION_BYTES:
            expected = f"expected at most {_MAX_VALUE_EXPRESSION_BYTES}"
            source.problem("valueExpression", f"found {size} bytes, {expected}")
        expression = expressions.compiled(
            source, "valueExpression", self.value_expression, (STRING, NULL), is_trimmed=True
        )
        return AuditAnnotation(self.key, expression or ALWAYS_TRUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatingPolicySpec(PolicySpec):
    """The spec of a ValidatingAdmissionPolicy."""

    RULES = (
        Rule(
            "(has(self.validations) && self.validations.size() > 0) || "
            "(has(self.auditAnnotations) && self.auditAnnotations.size() > 0)",
            "found neither validations nor auditAnnotations, expected at least one",
            about=("validations", "auditAnnotations"),
            at="validations",
            holds_with=(),
            holds_surely=lambda content: bool(content.get("validations") or content.get("auditAnnotations")),
        ),
    )
    validations: tuple[_Validation, ...] = declare(
        Groups(_Validation, maxItems=MAX_EXPRESSIONS), "All have to be true", default=()
    )
    audit_annotations: tuple[_AuditAnnotation, ...] = declare(
        Groups(_AuditAnnotation, _MAX_AUDIT_ANNOTATIONS, key="key"), "Audit annotations", default=()
    )


def read_validating_policy(
    fields: Fields, spec_type: type[ValidatingPolicySpec] = ValidatingPolicySpec
) -> ValidatingPolicy:
    """Return the policy behind *fields*; apiVersion and kind are read already."""
    metadata = read_metadata(fields, configuration_name)
    placement = placement_of(fields, metadata)
    fields.accept("status")
    source = fields.required_group("spec")
    fields.finish()
    spec = spec_type.read(source)
    head = spec.head()
    report_twice(((each.source, each.key) for each in spec.audit_annotations), "key")
    rules = Rules(
        spec.failure_policy,
        head.expressions.variables,
        tuple(each.validation(head.expressions) for each in spec.validations),
        tuple(each.annotation(metadata.name, head.expressions) for each in spec.audit_annotations),
    )
    rules.build()
    document = spec_json(source.content)
    policy = ValidatingPolicy(
        metadata.name, head.match, head.param_kind, head.conditions, document, rules, placement=placement
    )
    return with_annotations(policy, fields, metadata)


class _ActionList(Type[tuple[ValidationAction, ...]]):
    words = "list of `Deny` or `Warn`, and `Audit`"

    def read(self, source: Fields, name: str, default: object) -> tuple[ValidationAction, ...]:
        found: list[ValidationAction] = []
        for path, text in source.indexed_strings(name):
            action = next((one for one in _ACTIONS if one == text), None)
            if action is None:
                source.problems.add(path, f"found {shown(text)}, expected Deny, Warn or Audit")
            elif action in found:
                source.problems.add(path, f"found {action} twice")
            else:
                found.append(action)
        if not source.content.get(name):
            source.problem(name, "is required with at least one entry")
        if "Deny" in found and "Warn" in found:
            source.problem(name, "found Deny and Warn, expected one of them")
        return tuple(found)

    def schema(self) -> Schema:
        rule = {
            "rule": "!('Deny' in self && 'Warn' in self)",
            "message": "found Deny and Warn, expected one of them",
        }
        bounds = {"minItems": 1, "maxItems": len(_ACTIONS), "x-kubernetes-list-type": "set"}
        items = {"type": "string", "enum": list(_ACTIONS)}
        return {"type": "array", **bounds, "items": items, "x-kubernetes-validations": [rule]}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatingBindingSpec(BindingSpec):
    """The spec of a ValidatingAdmissionPolicyBinding."""

    validation_actions: tuple[ValidationAction, ...] = required(
        _ActionList(), "The effect of a validation that is false"
    )


def read_validating_binding(fields: Fields) -> ValidatingBinding:
    """Return the binding behind *fields*; apiVersion and kind are read already."""
    metadata = read_metadata(fields, configuration_name)
    rollout = read_rollout_beside_actions(fields, metadata)
    source = binding_source(fields)
    document = spec_json(source.content)
    fields.finish()
    spec = ValidatingBindingSpec.read(source)
    actions = spec.validation_actions
    require_deny(rollout, source, actions)
    parts = (metadata.name, spec.policy_name, spec.match, spec.parameters, document, actions)
    return ValidatingBinding(*parts, rollout=rollout)
