"""The Pod that a workload would get at its next restart: after a rollout, or the end of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.pure.core.workload import owners_of
from gateway.pure.workloads.defaults import with_defaults
from gateway.pure.workloads.expansion import created_by
from gateway.pure.workloads.plug_ins import admitted, refused
from gateway.tools.audit.store import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.pure.workloads.expansion import Created
    from gateway.pure.workloads.known import KnownObjects, Refusal
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


def next_pod(
    workload: Json, known: KnownObjects, kubernetes: int
) -> tuple[Json, Created, list[Refusal]] | None:
    """Return the Pod that *workload* gets next, how it is created, and why plug-ins refuse it.

    It is as mutating webhooks see it: Kubernetes 1.*kubernetes* has filled it from what is *known* there.
    """
    made = created_by(workload, known.namespace, kubernetes)
    if not made or made[-1].object.get("kind") != "Pod":
        return None
    pod, refusals = admitted(made[-1].object, known)
    return pod, made[-1], refusals


def refusals_after(pod: Json, known: KnownObjects, kubernetes: int, *, has_changed: bool) -> list[Refusal]:
    """Return why plug-ins refuse *pod* after mutating webhooks, which *has_changed* says they changed."""
    if has_changed:
        # The API server sets defaults again in what webhooks changed, and calls its plug-ins again.
        pod, refusals = admitted(with_defaults(pod, kubernetes), known)
        if refusals:
            return refusals
    return refused(pod, known, kubernetes)


def findings_of_plug_ins(refusals: Iterable[Refusal]) -> list[Finding]:
    """Return *refusals* as findings."""
    return [Finding("denied", "", "", one.plug_in, "", "Enforce", one.message) for one in refusals]
