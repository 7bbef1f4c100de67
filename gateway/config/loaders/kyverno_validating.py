"""ValidatingPolicy and NamespacedValidatingPolicy of Kyverno: their fields, and the policy that they make.

Source: github.com/kyverno/kyverno pkg/cel/policies/vpol/validate.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.base.text import one_of, shown
from gateway.config.kinds.declare import Groups, Type, declare
from gateway.config.kinds.policy_spec import ALWAYS_TRUE, Expressions
from gateway.config.loaders.kyverno_spec import (
    MAX_ENTRIES,
    KyvernoSpec,
    ValidationEntry,
    compiled_conditions,
)
from gateway.pure.admission_policies.model import ValidatingPolicy, ValidationAction
from gateway.pure.admission_policies.validating import Rules, Validation
from gateway.pure.cel.dialects import of_kyverno
from gateway.pure.cel.types import BOOL, STRING
from gateway.pure.kyverno.extraction import PodTemplatesPolicy
from gateway.pure.kyverno.validating import KyvernoValidatingPolicy

if TYPE_CHECKING:
    from gateway.config.kinds.declare import Schema
    from gateway.config.loaders.kyverno_spec import Entry, PolicyHead
    from gateway.config.yaml.fields import Fields
    from gateway.pure.core.webhook import Webhook
    from gateway.pure.kyverno.in_force import OtherDocuments

_ACTIONS: tuple[ValidationAction, ...] = ("Deny", "Warn", "Audit")


class _Actions(Type[tuple[ValidationAction, ...]]):
    words = "list of `Deny`, `Warn`, `Audit`"

    def read(self, source: Fields, name: str, default: object) -> tuple[ValidationAction, ...]:
        found: list[ValidationAction] = []
        for path, text in source.indexed_strings(name):
            action = next((one for one in _ACTIONS if one == text), None)
            if action is None:
                source.problems.add(path, f"found {shown(text)}, expected {one_of(_ACTIONS)}")
            elif action not in found:
                found.append(action)
        return tuple(found) or ("Deny",)

    def schema(self) -> Schema:
        return {"type": "array", "items": {"type": "string", "enum": list(_ACTIONS)}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatingSpec(KyvernoSpec):
    """The spec of a validating policy."""

    validations: tuple[ValidationEntry, ...] = declare(
        Groups(ValidationEntry, MAX_ENTRIES), "All have to be true", default=()
    )
    validation_actions: tuple[ValidationAction, ...] = declare(_Actions(), "Effect", default=("Deny",))

    def entry(self, head: PolicyHead, document: bytes) -> Entry:
        """See ``KyvernoSpec``."""
        expressions = Expressions(has_params=False, dialect=of_kyverno(head.namespace), has_programs=False)
        conditions = compiled_conditions(self.match_conditions, expressions)
        for variable in self.variables:
            expressions.add(variable)
        validations = []
        for one in self.validations:
            compiled = expressions.compiled(one.source, "expression", one.expression, (BOOL,))
            message = expressions.compiled(one.source, "messageExpression", one.message_expression, (STRING,))
            validations.append(Validation(compiled or ALWAYS_TRUE, one.message, message, ""))
        annotations = self.annotations(expressions)
        rules = Rules(self.failure_policy, expressions.variables, tuple(validations), annotations)
        match = self.match_constraints.resources
        policy = ValidatingPolicy(head.id, match, None, conditions, document, rules)
        actions = self.validation_actions

        def webhook(others: OtherDocuments) -> Webhook:
            of_class = PodTemplatesPolicy if head.is_on_templates else KyvernoValidatingPolicy
            return of_class(head.kind, policy, actions, others, head.namespace).webhook(head.rollout)

        return webhook
