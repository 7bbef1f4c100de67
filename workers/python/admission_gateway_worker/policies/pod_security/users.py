"""Checks of the user of a container's processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission_gateway_worker.policies.pod_security.pod import containers, setters

if TYPE_CHECKING:
    from admission_gateway_worker.policies.pod_security.pod import Pod, Violation


def run_as_non_root(pod: Pod) -> Violation | None:
    """Pod or containers have to set runAsNonRoot; a container may not unset it."""
    of_pod = pod.security.get("runAsNonRoot")
    explicit, implicit = [], []
    for name, security, _ in pod.containers:
        value = security.get("runAsNonRoot")
        if value is None:
            if not of_pod:
                implicit.append(name)
        elif not value:
            explicit.append(name)
    if found := setters(explicit, pod=of_pod is False):
        return "runAsNonRoot != true", f"{found} must not set securityContext.runAsNonRoot=false"
    if implicit:
        return (
            "runAsNonRoot != true",
            f"pod or {containers(implicit)} must set securityContext.runAsNonRoot=true",
        )
    return None


def run_as_non_root_1_35(pod: Pod) -> Violation | None:
    """A pod in a user namespace may run as root."""
    return None if pod.is_in_user_namespace else run_as_non_root(pod)


def run_as_user(pod: Pod) -> Violation | None:
    """The user may not be root by its number."""
    bad = [name for name, security, _ in pod.containers if security.get("runAsUser") == 0]
    if found := setters(bad, pod=pod.security.get("runAsUser") == 0):
        return "runAsUser=0", f"{found} must not set runAsUser=0"
    return None


def run_as_user_1_35(pod: Pod) -> Violation | None:
    """A pod in a user namespace may run as root."""
    return None if pod.is_in_user_namespace else run_as_user(pod)
