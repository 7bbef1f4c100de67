"""Requests for policies of the library that no recorded review is for, and what they find in a cluster."""

from __future__ import annotations

import base64
import subprocess
from typing import Any, Final

import orjson

from loadtest.reviews import POD

Json = dict[str, Any]

_INGRESSES: Final = 100
"""Of the cluster, so that ``unique-ingress-hosts`` has something to compare."""
_LABELS: Final = {"app": "web"}


def _request(
    group: str, plural: str, kind: str, found: Json, old: Json | None = None, version: str = "v1"
) -> Json:
    resource, _, sub_resource = plural.partition("/")
    return {
        "uid": "1",
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": resource},
        "subResource": sub_resource,
        "operation": "CREATE" if old is None else "UPDATE",
        "name": found["metadata"]["name"],
        "namespace": "default",
        "userInfo": {"username": "ann", "groups": ["developers"]},
        "object": found,
        "oldObject": old,
    }


def _pod(metadata: Json | None = None, **spec: object) -> Json:
    request: Json = orjson.loads(POD.read_bytes())["request"]
    request["object"]["metadata"].update(metadata or {})
    request["object"]["spec"].update(spec)
    return request


def _csr(group: str, status: Json | None = None) -> Json:
    openssl = ("openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", "/dev/null")
    made = subprocess.run(
        (*openssl, "-subj", f"/CN=ann/O={group}"), check=True, capture_output=True, timeout=60
    )
    spec = {
        "signerName": "kubernetes.io/kube-apiserver-client",
        "request": base64.b64encode(made.stdout).decode(),
    }
    return {"metadata": {"name": "ann"}, "spec": spec, "status": status or {}}


def _claim(size: str, class_name: str | None = "gold") -> Json:
    named = {} if class_name is None else {"storageClassName": class_name}
    spec = {"resources": {"requests": {"storage": size}}, **named}
    return {"metadata": {"name": "data"}, "spec": spec, "status": {"phase": "Bound"}}


def _ingress(host: str) -> Json:
    paths = [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web"}}}]
    rules = [{"host": host, "http": {"paths": paths}}]
    return {"metadata": {"name": host, "namespace": "shop"}, "spec": {"rules": rules}}


def requests() -> dict[str, Json]:
    """Return an AdmissionRequest for each such policy, by name."""
    csr, csrs = _csr("developers"), "certificates.k8s.io"
    kind = "CertificateSigningRequest"
    signed = {**csr, "status": {"certificate": "LS0t"}}
    claim = _request("", "persistentvolumeclaims", "PersistentVolumeClaim", _claim("2Gi"), _claim("1Gi"))
    workload = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 3, "template": {"metadata": {"labels": _LABELS}}},
    }
    owner = {"apiVersion": "v1", "kind": "ReplicationController", "name": "web", "uid": "1"}
    ingress = _request("networking.k8s.io", "ingresses", "Ingress", _ingress("new.example.com"))
    sandboxed = _pod(runtimeClassName="gvisor", overhead={"cpu": "250m"})
    service = {"metadata": {"name": "web"}, "spec": {"externalIPs": ["192.0.2.1"], "ports": [{"port": 80}]}}
    event = {"metadata": {"name": "web.1"}, "source": {"component": "kubelet"}, "reason": "Started"}
    priority_class = {"metadata": {"name": "urgent"}, "globalDefault": True, "value": 1}
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "node-1"}}
    return {
        "certificate-approval": _request(csrs, "certificatesigningrequests/approval", kind, csr, csr),
        "certificate-signing": _request(csrs, "certificatesigningrequests/status", kind, signed, csr),
        "certificate-subject-restriction": _request(csrs, "certificatesigningrequests", kind, csr),
        "default-ingress-class": ingress,
        "default-storage-class": _request(
            "", "persistentvolumeclaims", "PersistentVolumeClaim", _claim("1Gi", None)
        ),
        "deny-service-external-ips": _request("", "services", "Service", service),
        "event-rate-limit": _request("", "events", "Event", event),
        "owner-references-permission-enforcement": _pod(
            {"ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}
        ),
        "persistent-volume-claim-resize": claim,
        "pod-topology-labels": _request("", "pods/binding", "Binding", binding),
        "priority": _pod(priorityClassName="high", priority=None),
        "priority-validate": _request(
            "scheduling.k8s.io", "priorityclasses", "PriorityClass", priority_class
        ),
        "require-pod-disruption-budget": _request("apps", "deployments", "Deployment", workload),
        "runtime-class": sandboxed,
        "runtime-class-validate": sandboxed,
        "storage-object-in-use-protection": claim | {"operation": "CREATE", "oldObject": None},
        "unique-ingress-hosts": ingress,
    }


def lists() -> dict[str, list[Json]]:
    """Return the objects of the cluster, by the path of their list."""
    default = "is-default-class"
    topology = {"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "b"}
    return {
        "/api/v1/nodes": [{"metadata": {"name": "node-1", "labels": topology}}],
        "/apis/networking.k8s.io/v1/ingresses": [_ingress(f"{i}.example.com") for i in range(_INGRESSES)],
        "/apis/networking.k8s.io/v1/ingressclasses": [
            {"metadata": {"name": "nginx", "annotations": {f"ingressclass.kubernetes.io/{default}": "true"}}}
        ],
        "/apis/node.k8s.io/v1/runtimeclasses": [
            {"metadata": {"name": "gvisor"}, "overhead": {"podFixed": {"cpu": "250m"}}}
        ],
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets": [
            {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": _LABELS}}}
        ],
        "/apis/scheduling.k8s.io/v1/priorityclasses": [{"metadata": {"name": "high"}, "value": 1000}],
        "/apis/storage.k8s.io/v1/storageclasses": [
            {
                "metadata": {
                    "name": "gold",
                    "annotations": {f"storageclass.kubernetes.io/{default}": "true"},
                },
                "allowVolumeExpansion": True,
            }
        ],
    }


RESOURCES: Final[Json] = {
    "/api/v1": {
        "resources": [{"name": "replicationcontrollers", "namespaced": True, "kind": "ReplicationController"}]
    }
}
"""Discovery, for ``owner-references-permission-enforcement``."""
