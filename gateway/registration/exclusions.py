"""What is left out of a registration unless it is asked for, because a webhook in its way hurts a cluster.

The gateway's own namespace, so that its pods never wait for the gateway; ``kube-system``, without which
nothing runs that could repair it; leases, by which components of the cluster tell that they are alive, and
events, which come in numbers. The last two are left out of wildcards: a rule that names them has asked. The
questions about who somebody is and what they may do are never sent to webhooks by the gateway, and by
kube-apiserver from 1.37 on.

Source: kubernetes.io "Good practices for admission webhooks"; k8s.io/kubernetes
pkg/kubeapiserver/admission/exclusion/resources.go; kubernetes.io "Dynamic admission control"
(matchConditions, stable since 1.30).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gateway.core.overlap import has, overlap, parts
from gateway.core.rules import NEVER_SENT_RESOURCES
from gateway.core.webhook import Rule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gateway.core.webhook import Webhook

OWN_NAMESPACE: Final = "own-namespace"
KUBE_SYSTEM: Final = "kube-system"
LEASES: Final = "leases.coordination.k8s.io"
EVENTS: Final = "events"
INCLUDABLE: Final = (OWN_NAMESPACE, KUBE_SYSTEM, LEASES, EVENTS)
"""What can be asked for by name."""

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
"""Set by the API server on every namespace, and not to be changed."""


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """Resources that wildcards are not taken to mean."""

    word: str | None
    """By which it is asked for; None: not at all."""
    condition: str
    """Name of the matchCondition."""
    rules: tuple[Rule, ...]
    """Which requests it is about."""
    expression: str
    """CEL. ``request.resource`` is what the client asked for."""


def _is_one_of(resources: Collection[tuple[str, str]]) -> str:
    """Return CEL for: the request is for one of *resources* (group, resource)."""
    terms = []
    for group in sorted({group for group, _ in resources}):
        names = ", ".join(f'"{name}"' for of, name in sorted(resources) if of == group)
        terms.append(f'(request.resource.group == "{group}" && request.resource.resource in [{names}])')
    return " || ".join(terms)


_LEFT_OUT: Final = (
    _LeftOut(
        LEASES,
        "exclude-leases",
        (Rule(("*",), ("coordination.k8s.io",), ("*",), ("leases",), "Namespaced"),),
        '!(request.resource.group == "coordination.k8s.io" && request.resource.resource == "leases")',
    ),
    _LeftOut(
        EVENTS,
        "exclude-events",
        # One resource under two names.
        (Rule(("*",), ("", "events.k8s.io"), ("*",), ("events",), "Namespaced"),),
        '!(request.resource.group in ["", "events.k8s.io"] && request.resource.resource == "events")',
    ),
    _LeftOut(
        None,
        "exclude-virtual-resources",
        tuple(Rule(("CREATE",), (group,), ("*",), (name,)) for group, name in sorted(NEVER_SENT_RESOURCES)),
        f"!({_is_one_of(NEVER_SENT_RESOURCES)})",
    ),
)


def excluded_namespaces(own: str | None, others: Sequence[str], included: Collection[str]) -> list[str]:
    """Return the namespaces left out: the gateway's *own* (None: not known), kube-system, *others*."""
    usual = [
        name
        for word, name in ((OWN_NAMESPACE, own), (KUBE_SYSTEM, KUBE_SYSTEM))
        if name is not None and word not in included
    ]
    return list(dict.fromkeys((*usual, *others)))


def match_conditions(rules: Sequence[Rule], included: Collection[str]) -> list[dict[str, str]]:
    """Return the matchConditions that keep *rules* from what their wildcards do not mean; usually none."""
    conditions = []
    for left_out in _LEFT_OUT:
        touching = [rule for rule in rules if any(overlap(rule, about) for about in left_out.rules)]
        is_asked_for = left_out.word is not None and (
            left_out.word in included or any(_names(rule, left_out) for rule in touching)
        )
        if touching and not is_asked_for:
            conditions.append({"name": left_out.condition, "expression": left_out.expression})
    return conditions


def hidden_from(expression: str, rules: Sequence[Rule]) -> bool | None:
    """Whether the matchCondition *expression* keeps requests from *rules* that these ask for by name.

    None where it is none of those that :func:`match_conditions` writes, and so nobody knows.
    """
    for left_out in _LEFT_OUT:
        if expression == left_out.expression:
            return left_out.word is not None and any(_names(rule, left_out) for rule in rules)
    return None


def _names(rule: Rule, left_out: _LeftOut) -> bool:
    """Whether *rule* gives the resource of *left_out* by name, and has its group."""
    return any(
        parts(entry)[0] == parts(wanted)[0]
        for about in left_out.rules
        for wanted in about.resources
        for entry in rule.resources
        if any(has(rule.api_groups, group) for group in about.api_groups)
    )


def sendable(webhook: Webhook) -> Webhook:
    """Return *webhook* with the rules that can ever reach it: without resources that are never sent.

    kube-apiserver warns of rules that name them. Those that reach them by a wildcard are left as they are.
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
    """Whether one of *entries* names, in *group*, what no webhook is ever sent."""
    return any((group, parts(entry)[0]) in NEVER_SENT_RESOURCES for entry in entries)
