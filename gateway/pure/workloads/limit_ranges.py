"""What the LimitRanges of a namespace do to Pods and PersistentVolumeClaims.

Source: k8s.io/kubernetes plugin/pkg/admission/limitranger/admission.go.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from admission_gateway_worker.quantity import MalformedQuantity
from gateway.pure.workloads import pod_resources
from gateway.pure.workloads.default_rules import part, parts
from gateway.pure.workloads.known import Refusal
from gateway.pure.workloads.quantities import Amount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gateway.pure.core.review import Json

    Amounts = Mapping[str, Amount]
    _Check = Callable[[str, Amount, "_Used"], tuple[str, str] | None]

PLUG_IN: Final = "LimitRanger"
_ANNOTATION: Final = "kubernetes.io/limit-ranger"
_CONTAINERS: Final = (("containers", "container"), ("initContainers", "init container"))
_MOST_MILLI: Final = (2**63 - 1) // 1000
_BOTH: Final[tuple[Literal["requests", "limits"], ...]] = "requests", "limits"
_MINIMUM: Final = "minimum"
_POD_LEVEL: Final = ("cpu", "memory")
_POD_LEVEL_SINCE: Final = 34


def with_limits(pod: Json, ranges: Iterable[Json]) -> Json:
    """Return *pod* with the resources that its containers get from *ranges*, and the annotation about it."""
    for one in ranges:
        requests: Json = {}
        limits: Json = {}
        for item in parts(part(one, "spec"), "limits"):
            if item.get("type") == "Container":
                requests |= part(item, "defaultRequest")
                limits |= part(item, "default")
        pod = _filled(pod, requests, limits)
    return pod


def _filled(pod: Json, requests: Json, limits: Json) -> Json:
    spec = dict(part(pod, "spec"))
    said = []
    for field, shown in _CONTAINERS:
        made = []
        for container in parts(spec, field):
            resources = part(container, "resources")
            for name, defaults, word in (("requests", requests, "request"), ("limits", limits, "limit")):
                own = part(resources, name)
                added = {each: value for each, value in defaults.items() if each not in own}
                if added:
                    resources = {**resources, name: {**own, **added}}
                    said.append(f"{', '.join(sorted(added))} {word} for {shown} {container.get('name', '')}")
            made.append({**container, "resources": resources} if resources else container)
        if made:
            spec[field] = made
    if not said:
        return pod
    metadata = part(pod, "metadata")
    annotation = f"{PLUG_IN} plugin set: {'; '.join(said)}"
    annotations = {**part(metadata, "annotations"), _ANNOTATION: annotation}
    return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": spec}


class _Used(NamedTuple):
    """The resources that something of a type has, for the bounds of that type."""

    type: str
    requests: Amounts
    limits: Amounts
    field: str


def pod_refusals(pod: Json, ranges: Iterable[Json], kubernetes: int) -> Iterator[Refusal]:
    """Yield in which resources *pod* is not within *ranges*, as Kubernetes 1.*kubernetes* says it."""
    for item in _items(ranges):
        used = []
        if item.get("type") == "Container":
            for field, _ in _CONTAINERS:
                for index, container in enumerate(parts(part(pod, "spec"), field)):
                    requests, limits = (_amounts(part(container, "resources", of)) for of in _BOTH)
                    used.append(_Used("Container", requests, limits, f"spec.{field}[{index}].resources"))
        elif item.get("type") == "Pod":
            of_pod = [_of_pod(pod, of, kubernetes) for of in _BOTH]
            used.append(_Used("Pod", of_pod[0], of_pod[1], "spec"))
        for one in used:
            yield from _bounds(item, "min", one, _least)
            yield from _bounds(item, "max", one, _most)
            yield from _bounds(item, "maxLimitRequestRatio", one, _ratio)


def claim_refusals(claim: Json, ranges: Iterable[Json]) -> Iterator[Refusal]:
    """Yield in which resources the PersistentVolumeClaim *claim* is not within *ranges*."""
    requests = _amounts(part(claim, "spec", "resources", "requests"))
    for item in _items(ranges):
        if item.get("type") == "PersistentVolumeClaim":
            one = _Used("PersistentVolumeClaim", requests, {}, "spec.resources")
            yield from _bounds(item, "min", one, _least)
            yield from _bounds(item, "max", one, _most_requested)


def _items(ranges: Iterable[Json]) -> Iterator[Json]:
    return (item for one in ranges for item in parts(part(one, "spec"), "limits"))


def _amounts(found: Json) -> dict[str, Amount]:
    """Return the quantities in *found*; one that cannot be read is left out: validation refuses it."""
    made = {}
    for name, value in found.items():
        try:
            made[name] = Amount.read(value)
        except MalformedQuantity:
            continue
    return made


def _of_pod(pod: Json, of: Literal["requests", "limits"], kubernetes: int) -> Amounts:
    spec = part(pod, "spec")
    try:
        found = pod_resources.total(parts(spec, "containers"), parts(spec, "initContainers"), of)
    except MalformedQuantity:
        return {}
    if kubernetes >= _POD_LEVEL_SINCE:
        own = _amounts(part(spec, "resources", of))
        found |= {name: amount for name, amount in own.items() if name in _POD_LEVEL}
    return found


def _bounds(item: Json, name: str, used: _Used, check: _Check) -> Iterator[Refusal]:
    for resource, bound in sorted(_amounts(part(item, name)).items()):
        found = check(resource, bound, used)
        if found is not None:
            which, message = found
            # A name with dots or slashes would be read as several parts.
            last = f".{which}.{resource}" if resource.isalnum() else f".{which}"
            yield Refusal(PLUG_IN, message, used.field + ("" if used.type == "Pod" else last))


def _outside(
    resource: str, bound: Amount, used: _Used, *, said: str, order: tuple[str, ...]
) -> tuple[str, str] | None:
    """Return which of requests and limits, looked at in *order*, breaks *bound*, and how that is said.

    The first of *order* has to be there. None is returned if nothing breaks it.
    """
    amounts = {"requests": used.requests.get(resource), "limits": used.limits.get(resource)}
    rule = f"{said} {resource} usage per {used.type} is {bound}"
    if amounts[order[0]] is None:
        return order[0], f"{rule}.  No {order[0][:-1]} is specified"
    *found, least_or_most = _comparable(amounts["requests"], amounts["limits"], bound)
    values = dict(zip(amounts, found, strict=True))
    for name in order:
        is_outside = values[name] < least_or_most if said == _MINIMUM else values[name] > least_or_most
        if amounts[name] is not None and is_outside:
            return name, f"{rule}, but {name[:-1]} is {amounts[name]}"
    return None


_least: Final = partial(_outside, said=_MINIMUM, order=("requests", "limits"))
_most: Final = partial(_outside, said="maximum", order=("limits", "requests"))
_most_requested: Final = partial(_outside, said="maximum", order=("requests",))


def _ratio(resource: str, bound: Amount, used: _Used) -> tuple[str, str] | None:
    """Return the same for a bound of the limit by the request."""
    request, limit, _ = _comparable(used.requests.get(resource), used.limits.get(resource), bound)
    rule = f"{resource} max limit to request ratio per {used.type} is {bound}"
    for name, value in (("requests", request), ("limits", limit)):
        if value == 0:
            return name, f"{rule}, but no {name[:-1]} is specified or {name[:-1]} is 0"
    ratio, most = limit / request, float(_rounded_up(bound, 0))
    is_exact = most <= _MOST_MILLI
    if (ratio * 1000 > _rounded_up(bound, 3)) if is_exact else (ratio > most):
        return "limits", f"{rule}, but provided ratio is {ratio:f}"
    return None


def _comparable(*amounts: Amount | None) -> list[int]:
    """Return *amounts* in one unit: thousandths, unless one is too large for that."""
    whole = [_rounded_up(each, 0) for each in amounts]
    return whole if max(whole) > _MOST_MILLI else [_rounded_up(each, 3) for each in amounts]


def _rounded_up(amount: Amount | None, digits: int) -> int:
    """Return *amount* times ten to the power of *digits*, as Go rounds: away from zero."""
    if amount is None:
        return 0
    number, exponent = amount.value.number, amount.value.exponent + digits
    whole: int = abs(number) * 10**exponent if exponent >= 0 else -(-abs(number) // 10**-exponent)
    return whole if number >= 0 else -whole
