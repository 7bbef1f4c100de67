"""What starts in a cluster, from its objects: workloads by their Pods, nodes, and the control plane.

Pods are collapsed by namespace, owner and labels, so that thousands of Pods give hundreds of subjects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gateway.config.kinds.namespace import KUBE_SYSTEM
from gateway.pure.core.service_accounts import CREATORS, service_account
from gateway.pure.core.workload import Owner, owners_of
from gateway.pure.workloads.default_rules import part, parts
from gateway.tools.deadlocks.model import Request, Subject, Tier
from gateway.tools.deadlocks.requests import (
    ANYBODY,
    SCHEDULER,
    api_server_starts,
    controllers_start,
    node_joins,
    node_user,
    request,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gateway.tools.deadlocks.model import Purpose

    Json = dict[str, Any]

_OF_INSTANCE: Final = frozenset(
    {
        *("pod-template-hash", "controller-revision-hash", "pod-template-generation"),
        *("statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"),
        *("controller-uid", "batch.kubernetes.io/controller-uid", "job-name"),
        *("batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index"),
        # Of the node to which a Pod is bound: kubernetes plugin/pkg/admission/podtopologylabels.
        *("topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
    }
)
"""Labels in which Pods of one workload differ."""
_MIRROR: Final = "kubernetes.io/config.mirror"
_CRITICAL: Final = 2_000_000_000
"""The least priority of ``system-cluster-critical`` and ``system-node-critical``."""
_CRITICAL_CLASSES: Final = ("system-cluster-critical", "system-node-critical")
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_RECOVERY: Final = frozenset({"argocd", "flux"})
"""Values of the label ``app.kubernetes.io/part-of``."""
_ISSUER: Final = "cert-manager"
"""Value of the label ``app.kubernetes.io/instance`` or ``…/name``."""


@dataclass(slots=True)
class ClusterObjects:
    """The objects of a cluster that the computation reads, as JSON."""

    configurations: Sequence[Json] = ()
    """Webhook configurations, mutating and validating."""
    namespaces: Sequence[Json] = ()
    pods: Sequence[Json] = ()
    nodes: Sequence[Json] = ()
    services: Sequence[Json] = ()
    priority_classes: Sequence[Json] = ()
    unread: str = ""
    """Which rights are missing. Empty if none."""


def subjects(found: ClusterObjects, gateways: Iterable[tuple[str, ...]]) -> list[Subject]:
    """Return everything that starts in the cluster *found*; *gateways* are the backends of gateways."""
    own = [one for one in gateways if len(one) > 1]
    priorities = {
        str(part(one, "metadata").get("name")): one.get("value", 0) for one in found.priority_classes
    }
    services = Services(found.services)
    result = [
        Subject(Tier.API_SERVER, "kube-apiserver", "", api_server_starts()),
        Subject(Tier.LEASES, "kube-controller-manager and kube-scheduler", "", controllers_start()),
        *_nodes(found.nodes),
        Subject(Tier.RECOVERY, "kubectl exec and delete in kube-system", KUBE_SYSTEM, tuple(_by_people())),
    ]
    rows: dict[tuple[Any, ...], list[Json]] = {}
    for pod in found.pods:
        if part(pod, "status").get("phase") not in ("Succeeded", "Failed"):
            rows.setdefault(_row(pod), []).append(pod)
    workloads = [_workload(pods, priorities, services, own) for pods in rows.values()]
    for namespace, name in own:
        if not services.chosen(namespace, name, workloads):
            workloads.append(_absent(services, namespace, name))
    return result + workloads


class Services:
    """The selectors of the Services of a cluster."""

    def __init__(self, found: Sequence[Json]) -> None:
        self._selectors: dict[str, dict[str, dict[str, str]]] = {}
        for one in found:
            metadata = part(one, "metadata")
            if selector := part(one, "spec", "selector"):
                of_namespace = self._selectors.setdefault(str(metadata.get("namespace")), {})
                of_namespace[str(metadata.get("name"))] = selector

    def selector(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the selector of the Service, empty if it has none or is not there."""
        return self._selectors.get(namespace, {}).get(name, {})

    def select(self, namespace: str, labels: Mapping[str, str]) -> list[str]:
        """Return the names of the Services in *namespace* that select Pods with *labels*."""
        return [
            name
            for name, selector in self._selectors.get(namespace, {}).items()
            if selector.items() <= labels.items()
        ]

    def chosen(self, namespace: str, name: str, among: Iterable[Subject]) -> list[Subject]:
        """Return the workloads of *among* that are behind the Service."""
        selector = self.selector(namespace, name)
        return [
            one
            for one in among
            if selector and one.pods and one.namespace == namespace and selector.items() <= one.labels.items()
        ]


def _row(pod: Json) -> tuple[Any, ...]:
    """Return what Pods have in common that are one row of the result."""
    metadata = part(pod, "metadata")
    return metadata.get("namespace"), owner_of(pod), frozenset(_labels(pod).items())


def owner_of(pod: Json) -> Owner:
    """Return the top workload that *pod* is of, such as the Deployment of its ReplicaSet, or itself."""
    owners = owners_of(pod)
    return owners[-1] if owners else Owner("", "Pod", str(part(pod, "metadata").get("name")))


def _labels(pod: Json) -> dict[str, str]:
    found = part(pod, "metadata", "labels")
    return {key: value for key, value in found.items() if key not in _OF_INSTANCE and isinstance(value, str)}


def _workload(
    pods: Sequence[Json],
    priorities: Mapping[str, Any],
    services: Services,
    gateways: Sequence[tuple[str, ...]],
) -> Subject:
    pod = pods[0]
    namespace = str(part(pod, "metadata").get("namespace") or "default")
    _, kind, name = owner_of(pod)
    labels, spec = _labels(pod), part(pod, "spec")
    is_static = kind == "Node" or _MIRROR in part(pod, "metadata", "annotations")
    if kind == "Node":
        kind, name = "static Pod", str(part(pod, "metadata").get("name"))
    behind = services.select(namespace, labels)
    tier = Tier.OTHER
    if any(of == namespace for of, *_ in gateways):
        tier = Tier.GATEWAY
    elif _is_node_component(kind, spec, priorities):
        tier = Tier.NODE_COMPONENTS
    elif _ISSUER in (labels.get("app.kubernetes.io/instance"), labels.get("app.kubernetes.io/name")):
        tier = Tier.GATEWAY
    elif labels.get("app.kubernetes.io/part-of") in _RECOVERY:
        tier = Tier.RECOVERY
    requests = _of_pod(pod, namespace, is_static=is_static, has_service=bool(behind))
    return Subject(
        tier,
        f"{kind} {namespace}/{name}",
        namespace,
        tuple(requests),
        len(pods),
        labels,
        is_on_host_network=spec.get("hostNetwork") is True,
        is_static=is_static,
    )


def _absent(services: Services, namespace: str, name: str) -> Subject:
    """Return the subject of a gateway that has no Pods at present."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-0", "controller": True}
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {**services.selector(namespace, name), "pod-template-hash": "0"},
            "ownerReferences": [owner],
        },
        "spec": {},
    }
    found = _workload([pod], {}, services, [(namespace, name)])
    return replace(found, title=f"Pods of Service {namespace}/{name}")


def _is_node_component(kind: str, spec: Json, priorities: Mapping[str, Any]) -> bool:
    """Whether Pods are written as those of network, DNS, storage and cloud controllers are."""
    name, priority = spec.get("priorityClassName"), spec.get("priority")
    if priority is None:
        priority = priorities.get(str(name), 0)
    if name in _CRITICAL_CLASSES or (isinstance(priority, int) and priority >= _CRITICAL):
        return True
    return kind == "DaemonSet" and spec.get("hostNetwork") is True and _tolerates_not_ready(spec)


def _tolerates_not_ready(spec: Json) -> bool:
    return any(
        one.get("operator") == "Exists"
        and one.get("key") in (None, "", _NOT_READY)
        and one.get("effect") in (None, "", "NoSchedule")
        for one in parts(spec, "tolerations")
    )


def _of_pod(pod: Json, namespace: str, *, is_static: bool, has_service: bool) -> Iterator[Request]:
    spec, labels = part(pod, "spec"), part(pod, "metadata", "labels")
    there: Json = {"namespace": namespace}
    owners = owners_of(pod)
    node = node_user(str(spec.get("nodeName") or "node"))
    created = _as_created(pod, namespace)
    if is_static:
        yield request(
            "CREATE",
            "",
            "pods",
            **there,
            name=str(part(pod, "metadata").get("name")),
            user=node,
            found=created,
            labels=labels,
            purpose="update",
        )
        return
    if owners and (top := owners[-1])[:2] in CREATORS:
        group, kind, name = top
        by, plural = _creator(top), f"{kind.lower()}s"
        yield request("UPDATE", group, f"{plural}/status", **there, name=name, user=by, purpose="update")
        if kind in ("DaemonSet", "StatefulSet"):
            yield request("CREATE", group, "controllerrevisions", **there, user=by, purpose="update")
        elif len(owners) > 1:
            # A Deployment starts its Pods without a new ReplicaSet; each run of a CronJob is a new Job.
            purpose: Purpose = "start" if kind == "CronJob" else "update"
            yield request("CREATE", group, f"{owners[0].kind.lower()}s", **there, user=by, purpose=purpose)
    yield request(
        "CREATE",
        "",
        "pods",
        **there,
        user=_creator(owners[0]) if owners else ANYBODY,
        found=created,
        labels=labels,
    )
    yield request("CREATE", "", "pods/binding", **there, name="pod", user=SCHEDULER)
    yield request("UPDATE", "", "pods/status", **there, name="pod", user=node, labels=labels)
    account_name = str(spec.get("serviceAccountName") or "default")
    if _has_token(spec):
        yield request("CREATE", "", "serviceaccounts/token", **there, name=account_name, user=node)
    if any("persistentVolumeClaim" in one for one in parts(spec, "volumes")):
        attacher = service_account("attachdetach-controller")
        yield request("CREATE", "storage.k8s.io", "volumeattachments", user=attacher)
        yield request("UPDATE", "storage.k8s.io", "volumeattachments/status", user=attacher)
    if has_service:
        slices = service_account("endpointslice-controller")
        for operation in ("CREATE", "UPDATE"):
            yield request(operation, "discovery.k8s.io", "endpointslices", **there, user=slices)
    yield request("DELETE", "", "pods", **there, name="pod", user=node, labels=labels, purpose="removal")
    yield request("CREATE", "", "pods/eviction", **there, name="pod", user=ANYBODY, purpose="removal")


def _creator(owner: Owner) -> tuple[str, tuple[str, ...]]:
    """Return who creates what belongs to *owner*."""
    account = CREATORS.get(owner[:2])
    return ANYBODY if account is None else service_account(account)


def _has_token(spec: Json) -> bool:
    """Whether the kubelet has to request a token before the containers start."""
    if not spec:
        return True
    return any(
        "serviceAccountToken" in source
        for volume in parts(spec, "volumes")
        for source in parts(part(volume, "projected"), "sources")
    )


def _as_created(pod: Json, namespace: str) -> Json:
    """Return *pod* as its controller creates it: without what is known only later."""
    metadata = {
        key: value
        for key, value in part(pod, "metadata").items()
        if key in ("annotations", "generateName", "labels", "name", "ownerReferences")
    }
    spec = {key: value for key, value in part(pod, "spec").items() if key != "nodeName"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "namespace": namespace},
        "spec": spec,
    }


def _nodes(found: Sequence[Json]) -> Iterator[Subject]:
    """Yield one subject for each set of labels, but for what is different on every node."""
    kinds: dict[frozenset[tuple[str, str]], int] = {}
    for one in found:
        labels = part(one, "metadata", "labels")
        key = frozenset(
            (name, str(value)) for name, value in labels.items() if not name.endswith("/hostname")
        )
        kinds[key] = kinds.get(key, 0) + 1
    for number, (key, count) in enumerate(kinds.items()):
        suffix = f" of kind {number + 1}" if len(kinds) > 1 else ""
        title = f"{count} node{'s' if count > 1 else ''}{suffix}"
        yield Subject(Tier.NODES, title, "", node_joins(dict(key)))
    if not kinds:
        yield Subject(Tier.NODES, "a node that joins", "", node_joins(None))


def _by_people() -> Iterator[Request]:
    there: Json = {"namespace": KUBE_SYSTEM, "user": ANYBODY, "name": "pod"}
    yield request("CONNECT", "", "pods/exec", **there)
    yield request("DELETE", "", "pods", **there)
