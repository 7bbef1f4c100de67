"""What policies for pods and their templates share: rules, and denials with the field of each problem."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.pods import pod_spec, pod_spec_of
from admission_gateway_worker.review import Cause, Denied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from admission_gateway_worker.pods import PodSpec
    from admission_gateway_worker.review import Review


def written(group: str, *resources: str, version: str = "v1") -> dict[str, Any]:
    """Return the entry of ``rules`` of a webhook for creates and updates of *resources*."""
    return {
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": list(resources),
    }


WORKLOADS: Final = (
    written("apps", "deployments", "replicasets", "statefulsets", "daemonsets"),
    written("batch", "jobs", "cronjobs"),
)
_MAX_CAUSES: Final = 1000
"""The gateway passes on as many. A user can write an object with some ten thousand."""
PODS_AND_TEMPLATES: Final = (
    written("", "pods", "pods/ephemeralcontainers", "pods/resize", "podtemplates", "replicationcontrollers"),
    *WORKLOADS,
)
"""Pods, and everything that has a template of pods."""
SCALABLE: Final = written("apps", "deployments", "deployments/scale", "statefulsets", "statefulsets/scale")
"""Workloads that have several replicas at the user's wish."""


def deny(causes: Iterable[Cause]) -> None:
    """Deny the request with the first ``_MAX_CAUSES`` of *causes*, if there are any.

    Raises:
        Denied: there is a cause; the message has those causes, with their fields: clients show it alone.
    """
    remaining = iter(causes)
    if found := tuple(islice(remaining, _MAX_CAUSES)):
        texts = [f"{each.field}: {each.message}" if each.field else each.message for each in found]
        if next(remaining, None) is not None:
            texts.append("and more")
        raise Denied("; ".join(texts), causes=found)


def deny_new(review: Review, problems: Callable[[dict[str, Any]], Iterable[Cause]]) -> None:
    """Deny the request with the *problems* of its object that its old object does not have.

    Thus a policy that is new in a cluster does not hinder other changes of the objects that are there. The
    field and the message of a problem are compared: a message has the value that is wrong, if there is one.

    Raises:
        Denied: there is such a problem.
    """
    causes = iter(problems(review.object))
    if (first := next(causes, None)) is None:
        return
    old = review.old_object if review.operation == "UPDATE" else None
    before = set(problems(old)) if isinstance(old, dict) else set()
    deny(each for each in chain((first,), causes) if each not in before)


def deny_new_in_pods(review: Review, problems: Callable[[PodSpec], Iterable[Cause]]) -> None:
    """Do the same with the *problems* of pod specs, if the request has one.

    Raises:
        Denied: there is such a problem.
    """
    if pod_spec(review) is not None:

        def of_object(found: dict[str, Any]) -> Iterable[Cause]:
            pod = pod_spec_of(review.kind, found)
            return () if pod is None else problems(pod)

        deny_new(review, of_object)


def replicas_of(workload: Mapping[str, Any], field: str = "replicas") -> int:
    """Return the number of replicas in *field*; in a Scale an absent one is 0, elsewhere the default is 1."""
    replicas = (workload.get("spec") or {}).get(field)
    if replicas is None:
        return 0 if workload.get("kind") == "Scale" else 1
    return int(replicas)


def long_running_containers(pod: PodSpec) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield path and container of those that run as long as the pod: no init containers, except sidecars."""
    for field in ("containers", "initContainers"):
        for index, container in enumerate(pod.spec.get(field) or ()):
            if field == "containers" or container.get("restartPolicy") == "Always":
                yield f"{pod.path}.{field}[{index}]", container
