"""Pods for tests: random changes of pods, and what the policy says to a pod."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.pod_security.evaluation import evaluate
from admission_gateway_worker.policies.pod_security.levels import LevelVersion, parse_version
from admission_gateway_worker.policies.pod_security.parameters import prepare
from admission_gateway_worker.policies.pod_security.pod import Pod

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

Json = dict[str, Any]

NO_EXEMPTIONS: Final = prepare({})

_PROFILES: Final[tuple[Json, ...]] = (
    {},
    {"type": "RuntimeDefault"},
    {"type": "Localhost"},
    {"type": "Unconfined"},
    {"type": "é"},
)
_SELINUX: Final[tuple[Json, ...]] = (
    {},
    {"type": "container_t"},
    {"type": "container_engine_t"},
    {"type": "spc_t"},
    {"user": "u"},
    {"role": "r", "type": "x"},
)
_BOOLEANS: Final = (True, False)
_CAPABILITIES: Final = ("ALL", "NET_BIND_SERVICE", "CHOWN", "NET_RAW", "CAP_CHOWN", "all")
_WINDOWS: Final[tuple[Json, ...]] = ({}, {"hostProcess": True}, {"hostProcess": False})
_SYSCTLS: Final = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_notsent_lowat",
    "kernel.msgmax",
)
_VOLUMES: Final = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
)
_ANNOTATIONS: Final = (
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/pod",
)
_ANNOTATION_VALUES: Final = (
    "",
    "runtime/default",
    "docker/default",
    "localhost/x",
    "unconfined",
    'a"\\\n\x7f\u200bé',
)
_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
_HANDLERS: Final[tuple[Json, ...]] = (
    {},
    {"httpGet": {"host": ""}},
    {"httpGet": {"host": "h"}},
    {"tcpSocket": {"host": "t"}},
)


def violations(policy: str, pod: Json) -> dict[str, str]:
    """Return reason and detail of the violations of *policy*, such as ``baseline:v1.37``."""
    level, _, version = policy.partition(":")
    found = evaluate(LevelVersion(level, parse_version(version)), Pod(pod), NO_EXEMPTIONS, "")
    return {"reason": found.reason, "detail": found.detail}


def mutated(draw: random.Random, pod: Json) -> Json:
    """Return a copy of *pod* with some fields changed that checks read."""
    pod = copy.deepcopy(pod)
    spec = pod.setdefault("spec", {})
    for _ in range(draw.randint(1, 6)):
        draw.choice(_CHANGES)(draw, pod, spec)
    return pod


def _set(draw: random.Random, owner: Json, field: str, values: tuple[Any, ...]) -> None:
    """Set *field* to one of *values* or null, or remove it."""
    choice = draw.randrange(len(values) + 2)
    if choice == len(values):
        owner.pop(field, None)
    else:
        owner[field] = copy.deepcopy(values[choice]) if choice < len(values) else None


def _child(owner: Json, field: str) -> Json:
    """Return the mapping *field*, made if it is absent."""
    if owner.get(field) is None:
        owner[field] = {}
    found: Json = owner[field]
    return found


def _container(draw: random.Random, spec: Json) -> Json:
    """Return a container, perhaps a new one."""
    field = draw.choice(_LISTS)
    if not spec.get(field):
        spec[field] = []
    found: list[Json] = spec[field]
    if not found or draw.random() < 0.3:
        found.append({"name": draw.choice(("a", "b", "c")), "image": "registry.test/a:1"})
    return draw.choice(found)


def _security(draw: random.Random, spec: Json) -> Json:
    """Return a securityContext, of the pod or of a container."""
    return _child(spec if draw.random() < 0.4 else _container(draw, spec), "securityContext")


def _change_pod(draw: random.Random, _: Json, spec: Json) -> None:
    _set(draw, spec, draw.choice(("hostNetwork", "hostPID", "hostIPC", "hostUsers")), _BOOLEANS)


def _change_os(draw: random.Random, _: Json, spec: Json) -> None:
    _set(draw, spec, "os", ({"name": "windows"}, {"name": "linux"}))


def _change_flag(draw: random.Random, _: Json, spec: Json) -> None:
    container = _child(_container(draw, spec), "securityContext")
    _set(draw, container, draw.choice(("privileged", "allowPrivilegeEscalation")), _BOOLEANS)


def _change_user(draw: random.Random, _: Json, spec: Json) -> None:
    security = _security(draw, spec)
    if draw.random() < 0.5:
        _set(draw, security, "runAsNonRoot", _BOOLEANS)
    else:
        _set(draw, security, "runAsUser", (0, 1, 1000))


def _change_profile(draw: random.Random, _: Json, spec: Json) -> None:
    security = _security(draw, spec)
    _set(draw, security, draw.choice(("seccompProfile", "appArmorProfile")), _PROFILES)


def _change_selinux(draw: random.Random, _: Json, spec: Json) -> None:
    _set(draw, _security(draw, spec), "seLinuxOptions", _SELINUX)


def _change_windows(draw: random.Random, _: Json, spec: Json) -> None:
    _set(draw, _security(draw, spec), "windowsOptions", _WINDOWS)


def _change_capabilities(draw: random.Random, _: Json, spec: Json) -> None:
    security = _child(_container(draw, spec), "securityContext")
    chosen = tuple(draw.sample(_CAPABILITIES, draw.randint(0, 3)) for _ in range(2))
    _set(draw, _child(security, "capabilities"), draw.choice(("add", "drop")), chosen)


def _change_proc_mount(draw: random.Random, _: Json, spec: Json) -> None:
    security = _child(_container(draw, spec), "securityContext")
    _set(draw, security, "procMount", ("Default", "Unmasked", "", "Other"))


def _change_ports(draw: random.Random, _: Json, spec: Json) -> None:
    ports = [
        {"containerPort": 80, "hostPort": draw.choice((0, 80, 8080, 9000))} for _ in range(draw.randint(1, 3))
    ]
    _set(draw, _container(draw, spec), "ports", (ports, [{"containerPort": 80}]))


def _change_probe(draw: random.Random, _: Json, spec: Json) -> None:
    container = _container(draw, spec)
    if draw.random() < 0.6:
        _set(draw, container, draw.choice(("livenessProbe", "readinessProbe", "startupProbe")), _HANDLERS)
    else:
        _set(draw, _child(container, "lifecycle"), draw.choice(("postStart", "preStop")), _HANDLERS)


def _change_sysctls(draw: random.Random, _: Json, spec: Json) -> None:
    chosen = [{"name": name, "value": "1"} for name in draw.sample(_SYSCTLS, draw.randint(0, 3))]
    _set(draw, _child(spec, "securityContext"), "sysctls", (chosen, []))


def _change_volumes(draw: random.Random, _: Json, spec: Json) -> None:
    if not spec.get("volumes"):
        spec["volumes"] = []
    kinds = draw.sample(_VOLUMES, draw.choice((0, 1, 1, 1, 2)))
    spec["volumes"].append({"name": draw.choice(("v", "w")), **{kind: {} for kind in kinds}})


def _change_annotations(draw: random.Random, pod: Json, _: Json) -> None:
    annotations = _child(_child(pod, "metadata"), "annotations")
    key = draw.choice(_ANNOTATIONS)
    if key.endswith("/"):
        key += draw.choice(("a", "b", "container1", ""))
    annotations[key] = draw.choice(_ANNOTATION_VALUES)


def _change_runtime_class(draw: random.Random, _: Json, spec: Json) -> None:
    _set(draw, spec, "runtimeClassName", ("exempt", "other"))


_CHANGES: Final[tuple[Callable[[random.Random, Json, Json], None], ...]] = (
    _change_annotations,
    _change_capabilities,
    _change_flag,
    _change_os,
    _change_pod,
    _change_ports,
    _change_probe,
    _change_proc_mount,
    _change_profile,
    _change_runtime_class,
    _change_selinux,
    _change_sysctls,
    _change_user,
    _change_volumes,
    _change_windows,
)
