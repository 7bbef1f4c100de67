"""What the specification of a Pod must be."""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.controls.control import (
    PODS,
    Control,
    checked,
    container,
    of_pods,
    pod,
)
from tests.e2e.policy_comparison import bound

Json = dict[str, Any]


def volumes(*found: Json) -> Json:
    named = [{"name": f"v{number}", **each} for number, each in enumerate(found)]
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in named]
    return {"volumes": named, "containers": [container(volumeMounts=mounts)]}


def host_path(path: str, **mount: Any) -> Json:
    mounted = {"name": "v0", "mountPath": "/v0", **mount}
    return {
        "volumes": [{"name": "v0", "hostPath": {"path": path}}],
        "containers": [container(volumeMounts=[mounted])],
    }


def sysctl(name: str) -> Json:
    return {"securityContext": {"sysctls": [{"name": name, "value": "1"}]}}


def labelled(**labels: str) -> Json:
    return {**pod(), "metadata": {"labels": labels}}


def annotated(**annotations: str) -> Json:
    return {**pod(), "metadata": {"annotations": annotations}}


SPREAD: Final = {
    "maxSkew": 1,
    "topologyKey": "topology.kubernetes.io/zone",
    "whenUnsatisfiable": "DoNotSchedule",
}
ANTI_AFFINITY: Final = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 1,
                "podAffinityTerm": {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "shop"}},
                },
            }
        ]
    }
}
TOLERATION: Final = {"key": "dedicated", "operator": "Equal", "value": "db", "effect": "NoSchedule"}

CONTROLS: Final[tuple[Control, ...]] = (
    *(
        of_pods(
            f"no-{field.lower()}",
            f"!has(variables.spec.{field}) || !variables.spec.{field}",
            ({}, {field: False}),
            ({field: True},),
        )
        for field in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")
    ),
    of_pods(
        "no-host-path",
        "!variables.spec.?volumes.orValue([]).exists(v, has(v.hostPath))",
        ({}, volumes({"emptyDir": {}})),
        (volumes({"emptyDir": {}}, {"hostPath": {"path": "/tmp"}}),),
    ),
    of_pods(
        "read-only-host-path",
        "variables.spec.?volumes.orValue([]).filter(v, has(v.hostPath)).all(v, "
        "variables.containers.all(c, c.?volumeMounts.orValue([]).all(m, "
        "m.name != v.name || m.?readOnly.orValue(false))))",
        (host_path("/data", readOnly=True), {}),
        (host_path("/data"), host_path("/data", readOnly=False)),
    ),
    of_pods(
        "no-container-socket",
        "!variables.spec.?volumes.orValue([]).exists(v, v.?hostPath.?path.orValue('') in "
        "['/var/run/docker.sock', '/run/containerd/containerd.sock', '/run/crio/crio.sock'])",
        (host_path("/var/run/docker.socket"), {}),
        (host_path("/run/crio/crio.sock"), host_path("/var/run/docker.sock")),
    ),
    of_pods(
        "no-node-files",
        "variables.spec.?volumes.orValue([]).all(v, ['/etc/kubernetes', '/var/lib/kubelet', '/proc'].all(p, "
        "!(v.?hostPath.?path.orValue('none') + '/').startsWith(p + '/')))",
        (host_path("/etc/kubernetes2"), {}),
        (host_path("/etc/kubernetes"), host_path("/var/lib/kubelet/pods")),
    ),
    of_pods(
        "volume-types",
        "variables.spec.?volumes.orValue([]).all(v, has(v.configMap) || has(v.emptyDir) || has(v.secret) "
        "|| has(v.projected) || has(v.persistentVolumeClaim) || has(v.downwardAPI) || has(v.csi))",
        (volumes({"emptyDir": {}}, {"configMap": {"name": "a"}}), {}),
        (volumes({"nfs": {"server": "a", "path": "/"}}), volumes({"hostPath": {"path": "/a"}})),
    ),
    of_pods(
        "safe-sysctls",
        "variables.spec.?securityContext.?sysctls.orValue([]).map(s, s.name).all(n, "
        "n in ['kernel.shm_rmid_forced', 'net.ipv4.tcp_syncookies', 'net.ipv4.ip_local_port_range'])",
        (sysctl("net.ipv4.tcp_syncookies"), {}),
        (sysctl("kernel.msgmax"),),
    ),
    of_pods(
        "default-proc-mount",
        "variables.containers.all(c, c.?securityContext.?procMount.orValue('Default') == 'Default')",
        ({}, {"containers": [container(securityContext={"procMount": "Default"})]}),
        ({"hostUsers": False, "containers": [container(securityContext={"procMount": "Unmasked"})]},),
    ),
    of_pods(
        "not-as-root-by-the-pod",
        "variables.spec.?securityContext.runAsNonRoot.orValue(false) "
        "&& variables.spec.?securityContext.?runAsUser.orValue(1) > 0",
        ({"securityContext": {"runAsNonRoot": True}},),
        ({}, {"securityContext": {"runAsNonRoot": True, "runAsUser": 0}}, {"securityContext": {}}),
    ),
    of_pods(
        "no-token",
        "has(variables.spec.automountServiceAccountToken) && !variables.spec.automountServiceAccountToken",
        ({"automountServiceAccountToken": False},),
        ({}, {"automountServiceAccountToken": True}),
    ),
    of_pods(
        "own-service-account",
        "!(variables.spec.?serviceAccountName.orValue('') in ['', 'default'])",
        ({"serviceAccountName": "shop"},),
        ({}, {"serviceAccountName": "default"}),
    ),
    of_pods(
        "pull-secrets",
        "has(variables.spec.imagePullSecrets) && variables.spec.imagePullSecrets[0].name.endsWith('-pull')",
        ({"imagePullSecrets": [{"name": "team-pull"}]},),
        ({}, {"imagePullSecrets": [{"name": "other"}, {"name": "team-pull"}]}),
    ),
    of_pods(
        "few-containers",
        "size(variables.spec.containers) <= 2",
        ({},),
        ({"containers": [container(name=name) for name in "abc"]},),
    ),
    of_pods(
        "different-ports",
        "variables.spec.containers.all(c, c.?ports.orValue([]).all(p, variables.spec.containers.filter(d, "
        "d.?ports.orValue([]).exists(q, q.containerPort == p.containerPort)).size() == 1))",
        ({"containers": [container(ports=[{"containerPort": 1}, {"containerPort": 2}])]},),
        (
            {
                "containers": [
                    container(ports=[{"containerPort": 1}]),
                    container(name="b", ports=[{"containerPort": 1}]),
                ]
            },
        ),
    ),
    of_pods(
        "short-termination",
        "variables.spec.?terminationGracePeriodSeconds.orValue(30) <= 300",
        ({}, {"terminationGracePeriodSeconds": 300}),
        ({"terminationGracePeriodSeconds": 301},),
    ),
    of_pods(
        "no-system-priority",
        "!variables.spec.?priorityClassName.orValue('').startsWith('system-')",
        ({},),
        ({"priorityClassName": "system-node-critical"},),
    ),
    of_pods(
        "no-node-name",
        "!has(variables.spec.nodeName) && !has(variables.spec.nodeSelector)",
        ({},),
        ({"nodeName": "n"}, {"nodeSelector": {"a": "b"}}),
    ),
    of_pods(
        "no-toleration-of-everything",
        "!variables.spec.?tolerations.orValue([]).exists(t, t.?operator.orValue('Equal') == 'Exists' "
        "&& !has(t.key))",
        ({"tolerations": [TOLERATION]}, {}),
        ({"tolerations": [TOLERATION, {"operator": "Exists"}]},),
    ),
    of_pods(
        "no-toleration-of-control-planes",
        "variables.spec.?tolerations.orValue([]).all(t, "
        "t.?key.orValue('') != 'node-role.kubernetes.io/control-plane')",
        ({"tolerations": [TOLERATION]}, {}),
        ({"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]},),
    ),
    of_pods(
        "spread-over-zones",
        "variables.spec.?topologySpreadConstraints.orValue([]).exists_one(s, "
        "s.topologyKey.endsWith('/zone') && s.maxSkew == 1)",
        ({"topologySpreadConstraints": [SPREAD]},),
        ({}, {"topologySpreadConstraints": [{**SPREAD, "maxSkew": 2}]}),
    ),
    of_pods(
        "anti-affinity",
        "variables.spec.?affinity.?podAntiAffinity.?preferredDuringSchedulingIgnoredDuringExecution"
        ".orValue([]).size() > 0",
        ({"affinity": ANTI_AFFINITY},),
        ({}, {"affinity": {}}),
    ),
    of_pods(
        "cluster-dns",
        "variables.spec.dnsPolicy in ['ClusterFirst', 'ClusterFirstWithHostNet']",
        ({}, {"dnsPolicy": "ClusterFirstWithHostNet"}),
        ({"dnsPolicy": "Default"},),
    ),
    of_pods(
        "no-service-links",
        "variables.spec.?enableServiceLinks.orValue(true) == false",
        ({"enableServiceLinks": False},),
        ({}, {"enableServiceLinks": True}),
    ),
    of_pods(
        "no-host-aliases",
        "variables.spec.?hostAliases.orValue([]).all(a, ip.isCanonical(a.ip) && !ip(a.ip).isLoopback())",
        ({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}]}, {}),
        ({"hostAliases": [{"ip": "127.0.0.1", "hostnames": ["a"]}]},),
    ),
    Control(
        "recommended-labels",
        PODS,
        checked(
            (
                "['app', 'team'].all(l, l in object.metadata.labels)",
                "'missing: ' + ['app', 'team'].filter(l, !(l in object.metadata.labels)).join(', ')",
            ),
            reason="Forbidden",
        ),
        (labelled(app="a", team="b"),),
        (labelled(app="a"), pod()),
    ),
    Control(
        "label-values",
        PODS,
        checked("object.metadata.labels.?stage.orValue('test') in ['test', 'live']"),
        (labelled(stage="live"), pod()),
        (labelled(stage="try"),),
    ),
    Control(
        "owner-annotation",
        PODS,
        checked(
            (
                "object.metadata.?annotations.?owner.orValue('').matches('^[a-z.]+@example[.]com$')",
                "'owner is ' + object.metadata.?annotations.?owner.orValue('missing')",
            )
        ),
        (annotated(owner="ann.lee@example.com"),),
        (annotated(owner="ann@example.org"), annotated(other="x"), pod()),
    ),
    Control(
        "end-date",
        PODS,
        checked(
            (
                "timestamp(object.metadata.annotations.until) <= timestamp('2030-02-01T00:00:00Z')",
                "'ends in ' + string(timestamp(object.metadata.annotations.until).getFullYear())",
            )
        ),
        (annotated(until="2030-01-15T00:00:00Z"),),
        (annotated(until="2031-01-15T00:00:00Z"), annotated(until="soon"), pod()),
    ),
    Control(
        "documentation-link",
        PODS,
        checked(
            "isURL(object.metadata.annotations.docs) && url(object.metadata.annotations.docs).getScheme() "
            "== 'https' && url(object.metadata.annotations.docs).getHostname().endsWith('.example.com')"
        ),
        (annotated(docs="https://wiki.example.com/a?b=c"),),
        (annotated(docs="http://wiki.example.com"), annotated(docs="https://example.com"), pod()),
    ),
    Control(
        "name-begins-with-the-namespace",
        PODS,
        checked(
            (
                "object.metadata.name.startsWith(namespaceObject.metadata.name.substring(0, 4))",
                "'expected a name that begins with ' + namespaceObject.metadata.name.substring(0, 4)",
            )
        ),
        ({**pod(), "metadata": {"name": "controls"}},),
        (pod(),),
    ),
    Control(
        "limited-by-a-parameter",
        PODS,
        checked(
            (
                "size(object.spec.containers) <= int(params.data.max)",
                "'at most ' + params.data.max + ' containers, found ' + string(size(object.spec.containers))",
            )
        ),
        (pod(),),
        (pod(containers=[container(name=name) for name in "abcd"]),),
        {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}},
        bound(paramRef={"name": "limits", "parameterNotFoundAction": "Deny"}),
    ),
    Control(
        "not-of-administrators",
        PODS,
        checked(
            "!('system:masters' in request.userInfo.groups) || has(object.metadata.annotations.emergency)"
        ),
        (annotated(emergency="yes"),),
        (annotated(emergent="yes"),),
    ),
)
