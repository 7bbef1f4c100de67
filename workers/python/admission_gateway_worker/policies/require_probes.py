"""``require-probes``: containers of services have probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.workloads import (
    PODS_AND_TEMPLATES,
    deny_new_in_pods,
    long_running_containers,
)
from admission_gateway_worker.review import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission_gateway_worker import Review
    from admission_gateway_worker.pods import PodSpec

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def require_probes(review: Review) -> None:
    """Deny containers without the probes ``review.parameters``, except in pods that run to an end."""
    probes: tuple[str, ...] = review.parameters
    deny_new_in_pods(review, lambda pod: _problems(pod, probes))


def _problems(pod: PodSpec, probes: tuple[str, ...]) -> Iterator[Cause]:
    if pod.spec.get("restartPolicy", "Always") != "Always":
        return
    for path, container in long_running_containers(pod):
        for probe in probes:
            if not container.get(probe):
                message = f'container "{container.get("name", "")}" has no {probe}: add one'
                yield Cause(message, f"{path}.{probe}", "FieldValueRequired")


DEFINITIONS = (
    Definition(
        name="require-probes",
        summary="Containers have probes, except in pods that run to an end, such as those of Jobs.",
        function=require_probes,
        rules=PODS_AND_TEMPLATES,
        users_see='spec.containers[0].readinessProbe: container "app" has no readinessProbe: add one',
        topic="resources and availability",
        replaces=(
            Replaced(
                "Kyverno",
                "require-pod-probes",
                "every probe of the list, not one of three; not for Pods that run to an end",
            ),
            Replaced(
                "Gatekeeper",
                "K8sRequiredProbes",
                "without a list of types of probes; not for Pods that run to an end",
            ),
        ),
        parameters={
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "probes": {
                    "type": "array",
                    "minItems": 1,
                    "items": {"enum": list(_PROBES)},
                    "default": ["livenessProbe", "readinessProbe"],
                    "description": f"Required probes: {', '.join(f'`{probe}`' for probe in _PROBES)}.",
                }
            },
        },
        prepare=lambda parameters: tuple(parameters.get("probes", _PROBES[:2])),
        example={"probes": ["readinessProbe"]},
    ),
)
