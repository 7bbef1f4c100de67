"""Checks of what the processes of a container may do: privileged, user, capabilities, escalation, /proc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission_gateway_worker.policies.pod_security.pod import containers, listed, setters

if TYPE_CHECKING:
    from admission_gateway_worker.policies.pod_security.pod import Pod, Violation

_DEFAULT_CAPABILITIES: Final = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)


def privileged(pod: Pod) -> Violation | None:
    """Privileged containers are forbidden."""
    bad = [name for name, security, _ in pod.containers if security.get("privileged")]
    if not bad:
        return None
    return "privileged", f"{containers(bad)} must not set securityContext.privileged=true"


def allow_privilege_escalation(pod: Pod) -> Violation | None:
    """A process may not gain more privileges than its parent."""
    bad = [
        name for name, security, _ in pod.containers if security.get("allowPrivilegeEscalation") is not False
    ]
    if not bad:
        return None
    return (
        "allowPrivilegeEscalation != false",
        f"{containers(bad)} must set securityContext.allowPrivilegeEscalation=false",
    )


def allow_privilege_escalation_1_25(pod: Pod) -> Violation | None:
    """Pods for Windows cannot set the field."""
    return None if pod.is_windows else allow_privilege_escalation(pod)


def capabilities_baseline(pod: Pod) -> Violation | None:
    """Only capabilities of the default set may be added."""
    bad, found = [], set()
    for name, security, _ in pod.containers:
        added = (security.get("capabilities") or {}).get("add")
        if added and (others := [each for each in added if each not in _DEFAULT_CAPABILITIES]):
            bad.append(name)
            found.update(others)
    if not bad:
        return None
    return "non-default capabilities", _must_not_add(bad, found)


def _must_not_add(names: list[str], found: set[str]) -> str:
    return f"{containers(names)} must not include {listed(sorted(found))} in securityContext.capabilities.add"


def capabilities_restricted(pod: Pod) -> Violation | None:
    """All capabilities have to be dropped; only NET_BIND_SERVICE may be added."""
    keeping, adding, found = [], [], set()
    for name, security, _ in pod.containers:
        capabilities = security.get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or ()):
            keeping.append(name)
        added = capabilities.get("add")
        if added and (others := [each for each in added if each != "NET_BIND_SERVICE"]):
            adding.append(name)
            found.update(others)
    if not keeping and not adding:
        return None
    details = []
    if keeping:
        details.append(f'{containers(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        details.append(_must_not_add(adding, found))
    return "unrestricted capabilities", "; ".join(details)


def capabilities_restricted_1_25(pod: Pod) -> Violation | None:
    """Pods for Windows cannot set the field."""
    return None if pod.is_windows else capabilities_restricted(pod)


def proc_mount(pod: Pod) -> Violation | None:
    """The masks of /proc have to be the default ones."""
    bad, found = [], set()
    for name, security, _ in pod.containers:
        kind = security.get("procMount")
        if kind is not None and kind != "Default":
            bad.append(name)
            found.add(kind)
    if not bad:
        return None
    return "procMount", f"{containers(bad)} must not set securityContext.procMount to {listed(sorted(found))}"


def proc_mount_1_35(pod: Pod) -> Violation | None:
    """A pod in a user namespace may unmask /proc."""
    return None if pod.is_in_user_namespace else proc_mount(pod)


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
