"""ValidatingAdmissionPolicy and its bindings as the gateway uses them.

Source: k8s.io/api admissionregistration/v1 types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.cel.compile import Condition
    from gateway.core.labels import Selector
    from gateway.core.webhook import MatchPolicy, Rule
    from gateway.policies.validating import Rules

ValidationAction = Literal["Deny", "Warn", "Audit"]
NotFoundAction = Literal["Allow", "Deny"]


@dataclass(frozen=True, slots=True)
class NamedRule:
    """A rule for resources, and for objects of some names only: a ``RuleMatch``."""

    rules: tuple[Rule, ...]
    """One."""
    names: tuple[str, ...]
    """Empty: all."""
    match_policy: MatchPolicy


@dataclass(frozen=True, slots=True)
class MatchResources:
    """The requests that a policy or a binding matches."""

    named_rules: tuple[NamedRule, ...]
    """Empty in a binding: all."""
    excluded: tuple[NamedRule, ...]
    match_policy: MatchPolicy
    namespace_selector: Selector
    object_selector: Selector


@dataclass(frozen=True, slots=True)
class ParamKind:
    """The kind of a policy's parameters."""

    api_version: str
    kind: str


@dataclass(frozen=True, slots=True)
class ParamRef:
    """The parameters of a binding: by name or by selector."""

    name: str
    namespace: str
    """Empty: that of the request, for a namespaced kind."""
    selector: Selector | None
    not_found: NotFoundAction


@dataclass(frozen=True, slots=True, eq=False)
class ValidatingPolicy:
    """One ValidatingAdmissionPolicy."""

    name: str
    match: MatchResources
    param_kind: ParamKind | None
    conditions: Sequence[Condition]
    rules: Rules
    document: bytes
    """JSON of its spec, with sorted keys."""

    @property
    def needs_authorizer(self) -> bool:
        """Whether any expression uses ``authorizer``."""
        rules = self.rules
        expressions = (
            *(each.compiled for each in self.conditions),
            *rules.variables.values(),
            *(each.expression for each in rules.validations),
            *(each.expression for each in rules.audit_annotations),
        )
        return any(each.needs_authorizer for each in expressions)


@dataclass(frozen=True, slots=True, eq=False)
class ValidatingBinding:
    """One ValidatingAdmissionPolicyBinding."""

    name: str
    policy: str
    """The name of its policy."""
    match: MatchResources | None
    param_ref: ParamRef | None
    actions: tuple[ValidationAction, ...]
    document: bytes
    """JSON of its spec, with sorted keys."""
