"""What services, access rights, storage and configuration must be."""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.controls.control import Control, checked
from tests.e2e.setups import rule

Json = dict[str, Any]

RBAC: Final = "rbac.authorization.k8s.io"
SERVICES: Final = (rule("services", "CREATE", "UPDATE"),)
INGRESSES: Final = (rule("ingresses", "*", group="networking.k8s.io"),)
NETWORK_POLICIES: Final = (rule("networkpolicies", "*", group="networking.k8s.io"),)
ROLES: Final = (rule("roles clusterroles", "CREATE", "UPDATE", group=RBAC),)
BINDINGS: Final = (rule("rolebindings clusterrolebindings", "CREATE", "UPDATE", group=RBAC),)
CLAIMS: Final = (rule("persistentvolumeclaims", "CREATE"),)


def service(**spec: Any) -> Json:
    ports = [{"port": 80, "name": "http"}]
    return {"apiVersion": "v1", "kind": "Service", "spec": {"ports": ports, **spec}}


def ingress(host: str | None = "a.example.com", annotations: Json | None = None, **spec: Any) -> Json:
    backend = {"service": {"name": "shop", "port": {"number": 80}}}
    paths = {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}
    rules = [{**({} if host is None else {"host": host}), "http": paths}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"annotations": annotations or {}},
        "spec": {"rules": rules, **spec},
    }


def network_policy(**spec: Any) -> Json:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "spec": {"podSelector": {}, **spec},
    }


def role(*verbs: str, resources: str = "pods", group: str = "", kind: str = "Role") -> Json:
    rules = [
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
        {"apiGroups": [group], "resources": resources.split(), "verbs": list(verbs)},
    ]
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "rules": rules}


def grant(role_name: str, *subjects: Json, kind: str = "RoleBinding") -> Json:
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role_name}
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "roleRef": reference, "subjects": list(subjects)}


def group(name: str) -> Json:
    return {"kind": "Group", "apiGroup": RBAC, "name": name}


def account(name: str) -> Json:
    return {"kind": "ServiceAccount", "name": name, "namespace": "default"}


def config_map(**data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "data": data}


def secret(kind: str = "Opaque", **members: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Secret", "type": kind, **members}


def claim(storage: str = "1Gi", mode: str = "ReadWriteOnce", **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": storage}}, **spec},
    }


def namespace(**labels: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"labels": labels}}


ANN: Final = {"kind": "User", "apiGroup": RBAC, "name": "ann"}
TLS: Final = [{"hosts": ["a.example.com"], "secretName": "tls"}]

CONTROLS: Final[tuple[Control, ...]] = (
    Control(
        "no-node-ports",
        SERVICES,
        checked("object.spec.type != 'NodePort'", "object.spec.ports.all(p, !has(p.nodePort))"),
        (service(),),
        (service(type="NodePort"),),
    ),
    Control(
        "no-load-balancers",
        SERVICES,
        checked(
            "object.spec.type != 'LoadBalancer' "
            "|| object.metadata.?annotations.?internal.orValue('') == 'yes'"
        ),
        (service(), {**service(type="LoadBalancer"), "metadata": {"annotations": {"internal": "yes"}}}),
        (service(type="LoadBalancer"),),
    ),
    Control(
        "private-sources",
        SERVICES,
        checked(
            "object.spec.type != 'LoadBalancer' || object.spec.?loadBalancerSourceRanges[?0].hasValue()",
            "object.spec.?loadBalancerSourceRanges.orValue([]).all(r, cidr('10.0.0.0/8').containsCIDR(r))",
        ),
        (service(type="LoadBalancer", loadBalancerSourceRanges=["10.1.0.0/16"]), service()),
        (
            service(type="LoadBalancer"),
            service(type="LoadBalancer", loadBalancerSourceRanges=["10.1.0.0/16", "0.0.0.0/0"]),
        ),
    ),
    Control(
        "no-external-ips",
        SERVICES,
        checked("!has(object.spec.externalIPs)"),
        (service(),),
        (service(externalIPs=["10.9.9.9"]),),
    ),
    Control(
        "external-names",
        SERVICES,
        checked("object.spec.?externalName.orValue('a.example.com').endsWith('.example.com')"),
        (service(type="ExternalName", externalName="b.example.com"), service()),
        (service(type="ExternalName", externalName="b.example.org"),),
    ),
    Control(
        "named-service-ports",
        SERVICES,
        checked("object.spec.ports.all(p, p.?name.orValue('') in ['http', 'https', 'grpc'])"),
        (service(),),
        (service(ports=[{"port": 80}]),),
    ),
    Control(
        "no-session-affinity",
        SERVICES,
        checked("object.spec.sessionAffinity == 'None'"),
        (service(),),
        (service(sessionAffinity="ClientIP"),),
    ),
    Control(
        "ingress-tls",
        INGRESSES,
        checked(
            (
                "object.spec.rules.all(r, object.spec.?tls.orValue([]).exists(t, r.host in t.hosts))",
                "'without TLS: ' + object.spec.rules.map(r, r.?host.orValue('*')).join(' ')",
            )
        ),
        (ingress(tls=TLS),),
        (ingress(), ingress("b.example.com", tls=TLS), ingress(None, tls=TLS)),
    ),
    Control(
        "ingress-hosts",
        INGRESSES,
        checked("object.spec.rules.all(r, has(r.host) && !r.host.startsWith('*.'))"),
        (ingress(),),
        (ingress("*.example.com"), ingress(None)),
    ),
    Control(
        "ingress-class",
        INGRESSES,
        checked("object.spec.?ingressClassName.orValue('') == 'internal'"),
        (ingress(ingressClassName="internal"),),
        (ingress(), ingress(ingressClassName="public")),
    ),
    Control(
        "no-default-backend",
        INGRESSES,
        checked("!has(object.spec.defaultBackend)"),
        (ingress(),),
        (ingress(defaultBackend={"service": {"name": "a", "port": {"number": 1}}}),),
    ),
    Control(
        "no-snippets",
        INGRESSES,
        checked("!object.metadata.annotations.exists(k, k.endsWith('-snippet'))"),
        (ingress(annotations={"example.com/rewrite": "x"}),),
        (ingress(annotations={"example.com/server-snippet": "x"}), ingress()),
    ),
    Control(
        "no-open-ingress",
        NETWORK_POLICIES,
        checked(
            "object.spec.?ingress.orValue([]).all(i, size(i.?from.orValue([])) > 0 && i.from.all(f, "
            "f.?ipBlock.?cidr.orValue('10.0.0.0/8') != '0.0.0.0/0'))"
        ),
        (network_policy(ingress=[{"from": [{"podSelector": {}}]}]), network_policy()),
        (
            network_policy(ingress=[{}]),
            network_policy(ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]),
        ),
    ),
    Control(
        "narrow-egress",
        NETWORK_POLICIES,
        checked(
            "object.spec.?egress.orValue([]).all(e, e.?to.orValue([]).all(t, !has(t.ipBlock) || "
            "cidr(t.ipBlock.cidr).prefixLength() >= 16))"
        ),
        (network_policy(egress=[{"to": [{"ipBlock": {"cidr": "10.0.0.0/16"}}]}]), network_policy()),
        (network_policy(egress=[{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]),),
    ),
    Control(
        "no-wildcard-verbs",
        ROLES,
        checked("object.rules.all(r, !r.verbs.exists(v, v == '*'))"),
        (role("get"), role("get", kind="ClusterRole")),
        (role("get", "*"), role("*", kind="ClusterRole")),
    ),
    Control(
        "no-wildcard-resources",
        ROLES,
        checked(
            "object.rules.all(r, !('*' in r.?resources.orValue([])) && !('*' in r.?apiGroups.orValue([])))"
        ),
        (role("get"),),
        (role("get", resources="pods *"), role("get", group="*", kind="ClusterRole")),
    ),
    Control(
        "no-access-to-secrets",
        ROLES,
        checked(
            "object.rules.all(r, !('secrets' in r.resources) || "
            "!sets.intersects(r.verbs, ['get', 'list', 'watch', '*']))"
        ),
        (role("create", resources="secrets"),),
        (role("list", resources="pods secrets"),),
    ),
    Control(
        "no-escalation",
        ROLES,
        checked("object.rules.all(r, r.verbs.all(v, !v.matches('^(escalate|bind|impersonate)$')))"),
        (role("get", resources="roles", group=RBAC),),
        (role("bind", resources="roles", group=RBAC), role("impersonate", resources="users")),
    ),
    Control(
        "no-remote-commands",
        ROLES,
        checked(
            "!object.rules.exists(r, r.resources.exists(x, x.startsWith('pods/')) "
            "&& sets.intersects(r.verbs, ['create', 'get', '*']))"
        ),
        (role("create"), role("update", resources="pods/status")),
        (role("create", resources="pods/exec"),),
    ),
    Control(
        "no-cluster-admins",
        BINDINGS,
        checked("object.roleRef.name != 'cluster-admin'"),
        (grant("view", ANN),),
        (grant("cluster-admin", ANN), grant("cluster-admin", ANN, kind="ClusterRoleBinding")),
    ),
    Control(
        "no-anonymous-subjects",
        BINDINGS,
        checked(
            "object.?subjects.orValue([]).all(s, !(s.name in ['system:anonymous', 'system:unauthenticated']))"
        ),
        (grant("view", group("developers")), grant("view")),
        (grant("view", ANN, group("system:unauthenticated")),),
    ),
    Control(
        "no-default-accounts",
        BINDINGS,
        checked("!object.subjects.exists(s, s.kind == 'ServiceAccount' && s.name == 'default')"),
        (grant("view", account("shop")), grant("view", ANN)),
        (grant("view", account("default"), kind="ClusterRoleBinding"),),
    ),
    Control(
        "no-credentials-in-config-maps",
        (rule("configmaps", "CREATE"),),
        checked("!object.data.exists(k, object.data[k].matches('(?i)(password|secret)[ ]*[:=]'))"),
        (config_map(a="secretly: yes"),),
        (config_map(a="x", b="Password = x"), config_map(a="SECRET:x")),
    ),
    Control(
        "small-config-maps",
        (rule("configmaps", "CREATE"),),
        checked(("object.data.map(k, object.data[k].size()).sum() <= 10", "'more than 10 characters'")),
        (config_map(a="12345", b="ä2345"),),
        (config_map(a="12345", b="123456"),),
    ),
    Control(
        "immutable-config-maps",
        (rule("configmaps", "CREATE"),),
        checked("has(object.immutable) && object.immutable"),
        ({**config_map(a="1"), "immutable": True},),
        (config_map(a="1"),),
    ),
    Control(
        "secret-types",
        (rule("secrets", "CREATE"),),
        checked("object.type in ['Opaque', 'kubernetes.io/basic-auth']"),
        (secret(), secret("kubernetes.io/basic-auth", stringData={"username": "a", "password": "b"})),
        (secret("example.com/other"),),
    ),
    Control(
        "no-blank-secrets",
        (rule("secrets", "CREATE"),),
        checked(
            "object.data.all(k, !object.data[k].matches('^(IA|Cg|CQ)*={0,2}$'))",
            "object.data.all(k, !k.startsWith('.'))",
        ),
        (secret(stringData={"a": "b"}),),
        (secret(stringData={"a": " "}), secret(stringData={".a": "b"}), secret()),
    ),
    Control(
        "account-without-token",
        (rule("serviceaccounts", "CREATE"),),
        checked("has(object.automountServiceAccountToken) && !object.automountServiceAccountToken"),
        ({"apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": False},),
        ({"apiVersion": "v1", "kind": "ServiceAccount"},),
    ),
    Control(
        "storage-class",
        CLAIMS,
        checked("object.spec.?storageClassName.orValue('') in ['fast', 'slow']"),
        (claim(storageClassName="fast"),),
        (claim(), claim(storageClassName="other")),
    ),
    Control(
        "storage-size",
        CLAIMS,
        checked("quantity(object.spec.resources.requests.storage).compareTo(quantity('100Gi')) < 1"),
        (claim("100Gi"), claim("107374182400")),
        (claim("0.2Ti"),),
    ),
    Control(
        "access-mode",
        CLAIMS,
        checked("object.spec.accessModes.all(m, m in ['ReadWriteOnce', 'ReadWriteOncePod'])"),
        (claim(mode="ReadWriteOncePod"),),
        (claim(mode="ReadWriteMany"),),
    ),
    Control(
        "namespace-security",
        (rule("namespaces", "CREATE"),),
        checked(
            "object.metadata.labels[?'pod-security.kubernetes.io/enforce'].orValue('') "
            "in ['restricted', 'baseline']"
        ),
        (namespace(**{"pod-security.kubernetes.io/enforce": "restricted"}),),
        (namespace(), namespace(**{"pod-security.kubernetes.io/enforce": "privileged"})),
    ),
    Control(
        "expanding-storage",
        (rule("storageclasses", "*", group="storage.k8s.io"),),
        checked("object.?allowVolumeExpansion.orValue(false) == true", "object.reclaimPolicy == 'Delete'"),
        (
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "provisioner": "example.com/p",
                "allowVolumeExpansion": True,
            },
        ),
        (
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "provisioner": "example.com/p",
                "reclaimPolicy": "Retain",
            },
        ),
    ),
    Control(
        "low-priority",
        (rule("priorityclasses", "*", group="scheduling.k8s.io"),),
        checked("object.value < 1000000", "!object.?globalDefault.orValue(false)"),
        ({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000},),
        (
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000000},
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "value": 1,
                "globalDefault": True,
            },
        ),
    ),
)
