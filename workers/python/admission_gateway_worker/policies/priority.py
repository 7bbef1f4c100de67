"""Priority: pods get the priority of their PriorityClass, and there is one default PriorityClass.

Source: kubernetes plugin/pkg/admission/priority. Groups of pods (PodGroup) are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.builtin import PODS, forbidden, is_for, rule
from admission_gateway_worker.policies.cluster import MAX_AGE_S, connect, found_or_now
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review

Json = dict[str, Any]

_RULES: Final = (PODS,)
_CLASS_RULES: Final = (rule("priorityclasses", "CREATE", "UPDATE", group="scheduling.k8s.io"),)
_KIND: Final = ("scheduling.k8s.io/v1", "priorityclasses")
_NO_CLASS: Final = {"value": 0, "preemptionPolicy": "PreemptLowerPriority"}
_PROVIDED: Final = (
    "the {} value of {} ({}) must not be provided in pod spec; priority admission controller computed {} "
    "from the given PriorityClass name"
)


async def set_priority(review: Review) -> None:
    """Set priority and preemption policy of a new pod; an update keeps them."""
    if not is_for(review, _RULES):
        return
    spec: Json = review.object.setdefault("spec", {})
    if review.operation == "UPDATE":
        old: Json = (review.old_object or {}).get("spec") or {}
        for field in ("priority", "preemptionPolicy"):
            if spec.get(field) is None and old.get(field) is not None:
                spec[field] = old[field]
        return
    found = await _priority_class(review, spec)
    value, policy = found.get("value", 0), found.get("preemptionPolicy")
    if spec.get("priority") not in (None, value):
        raise forbidden(review, _PROVIDED.format("integer", "priority", spec["priority"], value))
    spec["priority"] = value
    if policy is not None:
        if spec.get("preemptionPolicy") not in (None, policy):
            given = spec["preemptionPolicy"]
            raise forbidden(review, _PROVIDED.format("string", "PreemptionPolicy", given, policy))
        spec["preemptionPolicy"] = policy


async def _priority_class(review: Review, spec: Json) -> Json:
    """Return the PriorityClass of a pod, which gets the name of the default one if it has none."""
    if name := spec.get("priorityClassName"):
        found = await found_or_now(lambda age_s: connect().get(*_KIND, name, max_age_s=age_s))
        if found is None:
            raise forbidden(review, f"no PriorityClass with name {name} was found")
        return found
    default = await _default_class(MAX_AGE_S)
    if default is None:
        return _NO_CLASS
    spec["priorityClassName"] = default["metadata"]["name"]
    return default


async def _default_class(max_age_s: float) -> Json | None:
    """Return the default PriorityClass, of several the one with the lowest value."""
    classes = await connect().objects(*_KIND, max_age_s=max_age_s)
    marked = (each for each in classes if each.get("globalDefault") is True)
    return min(marked, key=lambda each: int(each.get("value", 0)), default=None)


async def check_default(review: Review) -> None:
    """Deny a second default PriorityClass."""
    if not is_for(review, _CLASS_RULES) or review.object.get("globalDefault") is not True:
        return
    # Such requests are rare, and an old answer would be a wrong one: to a denial as to a second default.
    default = await _default_class(0.0)
    if default is None:
        return
    name = default["metadata"]["name"]
    if review.operation == "CREATE" or name != (review.object.get("metadata") or {}).get("name"):
        raise forbidden(
            review, f"PriorityClass {name} is already marked as default. Only one default can exist"
        )


_NOTES: Final = (
    "- The API server's own controller is on by default; where it is, the policy finds nothing to do.\n"
)
_GROUPS: Final = (
    "- PodGroup and CompositePodGroup, which the API server's own controller also gives a priority, are left "
    "out: they are behind a feature gate that is off by default.\n"
)

DEFINITIONS = (
    Definition(
        "priority",
        "Sets priority and preemption policy of pods from their PriorityClass or the default one (Priority).",
        set_priority,
        rules=_RULES,
        users_see='pods "web" is forbidden: no PriorityClass with name urgent was found',
        topic="scheduling",
        replaces=(Replaced("Kubernetes", "Priority"),),
        mutating=True,
        needs_cluster=True,
        rights="get, list priorityclasses.scheduling.k8s.io",
        notes=_NOTES + _GROUPS,
    ),
    Definition(
        "priority-validate",
        "Denies a second default PriorityClass.",
        check_default,
        rules=_CLASS_RULES,
        users_see='priorityclasses.scheduling.k8s.io "urgent" is forbidden: PriorityClass normal is already '
        "marked as default. Only one default can exist",
        topic="scheduling",
        replaces=(Replaced("Kubernetes", "Priority"),),
        needs_cluster=True,
        rights="list priorityclasses.scheduling.k8s.io",
        notes=_NOTES,
    ),
)
