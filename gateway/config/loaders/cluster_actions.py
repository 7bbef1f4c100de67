"""The actions of Kyverno's old policies by namespace, as documents have them.

Source: github.com/kyverno/kyverno api/kyverno/v1/{spec,rule,common}_types.go, api/kyverno/v2beta1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.config.kinds.declare import (
    Choice,
    Declared,
    Integer,
    Read,
    declare,
    optional,
    required,
)
from gateway.config.kinds.matching import CONDITIONS, FAILURE_POLICIES, ConditionEntry, compiled_conditions
from gateway.config.loaders.cluster_filters import MAX_CHARS, Selectors
from gateway.pure.kyverno.failure_action import ActionOverride, FailureAction
from gateway.pure.kyverno.wildcards import Wildcard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gateway.config.yaml.fields import Fields
    from gateway.pure.cel.compile import Condition
    from gateway.pure.core.webhook import FailurePolicy
    from gateway.pure.kyverno.resource_match import WildcardSelector

    Json = dict[str, Any]

MAX_OVERRIDES: Final = 100
_ENFORCE: Final = ("Enforce", "enforce")
ACTIONS: Final = ("Audit", "Enforce", "audit", "enforce")


def _short(text: str) -> str | None:
    return None if len(text) <= MAX_CHARS else f"found {len(text)} characters, expected at most {MAX_CHARS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Override(Declared):
    """An action for some namespaces."""

    action: str = required(Choice(ACTIONS), "Action")
    namespaces: tuple[str, ...] = declare(
        Read("list of namespaces", lambda source, name: source.strings(name, _short), "array"),
        "Namespaces, with wildcards",
        default=(),
    )
    namespace_selector: WildcardSelector | None = optional(Selectors(), "Labels of the namespace")

    @property
    def override(self) -> ActionOverride:
        """What it decides."""
        namespaces = tuple(map(Wildcard, self.namespaces))
        return ActionOverride(self.action in _ENFORCE, namespaces, self.namespace_selector)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEntry(Declared):
    """What a policy says of the webhooks of Kyverno."""

    failure_policy: FailurePolicy | None = optional(Choice(FAILURE_POLICIES), "Effect of errors")
    timeout_seconds: int | None = optional(Integer(1, 30, "seconds"), "Timeout of the worker")
    match_conditions: tuple[ConditionEntry, ...] = declare(
        CONDITIONS, "All have to hold, as those of webhooks", default=()
    )

    def check(self, source: Fields) -> None:
        """Report problems of expressions."""
        found = compiled_conditions(self.match_conditions)
        if found is not None and found.needs_authorizer:
            what = "uses authorizer, which Kyverno does not have in them: the policy would never apply"
            source.problem("matchConditions", what)

    @property
    def conditions(self) -> Sequence[Condition]:
        """The conditions, compiled."""
        found = compiled_conditions(self.match_conditions)
        return () if found is None else found.conditions


def action_of(
    of_rule: tuple[str, tuple[Override, ...]], of_policy: tuple[str, tuple[Override, ...]]
) -> FailureAction:
    """Return what decides whether a failure refuses: action and overrides of the rule, and of its policy.

    The action of the rule may be empty.
    """
    own, overrides = of_rule
    action, others = of_policy
    return FailureAction(
        own in _ENFORCE if own else None,
        action in _ENFORCE,
        tuple(each.override for each in overrides),
        tuple(each.override for each in others),
    )
