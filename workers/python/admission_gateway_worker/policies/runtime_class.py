"""RuntimeClass: pods get the overhead, the node selector and the tolerations of their RuntimeClass.

Source: kubernetes plugin/pkg/admission/runtimeclass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.amounts import amounts
from admission_gateway_worker.policies.builtin import forbidden, is_for, quoted, rule
from admission_gateway_worker.policies.cluster import connect, found_or_now
from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.tolerations import merged

if TYPE_CHECKING:
    from admission_gateway_worker import Review

Json = dict[str, Any]

_RULES: Final = (rule("pods", "CREATE"),)
_OTHER: Final = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
_NONE: Final = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


async def apply_runtime_class(review: Review) -> None:
    """Set overhead, node selector and tolerations of a pod that names a RuntimeClass."""
    if not is_for(review, _RULES):
        return
    spec: Json = review.object.setdefault("spec", {})
    found = await _runtime_class(review, spec)
    overhead = _overhead(found)
    if overhead is not None:
        if spec.get("overhead") and not _are_equal(overhead, spec["overhead"]):
            raise forbidden(review, _OTHER)
        if overhead and not spec.get("overhead"):
            spec["overhead"] = dict(overhead)
    scheduling = found.get("scheduling")
    if scheduling:
        selector: dict[str, str] = spec.get("nodeSelector") or {}
        wanted: dict[str, str] = scheduling.get("nodeSelector") or {}
        for key, value in sorted(wanted.items()):
            if (own := selector.get(key, value)) != value:
                raise forbidden(
                    review,
                    f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                    f"pod.spec.nodeSelector[{key}] = {own}",
                )
        if wanted:
            spec["nodeSelector"] = {**selector, **wanted}
        tolerations = merged(spec.get("tolerations") or (), scheduling.get("tolerations") or ())
        if tolerations:
            spec["tolerations"] = tolerations


async def check_overhead(review: Review) -> None:
    """Deny another overhead than that of the RuntimeClass."""
    if not is_for(review, _RULES):
        return
    spec: Json = review.object.get("spec") or {}
    overhead = _overhead(await _runtime_class(review, spec))
    if overhead is None:
        if spec.get("overhead") is not None:
            raise forbidden(review, _NONE)
    elif not _are_equal(overhead, spec.get("overhead") or {}):
        raise forbidden(review, _OTHER)


async def _runtime_class(review: Review, spec: Json) -> Json:
    """Return the RuntimeClass of the pod; empty if it names none."""
    name = spec.get("runtimeClassName")
    if name is None:
        return {}
    found = await found_or_now(
        lambda age_s: connect().get("node.k8s.io/v1", "runtimeclasses", name, max_age_s=age_s)
    )
    if found is None:
        raise forbidden(review, f"pod rejected: RuntimeClass {quoted(name)} not found")
    return found


def _overhead(runtime_class: Json) -> Json | None:
    overhead = runtime_class.get("overhead")
    return None if overhead is None else overhead.get("podFixed") or {}


def _are_equal(one: Json, other: Json) -> bool:
    ours, theirs = amounts(one), amounts(other)
    return ours.keys() == theirs.keys() and all(
        amount.quantity == theirs[name].quantity for name, amount in ours.items()
    )


_NOTES: Final = (
    "The API server's own controller is on by default; where it is, the policy finds nothing to do.\n"
)

DEFINITIONS = (
    Definition(
        "runtime-class",
        "Sets overhead, node selector and tolerations of pods from their RuntimeClass (RuntimeClass).",
        apply_runtime_class,
        rules=_RULES,
        users_see='pods "web" is forbidden: pod rejected: RuntimeClass "gvisor" not found',
        topic="scheduling",
        replaces=(Replaced("Kubernetes", "RuntimeClass"),),
        mutating=True,
        needs_cluster=True,
        rights="get runtimeclasses.node.k8s.io",
        notes=_NOTES,
    ),
    Definition(
        "runtime-class-validate",
        "Denies pods whose overhead is not that of their RuntimeClass after all changes.",
        check_overhead,
        rules=_RULES,
        users_see=f'pods "web" is forbidden: {_OTHER}',
        topic="scheduling",
        replaces=(Replaced("Kubernetes", "RuntimeClass"),),
        needs_cluster=True,
        rights="get runtimeclasses.node.k8s.io",
        notes=_NOTES,
    ),
)
