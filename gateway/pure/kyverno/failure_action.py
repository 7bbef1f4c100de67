"""Whether a rule of a ClusterPolicy that fails refuses the request: ``failureAction`` and its overrides.

Kyverno decides twice, and not in the same way. Its cache chooses the rules that a request is reviewed with
before it is answered; of these, a failed one refuses the request if its action is Enforce again.

Source: github.com/kyverno/kyverno pkg/policycache/cache.go (checkValidationFailureActionOverrides),
pkg/engine/api/engineresponse.go (matchOverride, failureActionForRule).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.kyverno.resource_match import WildcardSelector
    from gateway.pure.kyverno.wildcards import Wildcard


@dataclass(frozen=True, slots=True, eq=False)
class ActionOverride:
    """One of ``failureActionOverrides``."""

    enforces: bool
    namespaces: tuple[Wildcard, ...]
    selector: WildcardSelector | None

    def is_chosen(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the cache takes it for a request in *namespace*; empty for none.

        A namespace that is named, or whose labels are selected, is enough.
        """
        if not self.namespaces and self.selector is None:
            return True
        if not namespace:
            return False
        if any(each.matches(namespace) for each in self.namespaces):
            return True
        # The cache knows no wildcards in selectors, and takes none of those that have some.
        selector = self.selector
        return selector is not None and not selector.patterns and selector.plain.matches(labels)

    def is_for(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the engine takes it for an object in *namespace*: names and labels both have to match."""
        if self.namespaces and not any(each.matches(namespace) for each in self.namespaces):
            return False
        return self.selector is None or self.selector.matches(labels)


@dataclass(frozen=True, slots=True, eq=False)
class FailureAction:
    """The actions of one rule."""

    of_rule: bool | None
    """Whether the rule's own is Enforce. None if it has none."""
    of_policy: bool
    rule_overrides: tuple[ActionOverride, ...]
    policy_overrides: tuple[ActionOverride, ...]

    @property
    def may_enforce(self) -> bool:
        """Whether it is Enforce anywhere."""
        overrides = (*self.rule_overrides, *self.policy_overrides)
        return bool(self.of_rule) or self.of_policy or any(each.enforces for each in overrides)

    @property
    def has_overrides(self) -> bool:
        """Whether it may differ by namespace."""
        return len(self.rule_overrides) > 0 or len(self.policy_overrides) > 0

    @property
    def needs_labels(self) -> bool:
        """Whether the labels of namespaces count."""
        return any(each.selector is not None for each in (*self.rule_overrides, *self.policy_overrides))

    def is_chosen(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the rule is among those that are reviewed before the answer."""
        for each in self.rule_overrides or self.policy_overrides:
            if each.is_chosen(namespace, labels):
                return each.enforces
        return self.of_policy if self.of_rule is None else self.of_rule

    def refuses(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the rule refuses an object in *namespace* that fails."""
        for each in self.rule_overrides:
            if each.is_for(namespace, labels):
                return each.enforces
        if self.of_rule is not None:
            return self.of_rule
        for each in self.policy_overrides:
            if each.is_for(namespace, labels):
                return each.enforces
        return self.of_policy
