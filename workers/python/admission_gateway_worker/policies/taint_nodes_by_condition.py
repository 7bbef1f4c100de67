"""TaintNodesByCondition: a new node has the taint of a node that is not ready, until it is ready.

Source: kubernetes plugin/pkg/admission/nodetaint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission_gateway_worker.policies.builtin import is_for, rule
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review

_RULES: Final = (rule("nodes", "CREATE"),)
_TAINT: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def taint_new_node(review: Review) -> None:
    """Add the taint to a node that does not have it."""
    if not is_for(review, _RULES):
        return
    spec = review.object.setdefault("spec", {})
    taints = spec.get("taints") or []
    if not any(_TAINT.items() <= taint.items() for taint in taints):
        spec["taints"] = [*taints, dict(_TAINT)]


DEFINITIONS = (
    Definition(
        "taint-nodes-by-condition",
        "Adds the taint node.kubernetes.io/not-ready:NoSchedule to new nodes (TaintNodesByCondition).",
        taint_new_node,
        rules=_RULES,
        users_see="the node with a taint",
        topic="scheduling",
        replaces=(Replaced("Kubernetes", "TaintNodesByCondition"),),
        mutating=True,
        failure_policy="Ignore",
    ),
)
