"""One entry of a webhook configuration, which stands for several webhooks of the gateway.

Source: k8s.io/api admissionregistration/v1 types.go; kubernetes/apiserver
plugin/webhook/mutating/dispatcher.go (reinvocation), plugin/webhook/request (timeout).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.config.kinds.namespace import NAME_LABEL
from gateway.tools.registration.exclusions import match_conditions
from gateway.tools.registration.union import union

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gateway.pure.core.labels import Requirement, Selector
    from gateway.pure.core.webhook import FailurePolicy, Phase, Webhook

LONGEST_TIMEOUT_S: Final = 30
"""Upper limit of timeoutSeconds."""
SPARE_S: Final = 1
"""The API server rounds the timeout up to whole seconds, and a 503 is retried after one second."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Webhooks that are registered as one entry."""

    name: str
    phase: Phase
    path: str
    webhooks: tuple[Webhook, ...]
    """In configured order; at least one."""
    matched_together: Collection[Collection[Webhook]]
    """One set of webhooks for each cell of requests (``gateway.tools.registration.partition``)."""

    @property
    def failure_policy(self) -> FailurePolicy:
        """``Fail`` if any webhook has ``Fail``; it decides if the gateway is unreachable."""
        return "Fail" if any(webhook.failure_policy == "Fail" for webhook in self.webhooks) else "Ignore"

    @property
    def reinvocation_policy(self) -> str:
        """``IfNeeded`` if all webhooks have ``IfNeeded``.

        The API server reinvokes whole entries, and a reinvocation looks like a first call: a webhook with
        ``Never`` would be called twice.
        """
        are_all = all(webhook.reinvocation_policy == "IfNeeded" for webhook in self.webhooks)
        return "IfNeeded" if are_all else "Never"

    def timeout_s(self, reserve_s: float) -> int:
        """Return timeoutSeconds: the least value that gives each webhook its own timeout after the reserve.

        Validating webhooks are called concurrently. Mutating webhooks may be called one after another, and
        those with ``IfNeeded`` twice. ``SPARE_S`` is added.
        """
        needed_s = max(self._needed_s(webhooks) for webhooks in self.matched_together)
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
        """Return the entry as registered, with *namespaces* excluded."""
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
            # In a mixed entry the gateway applies Exact itself, with the resource of the client's request.
            "matchPolicy": "Exact" if is_exact else "Equivalent",
            **self._selectors(namespaces),
        }
        # Of the configured rules: in the union a wildcard may cover a rule that names leases.
        if conditions := match_conditions(rules, included):
            document["matchConditions"] = conditions
        if self.phase == "mutate":
            document["reinvocationPolicy"] = self.reinvocation_policy
        # The gateway itself rejects dry runs for webhooks with Some or Unknown.
        are_free = all(webhook.side_effects == "None" for webhook in self.webhooks)
        document["sideEffects"] = "None" if are_free else "NoneOnDryRun"
        document["timeoutSeconds"] = self.timeout_s(reserve_s)
        document["admissionReviewVersions"] = ["v1"]
        return document

    def _selectors(self, namespaces: Sequence[str]) -> dict[str, object]:
        """Return the selectors: excluded namespaces, and requirements that all webhooks share.

        The gateway applies objectSelectors of the mutating phase, in which labels may change.
        """
        in_namespaces: list[dict[str, object]] = [
            _requirement_document(one) for one in _shared(hook.namespace_selector for hook in self.webhooks)
        ]
        if namespaces:
            excluded: dict[str, object] = {
                "key": NAME_LABEL,
                "operator": "NotIn",
                "values": list(namespaces),
            }
            in_namespaces.insert(0, excluded)
        selectors: dict[str, object] = {}
        if in_namespaces:
            selectors["namespaceSelector"] = {"matchExpressions": in_namespaces}
        on_objects = [
            _requirement_document(one) for one in _shared(hook.object_selector for hook in self.webhooks)
        ]
        if on_objects and self.phase == "validate":
            selectors["objectSelector"] = {"matchExpressions": on_objects}
        return selectors


def within(timeout_s: float, reserve_s: float) -> float:
    """Return the part of a review's *timeout_s* that webhooks get: all except the reserve."""
    return timeout_s - min(reserve_s, timeout_s / 5)


def _shared(selectors: Iterable[Selector]) -> tuple[Requirement, ...]:
    """Return the requirements of *selectors* if they are the same in all, otherwise none."""
    first, *others = selectors
    wanted = set(first.requirements)
    are_same = all(set(other.requirements) == wanted for other in others)
    return tuple(dict.fromkeys(first.requirements)) if are_same else ()


def _requirement_document(requirement: Requirement) -> dict[str, object]:
    expression: dict[str, object] = {"key": requirement.key, "operator": requirement.operator}
    if requirement.values:
        expression["values"] = sorted(requirement.values)
    return expression
