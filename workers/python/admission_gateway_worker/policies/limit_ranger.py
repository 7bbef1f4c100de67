"""LimitRanger: defaults and limits of resources, as a LimitRange, for all namespaces of the webhook.

The parameters are the ``spec`` of a LimitRange. A LimitRange in a namespace is applied by the API server
before: its defaults win, and its limits hold too.

Source: kubernetes plugin/pkg/admission/limitranger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.amounts import MAX_MILLI_VALUE, ZERO, Amounts, amounts
from admission_gateway_worker.policies.builtin import aggregated, forbidden, is_for, rule
from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.limit_range import prepare
from admission_gateway_worker.quantity import PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission_gateway_worker import Review
    from admission_gateway_worker.policies.amounts import Amount
    from admission_gateway_worker.policies.limit_range import Item

ANNOTATION: Final = "kubernetes.io/limit-ranger"
_MUTATING_RULES: Final = (rule("pods", "CREATE"), rule("pods/resize", "UPDATE"))
_RULES: Final = (*_MUTATING_RULES, rule("persistentvolumeclaims", "CREATE", "UPDATE"))
_POD_LEVEL: Final = ("cpu", "memory")


def set_defaults(review: Review) -> None:
    """Set requests and limits of containers that have none."""
    if not is_for(review, _MUTATING_RULES) or _is_deleted(review):
        return
    requests: Amounts = {}
    limits: Amounts = {}
    for item in review.parameters:
        if item.type == "Container":
            requests |= item.default_request
            limits |= item.default
    spec = review.object.get("spec") or {}
    notes: list[str] = []
    for field, label in (("containers", "container"), ("initContainers", "init container")):
        for container in spec.get(field) or ():
            resources = container.get("resources") or {}
            for name, defaults in (("requests", requests), ("limits", limits)):
                missing = sorted(defaults.keys() - (resources.get(name) or {}).keys())
                if missing:
                    added = {key: str(defaults[key]) for key in missing}
                    resources[name] = {**(resources.get(name) or {}), **added}
                    container["resources"] = resources
                    notes.append(f"{', '.join(missing)} {name[:-1]} for {label} {container.get('name', '')}")
    if notes:
        metadata = review.object.setdefault("metadata", {})
        text = "LimitRanger plugin set: " + "; ".join(notes)
        metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION: text}


def check_limits(review: Review) -> None:
    """Deny pods and claims outside of the limits."""
    if not is_for(review, _RULES) or _is_deleted(review):
        return
    spec = review.object.get("spec") or {}
    is_pod = review.resource.get("resource") == "pods"
    found = _of_pod(spec, review.parameters) if is_pod else _of_claim(spec, review.parameters)
    if problems := list(found):
        raise forbidden(review, aggregated(problems))


def _is_deleted(review: Review) -> bool:
    return bool(((review.old_object or {}).get("metadata") or {}).get("deletionTimestamp"))


def _of_pod(spec: dict[str, Any], items: tuple[Item, ...]) -> Iterator[str]:
    for item in items:
        if item.type == "Container":
            for field in ("containers", "initContainers"):
                for container in spec.get(field) or ():
                    resources = container.get("resources") or {}
                    requests, limits = amounts(resources.get("requests")), amounts(resources.get("limits"))
                    yield from _outside(item, requests, limits)
        elif item.type == "Pod":
            yield from _outside(item, pod_total(spec, "requests"), pod_total(spec, "limits"))


def _of_claim(spec: dict[str, Any], items: tuple[Item, ...]) -> Iterator[str]:
    requests = amounts((spec.get("resources") or {}).get("requests"))
    for item in items:
        if item.type == "PersistentVolumeClaim":
            for name, enforced in sorted(item.min.items()):
                yield from _below_min(item.type, name, enforced, requests, {})
            for name, enforced in sorted(item.max.items()):
                start = f"maximum {name} usage per {item.type} is {enforced}"
                request = requests.get(name)
                if request is None:
                    yield f"{start}.  No request is specified"
                elif _values(request, ZERO, enforced)[0] > _values(request, ZERO, enforced)[2]:
                    yield f"{start}, but request is {request}"


def _outside(item: Item, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, enforced in sorted(item.min.items()):
        yield from _below_min(item.type, name, enforced, requests, limits)
    for name, enforced in sorted(item.max.items()):
        yield from _above_max(item.type, name, enforced, requests, limits)
    for name, enforced in sorted(item.ratio.items()):
        yield from _above_ratio(item.type, name, enforced, requests, limits)


def _below_min(kind: str, name: str, enforced: Amount, requests: Amounts, limits: Amounts) -> Iterator[str]:
    request, limit = requests.get(name), limits.get(name)
    requested, limited, least = _values(request or ZERO, limit or ZERO, enforced)
    start = f"minimum {name} usage per {kind} is {enforced}"
    if request is None:
        yield f"{start}.  No request is specified"
    elif requested < least:
        yield f"{start}, but request is {request}"
    elif limit is not None and limited < least:
        yield f"{start}, but limit is {limit}"


def _above_max(kind: str, name: str, enforced: Amount, requests: Amounts, limits: Amounts) -> Iterator[str]:
    request, limit = requests.get(name), limits.get(name)
    requested, limited, most = _values(request or ZERO, limit or ZERO, enforced)
    start = f"maximum {name} usage per {kind} is {enforced}"
    if limit is None:
        yield f"{start}.  No limit is specified"
    elif limited > most:
        yield f"{start}, but limit is {limit}"
    elif request is not None and requested > most:
        yield f"{start}, but request is {request}"


def _above_ratio(kind: str, name: str, enforced: Amount, requests: Amounts, limits: Amounts) -> Iterator[str]:
    requested, limited, _ = _values(requests.get(name, ZERO), limits.get(name, ZERO), enforced)
    start = f"{name} max limit to request ratio per {kind} is {enforced}"
    if not requested:
        yield f"{start}, but no request is specified or request is 0"
        return
    if not limited:
        yield f"{start}, but no limit is specified or limit is 0"
        return
    ratio = limited / requested
    is_exact = enforced.value <= MAX_MILLI_VALUE
    if (ratio * 1000 > enforced.milli_value) if is_exact else (ratio > enforced.value):
        yield f"{start}, but provided ratio is {ratio:f}"


def _values(request: Amount, limit: Amount, enforced: Amount) -> tuple[int, int, int]:
    """Return the three in thousandths if Kubernetes can hold that, otherwise as whole numbers."""
    whole = request.value, limit.value, enforced.value
    if max(whole) <= MAX_MILLI_VALUE:
        return request.milli_value, limit.milli_value, enforced.milli_value
    return whole


def pod_total(spec: dict[str, Any], field: str) -> Amounts:
    """Return the requests or limits of a whole pod: of the greater of its start and its run.

    Values of the pod itself replace those of its containers.
    """
    total: Amounts = {}
    sidecars: Amounts = {}
    start: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _resources(container, field))
    for container in spec.get("initContainers") or ():
        own = _resources(container, field)
        if container.get("restartPolicy") == "Always":
            _add(total, own)
            _add(sidecars, own)
            _raise_to(start, {name: sidecars[name] for name in own})
        else:
            # Resources of the sidecars only are in the start already.
            _raise_to(
                start,
                {
                    name: amount + sidecars[name] if name in sidecars else amount
                    for name, amount in own.items()
                },
            )
    _raise_to(total, start)
    of_pod = _resources(spec, field)
    return total | {name: amount for name, amount in of_pod.items() if name in _POD_LEVEL}


def _resources(holder: dict[str, Any], field: str) -> Amounts:
    return amounts((holder.get("resources") or {}).get(field))


def _add(total: Amounts, others: Amounts) -> None:
    for name, amount in others.items():
        total[name] = total[name] + amount if name in total else amount


def _raise_to(total: Amounts, others: Amounts) -> None:
    for name, amount in others.items():
        if name not in total or amount.is_more_than(total[name]):
            total[name] = amount


def _amounts_schema(description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": {"type": ["string", "number"], "pattern": PATTERN},
        "description": f"{description} Quantities by name of the resource.",
    }


_PARAMETERS: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["limits"],
    "properties": {
        "limits": {
            "type": "array",
            "minItems": 1,
            "description": "As spec.limits of a LimitRange.",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["type"],
                "properties": {
                    "type": {
                        "type": "string",
                        "enum": ["Container", "Pod", "PersistentVolumeClaim"],
                        "description": "What is limited.",
                    },
                    "min": _amounts_schema("Least requests and limits."),
                    "max": _amounts_schema("Greatest requests and limits."),
                    "default": _amounts_schema("Limits of containers that have none."),
                    "defaultRequest": _amounts_schema("Requests of containers that have none."),
                    "maxLimitRequestRatio": _amounts_schema("Greatest limit for a request of 1."),
                },
            },
        }
    },
}
_EXAMPLE: Final = {
    "limits": [
        {
            "type": "Container",
            "default": {"memory": "512Mi"},
            "defaultRequest": {"cpu": "100m", "memory": "128Mi"},
            "max": {"memory": "8Gi"},
        }
    ]
}

_NOTES: Final = (
    "- Reviews fail with parameters that a LimitRange cannot have, such as `min` above `max`, or `default` "
    "for the type `Pod`. The text names the field.\n"
)

DEFINITIONS = (
    Definition(
        "limit-ranger",
        "Sets default requests and limits of containers, as a LimitRange for many namespaces (LimitRanger).",
        set_defaults,
        rules=_MUTATING_RULES,
        users_see="the pod with resources, and an annotation that lists them",
        topic="resources and availability",
        replaces=(Replaced("Kubernetes", "LimitRanger"),),
        mutating=True,
        parameters=_PARAMETERS,
        prepare=prepare,
        notes=_NOTES,
        example=_EXAMPLE,
    ),
    Definition(
        "limit-ranger-validate",
        "Denies pods and PersistentVolumeClaims whose requests and limits are outside of the given limits.",
        check_limits,
        rules=_RULES,
        users_see='pods "web" is forbidden: maximum memory usage per Container is 8Gi, but limit is 16Gi',
        topic="resources and availability",
        replaces=(Replaced("Kubernetes", "LimitRanger"),),
        parameters=_PARAMETERS,
        prepare=prepare,
        notes=_NOTES,
        example=_EXAMPLE,
    ),
)
