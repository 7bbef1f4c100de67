"""``require-resources``: containers have resource requests and limits, within ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from admission_gateway_worker.pods import containers
from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.workloads import PODS_AND_TEMPLATES, deny_new_in_pods
from admission_gateway_worker.quantity import PATTERN, MalformedQuantity, Quantity, compare, parse
from admission_gateway_worker.review import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission_gateway_worker import Review
    from admission_gateway_worker.pods import PodSpec


class _Bound(NamedTuple):
    text: str
    quantity: Quantity


class _Required(NamedTuple):
    """A required request or limit of one resource."""

    field: str
    """``requests`` or ``limits``."""
    resource: str
    least: _Bound | None
    most: _Bound | None


def _prepare(parameters: Mapping[str, Any]) -> tuple[_Required, ...]:
    """Raises ValueError if a bound is not a quantity, or a range is empty."""
    required = []
    for field in ("requests", "limits"):
        for resource, given in (parameters.get(field) or {}).items():
            path = f"{field}.{resource}"
            least, most = (_bound(f"{path}.{name}", given.get(name)) for name in ("min", "max"))
            if least and most and compare(least.quantity, most.quantity) > 0:
                raise ValueError(f"{path}: min {least.text} is more than max {most.text}")
            required.append(_Required(field, resource, least, most))
    return tuple(required)


def _bound(path: str, text: str | None) -> _Bound | None:
    try:
        return None if text is None else _Bound(text, parse(text))
    except MalformedQuantity as error:
        raise ValueError(f"{path}: {text!r} is not a quantity: {error}") from None


def require_resources(review: Review) -> None:
    """Deny containers and init containers without the required requests and limits."""
    required: tuple[_Required, ...] = review.parameters
    deny_new_in_pods(review, lambda pod: _problems(pod, required))


def _problems(pod: PodSpec, required: tuple[_Required, ...]) -> Iterator[Cause]:
    stand_in: dict[_Required, object] = {}
    for path, container in containers(pod, "containers", "initContainers"):
        name = f'container "{container.get("name", "")}"'
        for each in required:
            found = _amount(container, each)
            if found is None and (of_pod := _amount(pod.spec, each)) is not None:
                stand_in[each] = of_pod
            else:
                yield from _outside(path, name, found, each)
    for each, found in stand_in.items():
        yield from _outside(pod.path, "the pod", found, each)


def _amount(holder: Mapping[str, Any], required: _Required) -> object:
    return ((holder.get("resources") or {}).get(required.field) or {}).get(required.resource)


def _outside(path: str, name: str, found: object, required: _Required) -> Iterator[Cause]:
    """Yield what is wrong with *found*, the request or limit of *name*."""
    field = f"{path}.resources.{required.field}[{required.resource}]"
    if found is None:
        message = f"{name} has no {required.resource} in {required.field}: set it"
        yield Cause(message, field, "FieldValueRequired")
        return
    try:
        quantity = parse(str(found))
    except MalformedQuantity:
        return  # the API server refuses it
    for bound, sign, word in ((required.least, -1, "less"), (required.most, 1, "more")):
        if bound is not None and compare(quantity, bound.quantity) == sign:
            message = f"{name} has {found} {required.resource} in {required.field}, {word} than {bound.text}"
            yield Cause(message, field, "FieldValueInvalid")


def _ranges(what: str) -> dict[str, Any]:
    quantity = {"type": "string", "pattern": PATTERN}
    return {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"min": quantity, "max": quantity},
        },
        "description": f"Required {what} by resource, such as `memory`, with an optional `min` and `max`.",
    }


DEFINITIONS = (
    Definition(
        name="require-resources",
        summary="Containers have the required resource requests and limits, within ranges.",
        function=require_resources,
        rules=PODS_AND_TEMPLATES,
        users_see='spec.containers[0].resources.limits[memory]: container "app" has no memory in limits: '
        "set it",
        topic="resources and availability",
        replaces=(
            Replaced(
                "Kyverno", "require-requests-limits", "also for init containers; resources by parameter"
            ),
            Replaced("Gatekeeper", "K8sRequiredResources", "no exempt images"),
            Replaced("Gatekeeper", "K8sContainerLimits", "a maximum is inclusive; no exempt images"),
            Replaced("Gatekeeper", "K8sContainerRequests", "a maximum is inclusive; no exempt images"),
        ),
        parameters={
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "properties": {"requests": _ranges("requests"), "limits": _ranges("limits")},
        },
        prepare=_prepare,
        notes="- What a container lacks may be in `spec.resources` of the pod, which Kubernetes 1.34 and "
        "newer have for `cpu`, `memory` and huge pages. The range then holds for the pod's amount.\n",
        example={"requests": {"cpu": {}, "memory": {"min": "16Mi"}}, "limits": {"memory": {"max": "8Gi"}}},
    ),
)
