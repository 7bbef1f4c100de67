"""ValidatingPolicy and NamespacedValidatingPolicy of Kyverno: their fields, and what autogen makes of them.

Source: github.com/kyverno/kyverno pkg/cel/policies/vpol/{validate,engine/provider}.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.base.text import one_of, shown
from gateway.config.kinds.declare import Group, Groups, Text, Type, declare, optional, required
from gateway.config.kinds.matching import CelText, PlacedEntry
from gateway.config.kinds.policy_spec import ALWAYS_TRUE, MAX_EXPRESSION_CHARS, Expressions
from gateway.config.loaders.kyverno_spec import (
    EvaluationEntry,
    KyvernoSpec,
    compiled_conditions,
    id_of,
    read_head,
    spec_document,
)
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.admission_policies.model import ValidatingPolicy, ValidationAction
from gateway.pure.admission_policies.validating import AuditAnnotation, Rules, Validation
from gateway.pure.cel.dialects import KYVERNO
from gateway.pure.cel.types import BOOL, NULL, STRING
from gateway.pure.kyverno.autogen import validating_variants, validating_warnings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.kinds.declare import Schema
    from gateway.config.yaml.documents import Document
    from gateway.pure.core.webhook import Mode

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
class _Validation(PlacedEntry):
    expression: str = required(CelText("of type bool", MAX_EXPRESSION_CHARS), "Has to be true")
    message: str = declare(Text(), "The message if it is false", default="")
    message_expression: str = declare(Text(), "Instead of `message`", default="")
    reason: str = declare(Text(), "Not used by Kyverno", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatingSpec(KyvernoSpec):
    """The spec of a validating policy."""

    validations: tuple[_Validation, ...] = declare(Groups(_Validation), "All have to be true", default=())
    validation_actions: tuple[ValidationAction, ...] = declare(_Actions(), "Effect", default=("Deny",))
    evaluation: EvaluationEntry | None = optional(Group(EvaluationEntry), "Where it is evaluated")

    @property
    def is_for_admission(self) -> bool:
        """Whether requests are reviewed."""
        found = self.evaluation
        return found is None or found.admission is None or found.admission.enabled

    def policy(self, name: str, document: bytes) -> ValidatingPolicy:
        """Return the policy *name*, compiled, after reporting problems of expressions."""
        expressions = Expressions(has_params=False, dialect=KYVERNO)
        conditions = compiled_conditions(self.match_conditions, expressions)
        for variable in self.variables:
            expressions.add(variable)
        validations = []
        for one in self.validations:
            compiled = expressions.compiled(one.source, "expression", one.expression, (BOOL,))
            message = expressions.compiled(one.source, "messageExpression", one.message_expression, (STRING,))
            validations.append(Validation(compiled or ALWAYS_TRUE, one.message, message, ""))
        annotations = []
        for note in self.audit_annotations:
            types = (STRING, NULL)
            compiled = expressions.compiled(note.source, "valueExpression", note.value_expression, types)
            annotations.append(AuditAnnotation(note.key, compiled or ALWAYS_TRUE))
        rules = Rules(self.failure_policy, expressions.variables, tuple(validations), tuple(annotations))
        match = self.match_constraints.resources
        return ValidatingPolicy(name, match, None, conditions, document, rules)


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """One validating policy."""

    document: Document
    kind: str
    name: str
    namespace: str
    """Empty unless the policy is of one namespace."""
    mode: Mode | None
    """That of the gateway's annotation."""
    spec: ValidatingSpec
    policies: tuple[ValidatingPolicy, ...]
    """The policy, and what autogen made of it."""

    @property
    def id(self) -> str:
        """``NAMESPACE/NAME``, or ``NAME`` without a namespace."""
        return self.policies[0].name


def read_validating(document: Document, fields: Fields, kind: str) -> ReadPolicy:
    """Return the policy of *kind* behind *fields*; apiVersion and kind are read already."""
    metadata, mode, source = read_head(fields, kind)
    spec = ValidatingSpec.read(source)
    found = spec.policy(id_of(metadata), spec_document(source.content))
    variants = () if document.problems.found else _variants(document, source, found.name)
    return ReadPolicy(document, kind, metadata.name, metadata.namespace, mode, spec, (found, *variants))


def _variants(document: Document, source: Fields, name: str) -> Iterator[ValidatingPolicy]:
    """Yield what autogen makes of the policy *name*, whose spec is *source*, after reporting its problems."""
    content = dict(source.content)
    for warning in validating_warnings(content):
        field, _, message = warning.partition(": ")
        document.problems.warn(f"{source.path}.{field}", message)
    for variant in validating_variants(content):
        problems = Problems(document.problems.where)
        spec = ValidatingSpec.read(Fields(variant.spec, source.path, problems))
        policy = spec.policy(name, spec_document(variant.spec))
        for path, message in problems.found:
            about = f"what autogen makes of it for {variant.name} is wrong, so that Kyverno does not load it"
            document.problems.add(path, f"{about}: {message}")
        yield policy
