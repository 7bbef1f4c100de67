"""``require-pod-disruption-budget``: workloads with several replicas have a PodDisruptionBudget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission_gateway_worker.policies.cluster import connect, found_or_now
from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.workloads import SCALABLE, deny, replicas_of
from admission_gateway_worker.review import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission_gateway_worker import Review


async def require_pod_disruption_budget(review: Review) -> None:
    """Deny workloads without a budget that have ``review.parameters`` or more replicas."""
    found, old = review.object, review.old_object
    if review.operation not in ("CREATE", "UPDATE") or review.sub_resource not in ("", "scale"):
        return
    least: int = review.parameters
    if (found.get("metadata") or {}).get("deletionTimestamp") or replicas_of(found) < least:
        return
    # A Scale has no labels: equal ones, as it does not change those of the workload.
    if old and _labels(old) == _labels(found) and replicas_of(old) >= least:
        return  # A policy that is new in a cluster does not hinder other changes.
    if review.sub_resource:
        plural = review.resource["resource"]
        found = await connect().get("apps/v1", plural, review.name, review.namespace, max_age_s=0)
        if found is None:
            return  # The API server refuses to scale what is not there.
    labels = _labels(found)

    async def is_selected(max_age_s: float) -> bool:
        budgets = await connect().objects(
            "policy/v1", "poddisruptionbudgets", review.namespace, max_age_s=max_age_s
        )
        return any(selects((each.get("spec") or {}).get("selector"), labels) for each in budgets)

    if not await found_or_now(is_selected):
        message = (
            f"no PodDisruptionBudget in the namespace {review.namespace} selects the pods: create one first"
        )
        deny([Cause(message, "spec.template.metadata.labels", "FieldValueRequired")])


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether a LabelSelector selects *labels*; None selects nothing, an empty one everything.

    Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go, LabelSelector.
    """
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def _labels(workload: Mapping[str, Any]) -> Mapping[str, str]:
    template = (workload.get("spec") or {}).get("template") or {}
    return (template.get("metadata") or {}).get("labels") or {}


DEFINITIONS = (
    Definition(
        name="require-pod-disruption-budget",
        summary="Workloads with several replicas have a PodDisruptionBudget.",
        function=require_pod_disruption_budget,
        rules=(SCALABLE,),
        users_see="spec.template.metadata.labels: no PodDisruptionBudget in the namespace shop selects "
        "the pods: create one first",
        topic="resources and availability",
        replaces=(
            Replaced(
                "Kyverno", "require-pdb", "also at updates and scaling; from 2 replicas on by default, not 3"
            ),
        ),
        parameters={
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "replicas": {
                    "type": "integer",
                    "minimum": 1,
                    "default": 2,
                    "description": "The number of replicas from which on a workload needs one.",
                }
            },
        },
        prepare=lambda parameters: int(parameters.get("replicas", 2)),
        example={"replicas": 2},
        needs_cluster=True,
        notes="- Autoscalers scale workloads by `scale`, too: a HorizontalPodAutoscaler cannot reach the "
        "number of replicas without a PodDisruptionBudget.\n",
        rights="list poddisruptionbudgets.policy; get deployments.apps, statefulsets.apps",
    ),
)
