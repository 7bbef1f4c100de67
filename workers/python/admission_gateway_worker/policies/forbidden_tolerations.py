"""``forbidden-tolerations``: pods do not tolerate named taints, such as that of the control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.workloads import PODS_AND_TEMPLATES, deny_new_in_pods
from admission_gateway_worker.review import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission_gateway_worker import Review
    from admission_gateway_worker.pods import PodSpec


def forbidden_tolerations(review: Review) -> None:
    """Deny tolerations of the taints ``review.parameters``."""
    taints: tuple[Mapping[str, Any], ...] = review.parameters
    deny_new_in_pods(review, lambda pod: _problems(pod, taints))


def _problems(pod: PodSpec, taints: tuple[Mapping[str, Any], ...]) -> Iterator[Cause]:
    for index, toleration in enumerate(pod.spec.get("tolerations") or ()):
        for taint in taints:
            if tolerates(toleration, taint):
                written = orjson.dumps(toleration).decode()
                message = f"the toleration {written} tolerates the taint {_written(taint)}: remove it"
                yield Cause(message, f"{pod.path}.tolerations[{index}]")


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Return whether *toleration* tolerates *taint*; a part that the taint lacks matches any.

    Source: k8s.io/component-helpers scheduling/corev1 ToleratesTaint.
    """
    effect = toleration.get("effect")
    if effect and taint.get("effect") and effect != taint["effect"]:
        return False
    key, operator = toleration.get("key"), toleration.get("operator") or "Equal"
    if key and key != taint["key"]:
        return False
    # Lt and Gt tolerate some values, of which the parameters may name one.
    if operator != "Equal" or "value" not in taint:
        return bool(key) or operator == "Exists"
    return bool(key) and (toleration.get("value") or "") == taint["value"]


def _written(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    effect = f":{taint['effect']}" if taint.get("effect") else ""
    return f"{taint['key']}{value}{effect}"


DEFINITIONS = (
    Definition(
        name="forbidden-tolerations",
        summary="Pods do not tolerate the listed taints.",
        function=forbidden_tolerations,
        rules=PODS_AND_TEMPLATES,
        users_see='spec.tolerations[0]: the toleration {"operator":"Exists"} tolerates the taint '
        "node-role.kubernetes.io/control-plane: remove it",
        topic="scheduling",
        replaces=(
            Replaced(
                "Kyverno",
                "restrict-controlplane-scheduling",
                "taints by parameter; also a toleration of all taints",
            ),
        ),
        parameters={
            "type": "object",
            "additionalProperties": False,
            "required": ["taints"],
            "properties": {
                "taints": {
                    "type": "array",
                    "minItems": 1,
                    "description": "Taints that no pod tolerates: `key`, and optionally `value` and "
                    "`effect`; without them any. A toleration of all taints is denied, too.",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["key"],
                        "properties": {
                            "key": {"type": "string", "minLength": 1},
                            "value": {"type": "string"},
                            "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
                        },
                    },
                }
            },
        },
        prepare=lambda parameters: tuple(parameters["taints"]),
        example={"taints": [{"key": "node-role.kubernetes.io/control-plane"}]},
    ),
)
