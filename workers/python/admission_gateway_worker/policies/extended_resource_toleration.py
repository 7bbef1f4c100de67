"""ExtendedResourceToleration: pods that request a device tolerate the taint of the nodes that have it.

Source: kubernetes plugin/pkg/admission/extendedresourcetoleration; pkg/apis/core/helper.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.policies.builtin import PODS, is_for
from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.tolerations import added

if TYPE_CHECKING:
    from admission_gateway_worker import Review

_RULES: Final = (PODS,)
_REQUESTS: Final = "requests."
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_PREFIX: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_MAX_PREFIX, _MAX_NAME = 253, 63


def extended_resource_toleration(review: Review) -> None:
    """Add a toleration for each extended resource that a container requests."""
    if not is_for(review, _RULES):
        return
    spec = review.object.get("spec") or {}
    requested = {
        name
        for field in ("containers", "initContainers")
        for container in spec.get(field) or ()
        for name in (container.get("resources") or {}).get("requests") or ()
        if is_extended_resource(name)
    }
    if requested:
        wanted = [{"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in sorted(requested)]
        spec["tolerations"] = added(spec.get("tolerations") or (), wanted)


def is_extended_resource(name: str) -> bool:
    """Whether *name* is that of a resource with a domain other than kubernetes.io."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_REQUESTS):
        return False
    prefix, _, last = (_REQUESTS + name).partition("/")
    return (
        len(prefix) <= _MAX_PREFIX
        and len(last) <= _MAX_NAME
        and _PREFIX.fullmatch(prefix) is not None
        and _NAME.fullmatch(last) is not None
    )


DEFINITIONS = (
    Definition(
        "extended-resource-toleration",
        "Adds a toleration for each extended resource, such as nvidia.com/gpu, that a pod requests "
        "(ExtendedResourceToleration), so that nodes with devices can be tainted with its name.",
        extended_resource_toleration,
        rules=_RULES,
        users_see="the pod with a toleration nvidia.com/gpu:NoSchedule",
        topic="scheduling",
        replaces=(Replaced("Kubernetes", "ExtendedResourceToleration"),),
        mutating=True,
    ),
)
