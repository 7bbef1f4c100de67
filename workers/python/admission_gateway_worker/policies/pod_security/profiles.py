"""Checks of profiles of the kernel: AppArmor, seccomp, SELinux, sysctls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission_gateway_worker.policies.builtin import quoted
from admission_gateway_worker.policies.pod_security.pod import containers, listed, plural, setters

if TYPE_CHECKING:
    from collections.abc import Container

    from admission_gateway_worker.policies.pod_security.pod import Check, Json, Pod, Violation

_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP: Final = "container.seccomp.security.alpha.kubernetes.io/"
_PROFILES: Final = ("RuntimeDefault", "Localhost")

_SELINUX_1_0: Final = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})
_SELINUX_1_31: Final = _SELINUX_1_0 | {"container_engine_t"}

_SYSCTLS_1_0: Final = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
    }
)
_SYSCTLS_1_27: Final = _SYSCTLS_1_0 | {"net.ipv4.ip_local_reserved_ports"}
_SYSCTLS_1_29: Final = _SYSCTLS_1_27 | {
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
_SYSCTLS_1_32: Final = _SYSCTLS_1_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
_SYSCTLS_1_37: Final = _SYSCTLS_1_32 | {"net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"}


def _bad_profiles(pod: Pod, field: str) -> tuple[str, list[str]]:
    """Return what sets a profile that disables the protection, and the types of these profiles, sorted."""
    bad, found = [], set()
    profile = pod.security.get(field)
    if of_pod := profile is not None and profile.get("type") not in _PROFILES:
        found.add(profile.get("type") or "")
    for name, security, _ in pod.containers:
        profile = security.get(field)
        if profile is not None and profile.get("type") not in _PROFILES:
            bad.append(name)
            found.add(profile.get("type") or "")
    return setters(bad, pod=of_pod), sorted(found)


def app_armor(pod: Pod) -> Violation | None:
    """The default profile of AppArmor may be replaced by a profile of the node, but not disabled."""
    subjects, values = _bad_profiles(pod, "appArmorProfile")
    if annotations := _app_armor_annotations(pod):
        values += annotations
        what = plural("annotation", "annotations", len(annotations))
        subjects = f"{subjects} and {what}" if subjects else what
    if not subjects:
        return None
    return (
        plural("forbidden AppArmor profile", "forbidden AppArmor profiles", len(values)),
        f"{subjects} must not set AppArmor profile type to {listed(values)}",
    )


def _app_armor_annotations(pod: Pod) -> list[str]:
    return sorted(
        f"{key}={quoted(value)}"
        for key, value in pod.annotations.items()
        if key.startswith(_APP_ARMOR)
        and value
        and value != "runtime/default"
        and not value.startswith("localhost/")
        and key.removeprefix(_APP_ARMOR) not in pod.exempt
    )


def seccomp_annotations(pod: Pod) -> Violation | None:
    """Before 1.19 annotations chose the profile of seccomp."""
    annotations = pod.annotations
    if not annotations:
        return None
    keys = [_SECCOMP_POD, *(_SECCOMP + name for name, _, _ in pod.containers)]
    bad = {
        f"{key}={quoted(annotations[key])}"
        for key in keys
        if key in annotations and not _is_seccomp_profile(annotations[key])
    }
    if not bad:
        return None
    what = plural("annotation", "annotations", len(bad))
    return "seccompProfile", f"forbidden {what} {', '.join(sorted(bad))}"


def _is_seccomp_profile(value: str) -> bool:
    return value in ("runtime/default", "docker/default") or value.startswith("localhost/")


def seccomp_baseline(pod: Pod) -> Violation | None:
    """The profile of seccomp may not be disabled."""
    subjects, values = _bad_profiles(pod, "seccompProfile")
    if not subjects:
        return None
    return (
        "seccompProfile",
        f"{subjects} must not set securityContext.seccompProfile.type to {listed(values)}",
    )


def seccomp_restricted(pod: Pod) -> Violation | None:
    """A profile of seccomp has to be set, by the pod or by each container."""
    if violation := seccomp_baseline(pod):
        return violation
    if pod.security.get("seccompProfile") is not None:
        return None
    bad = [name for name, security, _ in pod.containers if security.get("seccompProfile") is None]
    if not bad:
        return None
    allowed = '"RuntimeDefault" or "Localhost"'
    return (
        "seccompProfile",
        f"pod or {containers(bad)} must set securityContext.seccompProfile.type to {allowed}",
    )


def seccomp_restricted_1_25(pod: Pod) -> Violation | None:
    """Pods for Windows cannot set the field."""
    return None if pod.is_windows else seccomp_restricted(pod)


def _selinux(allowed: Container[str]) -> Check:
    def is_valid(options: Json, types: set[str]) -> bool:
        kind = options.get("type") or ""
        if kind not in allowed:
            types.add(kind)
            return False
        return not options.get("user") and not options.get("role")

    def check(pod: Pod) -> Violation | None:
        """Only types of containers; no user and no role."""
        types: set[str] = set()
        options: Json | None = pod.security.get("seLinuxOptions")
        all_options = [options] if options else []
        of_pod = bool(options and not is_valid(options, types))
        bad = []
        for name, security, _ in pod.containers:
            options = security.get("seLinuxOptions")
            if options:
                all_options.append(options)
                if not is_valid(options, types):
                    bad.append(name)
        subjects = setters(bad, pod=of_pod)
        if not subjects:
            return None
        data = []
        if types:
            data.append(f"{plural('type', 'types', len(types))} {listed(sorted(types))}")
        data += [
            f"{field} may not be set"
            for field in ("user", "role")
            if any(each.get(field) for each in all_options)
        ]
        return "seLinuxOptions", f"{subjects} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}"

    return check


def _sysctls(allowed: Container[str]) -> Check:
    def check(pod: Pod) -> Violation | None:
        """Only sysctls that are isolated from the node and from other pods."""
        bad = [
            name
            for each in pod.security.get("sysctls") or ()
            if (name := each.get("name") or "") not in allowed
        ]
        return ("forbidden sysctls", ", ".join(bad)) if bad else None

    return check


selinux_1_0: Final = _selinux(_SELINUX_1_0)
selinux_1_31: Final = _selinux(_SELINUX_1_31)
sysctls_1_0: Final = _sysctls(_SYSCTLS_1_0)
sysctls_1_27: Final = _sysctls(_SYSCTLS_1_27)
sysctls_1_29: Final = _sysctls(_SYSCTLS_1_29)
sysctls_1_32: Final = _sysctls(_SYSCTLS_1_32)
sysctls_1_37: Final = _sysctls(_SYSCTLS_1_37)
