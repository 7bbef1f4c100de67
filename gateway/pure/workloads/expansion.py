"""The objects that controllers create from a workload: its Pods, and what is between them.

A name that the API server makes up stays open: ``generateName`` has no ``name``, as mutating webhooks see it.
Hashes and uids are made from the names and the template. They are the same each time, but not the cluster's.

Source: k8s.io/kubernetes pkg/controller/controller_utils.go (GetPodFromTemplate), deployment/sync.go,
statefulset/stateful_set_utils.go, daemon/util/daemonset_util.go, job/job_controller.go and
indexed_job_utils.go, cronjob/utils.go; pkg/registry/batch/job/strategy.go (the labels of a Job's template).
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from gateway.pure.admission_policies.templates import pod_prefix
from gateway.pure.core.service_accounts import CREATORS, service_account
from gateway.pure.core.workload import TEMPLATE, TEMPLATES
from gateway.pure.workloads.default_rules import part, parts
from gateway.pure.workloads.defaults import NEWEST, kind_of, with_defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.pure.core.review import Json

_CRON_JOB: Final = ("spec", "jobTemplate")
_CLAIMS: Final = "volumeClaimTemplates"
_COPIED: Final = ("labels", "annotations", "finalizers")
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of hashes in names."""
_NODE: Final = "node"
"""The node of a DaemonSet's Pod."""
_MINUTES: Final = 29_000_000
"""The scheduled time of a CronJob's Job, in minutes since 1970."""
_SCHEDULED: Final = "2025-02-19T21:20:00Z"
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
_MAX_GENERATED_CHARS: Final = 58
"""Of a name that five characters are appended to (apiserver pkg/storage/names)."""
_REPLICA_SETS: Final = "deployment.kubernetes.io/"
_NOT_COPIED: Final = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        *(f"{_REPLICA_SETS}{name}" for name in ("revision", "revision-history")),
        *(f"{_REPLICA_SETS}{name}" for name in ("desired-replicas", "max-replicas")),
        "deprecated.deployment.rollback.to",
    }
)
_TOLERATED: Final = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)


@dataclass(frozen=True, slots=True)
class Created:
    """An object that a controller creates, as the API server decodes it: with its defaults."""

    object: Json
    user: str
    """Of the request. The controller's own, as in a cluster of kubeadm."""
    groups: tuple[str, ...]
    template: tuple[str, ...]
    """The path of the template in the workload."""
    is_guess: bool = False
    """The kind of the workload is not built in: something probably creates such a Pod."""


def created_by(found: Json, namespace: str, kubernetes: int = NEWEST) -> tuple[Created, ...]:
    """Return what controllers create from *found* in *namespace*, in order; nothing if it has no template.

    One Pod stands for all, also if there are to be none: if ``replicas`` is zero or a Job is suspended.
    """
    kind = kind_of(found)
    expand = _EXPANDED.get((kind.group, kind.kind))
    if expand is not None:
        made = expand(_Owner(with_defaults(found, kubernetes), namespace))
    elif kind.group and parts(part(found, "spec", "template", "spec"), "containers"):
        made = _guessed(_Owner(found, namespace))
    else:
        return ()
    return tuple(
        Created(with_defaults(one.object, kubernetes), one.user, one.groups, one.template, one.is_guess)
        for one in made
    )


def direct(found: tuple[Created, ...], owner: Json) -> list[Created]:
    """Return those of *found* that the controller of *owner* itself creates; the others come from these."""
    kinds = {one.object.get("kind") for one in found}
    return [one for one in found if _owner_kind(one.object) not in kinds - {owner.get("kind")}]


def _owner_kind(found: Json) -> object:
    owners = found.get("metadata", {}).get("ownerReferences") or [{}]
    return owners[0].get("kind")


class _Owner:
    """A workload: its name, and a reference to it."""

    def __init__(self, found: Json, namespace: str) -> None:
        self.found = found
        self.namespace = namespace
        self.spec = part(found, "spec")
        metadata = part(found, "metadata")
        name = metadata.get("name")
        if not isinstance(name, str) or not name:
            begin = metadata.get("generateName")
            name = f"{begin if isinstance(begin, str) else ''}{_hash(found)[:5]}"
        self.name: Final = name
        api_version, kind = found.get("apiVersion"), found.get("kind")
        uid = metadata.get("uid")
        if not isinstance(uid, str) or not uid:
            uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{api_version}/{kind}/{namespace}/{name}"))
        self.uid: Final = uid
        self.reference: Json = {
            "apiVersion": api_version,
            "kind": kind,
            "name": name,
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def _created(owner: _Owner, made: Json, template: tuple[str, ...] = TEMPLATE) -> Created:
    kind = kind_of(owner.found)
    return Created(made, *service_account(CREATORS[kind.group, kind.kind]), template)


def _pod(owner: _Owner, template: Json, **metadata: object) -> Json:
    """Return the Pod that *template* of *owner* describes. *metadata* takes precedence."""
    of_template = part(template, "metadata")
    copied = {each: of_template[each] for each in _COPIED if of_template.get(each)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": pod_prefix(owner.name),
            "namespace": owner.namespace,
            **copied,
            "ownerReferences": [owner.reference],
            **metadata,
        },
        "spec": dict(part(template, "spec")),
    }


def _labels(template: Json) -> Json:
    return part(template, "metadata", "labels")


def _replicas(owner: _Owner) -> tuple[Created, ...]:
    return (_created(owner, _pod(owner, part(owner.spec, "template"))),)


def _deployment(owner: _Owner) -> tuple[Created, ...]:
    spec, template = owner.spec, part(owner.spec, "template")
    digest = _hash(template)
    added = {"pod-template-hash": digest}
    labels = {**_labels(template), **added}
    template = {**template, "metadata": {**part(template, "metadata"), "labels": labels}}
    selector = part(spec, "selector")
    selector = {**selector, "matchLabels": {**part(selector, "matchLabels"), **added}}
    replicas = spec.get("replicas")
    annotations = part(owner.found, "metadata", "annotations")
    annotations = {name: value for name, value in annotations.items() if name not in _NOT_COPIED}
    annotations[f"{_REPLICA_SETS}revision"] = "1"
    if isinstance(replicas, int):
        surge = _surge(part(spec, "strategy"), replicas)
        annotations[f"{_REPLICA_SETS}desired-replicas"] = str(replicas)
        annotations[f"{_REPLICA_SETS}max-replicas"] = str(replicas + surge)
    made: Json = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{owner.name}-{digest}",
            "namespace": owner.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner.reference],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }
    if ready := spec.get("minReadySeconds"):
        made["spec"]["minReadySeconds"] = ready
    created = _created(owner, made)
    return (created, *_replicas(_Owner(made, owner.namespace)))


def _surge(strategy: Json, replicas: int) -> int:
    """Return how many Pods may exist beside *replicas* during an update."""
    if strategy.get("type") != "RollingUpdate" or replicas == 0:
        return 0
    surge = part(strategy, "rollingUpdate").get("maxSurge")
    if isinstance(surge, str) and surge[:-1].isdecimal() and surge.endswith("%") and len(surge) < 6:
        return -(-replicas * int(surge[:-1]) // 100)
    return surge if isinstance(surge, int) else 0


def _stateful_set(owner: _Owner) -> tuple[Created, ...]:
    spec, template = owner.spec, part(owner.spec, "template")
    start = part(spec, "ordinals").get("start")
    ordinal = start if isinstance(start, int) else 0
    name = f"{owner.name}-{ordinal}"
    labels = {
        **_labels(template),
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(ordinal),
        "controller-revision-hash": f"{owner.name}-{_hash(template)}",
    }
    pod = _pod(owner, template, name=name, labels=labels)
    claims, volumes, made = part(spec, "selector", "matchLabels"), [], []
    for index, claim in enumerate(parts(spec, _CLAIMS)):
        metadata = part(claim, "metadata")
        short = metadata.get("name", "")
        whole = {
            **metadata,
            "name": f"{short}-{name}",
            "namespace": owner.namespace,
            "labels": {**part(metadata, "labels"), **claims},
        }
        volumes.append({"name": short, "persistentVolumeClaim": {"claimName": whole["name"]}})
        one = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim, "metadata": whole}
        made.append(_created(owner, one, ("spec", _CLAIMS, str(index))))
    pod_spec = pod["spec"]
    known = [each["name"] for each in volumes]
    volumes += [each for each in parts(pod_spec, "volumes") if each.get("name") not in known]
    if volumes:
        pod_spec["volumes"] = volumes
    pod_spec["hostname"] = name
    if service := spec.get("serviceName"):
        pod_spec["subdomain"] = service
    return (*made, _created(owner, pod))


def _daemon_set(owner: _Owner) -> tuple[Created, ...]:
    template = part(owner.spec, "template")
    labels = {
        **_labels(template),
        "controller-revision-hash": _hash(template),
        "pod-template-generation": "1",
    }
    pod = _pod(owner, template, labels=labels)
    spec = pod["spec"]
    tolerated = [*_TOLERATED]
    if spec.get("hostNetwork") is True:
        tolerated.append(("network-unavailable", "NoSchedule"))
    tolerations = parts(spec, "tolerations")
    for name, effect in tolerated:
        one = {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
        parts_of_one = ("key", "operator", "effect", "value")
        same = [
            all((each.get(of) or "") == (one.get(of) or "") for of in parts_of_one) for each in tolerations
        ]
        if any(same):
            tolerations = [one if is_same else each for each, is_same in zip(tolerations, same, strict=True)]
        else:
            tolerations = [*tolerations, one]
    spec["tolerations"] = tolerations
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [_NODE]}]}
    affinity = part(spec, "affinity")
    of_nodes = part(affinity, "nodeAffinity")
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec["affinity"] = {**affinity, "nodeAffinity": {**of_nodes, **required}}
    return (_created(owner, pod),)


def _job(owner: _Owner, path: tuple[str, ...] = TEMPLATE) -> tuple[Created, ...]:
    spec, template = owner.spec, part(owner.spec, "template")
    metadata = part(template, "metadata")
    labels = dict(_labels(template))
    if spec.get("manualSelector") is not True:
        own = (("job-name", owner.name), ("controller-uid", owner.uid))
        for name, value in own:
            labels.setdefault(name, value)
            labels.setdefault(f"batch.kubernetes.io/{name}", value)
    tracking = "batch.kubernetes.io/job-tracking"
    found = metadata.get("finalizers")
    finalizers = [*found] if isinstance(found, list) else []
    changed: dict[str, object] = {
        "labels": labels,
        "finalizers": finalizers if tracking in finalizers else [*finalizers, tracking],
    }
    if spec.get("completionMode") == "Indexed":
        labels[_INDEX] = "0"
        changed["annotations"] = {**part(metadata, "annotations"), _INDEX: "0"}
        changed["generateName"] = f"{owner.name[: _MAX_GENERATED_CHARS - 3]}-0-"
    pod = _pod(owner, template, **changed)
    if spec.get("completionMode") == "Indexed":
        pod["spec"] = _indexed(pod["spec"], f"{owner.name}-0")
    return (_created(owner, pod, path),)


def _indexed(spec: Json, hostname: str) -> Json:
    variable = {
        "name": _INDEX_VARIABLE,
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{_INDEX}']"}},
    }
    made = {**spec, "hostname": hostname}
    for field in ("initContainers", "containers"):
        changed = []
        for container in parts(spec, field):
            known = parts(container, "env")
            is_set = any(each.get("name") == _INDEX_VARIABLE for each in known)
            changed.append(container if is_set else {**container, "env": [*known, variable]})
        if changed:
            made[field] = changed
    return made


def _cron_job(owner: _Owner) -> tuple[Created, ...]:
    template = part(owner.spec, "jobTemplate")
    of_template = part(template, "metadata")
    annotations = {
        **part(of_template, "annotations"),
        "batch.kubernetes.io/cronjob-scheduled-timestamp": _SCHEDULED,
    }
    metadata: Json = {
        "name": f"{owner.name}-{_MINUTES}",
        "namespace": owner.namespace,
        "annotations": annotations,
        "ownerReferences": [owner.reference],
    }
    if labels := part(of_template, "labels"):
        metadata["labels"] = labels
    made: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": part(template, "spec"),
    }
    created = _created(owner, made, _CRON_JOB)
    job = _Owner(with_defaults(made), owner.namespace)
    return (created, *_job(job, TEMPLATES["batch", "CronJob"]))


def _guessed(owner: _Owner) -> tuple[Created, ...]:
    """A Pod of a workload that is not built in, created by a controller in its namespace."""
    pod = _pod(owner, part(owner.spec, "template"))
    return (Created(pod, *service_account("controller", owner.namespace), TEMPLATE, is_guess=True),)


_EXPANDED: Final[Mapping[tuple[str, str], Callable[[_Owner], tuple[Created, ...]]]] = {
    ("", "ReplicationController"): _replicas,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replicas,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "CronJob"): _cron_job,
    ("batch", "Job"): _job,
}
"""By group and kind."""


def _hash(found: Json) -> str:
    """Return ten characters that depend on *found*, as Kubernetes appends them to names."""
    digest = blake2b(json.dumps(found, default=str, sort_keys=True).encode()).digest()
    return "".join(_ALPHABET[each % len(_ALPHABET)] for each in digest[:10])
