"""PodTolerationRestriction: default tolerations of a namespace, and the tolerations that its pods may have.

The namespace has both as JSON in the annotations ``scheduler.alpha.kubernetes.io/defaultTolerations`` and
``scheduler.alpha.kubernetes.io/tolerationsWhitelist``. The parameters are those of the API server's
configuration file, for namespaces without the annotations.

Source: kubernetes plugin/pkg/admission/podtolerationrestriction; pkg/apis/core/helper/qos.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from admission_gateway_worker.policies.amounts import ZERO, amounts
from admission_gateway_worker.policies.builtin import (
    LABEL_KEY,
    LABEL_VALUE,
    PODS,
    annotations_of_namespace,
    failed,
    is_for,
    quoted,
)
from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.tolerations import are_within, merged
from admission_gateway_worker.text import printable

if TYPE_CHECKING:
    from admission_gateway_worker import Review
    from admission_gateway_worker.policies.tolerations import Toleration

DEFAULTS: Final = "scheduler.alpha.kubernetes.io/defaultTolerations"
ALLOWED: Final = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
_RULES: Final = (PODS,)
_FIELDS: Final = {name.lower(): name for name in ("key", "operator", "value", "effect", "tolerationSeconds")}
"""By their names in lower case: Go's decoder ignores the case."""
_INT64: Final = 2**63
_MEMORY_PRESSURE: Final = {
    "key": "node.kubernetes.io/memory-pressure",
    "operator": "Exists",
    "effect": "NoSchedule",
}


def pod_toleration_restriction(review: Review) -> None:
    """Add default tolerations, then check all tolerations of the pod."""
    if not is_for(review, _RULES):
        return
    spec = review.object.setdefault("spec", {})
    added: list[Toleration] = []
    if review.operation == "CREATE":
        defaults = _of_namespace(review, DEFAULTS)
        added += review.parameters.get("default", ()) if defaults is None else defaults
    if not is_best_effort(review.object):
        added.append(_MEMORY_PRESSURE)
    if added:
        spec["tolerations"] = merged(spec.get("tolerations") or (), added)
    check_tolerations(review)


def check_tolerations(review: Review) -> None:
    """Deny tolerations that neither the namespace nor the parameters allow."""
    if not is_for(review, _RULES):
        return
    tolerations = (review.object.get("spec") or {}).get("tolerations") or ()
    if not tolerations:
        return
    allowed, scope = _of_namespace(review, ALLOWED), "namespace"
    if allowed is None:
        allowed, scope = review.parameters.get("whitelist", ()), "cluster"
    if not are_within(tolerations, allowed):
        raise failed(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its "
            f"{scope} whitelist"
        )


def _of_namespace(review: Review, annotation: str) -> list[Toleration] | None:
    """Return the tolerations of an annotation; None if the namespace does not have it."""
    text = annotations_of_namespace(review).get(annotation)
    if text is None:
        return None
    if not text:
        return []
    try:
        return _decoded(orjson.loads(text))
    except ValueError as error:
        raise failed(
            f"annotation {annotation} of namespace {quoted(review.namespace)} is not a JSON list of "
            f"tolerations: {error}"
        ) from error


def _decoded(found: object) -> list[Toleration]:
    """Return the tolerations in a JSON document as Go's decoder: null is nothing, other types are errors.

    Raises:
        ValueError: a type is wrong.
    """
    if not isinstance(found, list | None):
        raise _wrong("", found, "a list")
    tolerations = []
    for index, each in enumerate(found or ()):
        if not isinstance(each, dict | None):
            raise _wrong(f"[{index}]", each, "an object")
        toleration = {}
        for key, value in (each or {}).items():
            name = _FIELDS.get(key.lower())
            if name is None or value is None:
                continue
            if name == "tolerationSeconds":
                if type(value) is not int or not -_INT64 <= value < _INT64:
                    raise _wrong(f"[{index}].{name}", value, "a whole number of 64 bits")
            elif not isinstance(value, str):
                raise _wrong(f"[{index}].{name}", value, "a string")
            toleration[name] = value
        tolerations.append({name: value for name, value in toleration.items() if value != ""})
    return tolerations


def _wrong(field: str, found: object, expected: str) -> ValueError:
    start = f"{field}: " if field else ""
    return ValueError(f"{start}found {printable(orjson.dumps(found).decode(), 100)}, expected {expected}")


def prepare(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return *parameters*, whose tolerations are valid.

    Raises:
        ValueError: Kubernetes does not allow one of them. Source: pkg/apis/core/validation validation.go,
            ValidateTolerations.
    """
    for field, tolerations in parameters.items():
        for index, each in enumerate(tolerations):
            if problem := _problem(each):
                raise ValueError(f"{field}[{index}]{problem}")
    return parameters


def _problem(toleration: Toleration) -> str:
    """Return the field of *toleration* that is wrong, and why; empty if it is valid."""
    key, value = toleration.get("key", ""), toleration.get("value", "")
    is_exists = toleration.get("operator") == "Exists"
    if key and not LABEL_KEY.fullmatch(key):
        return f".key: {quoted(key)} is not a label key"
    if not key and not is_exists:
        return ".operator: it has to be Exists without a key"
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        return ".effect: it has to be NoExecute with tolerationSeconds"
    if is_exists and value:
        return f".value: found {quoted(value)}, expected none with the operator Exists"
    if not LABEL_VALUE.fullmatch(value):
        return f".value: {quoted(value)} is not a label value"
    return ""


def is_best_effort(pod: dict[str, Any]) -> bool:
    """Whether the QoS class of the pod is BestEffort."""
    if found := (pod.get("status") or {}).get("qosClass"):
        return bool(found == "BestEffort")
    spec = pod.get("spec") or {}
    of_pod = spec.get("resources") or {}
    named = (name for field in ("requests", "limits") for name in of_pod.get(field) or ())
    if any(name in ("cpu", "memory") or name.startswith("hugepages-") for name in named):
        return _requests_nothing(of_pod)
    return all(
        _requests_nothing(container.get("resources") or {})
        for field in ("initContainers", "containers")
        for container in spec.get(field) or ()
    )


def _requests_nothing(resources: dict[str, Any]) -> bool:
    return not any(
        amounts(resources.get(field)).get(name, ZERO).quantity.number
        for field in ("requests", "limits")
        for name in ("cpu", "memory")
    )


_TOLERATIONS: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "key": {"type": "string"},
            "operator": {"type": "string", "enum": ["Exists", "Equal"]},
            "value": {"type": "string"},
            "effect": {"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
            "tolerationSeconds": {"type": "integer"},
        },
    },
}
_PARAMETERS: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "default": {
            **_TOLERATIONS,
            "description": f"Tolerations added to new pods of namespaces without the annotation {DEFAULTS}.",
        },
        "whitelist": {
            **_TOLERATIONS,
            "description": f"Tolerations that pods of namespaces without the annotation {ALLOWED} may have. "
            "Without any, they may have all.",
        },
    },
}
_EXAMPLE: Final = {"whitelist": [{"key": "team", "operator": "Exists"}]}
_SEE: Final = (
    "pod tolerations (possibly merged with namespace default tolerations) conflict with its cluster whitelist"
)

_NOTES: Final = (
    "- A review fails with parameters that are not valid tolerations, such as a `value` with `Exists`. An "
    "annotation that is not a list of tolerations refuses the pods of its namespace, as in the API server.\n"
)

DEFINITIONS = (
    Definition(
        "pod-toleration-restriction",
        "Adds the default tolerations of the namespace to its pods and denies pods with tolerations that it "
        "does not allow (PodTolerationRestriction).",
        pod_toleration_restriction,
        rules=_RULES,
        users_see=_SEE,
        topic="scheduling",
        replaces=(Replaced("Kubernetes", "PodTolerationRestriction"),),
        mutating=True,
        parameters=_PARAMETERS,
        prepare=prepare,
        notes=_NOTES,
        example=_EXAMPLE,
        needs_namespace=True,
    ),
    Definition(
        "pod-toleration-restriction-validate",
        "Denies pods with tolerations that their namespace does not allow after all changes.",
        check_tolerations,
        rules=_RULES,
        users_see=_SEE,
        topic="scheduling",
        replaces=(Replaced("Kubernetes", "PodTolerationRestriction"),),
        parameters=_PARAMETERS,
        prepare=prepare,
        notes=_NOTES,
        example=_EXAMPLE,
        needs_namespace=True,
    ),
)
