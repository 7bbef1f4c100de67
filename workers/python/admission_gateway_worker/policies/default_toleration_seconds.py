"""DefaultTolerationSeconds: how long pods stay on nodes that are not ready or unreachable.

The built-in controller runs before webhooks and adds 300 s. For other values it has to be off, or
``replaceBuiltIn`` replaces exactly the tolerations that it adds.

Source: kubernetes plugin/pkg/admission/defaulttolerationseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.builtin import PODS, is_for
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review

_RULES: Final = (PODS,)
_BUILT_IN_S: Final = 300
_KEYS: Final = {
    "node.kubernetes.io/not-ready": "notReadySeconds",
    "node.kubernetes.io/unreachable": "unreachableSeconds",
}
_SECONDS: Final = {"type": "integer", "default": _BUILT_IN_S}


def default_toleration_seconds(review: Review) -> None:
    """Add both tolerations to pods that have none for the taint."""
    if not is_for(review, _RULES):
        return
    parameters, spec = review.parameters, review.object.setdefault("spec", {})
    given: list[dict[str, Any]] = spec.get("tolerations") or []
    kept = given
    if parameters.get("replaceBuiltIn") and review.operation == "CREATE":
        built_in = [_toleration(key, _BUILT_IN_S) for key in _KEYS]
        kept = [each for each in given if each not in built_in]
    added = [
        _toleration(key, parameters.get(field, _BUILT_IN_S))
        for key, field in _KEYS.items()
        if not any(_tolerates(each, key) for each in kept)
    ]
    if added or kept is not given:
        spec["tolerations"] = [*kept, *added]


def _toleration(key: str, seconds: int) -> dict[str, Any]:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}


def _tolerates(toleration: dict[str, Any], key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


DEFINITIONS = (
    Definition(
        "default-toleration-seconds",
        "Adds tolerations for nodes that are not ready or unreachable (DefaultTolerationSeconds), "
        "with seconds of your choice.",
        default_toleration_seconds,
        rules=_RULES,
        users_see="the pod with two tolerations",
        topic="scheduling",
        replaces=(Replaced("Kubernetes", "DefaultTolerationSeconds"),),
        mutating=True,
        parameters={
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "notReadySeconds": {
                    **_SECONDS,
                    "description": "tolerationSeconds for node.kubernetes.io/not-ready:NoExecute.",
                },
                "unreachableSeconds": {
                    **_SECONDS,
                    "description": "tolerationSeconds for node.kubernetes.io/unreachable:NoExecute.",
                },
                "replaceBuiltIn": {
                    "type": "boolean",
                    "default": False,
                    "description": "Replace, in new pods, the tolerations of 300 s that the API server's own "
                    "controller adds. The same tolerations written by a user are replaced too.",
                },
            },
        },
        notes="The API server's own controller is on by default and runs before webhooks, with 300 s "
        "or the values of its flags. Without `replaceBuiltIn` the policy therefore changes nothing there.\n",
        example={"notReadySeconds": 30, "unreachableSeconds": 30, "replaceBuiltIn": True},
    ),
)
