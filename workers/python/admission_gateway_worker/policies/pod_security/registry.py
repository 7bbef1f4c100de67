"""The checks of each level and version of the Pod Security Standards.

Source: k8s.io/pod-security-admission v0.37.1 policy/registry.go and the ``Check…`` functions of policy/.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from admission_gateway_worker.policies.pod_security import host, privileges, profiles, volumes
from admission_gateway_worker.policies.pod_security.levels import BASELINE, PRIVILEGED, RESTRICTED

if TYPE_CHECKING:
    from admission_gateway_worker.policies.pod_security.levels import LevelVersion
    from admission_gateway_worker.policies.pod_security.pod import Check

NEWEST: Final = 37
"""Minor of the newest version; a newer one and ``latest`` have its checks."""


class Control(NamedTuple):
    """A check with its revisions."""

    id: str
    level: str
    revisions: dict[int, Check]
    """By the first minor, which rises."""
    replaces: str = ""
    """The control of the level baseline in whose place this one comes."""

    def at(self, minor: int) -> Check | None:
        """Return the check of version ``v1.minor``."""
        found = None
        for first, check in self.revisions.items():
            if first <= minor:
                found = check
        return found


CONTROLS: Final = (
    Control("appArmorProfile", BASELINE, {0: profiles.app_armor}),
    Control("capabilities_baseline", BASELINE, {0: privileges.capabilities_baseline}),
    Control("hostNamespaces", BASELINE, {0: host.host_namespaces}),
    Control("hostPathVolumes", BASELINE, {0: host.host_path_volumes}),
    Control("hostPorts", BASELINE, {0: host.host_ports}),
    Control("hostProbesAndHostLifecycle", BASELINE, {34: host.host_probes}),
    Control("privileged", BASELINE, {0: privileges.privileged}),
    Control("procMount", BASELINE, {0: privileges.proc_mount, 35: privileges.proc_mount_1_35}),
    Control("seLinuxOptions", BASELINE, {0: profiles.selinux_1_0, 31: profiles.selinux_1_31}),
    Control(
        "seccompProfile_baseline", BASELINE, {0: profiles.seccomp_annotations, 19: profiles.seccomp_baseline}
    ),
    Control(
        "sysctls",
        BASELINE,
        {
            0: profiles.sysctls_1_0,
            27: profiles.sysctls_1_27,
            29: profiles.sysctls_1_29,
            32: profiles.sysctls_1_32,
            37: profiles.sysctls_1_37,
        },
    ),
    Control("windowsHostProcess", BASELINE, {0: host.windows_host_process}),
    Control(
        "allowPrivilegeEscalation",
        RESTRICTED,
        {8: privileges.allow_privilege_escalation, 25: privileges.allow_privilege_escalation_1_25},
    ),
    Control(
        "capabilities_restricted",
        RESTRICTED,
        {22: privileges.capabilities_restricted, 25: privileges.capabilities_restricted_1_25},
        replaces="capabilities_baseline",
    ),
    Control("procMount_restricted", RESTRICTED, {35: privileges.proc_mount}, replaces="procMount"),
    Control("restrictedVolumes", RESTRICTED, {0: volumes.restricted_volumes}, replaces="hostPathVolumes"),
    Control("runAsNonRoot", RESTRICTED, {0: privileges.run_as_non_root, 35: privileges.run_as_non_root_1_35}),
    Control("runAsUser", RESTRICTED, {23: privileges.run_as_user, 35: privileges.run_as_user_1_35}),
    Control(
        "seccompProfile_restricted",
        RESTRICTED,
        {19: profiles.seccomp_restricted, 25: profiles.seccomp_restricted_1_25},
        replaces="seccompProfile_baseline",
    ),
)
"""In the order of upstream's texts: those of baseline first, then by id."""


@cache
def checks(level: str, minor: int) -> tuple[tuple[str, Check], ...]:
    """Return the ids and checks of *level*, ``baseline`` or ``restricted``, at version ``v1.minor``."""
    found = {
        control.id: (control, check)
        for control in CONTROLS
        if control.level in (BASELINE, level) and (check := control.at(minor)) is not None
    }
    replaced = {control.replaces for control, _ in found.values()}
    return tuple((name, check) for name, (_, check) in found.items() if name not in replaced)


def checks_of(policy: LevelVersion) -> tuple[tuple[str, Check], ...]:
    """Return the ids and checks of *policy*; none for ``privileged``."""
    if policy.level == PRIVILEGED:
        return ()
    return checks(policy.level, NEWEST if policy.minor is None else min(policy.minor, NEWEST))
