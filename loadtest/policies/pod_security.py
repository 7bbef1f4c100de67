"""Ten policies for Pods as ValidatingPolicies of Kyverno: the checks of the Pod Security Standard Baseline.

They are written as authors of Kyverno write them, with variables and with defaults for absent fields.
All allow the Pod of the benchmarks.
"""

from __future__ import annotations

from typing import Any, Final

_CAPABILITIES: Final = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
    *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
_SYSCTLS: Final = (
    *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start"),
    *("net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.tcp_keepalive_time"),
)
_SELINUX: Final = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_CONTAINERS: Final = (
    "object.spec.containers + object.spec.?initContainers.orValue([]) + "
    "object.spec.?ephemeralContainers.orValue([])"
)
_OF_CONTAINERS: Final = {
    "capabilities": "c.?securityContext.?capabilities.?add.orValue([]).all(name, name in variables.allowed)",
    "host-ports": "c.?ports.orValue([]).all(port, port.?hostPort.orValue(0) == 0)",
    "host-process": "c.?securityContext.?windowsOptions.?hostProcess.orValue(false) == false",
    "privileged": "c.?securityContext.?privileged.orValue(false) == false",
    "proc-mount": "c.?securityContext.?procMount.orValue('Default') == 'Default'",
    "seccomp": "c.?securityContext.?seccompProfile.?type.orValue('RuntimeDefault') != 'Unconfined'",
    "selinux": "c.?securityContext.?seLinuxOptions.?type.orValue('') in variables.allowed",
}
"""What has to be true of each container."""
_OF_POD: Final = {
    "host-namespaces": " && ".join(
        f"object.spec.?{name}.orValue(false) == false" for name in ("hostNetwork", "hostPID", "hostIPC")
    ),
    "host-path": "object.spec.?volumes.orValue([]).all(volume, !has(volume.hostPath))",
    "sysctls": "object.spec.?securityContext.?sysctls.orValue([]).all(one, one.name in variables.allowed)",
}
_ALLOWED: Final = {"capabilities": _CAPABILITIES, "selinux": _SELINUX, "sysctls": _SYSCTLS}


def pod_security() -> list[dict[str, Any]]:
    """Return the policies, by name."""
    return [_policy(name) for name in sorted((*_OF_CONTAINERS, *_OF_POD))]


def _policy(name: str) -> dict[str, Any]:
    variables = []
    if name in _ALLOWED:
        variables.append({"name": "allowed", "expression": str([*_ALLOWED[name]])})
    expression = _OF_POD.get(name)
    if expression is None:
        variables.append({"name": "containers", "expression": _CONTAINERS})
        expression = f"variables.containers.all(c, {_OF_CONTAINERS[name]})"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["pods"],
    }
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "variables": variables,
            "validations": [{"expression": expression, "message": f"the Pod breaks the rule {name}"}],
        },
    }
