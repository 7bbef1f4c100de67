"""Resources of a whole Pod by those of its containers: a default of Kubernetes 1.34 to 1.36.

1.37 sets them after webhooks.

Source: k8s.io/kubernetes pkg/apis/core/v1/defaults.go (defaultHugePagePodLimits, defaultPodRequests);
k8s.io/component-helpers resource/helpers.go (AggregateContainerRequests).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from admission_gateway_worker.quantity import MalformedQuantity
from gateway.pure.workloads.quantities import Amount

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.pure.core.review import Json

VERSIONS: Final = range(34, 37)
_HUGE_PAGES: Final = "hugepages-"
_OVERCOMMITTED: Final = ("cpu", "memory")


def fill(resources: Json, containers: Iterable[Json], init_containers: Iterable[Json]) -> None:
    """Give *resources* of a Pod, which nobody else has, what follows from those of its containers.

    A quantity that cannot be read ends it: the API server refuses such a Pod.
    """
    limits, requests = (_map(resources, name) for name in ("limits", "requests"))
    both = [*containers], [*init_containers]
    try:
        if limits or requests:
            for name, amount in total(*both, "limits").items():
                if name.startswith(_HUGE_PAGES) and name not in requests and name not in limits:
                    limits[name] = str(amount)
        if not limits:
            return
        for name, amount in total(*both, "requests").items():
            if name in _OVERCOMMITTED:
                requests.setdefault(name, str(amount))
    except MalformedQuantity:
        return
    for name, limit in limits.items():
        if name in _OVERCOMMITTED or name.startswith(_HUGE_PAGES):
            requests.setdefault(name, limit)
    resources |= {name: of for name, of in (("limits", limits), ("requests", requests)) if of}


def _map(resources: object, name: str) -> Json:
    found = resources.get(name) if isinstance(resources, dict) else None
    return dict(found) if isinstance(found, dict) else {}


def total(
    containers: list[Json], init_containers: list[Json], of: Literal["limits", "requests"]
) -> dict[str, Amount]:
    """Return what the containers have together, or the initialisation at its peak, if that is more.

    Raises:
        MalformedQuantity: one of them has what is not a quantity.
    """
    result: dict[str, Amount] = {}
    for one in containers:
        _add(result, _amounts(one, of))
    sidecars: dict[str, Amount] = {}
    peak: dict[str, Amount] = {}
    for one in init_containers:
        now = _amounts(one, of)
        if one.get("restartPolicy") == "Always":
            _add(result, now)
            _add(sidecars, now)
            now = dict(sidecars)
        else:
            _add(now, sidecars)
        _raise(peak, now)
    _raise(result, peak)
    return result


def _amounts(container: Json, of: str) -> dict[str, Amount]:
    return {name: Amount.read(value) for name, value in _map(container.get("resources"), of).items()}


def _add(total: dict[str, Amount], more: dict[str, Amount]) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise(total: dict[str, Amount], other: dict[str, Amount]) -> None:
    for name, amount in other.items():
        if name not in total or amount > total[name]:
            total[name] = amount
