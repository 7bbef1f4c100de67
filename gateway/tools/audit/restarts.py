"""The Pod that a workload would get at its next restart: after a rollout, or the end of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.pure.core.workload import owners_of
from gateway.pure.workloads.expansion import created_by
from gateway.pure.workloads.known import KnownObjects
from gateway.pure.workloads.plug_ins import admitted

if TYPE_CHECKING:
    from gateway.pure.workloads.expansion import Created
    from gateway.tools.replay.cluster import ListedKind

    Json = dict[str, Any]

WORKLOADS: Final = {
    ("", "ReplicationController"),
    *(("apps", kind) for kind in ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")),
    *(("batch", kind) for kind in ("CronJob", "Job")),
}
"""Group and kind of what Kubernetes' own controllers make Pods of."""
_ENDED: Final = ("Complete", "Failed")
"""Conditions of a Job that gets no Pods any more."""


def is_workload(kind: ListedKind) -> bool:
    """Whether controllers make Pods of objects of *kind*."""
    return (kind.group, kind.kind) in WORKLOADS


def is_part(workload: Json) -> bool:
    """Whether *workload* belongs to another one, such as the ReplicaSet of a Deployment."""
    owners = owners_of(workload)
    return bool(owners) and owners[0][:2] in WORKLOADS


def is_running(workload: Json) -> bool:
    """Whether *workload* gets Pods: not without replicas, suspended, or a Job that has ended."""
    spec, status = workload.get("spec"), workload.get("status")
    if not isinstance(spec, dict) or spec.get("replicas") == 0 or spec.get("suspend") is True:
        return False
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return not any(
        isinstance(one, dict) and one.get("type") in _ENDED and one.get("status") == "True"
        for one in (conditions if isinstance(conditions, list) else ())
    )


def next_pod(workload: Json, namespace: str) -> tuple[Json, Created] | None:
    """Return the Pod that *workload* gets next as mutating webhooks see it, and how it is created."""
    made = created_by(workload, namespace)
    if not made or made[-1].object.get("kind") != "Pod":
        return None
    pod, _ = admitted(made[-1].object, KnownObjects(namespace))
    return pod, made[-1]
