"""What each container of a Pod or a workload must be."""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.controls.control import Control, of_containers

Json = dict[str, Any]


def security(**members: Any) -> Json:
    return {"securityContext": members}


def limits(**quantities: str) -> Json:
    return {"resources": {"limits": quantities}}


def requests(**quantities: str) -> Json:
    return {"resources": {"requests": quantities}}


def image(name: str) -> Json:
    return {"image": name}


def environment(*entries: Json) -> Json:
    return {"env": list(entries)}


DIGEST: Final = "registry.test/main@sha256:" + "0123456789abcdef" * 4
PROBE: Final = {"httpGet": {"path": "/live", "port": 8080}}
READY: Final = {"httpGet": {"path": "/ready", "port": 8080}}
SHELLS: Final = "['sh', 'bash', '/bin/sh', '/bin/bash']"
SECRET: Final = {"secretKeyRef": {"name": "s", "key": "k"}}

CONTROLS: Final[tuple[Control, ...]] = (
    of_containers(
        "no-privileged",
        "!c.?securityContext.?privileged.orValue(false)",
        ({}, security(privileged=False)),
        (security(privileged=True),),
    ),
    of_containers(
        "no-privilege-escalation",
        "c.?securityContext.?allowPrivilegeEscalation.orValue(true) == false",
        (security(allowPrivilegeEscalation=False),),
        ({}, security(), security(allowPrivilegeEscalation=True)),
    ),
    of_containers(
        "drops-all-capabilities",
        "c.?securityContext.?capabilities.?drop.orValue([]).exists(x, x.upperAscii() == 'ALL')",
        (security(capabilities={"drop": ["ALL"]}), security(capabilities={"drop": ["KILL", "all"]})),
        ({}, security(capabilities={}), security(capabilities={"drop": ["KILL"]})),
    ),
    of_containers(
        "adds-only-net-bind-service",
        "sets.contains(['NET_BIND_SERVICE'], c.?securityContext.?capabilities.?add.orValue([]))",
        ({}, security(capabilities={"add": ["NET_BIND_SERVICE"]})),
        (security(capabilities={"add": ["SYS_ADMIN"]}),),
    ),
    of_containers(
        "no-insecure-capabilities",
        "!sets.intersects(c.?securityContext.?capabilities.?add.orValue([]), "
        "['ALL', 'BPF', 'NET_ADMIN', 'NET_RAW', 'SYS_ADMIN', 'SYS_MODULE', 'SYS_PTRACE'])",
        ({}, security(capabilities={"add": ["CHOWN", "KILL"]})),
        (security(capabilities={"add": ["CHOWN", "BPF"]}), security(capabilities={"add": ["ALL"]})),
    ),
    of_containers(
        "not-as-root",
        "c.?securityContext.?runAsNonRoot.orValue(variables.spec.?securityContext.?runAsNonRoot.orValue(false))",
        (security(runAsNonRoot=True),),
        ({}, security(runAsNonRoot=False)),
    ),
    of_containers(
        "not-as-user-zero",
        "c.?securityContext.?runAsUser.orValue(1) != 0",
        ({}, security(runAsUser=1000)),
        (security(runAsUser=0),),
    ),
    of_containers(
        "group-of-ordinary-users",
        "c.?securityContext.?runAsGroup.optMap(g, g >= 1000 && g < 65536).orValue(false)",
        (security(runAsGroup=2000),),
        ({}, security(runAsGroup=999), security(runAsGroup=70000)),
    ),
    of_containers(
        "read-only-root-filesystem",
        "has(c.securityContext) && has(c.securityContext.readOnlyRootFilesystem) "
        "&& c.securityContext.readOnlyRootFilesystem",
        (security(readOnlyRootFilesystem=True),),
        ({}, security(runAsUser=1), security(readOnlyRootFilesystem=False)),
    ),
    of_containers(
        "default-seccomp-profile",
        "c.?securityContext.?seccompProfile.?type.orValue('') in ['RuntimeDefault', 'Localhost']",
        (
            security(seccompProfile={"type": "RuntimeDefault"}),
            security(seccompProfile={"type": "Localhost", "localhostProfile": "p"}),
        ),
        ({}, security(seccompProfile={"type": "Unconfined"})),
    ),
    of_containers(
        "no-unconfined-apparmor",
        "c.?securityContext.?appArmorProfile.?type.orValue('RuntimeDefault') != 'Unconfined'",
        ({}, security(appArmorProfile={"type": "RuntimeDefault"})),
        (security(appArmorProfile={"type": "Unconfined"}),),
    ),
    of_containers(
        "selinux-types",
        "c.?securityContext.?seLinuxOptions.?type.orValue('container_t').matches('^container_(t|init_t|kvm_t)$')",
        ({}, security(seLinuxOptions={"type": "container_init_t"})),
        (security(seLinuxOptions={"type": "spc_t"}),),
    ),
    of_containers(
        "no-host-ports",
        "!c.?ports.orValue([]).exists(p, p.?hostPort.orValue(0) > 0)",
        ({}, {"ports": [{"containerPort": 80}]}),
        ({"ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}]},),
    ),
    of_containers(
        "no-ssh-port",
        "c.?ports.orValue([]).all(p, !(p.containerPort in [22, 2222]))",
        ({}, {"ports": [{"containerPort": 8022}]}),
        ({"ports": [{"containerPort": 22}]}, {"ports": [{"containerPort": 2222, "name": "shell"}]}),
    ),
    of_containers(
        "named-ports",
        "c.?ports.orValue([]).map(p, p.?name.orValue('')).all(n, n.startsWith('http') || n == 'metrics')",
        ({}, {"ports": [{"containerPort": 80, "name": "http-web"}]}),
        ({"ports": [{"containerPort": 80}]}, {"ports": [{"containerPort": 80, "name": "web"}]}),
    ),
    of_containers(
        "image-registry",
        "['registry.test/', 'mirror.test/'].exists(r, c.image.startsWith(r))",
        ({}, image("mirror.test/a:1")),
        (image("a:1"), image("registry.test.evil/a:1")),
    ),
    of_containers(
        "image-tag",
        "c.image.contains('@') || (c.image.split('/')[c.image.split('/').size() - 1].contains(':') "
        "&& !c.image.endsWith(':latest'))",
        ({}, image(DIGEST)),
        (image("registry.test:5000/main"), image("registry.test/main:latest"), image("main")),
    ),
    of_containers(
        "image-digest",
        "c.image.matches('@sha256:[0-9a-f]{64}$')",
        (image(DIGEST),),
        ({}, image(DIGEST[:-1] + "x")),
    ),
    of_containers(
        "image-of-the-team",
        "c.image.find('^registry.test/([a-z]+)/') == 'registry.test/team/'",
        ({}, image("registry.test/team/other:2")),
        (image("registry.test/other/main:1"), image("registry.test/main:1")),
    ),
    of_containers(
        "image-major-version",
        "c.image.matches(':v?[1-9][0-9]*([.][0-9]+)*$')",
        ({}, image("registry.test/main:2.3.4"), image("registry.test/main:v10")),
        (image("registry.test/main:0.9.1"), image("registry.test/main:stable")),
    ),
    of_containers(
        "image-pull-policy",
        "c.imagePullPolicy == 'Always'",
        ({"imagePullPolicy": "Always"}, image("registry.test/main:latest")),
        ({"imagePullPolicy": "IfNotPresent"}, {"imagePullPolicy": "Never"}, {}),
    ),
    of_containers(
        "cpu-request",
        "has(c.resources) && has(c.resources.requests) && 'cpu' in c.resources.requests",
        (requests(cpu="100m"), limits(cpu="1")),
        ({}, requests(memory="1Gi")),
    ),
    of_containers(
        "memory-request",
        "c.?resources.?requests.?memory.hasValue()",
        (requests(memory="1Gi"),),
        ({}, requests(cpu="1")),
    ),
    of_containers(
        "cpu-limit", "c.?resources.?limits[?'cpu'].hasValue()", (limits(cpu="1"),), ({}, requests(cpu="1"))
    ),
    of_containers(
        "memory-limit",
        "'memory' in c.?resources.?limits.orValue({})",
        (limits(memory="64Mi"),),
        ({}, limits(cpu="1")),
    ),
    of_containers(
        "memory-limit-maximum",
        "quantity(c.?resources.?limits.?memory.orValue('1Ei')).compareTo(quantity('2Gi')) <= 0",
        (limits(memory="2Gi"), limits(memory="2000M")),
        ({}, limits(memory="2049Mi"), limits(memory="3e9")),
    ),
    of_containers(
        "cpu-limit-range",
        "isQuantity(c.?resources.?limits.?cpu.orValue('none')) "
        "&& quantity(c.resources.limits.cpu).isGreaterThan(quantity('0.05')) "
        "&& quantity(c.resources.limits.cpu).isLessThan(quantity('5'))",
        (limits(cpu="1"), limits(cpu="4999m")),
        ({}, limits(cpu="50m"), limits(cpu="5")),
    ),
    of_containers(
        "memory-request-is-the-limit",
        "has(c.resources.requests) && c.resources.requests.memory == c.resources.limits.memory",
        ({"resources": {"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}},),
        ({"resources": {"limits": {"memory": "2Gi"}, "requests": {"memory": "1Gi"}}}, {}),
    ),
    of_containers(
        "cpu-ratio",
        "quantity(c.resources.limits.cpu).asApproximateFloat() "
        "/ quantity(c.resources.requests.cpu).asApproximateFloat() <= 4.0",
        ({"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "500m"}}},),
        ({"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "499m"}}}, {}),
    ),
    of_containers(
        "ephemeral-storage-limit",
        "c.?resources.?limits['ephemeral-storage'].hasValue()",
        (limits(**{"ephemeral-storage": "1Gi"}),),
        ({}, limits(cpu="1")),
    ),
    of_containers(
        "liveness-probe",
        "has(c.livenessProbe)",
        ({"livenessProbe": PROBE},),
        ({}, {"readinessProbe": PROBE}),
    ),
    of_containers("readiness-probe", "has(c.readinessProbe)", ({"readinessProbe": READY},), ({},)),
    of_containers(
        "different-probes",
        "!has(c.livenessProbe) || !has(c.readinessProbe) || c.livenessProbe != c.readinessProbe",
        ({"livenessProbe": PROBE, "readinessProbe": READY}, {}),
        ({"livenessProbe": PROBE, "readinessProbe": PROBE},),
    ),
    of_containers(
        "short-start",
        "c.?startupProbe.optMap(p, p.failureThreshold * p.periodSeconds <= 60).orValue(true)",
        ({"startupProbe": {**PROBE, "failureThreshold": 6}}, {}),
        ({"startupProbe": {**PROBE, "failureThreshold": 7}},),
    ),
    of_containers(
        "no-pre-stop-command",
        "!has(c.lifecycle) || !has(c.lifecycle.preStop) || !has(c.lifecycle.preStop.exec)",
        ({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}, {}),
        ({"lifecycle": {"preStop": {"exec": {"command": ["x"]}}}},),
    ),
    of_containers(
        "no-passwords-in-the-environment",
        "!c.?env.orValue([]).exists(e, has(e.value) && e.name.lowerAscii().matches('password|token|secret'))",
        ({}, environment({"name": "PASSWORD", "valueFrom": SECRET}, {"name": "MODE", "value": "x"})),
        (environment({"name": "MODE", "value": "x"}, {"name": "API_TOKEN", "value": "x"}),),
    ),
    of_containers(
        "no-secrets-in-the-environment",
        "!c.?env.orValue([]).exists(e, has(e.valueFrom) && has(e.valueFrom.secretKeyRef)) "
        "&& !c.?envFrom.orValue([]).exists(e, has(e.secretRef))",
        ({}, {"envFrom": [{"configMapRef": {"name": "a"}}]}),
        (environment({"name": "A", "valueFrom": SECRET}), {"envFrom": [{"secretRef": {"name": "a"}}]}),
    ),
    of_containers(
        "no-shell",
        f"!(c.?command[?0].orValue('') in {SHELLS}) && !(c.?args[0].orValue('') in {SHELLS})",
        ({}, {"command": ["/main", "sh"]}),
        ({"command": ["sh", "-c", "x"]}, {"args": ["/bin/bash"]}),
    ),
    of_containers(
        "no-terminal",
        "!c.?tty.orValue(false) && !c.?stdin.orValue(false)",
        ({}, {"tty": False}),
        ({"stdin": True}, {"stdin": True, "tty": True}),
    ),
    of_containers(
        "messages-to-the-log",
        "c.terminationMessagePolicy == 'FallbackToLogsOnError'",
        ({"terminationMessagePolicy": "FallbackToLogsOnError"},),
        ({}, {"terminationMessagePolicy": "File"}),
    ),
)
