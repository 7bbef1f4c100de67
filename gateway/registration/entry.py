"""One entry of a webhook configuration: several webhooks of the gateway, as the API server is to see them.

Source: k8s.io/api admissionregistration/v1 types.go; kubernetes/apiserver
plugin/webhook/mutating/dispatcher.go (reinvocation), plugin/webhook/request (timeout).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.registration.exclusions import NAMESPACE_LABEL, match_conditions
from gateway.registration.union import union

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gateway.core.labels import Requirement, Selector
    from gateway.core.webhook import FailurePolicy, Phase, Webhook

LONGEST_TIMEOUT_S: Final = 30
"""The most that the API server takes as timeoutSeconds."""
SPARE_S: Final = 1
"""What is announced is rounded up to whole seconds, and a refusal asks to be repeated after a second."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Webhooks that are registered as one."""

    name: str
    phase: Phase
    path: str
    webhooks: tuple[Webhook, ...]
    """In the order in which they apply; at least one."""
    together: Collection[Collection[Webhook]]
    """For every request that any of them is for: which of them are."""

    @property
    def failure_policy(self) -> FailurePolicy:
        """What an unreachable gateway means: ``Fail`` as soon as one of the webhooks says so."""
        return "Fail" if any(webhook.failure_policy == "Fail" for webhook in self.webhooks) else "Ignore"

    @property
    def reinvocation_policy(self) -> str:
        """``IfNeeded`` if all say so.

        The API server calls an entry again as a whole, and nothing tells that call from a first one: a
        webhook with ``Never`` in it would be called twice.
        """
        are_all = all(webhook.reinvocation_policy == "IfNeeded" for webhook in self.webhooks)
        return "IfNeeded" if are_all else "Never"

    def timeout_s(self, reserve_s: float) -> int:
        """Return the fewest whole seconds that, less the reserve, give each webhook its own timeout.

        Validating webhooks are called at once. Mutating ones may have to be called one after another, those
        with ``IfNeeded`` a second time. One second more is for what the gateway cannot know: by how much the
        API server rounded up what time was left, and that another replica may have refused before.
        """
        needed_s = max(self._needed_s(webhooks) for webhooks in self.together)
        for timeout_s in range(1, LONGEST_TIMEOUT_S):
            if within(timeout_s, reserve_s) >= needed_s + SPARE_S:
                return timeout_s
        return LONGEST_TIMEOUT_S

    def _needed_s(self, webhooks: Iterable[Webhook]) -> int:
        if self.phase == "validate":
            return max(webhook.timeout_s for webhook in webhooks)
        return sum(
            webhook.timeout_s * (1 + (webhook.reinvocation_policy == "IfNeeded")) for webhook in webhooks
        )

    def document(
        self,
        client_config: Mapping[str, object],
        reserve_s: float,
        namespaces: Sequence[str],
        included: Collection[str],
    ) -> dict[str, object]:
        """Return the entry as it is registered, *namespaces* left out of it."""
        is_exact = all(webhook.match_policy == "Exact" for webhook in self.webhooks)
        rules = [rule for webhook in self.webhooks for rule in webhook.rules]
        document: dict[str, object] = {
            "name": self.name,
            "clientConfig": dict(client_config),
            "rules": [
                {
                    "operations": list(rule.operations),
                    "apiGroups": list(rule.api_groups),
                    "apiVersions": list(rule.api_versions),
                    "resources": list(rule.resources),
                    "scope": rule.scope,
                }
                for rule in union(rules, is_exact=is_exact)
            ],
            "failurePolicy": self.failure_policy,
            # Exact among others is compared by the gateway, with the resource that the client asked for.
            "matchPolicy": "Exact" if is_exact else "Equivalent",
            **self._selectors(namespaces),
        }
        # Of the rules as they were written: a wildcard may cover one that asks for leases by name.
        if conditions := match_conditions(rules, included):
            document["matchConditions"] = conditions
        if self.phase == "mutate":
            document["reinvocationPolicy"] = self.reinvocation_policy
        # Of webhooks with Some or Unknown the gateway refuses a dry run itself; the others get theirs.
        are_free = all(webhook.side_effects == "None" for webhook in self.webhooks)
        document["sideEffects"] = "None" if are_free else "NoneOnDryRun"
        document["timeoutSeconds"] = self.timeout_s(reserve_s)
        document["admissionReviewVersions"] = ["v1"]
        return document

    def _selectors(self, namespaces: Sequence[str]) -> dict[str, object]:
        """Return the selectors: what is left out, and what all webhooks select alike.

        What an objectSelector says of a mutating phase is left to the gateway: labels change in the course of
        it.
        """
        in_namespaces: list[dict[str, object]] = [
            _written(one) for one in _shared(hook.namespace_selector for hook in self.webhooks)
        ]
        if namespaces:
            excluded: dict[str, object] = {
                "key": NAMESPACE_LABEL,
                "operator": "NotIn",
                "values": list(namespaces),
            }
            in_namespaces.insert(0, excluded)
        selectors: dict[str, object] = {}
        if in_namespaces:
            selectors["namespaceSelector"] = {"matchExpressions": in_namespaces}
        on_objects = [_written(one) for one in _shared(hook.object_selector for hook in self.webhooks)]
        if on_objects and self.phase == "validate":
            selectors["objectSelector"] = {"matchExpressions": on_objects}
        return selectors


def within(timeout_s: float, reserve_s: float) -> float:
    """Return what of a review's *timeout_s* the gateway gives to webhooks: all but its reserve."""
    return timeout_s - min(reserve_s, timeout_s / 5)


def _shared(selectors: Iterable[Selector]) -> tuple[Requirement, ...]:
    """Return what *selectors* require if all require the same, otherwise nothing."""
    first, *others = selectors
    wanted = set(first.requirements)
    are_same = all(set(other.requirements) == wanted for other in others)
    return tuple(dict.fromkeys(first.requirements)) if are_same else ()


def _written(requirement: Requirement) -> dict[str, object]:
    expression: dict[str, object] = {"key": requirement.key, "operator": requirement.operator}
    if requirement.values:
        expression["values"] = sorted(requirement.values)
    return expression
