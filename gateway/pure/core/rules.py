"""Rules against a request: operation, group, version, resource and scope.

No patch can change what rules compare, so ``gateway.pure.core.matching`` caches the matches for each shape of
request.

Source: kubernetes/apiserver plugin/webhook/predicates/rules/rules.go, plugin/webhook/generic/webhook.go;
k8s.io/api admissionregistration/v1 types.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from gateway.pure.core.review import AdmissionRequest, Resource
    from gateway.pure.core.webhook import MatchPolicy, Rule

# Webhooks and policies on these kinds could block their own repair.
NEVER_SENT_KINDS: Final = {
    ("admission-gateway.io", "WorkerPool"),
    *(
        (group, f"{phase}{kind}")
        for group in ("admissionregistration.k8s.io", "admission-gateway.io")
        for phase in ("Validating", "Mutating")
        for kind in ("WebhookConfiguration", "AdmissionPolicy", "AdmissionPolicyBinding")
    ),
}
"""Group and kind."""
# Every client needs these reviews: a webhook that fails on them locks all users out of a cluster.
# kube-apiserver itself does not send them from 1.37 on (KEP-5793).
NEVER_SENT_RESOURCES: Final = {
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
}
"""Group and resource."""


def is_never_sent(request: AdmissionRequest) -> bool:
    """Whether requests of this kind go to no webhook, as in kube-apiserver, except to a guard."""
    group, _, kind = request.kind
    return (group, kind) in NEVER_SENT_KINDS or any(
        (resource[0], resource[2]) in NEVER_SENT_RESOURCES
        for resource in (request.resource, request.request_resource)
    )


class RuleMatch(Protocol):
    """Rules with a matchPolicy: of a webhook or of an admission policy."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Any of them has to match."""

    @property
    def match_policy(self) -> MatchPolicy:
        """Whether other versions of a resource match too."""


def rules_match(webhook: RuleMatch, request: AdmissionRequest) -> bool:
    """Whether any rule of *webhook* matches *request*, under the webhook's matchPolicy.

    ``Exact`` compares with the resource of the client's request. ``Equivalent`` compares with that and with
    the resource that the API server sent, in any version: the API server has chosen the version already, and
    enforcing a policy on an unexpected version is better than bypassing it.
    """
    requested = (request.request_resource, request.request_sub_resource)
    if webhook.match_policy == "Exact":
        return any(_rule_matches(rule, request, *requested, any_version=False) for rule in webhook.rules)
    sent = (request.resource, request.sub_resource)
    return any(
        _rule_matches(rule, request, resource, sub_resource, any_version=True)
        for rule in webhook.rules
        for resource, sub_resource in (requested, sent)
    )


def _rule_matches(
    rule: Rule, request: AdmissionRequest, resource: Resource, sub_resource: str, *, any_version: bool
) -> bool:
    group, version, name = resource
    return (
        _scope_matches(rule, request, resource)
        and _contains(rule.operations, request.operation)
        and _contains(rule.api_groups, group)
        and (any_version or _contains(rule.api_versions, version))
        and any(_resource_matches(entry, name, sub_resource) for entry in rule.resources)
    )


def _contains(names: tuple[str, ...], name: str) -> bool:
    return "*" in names or name in names


def _scope_matches(rule: Rule, request: AdmissionRequest, resource: Resource) -> bool:
    if rule.scope == "*":
        return True
    # A Namespace is cluster-scoped, although its own name is the request's namespace.
    is_cluster_scoped = request.namespace == "" or (resource[0], resource[2]) == ("", "namespaces")
    return is_cluster_scoped == (rule.scope == "Cluster")


def _resource_matches(entry: str, resource: str, sub_resource: str) -> bool:
    """``*`` means no subresource; ``pods/*`` means pods itself too, as in kube-apiserver."""
    name, _, sub_name = entry.partition("/")
    return name in ("*", resource) and sub_name in ("*", sub_resource)
