"""Requests that a registration excludes by default, because a webhook for them can harm the cluster.

- The gateway's own namespace: its pods must not depend on the gateway.
- ``kube-system``: it has the components that repair the cluster.
- Leases, the heartbeats of components, and events, which are frequent: excluded from wildcards only.
- Access reviews and token reviews: the gateway never sends them to webhooks, and kube-apiserver does not from
  1.37 on.

Source: kubernetes.io "Good practices for admission webhooks"; k8s.io/kubernetes
pkg/kubeapiserver/admission/exclusion/resources.go; kubernetes.io "Dynamic admission control"
(matchConditions, stable since 1.30).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gateway.config.kinds.namespace import KUBE_SYSTEM
from gateway.pure.core.overlap import has, overlap, parts
from gateway.pure.core.rules import NEVER_SENT_RESOURCES
from gateway.pure.core.webhook import Rule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gateway.pure.core.webhook import Webhook

OWN_NAMESPACE: Final = "own-namespace"
LEASES: Final = "leases.coordination.k8s.io"
EVENTS: Final = "events"
INCLUDABLE: Final = (OWN_NAMESPACE, KUBE_SYSTEM, LEASES, EVENTS)
"""The values of ``--include``."""


@dataclass(frozen=True, slots=True)
class _Exclusion:
    """Resources that wildcards exclude."""

    option: str | None
    """The value of ``--include`` that includes the resources. None if nothing does."""
    condition: str
    """Name of the matchCondition."""
    rules: tuple[Rule, ...]
    """Rules that match the excluded requests."""
    expression: str
    """CEL. ``request.resource`` is the resource of the client's request."""


def _is_one_of(resources: Collection[tuple[str, str]]) -> str:
    """Return a CEL expression that is true for requests for one of *resources* (group, resource)."""
    terms = []
    for group in sorted({group for group, _ in resources}):
        names = ", ".join(f'"{name}"' for of, name in sorted(resources) if of == group)
        terms.append(f'(request.resource.group == "{group}" && request.resource.resource in [{names}])')
    return " || ".join(terms)


_EXCLUSIONS: Final = (
    _Exclusion(
        LEASES,
        "exclude-leases",
        (Rule(("*",), ("coordination.k8s.io",), ("*",), ("leases",), "Namespaced"),),
        '!(request.resource.group == "coordination.k8s.io" && request.resource.resource == "leases")',
    ),
    _Exclusion(
        EVENTS,
        "exclude-events",
        # One resource in two groups.
        (Rule(("*",), ("", "events.k8s.io"), ("*",), ("events",), "Namespaced"),),
        '!(request.resource.group in ["", "events.k8s.io"] && request.resource.resource == "events")',
    ),
    _Exclusion(
        None,
        "exclude-virtual-resources",
        tuple(Rule(("CREATE",), (group,), ("*",), (name,)) for group, name in sorted(NEVER_SENT_RESOURCES)),
        f"!({_is_one_of(NEVER_SENT_RESOURCES)})",
    ),
)


def excluded_namespaces(own: str | None, others: Sequence[str], included: Collection[str]) -> list[str]:
    """Return the excluded namespaces: the gateway's *own* if it is known, kube-system, and *others*."""
    usual = [
        name
        for word, name in ((OWN_NAMESPACE, own), (KUBE_SYSTEM, KUBE_SYSTEM))
        if name is not None and word not in included
    ]
    return list(dict.fromkeys((*usual, *others)))


def match_conditions(rules: Sequence[Rule], included: Collection[str]) -> list[dict[str, str]]:
    """Return the matchConditions that exclude resources from the wildcards of *rules*; usually none."""
    conditions = []
    for exclusion in _EXCLUSIONS:
        matching = [rule for rule in rules if any(overlap(rule, about) for about in exclusion.rules)]
        is_included = exclusion.option is not None and (
            exclusion.option in included or any(_names(rule, exclusion) for rule in matching)
        )
        if matching and not is_included:
            conditions.append({"name": exclusion.condition, "expression": exclusion.expression})
    return conditions


def hidden_from(expression: str, rules: Sequence[Rule]) -> bool | None:
    """Whether the matchCondition *expression* excludes requests that *rules* name explicitly.

    The result is None for an expression that :func:`match_conditions` does not write: its effect is unknown.
    """
    for exclusion in _EXCLUSIONS:
        if expression == exclusion.expression:
            return exclusion.option is not None and any(_names(rule, exclusion) for rule in rules)
    return None


def _names(rule: Rule, exclusion: _Exclusion) -> bool:
    """Whether *rule* names the resource of *exclusion*, and has its group."""
    return any(
        parts(entry)[0] == parts(wanted)[0]
        for about in exclusion.rules
        for wanted in about.resources
        for entry in rule.resources
        if any(has(rule.api_groups, group) for group in about.api_groups)
    )


def sendable(webhook: Webhook) -> Webhook:
    """Return *webhook* without rules that name only resources that are never sent to webhooks.

    kube-apiserver warns about such rules. Wildcards are left as they are.
    """
    rules = tuple(part for rule in webhook.rules for part in _sendable(rule))
    return webhook if rules == webhook.rules else replace(webhook, rules=rules)


def _sendable(rule: Rule) -> Iterator[Rule]:
    if not any(_is_never_sent(group, rule.resources) for group in rule.api_groups):
        yield rule
        return
    for group in rule.api_groups:
        left = tuple(entry for entry in rule.resources if not _is_never_sent(group, (entry,)))
        if left:
            yield replace(rule, api_groups=(group,), resources=left)


def _is_never_sent(group: str, entries: Iterable[str]) -> bool:
    """Whether one of *entries* names, in *group*, a resource that is never sent to webhooks."""
    return any((group, parts(entry)[0]) in NEVER_SENT_RESOURCES for entry in entries)
