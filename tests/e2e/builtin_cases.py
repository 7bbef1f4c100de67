"""Requests for the ports of Kubernetes' built-in admission controllers, and their configuration."""

from __future__ import annotations

import base64
import random
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.e2e.cluster import ADMIN, STRANGER, USERS
from tests.e2e.compare import Operation
from tests.e2e.objects import metadata, pod

Json = dict[str, Any]

PLAIN, ANNOTATED, LIMITED, EVENTS, FROZEN = "plain", "annotated", "limited", "events", "frozen"
"""Namespaces: without annotations, with those of the controllers, with a LimitRange, for Events, and for
AlwaysDeny."""

NODE_SELECTORS: Final = {"clusterDefaultNodeSelector": "pool=general", ANNOTATED: "pool=special, disk=ssd"}
TOLERATIONS: Final = {
    "default": [{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}],
    "whitelist": [
        {"key": "team", "operator": "Exists"},
        {"key": "example.com/gpu", "operator": "Exists"},
        {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
    ],
}
EVENT_LIMITS: Final = {"limits": [{"type": "Namespace", "qps": 1, "burst": 2, "cacheSize": 10}]}
LIMITS: Final = {
    "limits": [
        {
            "type": "Container",
            "min": {"cpu": "25m", "memory": "1Mi"},
            "max": {"cpu": "1", "memory": "2Gi"},
            "default": {"cpu": "0.075", "memory": "10Mi"},
            "defaultRequest": {"cpu": "50m"},
            "maxLimitRequestRatio": {"memory": "4"},
        },
        {"type": "Pod", "max": {"cpu": "1500m", "memory": "3Gi"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "10Gi"}},
    ]
}

PARAMETERS: Final[dict[str, Json]] = {
    "pod-node-selector": NODE_SELECTORS,
    "pod-toleration-restriction": TOLERATIONS,
    "event-rate-limit": EVENT_LIMITS,
    "limit-ranger": LIMITS,
}
"""By the name of the policy; that of ``NAME-validate`` is the same."""

SELECTOR: Final = "scheduler.alpha.kubernetes.io/node-selector"
DEFAULTS: Final = "scheduler.alpha.kubernetes.io/defaultTolerations"
ALLOWED: Final = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
MARKED: Final = {"storageclass.kubernetes.io/is-default-class": "true"}
MARKED_INGRESS: Final = {"ingressclass.kubernetes.io/is-default-class": "true"}
CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
INGRESS_CLASSES: Final = "/apis/networking.k8s.io/v1/ingressclasses"
REQUESTS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
RUNTIME_CLASSES: Final = "/apis/node.k8s.io/v1/runtimeclasses"
ROLES: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


def create(path: str, kind: str, name: str, user: str = ADMIN, **fields: Any) -> Operation:
    """Return the creation of an object of *kind* in the list *path*."""
    group_version = path.removeprefix("/apis/").split("/")
    version = "v1" if path.startswith("/api/") else "/".join(group_version[:2])
    members = fields.pop("metadata", {})
    document = {"apiVersion": version, "kind": kind, "metadata": metadata(name, **members), **fields}
    return Operation("POST", path, document, user=user)


def of(namespace: str, plural: str, group_version: str = "") -> str:
    root = f"/apis/{group_version}" if group_version else "/api/v1"
    return f"{root}/namespaces/{namespace}/{plural}"


def make_pod(namespace: str, name: str, **spec: Any) -> Operation:
    return Operation("POST", of(namespace, "pods"), pod(name, **spec))


def namespace(name: str, **annotations: str) -> Operation:
    members = {"labels": {"kubernetes.io/metadata.name": name}, "annotations": annotations}
    return create("/api/v1/namespaces", "Namespace", name, metadata=members)


def storage_class(name: str, *, grows: bool, **fields: Any) -> Operation:
    return create(
        CLASSES, "StorageClass", name, provisioner="example.com/disk", allowVolumeExpansion=grows, **fields
    )


FURNITURE: Final = (
    namespace(PLAIN),
    namespace(
        ANNOTATED,
        **{
            SELECTOR: "disk = ssd",
            DEFAULTS: '[{"key": "only", "operator": "Exists"}]',
            ALLOWED: '[{"key": "only", "operator": "Exists"}, {"effect": "NoExecute", "operator": "Exists"},'
            ' {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]',
        },
    ),
    namespace(LIMITED),
    namespace(EVENTS),
    namespace(FROZEN),
    storage_class("first", grows=False),
    storage_class("second", grows=True, metadata={"annotations": MARKED}),
    create(
        INGRESS_CLASSES,
        "IngressClass",
        "main",
        spec={"controller": "example.com/main"},
        metadata={"annotations": MARKED_INGRESS},
    ),
    create(
        "/api/v1/nodes",
        "Node",
        "machine",
        metadata={"labels": {"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"}},
    ),
    create(PRIORITY_CLASSES, "PriorityClass", "normal", value=100, globalDefault=True),
    create(PRIORITY_CLASSES, "PriorityClass", "urgent", value=1000, preemptionPolicy="Never"),
    create(
        RUNTIME_CLASSES,
        "RuntimeClass",
        "sandbox",
        handler="sandbox",
        overhead={"podFixed": {"cpu": "0.25", "memory": "64Mi"}},
        scheduling={
            "nodeSelector": {"sandbox": "yes"},
            "tolerations": [{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}],
        },
    ),
    create(RUNTIME_CLASSES, "RuntimeClass", "bare", handler="bare"),
    create(
        ROLES,
        "ClusterRole",
        "some-rights",
        rules=[
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update", "patch"]},
            {
                "apiGroups": ["certificates.k8s.io"],
                "resources": [f"certificatesigningrequests{part}" for part in ("", "/approval", "/status")],
                "verbs": ["get", "create", "update"],
            },
            {
                "apiGroups": ["certificates.k8s.io"],
                "resources": ["signers"],
                "resourceNames": ["allowed.com/*"],
                "verbs": ["approve", "sign"],
            },
        ],
    ),
    create(
        BINDINGS,
        "ClusterRoleBinding",
        "some-rights",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "some-rights"},
        subjects=[{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": USERS[STRANGER]}],
    ),
)
"""Made in both clusters before the policies are in force."""


def container(name: str = "main", **fields: Any) -> Json:
    return {"name": name, "image": "registry.test/main:1", **fields}


def using(requests: Json | None = None, limits: Json | None = None, **fields: Any) -> Json:
    """Return a container with resources."""
    return container(resources={"requests": requests or {}, "limits": limits or {}}, **fields)


def anti_affinity(key: str) -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"a": "b"}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def tolerating(*keys: str, effect: str = "NoSchedule") -> list[Json]:
    return [{"key": key, "operator": "Exists", "effect": effect} for key in keys]


def claim(namespace: str, name: str, size: str, user: str = ADMIN, **spec: Any) -> Operation:
    fields = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return create(
        of(namespace, "persistentvolumeclaims"), "PersistentVolumeClaim", name, user=user, spec=fields
    )


def bound(namespace: str, name: str) -> Operation:
    path = f"{of(namespace, 'persistentvolumeclaims')}/{name}/status"
    patch = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    return Operation("PATCH", path, patch, "application/merge-patch+json")


def grown(namespace: str, name: str, size: str) -> Operation:
    patch = {"spec": {"resources": {"requests": {"storage": size}}}}
    path = f"{of(namespace, 'persistentvolumeclaims')}/{name}"
    return Operation("PATCH", path, patch, "application/merge-patch+json")


_KEY: Final = ec.generate_private_key(ec.SECP256R1())


def csr(name: str, signer: str, *organizations: str) -> Operation:
    """Return the creation of a CertificateSigningRequest."""
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    parts += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts))
    pem = made.sign(_KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    spec = {"signerName": signer, "usages": ["client auth"], "request": base64.b64encode(pem).decode()}
    return create(REQUESTS, "CertificateSigningRequest", name, spec=spec)


def decided(name: str, sub_resource: str, kind: str, user: str) -> Operation:
    """Return an approval or a failure of a CertificateSigningRequest, as a patch."""
    condition = {"type": kind, "status": "True", "reason": "Test", "message": "by a test"}
    return Operation(
        "PATCH",
        f"{REQUESTS}/{name}/{sub_resource}",
        {"status": {"conditions": [condition]}},
        "application/merge-patch+json",
        user,
    )


def owned(
    name: str, user: str, method: str = "POST", *, block: bool | None = None, kind: str = "Node"
) -> Operation:
    """Return a ConfigMap with an owner, or the patch that gives it one."""
    blocking = {} if block is None else {"blockOwnerDeletion": block}
    owner = {"apiVersion": "v1", "kind": kind, "name": "machine", "uid": "1-2-3", **blocking}
    path = of(PLAIN, "configmaps")
    if method == "POST":
        return create(path, "ConfigMap", name, user, metadata={"ownerReferences": [owner]})
    patch = {"metadata": {"ownerReferences": [owner]}}
    return Operation("PATCH", f"{path}/{name}", patch, "application/merge-patch+json", user)


GPU: Final = {"example.com/gpu": "1"}
VOLUME_CLASSES: Final = "/apis/storage.k8s.io/v1/volumeattributesclasses"
WRITTEN: Final[dict[str, tuple[Operation, ...]]] = {
    "pod": (make_pod(PLAIN, "plain"), make_pod(PLAIN, "generated-")),
    "always-pull-images": (
        make_pod(
            PLAIN,
            "pulling",
            containers=[container(imagePullPolicy="Never"), container("b", imagePullPolicy="IfNotPresent")],
            initContainers=[container("c", imagePullPolicy="Never")],
            volumes=[{"name": "v", "image": {"reference": "registry.test/a:1", "pullPolicy": "Never"}}],
        ),
        Operation(
            "PATCH",
            f"{of(PLAIN, 'pods')}/pulling",
            {"metadata": {"labels": {"a": "b"}}},
            "application/merge-patch+json",
        ),
        Operation(
            "PATCH",
            f"{of(PLAIN, 'pods')}/pulling",
            {"spec": {"containers": [{"name": "main", "image": "registry.test/other:1"}]}},
            "application/strategic-merge-patch+json",
        ),
        Operation(
            "PATCH",
            f"{of(PLAIN, 'pods')}/pulling/ephemeralcontainers",
            {"spec": {"ephemeralContainers": [container("debug", imagePullPolicy="Never")]}},
            "application/strategic-merge-patch+json",
        ),
    ),
    "limit-pod-hard-anti-affinity-topology": (
        make_pod(PLAIN, "zone", affinity=anti_affinity("topology.kubernetes.io/zone")),
        make_pod(PLAIN, "zone-generated-", affinity=anti_affinity("topology.kubernetes.io/zone")),
        make_pod(PLAIN, "host", affinity=anti_affinity("kubernetes.io/hostname")),
    ),
    "pod-node-selector": (
        make_pod(PLAIN, "conflict", nodeSelector={"pool": "other"}),
        make_pod(PLAIN, "more", nodeSelector={"other": "label"}),
        make_pod(ANNOTATED, "annotated", nodeSelector={"pool": "special"}, tolerations=tolerating("only")),
        make_pod(ANNOTATED, "annotated-conflict", nodeSelector={"disk": "hdd"}),
        make_pod(ANNOTATED, "annotated-generated-", nodeSelector={"other": "label"}),
    ),
    "pod-toleration-restriction": (
        make_pod(PLAIN, "not-tolerated", tolerations=tolerating("other")),
        make_pod(ANNOTATED, "only", tolerations=tolerating("only")),
        make_pod(ANNOTATED, "not-only", tolerations=tolerating("team")),
        make_pod(PLAIN, "burstable", containers=[using({"cpu": "1"})]),
    ),
    "default-toleration-seconds": (
        make_pod(
            PLAIN, "seconds", tolerations=tolerating("node.kubernetes.io/not-ready", effect="NoExecute")
        ),
    ),
    "extended-resource-toleration": (
        make_pod(PLAIN, "gpu", containers=[using(GPU, GPU)]),
        make_pod(PLAIN, "gpu-init", initContainers=[using(GPU, GPU, name="init")]),
    ),
    "limit-ranger": (
        make_pod(LIMITED, "defaults"),
        make_pod(LIMITED, "init", initContainers=[container("init")]),
        make_pod(LIMITED, "too-much", containers=[using({"cpu": "2"}, {"cpu": "3"})]),
        make_pod(LIMITED, "too-little", containers=[using({"memory": "1k"}, {"memory": "2k"})]),
        make_pod(LIMITED, "ratio", containers=[using({"memory": "10Mi"}, {"memory": "90Mi"})]),
        make_pod(
            LIMITED,
            "sum",
            containers=[
                using({"cpu": "0.9"}, {"cpu": "900m"}),
                using({"cpu": "0.9"}, {"cpu": "900m"}, name="b"),
            ],
        ),
        make_pod(
            LIMITED,
            "sidecar",
            containers=[using({"cpu": "600m"}, {"cpu": "600m"})],
            initContainers=[using({"cpu": "1"}, {"cpu": "1"}, name="s", restartPolicy="Always")],
        ),
        make_pod(LIMITED, "of-pod", resources={"limits": {"cpu": "4"}, "requests": {"cpu": "100m"}}),
        claim(LIMITED, "small", "500Mi"),
        claim(LIMITED, "right", "5Gi"),
        claim(LIMITED, "large", "11Gi"),
    ),
    "deny-service-external-ips": (
        create(of(PLAIN, "services"), "Service", "web", spec={"ports": [{"port": 80}], "clusterIP": "None"}),
        create(
            of(PLAIN, "services"),
            "Service",
            "open",
            spec={"ports": [{"port": 80}], "externalIPs": ["1.1.1.1"]},
        ),
        Operation(
            "PATCH",
            f"{of(PLAIN, 'services')}/web",
            {"spec": {"externalIPs": ["1.1.1.1"]}},
            "application/merge-patch+json",
        ),
    ),
    "certificate-subject-restriction": (
        csr("masters", "kubernetes.io/kube-apiserver-client", "developers", "system:masters"),
        csr("developers", "kubernetes.io/kube-apiserver-client", "developers"),
        csr("elsewhere", "example.com/signer", "system:masters"),
    ),
    "certificate-approval": (
        csr("to-approve", "denied.com/signer"),
        decided("to-approve", "approval", "Approved", STRANGER),
        decided("to-approve", "approval", "Approved", ADMIN),
        csr("may-approve", "allowed.com/signer"),
        decided("may-approve", "approval", "Approved", STRANGER),
    ),
    "certificate-signing": (
        csr("to-sign", "denied.com/signer"),
        decided("to-sign", "status", "Failed", STRANGER),
        csr("may-sign", "allowed.com/signer"),
        decided("may-sign", "status", "Failed", STRANGER),
    ),
    "default-ingress-class": (
        create(
            of(PLAIN, "ingresses", "networking.k8s.io/v1"),
            "Ingress",
            "none",
            spec={"rules": [{"host": "a.test"}]},
        ),
        create(
            of(PLAIN, "ingresses", "networking.k8s.io/v1"),
            "Ingress",
            "other",
            spec={"ingressClassName": "other", "rules": [{"host": "a.test"}]},
        ),
    ),
    "default-storage-class": (
        claim(PLAIN, "none", "1Gi"),
        claim(PLAIN, "empty", "1Gi", storageClassName=""),
        claim(PLAIN, "first", "1Gi", storageClassName="first"),
        claim(PLAIN, "second", "1Gi", storageClassName="second"),
    ),
    "persistent-volume-claim-resize": (
        grown(PLAIN, "second", "2Gi"),
        bound(PLAIN, "second"),
        grown(PLAIN, "second", "2Gi"),
        bound(PLAIN, "first"),
        grown(PLAIN, "first", "2Gi"),
        grown(PLAIN, "first", "1024Mi"),
    ),
    "priority": (
        make_pod(PLAIN, "urgent", priorityClassName="urgent"),
        make_pod(PLAIN, "critical", priorityClassName="system-node-critical"),
        make_pod(PLAIN, "no-such-priority", priorityClassName="none"),
        make_pod(PLAIN, "other-priority", priorityClassName="urgent", priority=1),
        make_pod(PLAIN, "other-policy", priorityClassName="urgent", preemptionPolicy="PreemptLowerPriority"),
        create(PRIORITY_CLASSES, "PriorityClass", "second", value=100, globalDefault=True),
        create(PRIORITY_CLASSES, "PriorityClass", "third", value=100),
        Operation(
            "PATCH", f"{PRIORITY_CLASSES}/third", {"globalDefault": True}, "application/merge-patch+json"
        ),
    ),
    "runtime-class": (
        make_pod(PLAIN, "sandboxed", runtimeClassName="sandbox"),
        make_pod(PLAIN, "same", runtimeClassName="sandbox", overhead={"cpu": "250m", "memory": "64Mi"}),
        make_pod(PLAIN, "other-overhead", runtimeClassName="sandbox", overhead={"cpu": "1"}),
        make_pod(PLAIN, "overhead", overhead={"cpu": "1"}),
        make_pod(PLAIN, "bare", runtimeClassName="bare"),
        make_pod(PLAIN, "bare-overhead", runtimeClassName="bare", overhead={"cpu": "1"}),
        make_pod(PLAIN, "no-such-class", runtimeClassName="none"),
        make_pod(PLAIN, "not-sandboxed", runtimeClassName="sandbox", nodeSelector={"sandbox": "no"}),
    ),
    "storage-object-in-use-protection": (
        create(
            "/api/v1/persistentvolumes",
            "PersistentVolume",
            "volume",
            spec={
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/tmp"},
            },
        ),
        create(
            VOLUME_CLASSES, "VolumeAttributesClass", "fast", driverName="example.com", parameters={"a": "b"}
        ),
    ),
    "taint-nodes-by-condition": (create("/api/v1/nodes", "Node", "new"),),
    "pod-topology-labels": (
        create(
            f"{of(PLAIN, 'pods')}/plain/binding",
            "Binding",
            "plain",
            target={"apiVersion": "v1", "kind": "Node", "name": "machine"},
        ),
        make_pod(PLAIN, "assigned", nodeName="machine"),
    ),
    "owner-references-permission-enforcement": (
        owned("owned", STRANGER),
        owned("blocking", STRANGER, block=True),
        owned("unknown", STRANGER, block=True, kind="Machine"),
        owned("by-admin", ADMIN, block=True),
        create(of(PLAIN, "configmaps"), "ConfigMap", "free"),
        owned("free", STRANGER, "PATCH"),
        owned("free", ADMIN, "PATCH"),
    ),
}
"""By name of the policy that decides; done one after another in both clusters."""


class _Dice:
    """Draws pods with fields that the controllers look at."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def _may(self, chance: float) -> bool:
        return self._random.random() < chance

    def _some(self, *values: Any) -> Any:
        return self._random.choice(values)

    def _resources(self) -> Json:
        found: Json = {}
        for field in self._random.sample(("requests", "limits"), self._random.randint(0, 2)):
            amounts = {}
            if self._may(0.7):
                amounts["cpu"] = self._some("1m", "0.05", "100m", "1", "2", "1e3m", "1500m")
            if self._may(0.7):
                amounts["memory"] = self._some("1k", "1Mi", "0.5Gi", "1G", "2Gi", "3Gi", "1.5Gi")
            found[field] = amounts
        if self._may(0.2):
            for field in ("requests", "limits"):
                found[field] = {**found.get(field, {}), **GPU}
        return found

    def _container(self, name: str, **fields: Any) -> Json:
        if self._may(0.7):
            fields["imagePullPolicy"] = self._some("Always", "Never", "IfNotPresent")
        return container(name, resources=self._resources(), **fields)

    def _tolerations(self) -> list[Json]:
        keys = ("team", "only", "other", "example.com/gpu", "node.kubernetes.io/unreachable")
        chosen = self._random.sample(keys, self._random.randint(1, 2))
        found = tolerating(*chosen, effect=self._some("NoSchedule", "NoExecute", "PreferNoSchedule"))
        return [*found, {"operator": "Exists"}] if self._may(0.2) else found

    def spec(self) -> Json:
        spec: Json = {"containers": [self._container(f"c{n}") for n in range(self._random.randint(1, 3))]}
        if self._may(0.4):
            restart = {"restartPolicy": "Always"} if self._may(0.4) else {}
            spec["initContainers"] = [self._container(f"i{n}", **restart) for n in range(2)]
        if self._may(0.2):
            key = self._some("kubernetes.io/hostname", "topology.kubernetes.io/zone")
            spec["affinity"] = anti_affinity(key)
        if self._may(0.3):
            labels = (("pool", "general"), ("pool", "special"), ("disk", "ssd"), ("disk", "hdd"), ("a", "b"))
            spec["nodeSelector"] = dict(self._random.sample(labels, self._random.randint(1, 2)))
        if self._may(0.3):
            spec["runtimeClassName"] = self._some("sandbox", "bare")
        if self._may(0.3):
            spec["priorityClassName"] = self._some("urgent", "normal", "none")
        if self._may(0.4):
            spec["tolerations"] = self._tolerations()
        return spec

    def namespace(self) -> str:
        return str(self._some(PLAIN, ANNOTATED, LIMITED))


def drawn(number: int) -> list[Operation]:
    """Return creations of *number* pods, each as a dry run."""
    dice = _Dice(20261123)
    return [
        Operation("POST", f"{of(dice.namespace(), 'pods')}?dryRun=All", pod(f"drawn-{index}", **dice.spec()))
        for index in range(number)
    ]
