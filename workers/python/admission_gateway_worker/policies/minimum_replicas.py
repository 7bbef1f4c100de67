"""``minimum-replicas``: workloads have several replicas, also after their scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.workloads import SCALABLE, deny_new, replicas_of, written
from admission_gateway_worker.review import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission_gateway_worker import Review

Json = dict[str, Any]

_MINIMUM: Final = 2


class _Parameters(NamedTuple):
    minimum: int
    allows_zero: bool


def minimum_replicas(review: Review) -> None:
    """Deny fewer replicas than the minimum. A HorizontalPodAutoscaler is checked by its minReplicas."""
    found = review.object
    if review.operation not in ("CREATE", "UPDATE") or not isinstance(found, dict):
        return
    if (found.get("metadata") or {}).get("deletionTimestamp"):
        return
    field = "minReplicas" if review.kind.get("kind") == "HorizontalPodAutoscaler" else "replicas"
    deny_new(review, lambda workload: _problems(workload, field, review.parameters))


def _problems(workload: Json, field: str, parameters: _Parameters) -> Iterator[Cause]:
    replicas = replicas_of(workload, field)
    if replicas < parameters.minimum and not (replicas == 0 and parameters.allows_zero):
        message = f"{replicas} is less than the minimum of {parameters.minimum}"
        yield Cause(message, f"spec.{field}", "FieldValueInvalid")


DEFINITIONS = (
    Definition(
        name="minimum-replicas",
        summary="Deployments, StatefulSets and their autoscalers have a minimum of replicas.",
        function=minimum_replicas,
        rules=(SCALABLE, written("autoscaling", "horizontalpodautoscalers", version="v2")),
        users_see="spec.replicas: 1 is less than the minimum of 2",
        topic="resources and availability",
        replaces=(
            Replaced(
                "Kyverno",
                "deployment-has-multiple-replicas",
                "also for StatefulSets, autoscalers and scaling; 0 replicas are allowed by default",
            ),
            Replaced("Gatekeeper", "K8sReplicaLimits", "a minimum, and no maximum or ranges"),
        ),
        parameters={
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "minimum": {
                    "type": "integer",
                    "minimum": 1,
                    "default": _MINIMUM,
                    "description": "The least number of replicas.",
                },
                "allowZero": {
                    "type": "boolean",
                    "default": True,
                    "description": "Whether a workload may be switched off by 0 replicas.",
                },
            },
        },
        prepare=lambda parameters: _Parameters(
            parameters.get("minimum", _MINIMUM), parameters.get("allowZero", True)
        ),
        example={"minimum": 3},
    ),
)
