"""PodTopologyLabels: pods get labels of their node, such as its zone.

The labels are added to the Binding, from which an API server with PodTopologyLabelsAdmission (on by default
since Kubernetes 1.35) copies them to the pod. Pods that are created with a node name get them at once.

Source: kubernetes plugin/pkg/admission/podtopologylabels; pkg/registry/core/pod/storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission_gateway_worker.policies.builtin import is_for, rule
from admission_gateway_worker.policies.cluster import connect
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review

_RULES: Final = (rule("pods", "CREATE"), rule("pods/binding", "CREATE"))
_LABELS: Final = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"]


async def copy_labels(review: Review) -> None:
    """Copy labels of the node to the Binding or to the pod."""
    if not is_for(review, _RULES):
        return
    if review.sub_resource:
        target = review.object.get("target") or {}
        name = target.get("name") if target.get("kind") == "Node" else None
    else:
        name = (review.object.get("spec") or {}).get("nodeName")
    node = await connect().get("v1", "nodes", name) if name else None
    if node is None:
        return
    wanted = review.parameters.get("labels", _LABELS)
    labels = (node.get("metadata") or {}).get("labels") or {}
    if found := {key: labels[key] for key in wanted if key in labels}:
        metadata = review.object.setdefault("metadata", {})
        metadata["labels"] = {**(metadata.get("labels") or {}), **found}


DEFINITIONS = (
    Definition(
        "pod-topology-labels",
        "Copies labels of the node, such as its zone, to the pods that are bound to it (PodTopologyLabels), "
        "with labels of your choice.",
        copy_labels,
        rules=_RULES,
        users_see="the pod with the labels of its node",
        topic="scheduling",
        replaces=(
            Replaced("Kubernetes", "PodTopologyLabels"),
            Replaced(
                "Kyverno",
                "add-node-labels-pod",
                "sets the labels by the Binding, which needs Kubernetes 1.35 or newer",
            ),
        ),
        mutating=True,
        parameters={
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "labels": {
                    "type": "array",
                    "items": {"type": "string"},
                    "default": _LABELS,
                    "description": "Keys of the labels.",
                }
            },
        },
        example={"labels": [*_LABELS, "example.com/rack"]},
        needs_cluster=True,
        rights="get nodes",
        notes="An API server with PodTopologyLabelsAdmission, on by default since Kubernetes 1.35, "
        "copies the labels of a Binding to the pod. In older ones only pods that are created with a "
        "`nodeName` get labels.\n",
        failure_policy="Ignore",
    ),
)
