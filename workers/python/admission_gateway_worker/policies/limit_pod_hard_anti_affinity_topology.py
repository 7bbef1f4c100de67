"""LimitPodHardAntiAffinityTopology: required anti-affinity between pods counts nodes only.

A required anti-affinity of another topology, such as a zone, keeps other pods out of the whole zone.

Source: kubernetes plugin/pkg/admission/antiaffinity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission_gateway_worker.policies.builtin import PODS, forbidden, is_for
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review

_RULES: Final = (PODS,)
_HOSTNAME: Final = "kubernetes.io/hostname"


def limit_topology(review: Review) -> None:
    """Deny pods whose required anti-affinity has another topology key than the node's name."""
    if not is_for(review, _RULES):
        return
    affinity = (review.object.get("spec") or {}).get("affinity") or {}
    terms = (affinity.get("podAntiAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    for term in terms or ():
        if (key := term.get("topologyKey", "")) != _HOSTNAME:
            raise forbidden(
                review,
                f"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} "
                f"but only key {_HOSTNAME} is allowed",
                name=(review.object.get("metadata") or {}).get("name", ""),
            )


DEFINITIONS = (
    Definition(
        "limit-pod-hard-anti-affinity-topology",
        "Denies pods whose required anti-affinity has another topology key than kubernetes.io/hostname "
        "(LimitPodHardAntiAffinityTopology).",
        limit_topology,
        rules=_RULES,
        users_see='pods "web" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has '
        "TopologyKey topology.kubernetes.io/zone but only key kubernetes.io/hostname is allowed",
        topic="scheduling",
        replaces=(Replaced("Kubernetes", "LimitPodHardAntiAffinityTopology"),),
    ),
)
