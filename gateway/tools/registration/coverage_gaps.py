"""Coverage gaps: webhooks that are not called in a namespace because the registration excludes it.

Registered directly, the API server would call them there. A gap depends on the webhook and on name and labels
of the namespace. It is uncertain if unknown labels decide.

Source: kubernetes/apiserver plugin/webhook/predicates/namespace/matcher.go (a Namespace object is
matched by its own labels), plugin/webhook/predicates/rules/rules.go (scope).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gateway.config.kinds.namespace import KUBE_SYSTEM, NAME_LABEL
from gateway.pure.conditions.match_conditions import CompiledConditions
from gateway.pure.core.overlap import has, parts
from gateway.pure.core.review import OPERATIONS
from gateway.tools.registration.exclusions import OWN_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gateway.pure.core.webhook import Rule, Webhook

_CLUSTER_SCOPED: Final = {
    "": "componentstatuses namespaces nodes persistentvolumes",
    "apiextensions.k8s.io": "customresourcedefinitions",
    "apiregistration.k8s.io": "apiservices",
    "certificates.k8s.io": "certificatesigningrequests clustertrustbundles",
    "flowcontrol.apiserver.k8s.io": "flowschemas prioritylevelconfigurations",
    "networking.k8s.io": "ingressclasses ipaddresses servicecidrs",
    "node.k8s.io": "runtimeclasses",
    "rbac.authorization.k8s.io": "clusterrolebindings clusterroles",
    "resource.k8s.io": "deviceclasses resourceslices",
    "scheduling.k8s.io": "priorityclasses",
    "storage.k8s.io": "csidrivers csinodes storageclasses volumeattachments volumeattributesclasses",
}
"""Cluster-scoped resources of Kubernetes, by group. All others count as namespaced."""


@dataclass(frozen=True, slots=True)
class CoverageGap:
    """Webhooks that are not called in excluded namespaces."""

    namespaces: tuple[str, ...]
    webhooks: tuple[Webhook, ...]
    """In configured order; at least one."""
    is_certain: bool
    """False: the gap depends on unknown labels of the namespaces."""

    def __str__(self) -> str:
        """Return the gap as part of a sentence, with the names of all webhooks."""
        # A policy may have several entries of one phase.
        named = dict.fromkeys((hook.phase, f"{hook.configuration}/{hook.name}") for hook in self.webhooks)
        count = len(named)
        where = "there" if len(self.namespaces) == 1 else "in each of them"
        listed = "; ".join(
            f"{phase} {', '.join(names)}"
            for phase in ("mutate", "validate")
            if (names := [name for of, name in named if of == phase])
        )
        verb = "is" if count == 1 else "are"
        plural = "" if count == 1 else "s"
        what = f"{count} webhook{plural} {verb} not called {where}, but would be if registered directly"
        if not self.is_certain:
            what += ", provided that the labels of the namespace match the namespaceSelector"
        return f"{what}: {listed}"


def coverage_gaps(found: Iterable[tuple[str, Webhook, bool]]) -> list[CoverageGap]:
    """Return the gaps *found*: namespace, webhook, and whether the gap is certain.

    Namespaces with the same webhooks share a gap.
    """
    by_namespace: dict[tuple[str, bool], list[Webhook]] = {}
    for namespace, webhook, is_certain in found:
        by_namespace.setdefault((namespace, is_certain), []).append(webhook)
    namespaces: dict[tuple[bool, tuple[Webhook, ...]], list[str]] = {}
    for (namespace, is_certain), webhooks in by_namespace.items():
        namespaces.setdefault((is_certain, tuple(webhooks)), []).append(namespace)
    return [CoverageGap(tuple(names), hooks, is_certain) for (is_certain, hooks), names in namespaces.items()]


def is_called_in(webhook: Webhook, namespace: str, labels: Mapping[str, str] | None) -> bool | None:
    """Whether the API server would call *webhook*, registered directly, for any request in *namespace*.

    None if labels decide that are not known. *labels* are those of the namespace, None if they are not known.
    """
    if not any(map(list, map(in_namespaces, webhook.rules))):
        return False
    conditions = webhook.match_conditions
    if isinstance(conditions, CompiledConditions):
        operations = {one for rule in webhook.rules for one in OPERATIONS if has(rule.operations, one)}
        if all(conditions.is_excluded(namespace, operation) for operation in operations):
            return False
    return selected(webhook, namespace, labels)


def selected(webhook: Webhook, namespace: str, labels: Mapping[str, str] | None) -> bool | None:
    """Whether the namespaceSelector of *webhook* selects *namespace*. None if it needs labels not known."""
    own = {NAME_LABEL: namespace}
    selector = webhook.namespace_selector
    if labels is not None:
        return selector.matches({**labels, **own})
    if not all(one.matches(own) for one in selector.requirements if one.key == NAME_LABEL):
        return False
    return True if all(one.key == NAME_LABEL for one in selector.requirements) else None


def in_namespaces(rule: Rule) -> Iterator[Rule]:
    """Yield rules for the requests of *rule* to which a namespaceSelector applies.

    These are namespaced requests, and requests for Namespace objects, whose scope is the cluster.
    """
    for group in rule.api_groups if rule.scope != "Cluster" else ():
        cluster_scoped = _CLUSTER_SCOPED.get(group, "").split()
        if left := tuple(one for one in rule.resources if parts(one)[0] not in cluster_scoped):
            yield replace(rule, api_groups=(group,), resources=left, scope="Namespaced")
    if rule.scope != "Namespaced" and has(rule.api_groups, ""):
        entries = [sub for name, sub in map(parts, rule.resources) if name in ("*", "namespaces")]
        if entries:
            resources = tuple(dict.fromkeys(f"namespaces/{sub}" if sub else "namespaces" for sub in entries))
            yield replace(rule, api_groups=("",), resources=resources, scope="Cluster")


def how_to_include(namespace: str, own: str | None) -> str:
    """Return the options with which ``manifests`` includes *namespace*; *own* is the gateway's namespace."""
    if namespace in (own, KUBE_SYSTEM):
        return f"with --include {OWN_NAMESPACE if namespace == own else KUBE_SYSTEM}"
    return f"without --exclude-namespace {namespace}"
