"""The requests that are sent to the gateway for a constraint: those that may have objects of its kinds.

Gatekeeper's webhook is registered for all resources, and some subresources. A constraint is compared with
the object, so its rules may be wider than what it matches, but not narrower.

Source: github.com/open-policy-agent/gatekeeper pkg/webhook/policy.go (the kubebuilder:webhook marker).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.core.webhook import Rule
from gateway.pure.gatekeeper.matching import ANY, Kinds
from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

OPERATIONS: Final = ("CREATE", "UPDATE")
"""Without ``operations`` in the template."""
_SUB_RESOURCES: Final = (
    ("", "pods/ephemeralcontainers", "", "Pod"),
    ("", "pods/resize", "", "Pod"),
    ("", "pods/binding", "", "Binding"),
    ("", "pods/eviction", "policy", "Eviction"),
    ("", "pods/exec", "", "PodExecOptions"),
    ("", "pods/attach", "", "PodAttachOptions"),
    ("", "pods/portforward", "", "PodPortForwardOptions"),
    ("", "pods/proxy", "", "PodProxyOptions"),
    ("", "services/proxy", "", "ServiceProxyOptions"),
    ("", "services/status", "", "Service"),
    ("", "nodes/proxy", "", "NodeProxyOptions"),
    ("", "replicationcontrollers/scale", "autoscaling", "Scale"),
    ("apps", "deployments/scale", "autoscaling", "Scale"),
    ("apps", "replicasets/scale", "autoscaling", "Scale"),
    ("apps", "statefulsets/scale", "autoscaling", "Scale"),
)
"""Group and name of each subresource that Gatekeeper is called for, and group and kind of its objects."""
_BY_KIND: Final[dict[str, set[tuple[str, str]]]] = {}
"""Groups and names of the resources and subresources that have objects of a kind, by the kind."""
for _group, _names in RESOURCES.items():
    for _resource in _names.values():
        _BY_KIND.setdefault(_resource.kind, set()).add((_group, _resource.name))
_GROUPS: Final = {
    **{(kind, each): each[0] for kind, all_ in _BY_KIND.items() for each in all_},
    **{(kind, (group, name)): of_object for group, name, of_object, kind in _SUB_RESOURCES},
}
"""The group of the objects, by kind and resource."""
for _group, _name, _, _kind in _SUB_RESOURCES:
    _BY_KIND.setdefault(_kind, set()).add((_group, _name))


def rules_for(
    kinds: Sequence[Kinds], operations: tuple[str, ...], *, with_subresources: bool = True
) -> tuple[Rule, ...]:
    """Return rules that match every request with an object of any of *kinds*; all kinds if there are none.

    Without *with_subresources* they match requests for whole objects alone: Gatekeeper's webhook for mutation
    is registered so (pkg/webhook/mutation.go, the kubebuilder:webhook marker).
    """
    wanted = kinds or (Kinds((), ()),)
    resources = {
        one
        for each in wanted
        for kind in _distinct(each.kinds or (ANY,))
        for group in each.groups or (ANY,)
        for one in _resources(group, kind)
        if with_subresources or "/" not in one[1]
    }
    if not resources:
        # No group has such a kind as far as is known here.
        resources = {(group, ANY) for each in wanted for group in each.groups or (ANY,)}
    found: dict[str, set[str]] = {}
    for group, resource in resources:
        found.setdefault(group, set()).add(resource)
    return tuple(Rule(operations, (group,), (ANY,), tuple(sorted(found[group]))) for group in sorted(found))


def _distinct(kinds: tuple[str, ...]) -> Iterable[str]:
    """Return *kinds*, with one for all that are not known here: they have the same resources."""
    return {kind if kind in _BY_KIND else ANY if kind == ANY else "" for kind in kinds}


def _resources(group: str, kind: str) -> set[tuple[str, str]]:
    """Return group and name of the resources with objects of *kind* of *group*; either may be ``*``."""
    if kind == ANY:
        subs = {
            (of_rule, name) for of_rule, name, of_object, _ in _SUB_RESOURCES if group in (ANY, of_object)
        }
        return {(group, ANY), *subs}
    found = {each for each in _BY_KIND.get(kind, ()) if group in (ANY, _GROUPS[kind, each])}
    if not found and group in RESOURCES and kind in _BY_KIND:
        # Another group of the same entry has it.
        return set()
    if not found:
        # Of a custom resource, whose plural name is not known. It has no subresources for Gatekeeper.
        return {(group, ANY)}
    # A custom resource may have the same kind in a group of its own, with the usual plural name.
    return {(ANY, name) for _, name in found} if group == ANY else found
