"""Warns that running pods violate a level that a namespace begins to enforce.

Source: k8s.io/pod-security-admission v0.37.1 admission/admission.go (EvaluatePodsInNamespace).
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.builtin import quoted
from admission_gateway_worker.policies.cluster import ClusterError, connect
from admission_gateway_worker.policies.pod_security.evaluation import evaluate
from admission_gateway_worker.policies.pod_security.pod import Pod

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from admission_gateway_worker.policies.pod_security.levels import LevelVersion
    from admission_gateway_worker.policies.pod_security.parameters import Settings
    from admission_gateway_worker.review import Review

MAX_PODS: Final = 3000
"""Pods that are checked."""
TIMEOUT_S: Final = 1.0
"""The time for the list and the checks together, or half of that to the deadline if it is less."""
_AT_ONCE: Final = 50
"""Pods that are checked before other reviews have their turn."""


async def warn_of_existing_pods(review: Review, policy: LevelVersion) -> None:
    """Add the warnings about pods of the namespace; none if the worker has no access to the API server."""
    try:
        cluster = connect()
    except ClusterError:
        return
    timeout_s = min(TIMEOUT_S, review.remaining_s / 2)
    deadline = time.monotonic() + timeout_s
    namespace = (review.object.get("metadata") or {}).get("name") or ""
    try:
        async with asyncio.timeout(timeout_s):
            found = await cluster.objects("v1", "pods", namespace, max_age_s=0)
    except (ClusterError, TimeoutError):
        review.warn("failed to list pods while checking new PodSecurity enforce level")
        return
    for text in await warnings(found, namespace, policy, review.parameters, deadline):
        review.warn(text)


async def warnings(
    found: Iterable[dict[str, Any]], namespace: str, policy: LevelVersion, settings: Settings, deadline: float
) -> list[str]:
    """Return the warnings about the pods *found*; pods after *deadline*, monotonic seconds, are left out."""
    pods = prioritized(found, settings.runtime_classes)
    by_reason: dict[str, list[str]] = {}
    checked = 0
    for pod in pods[:MAX_PODS]:
        checked += 1
        if reason := evaluate(policy, Pod(pod), settings, namespace).reason:
            by_reason.setdefault(reason, []).append(pod["metadata"]["name"])
        if time.monotonic() > deadline:
            break
        if checked % _AT_ONCE == 0:
            await asyncio.sleep(0)
    texts = []
    if checked < len(pods):
        bound = f"{checked} of {len(pods)}"
        texts.append(f"new PodSecurity enforce level only checked against the first {bound} existing pods")
    if by_reason:
        name, level = quoted(namespace), quoted(str(policy))
        texts.append(f"existing pods in namespace {name} violate the new PodSecurity enforce level {level}")
    return texts + sorted(_summary(reason, names) for reason, names in by_reason.items())


def prioritized(pods: Iterable[dict[str, Any]], runtime_classes: Collection[str]) -> list[dict[str, Any]]:
    """Return *pods* without exempt ones, the first of each controller before its further ones."""
    first, further = [], []
    controllers = set()
    for pod in pods:
        if (pod.get("spec") or {}).get("runtimeClassName") in runtime_classes:
            continue
        owners = pod["metadata"].get("ownerReferences") or ()
        controller = next((each["uid"] for each in owners if each.get("controller")), None)
        if controller in controllers:
            further.append(pod)
            continue
        first.append(pod)
        if controller is not None:
            controllers.add(controller)
    return first + further


def _summary(reason: str, names: list[str]) -> str:
    others = len(names) - 1
    if not others:
        return f"{names[0]}: {reason}"
    return f"{min(names)} (and {others} other {'pod' if others == 1 else 'pods'}): {reason}"
